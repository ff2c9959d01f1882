"""LibraryClient, and its equality with ServiceClient."""

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from support.servers import served_app
from support.workload_rounds import measured

from client import (
    BadSettings,
    LibraryClient,
    NoMetrics,
    ServiceClient,
    StaleMetrics,
    UnknownNode,
    UnknownWindow,
    connect,
)
from watcher.api.app import create_app
from watcher.errors import ProviderUnavailable
from watcher.loop import Loop
from watcher.model import Metric, NodeMetrics, Window
from watcher.pipeline import factory
from watcher.providers.base import Fetched
from watcher.settings import ProviderSettings, Settings, WatchSettings
from watcher.store import Store
from watcher.telemetry import WatcherTelemetry


class Provider:
    """Provider of three nodes with values that the wire format rounds; fails for the given windows."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing

    def fetch(self, window: Window, deadline: object) -> Fetched:
        """Return the nodes, or fail."""
        if window.duration in self.failing:
            raise ProviderUnavailable("the source is down")
        return Fetched(
            {
                name: NodeMetrics(
                    (
                        Metric("cpu", "CPU", "AVG", window.duration, 100 / 3),
                        Metric("cpu", "CPU", "STD", window.duration, 1e-13),
                    ),
                    tags={"smoothing": "5m"},
                    metadata={"coverage": 0.5},
                )
                for name in ("node-1", "health", "NodeMetricsMap")
            }
        )

    def check(self):
        """Yield nothing."""
        return iter(())


@pytest.fixture
def both():
    """Return a function that opens a library client and a service client of one watcher."""
    with ExitStack() as stack:

        def open_both(*failing: str) -> tuple[LibraryClient, ServiceClient]:
            library = stack.enter_context(LibraryClient(Settings(), provider=Provider(*failing)))
            library._watcher.wait_for_first_fetch(5)
            url = stack.enter_context(served_app(create_app(library._watcher, WatcherTelemetry())))
            return library, stack.enter_context(ServiceClient(url, retries=0))

        yield open_both


@pytest.mark.parametrize("failing", [(), ("15m",), ("15m", "10m")])
def test_both_modes_return_equal_objects(both, failing):
    """All nodes and one node are equal in both modes, also with a shorter window."""
    library, service = both(*failing)
    assert library.metrics() == service.metrics()
    assert library.metrics("5m") == service.metrics("5m")
    for node in ("node-1", "health", "NodeMetricsMap"):
        assert library.node_metrics(node) == service.node_metrics(node)
    expected = {"15m": "shorter_window"} if failing else {}
    assert library.metrics().data["node-1"].metadata.get("grade") == expected.get("15m")


@pytest.mark.parametrize(
    ("failing", "call", "expected"),
    [
        ((), lambda client: client.node_metrics("\udcff"), UnknownNode),
        ((), lambda client: client.metrics("\udcff"), UnknownWindow),
        (("15m", "10m", "5m"), lambda client: client.metrics(), NoMetrics),
        (("15m",), lambda client: client.metrics("15m"), NoMetrics),
    ],
)
def test_both_modes_raise_the_same_exception(both, failing, call, expected):
    """Both modes raise the same exception."""
    for client in both(*failing):
        with pytest.raises(expected) as caught:
            call(client)
        assert type(caught.value) is expected


@pytest.mark.parametrize("failing", [(), ("10m",)])
def test_both_modes_return_the_same_windows(both, failing):
    """Both modes return the windows that have metrics."""
    expected = tuple(window for window in ("15m", "10m", "5m") if window not in failing)
    assert [client.windows() for client in both(*failing)] == [expected, expected]


def test_both_modes_return_the_same_health(both):
    """Both modes return the same reasons of an unhealthy watcher."""
    library, service = both("5m")
    assert library.health() == service.health()
    assert "the source is down" in library.health()[0]


def test_two_clients_in_one_process_are_independent():
    """Two embedded watchers serve the metrics of their own providers."""
    with (
        LibraryClient(Settings(), provider=Provider()) as one,
        LibraryClient(Settings(), provider=Provider("15m")) as two,
    ):
        assert one.metrics().window.duration == "15m"
        assert two.metrics().window.duration == "10m"


def test_expired_metrics_are_stale(tmp_path):
    """Expired metrics of an earlier run raise StaleMetrics while the provider is down."""
    settings = Settings(watch=WatchSettings(expiry_seconds=300))
    path = tmp_path / "kept.sqlite"
    with LibraryClient(settings, provider=Provider(), store_path=path) as client:
        assert client.metrics().data
    with LibraryClient(settings, provider=Provider("15m", "10m", "5m"), store_path=path) as client:
        assert client.metrics().data
        client._watcher._clock = lambda: client._watcher.newest().timestamp + 301
        with pytest.raises(StaleMetrics):
            client.metrics()


def test_a_hanging_provider_does_not_delay_fresh_metrics(tmp_path, monkeypatch):
    """Fresh metrics of an earlier run are returned at once; without them the client waits for the first fetch."""
    path, release = tmp_path / "kept.sqlite", threading.Event()

    class Hanging(Provider):
        def fetch(self, window: Window, deadline: object) -> Fetched:
            release.wait(30)
            return super().fetch(window, deadline)

    with LibraryClient(Settings(), provider=Provider(), store_path=path) as client:
        kept = client.metrics()
    with LibraryClient(Settings(), provider=Hanging(), store_path=path) as client:
        with monkeypatch.context() as patch:
            patch.setattr(client._watcher, "wait_for_first_fetch", lambda _: pytest.fail("it waits"))
            assert client.metrics() == kept
            assert client.node_metrics("node-1").data["node-1"] == kept.data["node-1"]
            assert client.health() == ("nothing was fetched since the start",)
        release.set()
    release.clear()
    with LibraryClient(Settings(), provider=Hanging()) as client:
        waits = []
        patient = client._watcher.wait_for_first_fetch
        monkeypatch.setattr(
            client._watcher,
            "wait_for_first_fetch",
            lambda seconds: (waits.append(seconds), release.set(), patient(seconds)),
        )
        assert client.metrics().data == kept.data
        assert waits == [Settings().watch.fetch_timeout_seconds]


def test_connect_with_an_address_returns_a_service_client():
    """connect() with an address returns a ServiceClient, and rejects settings."""
    with connect("http://127.0.0.1:1") as client:
        assert isinstance(client, ServiceClient)
    with pytest.raises(TypeError, match="settings"):
        connect("http://127.0.0.1:1", settings=Settings())


@pytest.mark.parametrize("form", [str, Path])
def test_settings_are_loaded_from_a_file(tmp_path, form):
    """A settings file is loaded; a missing or invalid one is an error with its name."""
    file = tmp_path / "s.toml"
    file.write_text('[provider]\nname = "Host"\n')
    with connect(settings=form(file)) as client:
        assert client.source == "Host"
    file.write_text('[provider]\nname = "Hots"\n')
    with pytest.raises(BadSettings, match="Hots"):
        connect(settings=form(file))
    with pytest.raises(BadSettings, match=r"none\.toml"):
        connect(settings=form(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": {"provider": {"name": "Host"}}}, "settings: must be Settings or the path of a .* got a dict"),
        ({"provider": "Host"}, "provider: must be a provider, with a method fetch or sample, got a str"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments, message):
    """The error names the argument, and what it may be."""
    with pytest.raises(TypeError, match=message):
        connect(**arguments)


def test_settings_are_loaded_from_the_environment(monkeypatch):
    """Without settings, the service's environment variables apply, and errors name them."""
    monkeypatch.setenv("METRICS_PROVIDER_NAME", "Promtheus")
    with pytest.raises(BadSettings, match=r"METRICS_PROVIDER_NAME.*Prometheus"):
        connect()


def test_workloads_are_equal_in_both_modes(both):
    """Both modes return the learned table, the same object until the next round."""
    library, service = both(Provider())
    library._watcher.workloads.observe(*measured(0))
    first = service.workloads()
    assert library.workloads().workloads == first.workloads
    assert np.array_equal(library.workloads().use, first.use)
    assert service.workloads() is first
    library._watcher.workloads.observe(*measured(1))
    assert service.workloads() is not first
    assert np.array_equal(library.workloads().use, service.workloads().use)


@pytest.mark.parametrize(("part", "method"), [(factory.Watcher, "__init__"), (Loop, "start")])
def test_a_client_that_cannot_start_leaves_nothing_open(tmp_path, monkeypatch, part, method):
    """The store is closed and unlocked, and its provider closed, so that a further attempt works."""
    closed = []

    def close(self):
        closed.append(self)

    def fail(*args, **kwargs):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("watcher.providers.fake.FakeProvider.close", close, raising=False)
    monkeypatch.setattr(part, method, fail)
    # The error keeps alive what its traceback refers to: nothing is closed by the garbage collector.
    with pytest.raises(RuntimeError, match="thread") as caught:
        LibraryClient(Settings(provider=ProviderSettings(name="Fake")), store_path=tmp_path / "store.sqlite")
    assert len(closed) == 1
    again = Store(tmp_path / "store.sqlite")
    again.close()
    assert again.failure == ""
    assert caught.tb is not None
