"""Tests of a provider with a second source: its metrics are passed on, and its failures do not matter."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from support.waiting import LIMIT_SECONDS

from runtime.http.gather import Deadline
from watcher.doctor.examination import examine
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.findings import Kind
from watcher.model import Metric, NodeMetrics, Window
from watcher.pipeline.factory import open_watcher
from watcher.pipeline.watcher import Watcher
from watcher.providers.base import Check, Fetched, Sample
from watcher.providers.corroborated import Corroborated
from watcher.providers.sampled import Sampled
from watcher.settings import FallbackSettings, ProviderSettings, QualitySettings, Settings, WatchSettings
from watcher.store import Store

WINDOW = Window("5m", 0, 300)


class Scripted:
    """Provider that returns one value of node ``a``, fails, or is slow."""

    def __init__(self, value: float = 0, failure: str = "", seconds: float = 0, source: str = "") -> None:
        self.value, self.failure, self.seconds, self.source = value, failure, seconds, source
        self.asked: list[str] = []
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        """Return whether the provider was closed."""
        return self._closed.is_set()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the scripted result."""
        self.asked.append(window.duration)
        self._closed.wait(self.seconds)
        if self.failure:
            raise ProviderUnavailable(self.failure)
        return Fetched({"a": NodeMetrics((Metric("cpu", "CPU", "AVG", "5m", self.value),))}, source=self.source)

    def check(self) -> Iterator[Check]:
        """Yield one step."""
        yield Check("ask", ok=not self.failure, message=self.failure)

    def close(self) -> None:
        """Record the call; it ends a slow fetch."""
        self._closed.set()


class Hanging:
    """Provider that never returns a sample."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def sample(self, deadline: Deadline) -> Mapping[str, Sample]:
        """Wait until the end of the test."""
        self.released.wait(deadline.remaining_seconds())
        raise ProviderUnavailable("no answer")

    def check(self) -> Iterator[Check]:
        """Yield nothing."""
        yield from ()


def corroborated(first: Scripted, second: object) -> Corroborated:
    """Return a provider with a second source for windows of 5 minutes."""
    return Corroborated(("A", first), ("B", second), "5m")  # type: ignore[arg-type]


def test_second_source_is_added_for_one_window() -> None:
    """The result has the second source's metrics for one window; for other windows it is not queried."""
    first, second = Scripted(10), Scripted(90)
    both = corroborated(first, second)
    fetched = both.fetch(WINDOW, Deadline.after(5))
    assert (fetched.nodes["a"].metrics[0].value, fetched.second_source["a"].metrics[0].value) == (10, 90)
    assert not both.fetch(Window("15m", 0, 900), Deadline.after(5)).second_source
    assert second.asked == ["5m"]
    both.close()
    assert (first.closed, second.closed) == (True, True)


@pytest.mark.parametrize("options", [{"failure": "it is down"}, {"seconds": 60}])
def test_second_source_may_fail(options: dict[str, Any]) -> None:
    """The first provider's result is the same, without findings, if the second source fails or is late."""
    second = Scripted(90, **options)
    with closing(second):
        fetched = corroborated(Scripted(10), second).fetch(WINDOW, Deadline.after(0.5))
    assert (fetched.nodes["a"].metrics[0].value, fetched.second_source, fetched.findings) == (10, {}, ())


def test_second_source_is_not_a_fallback() -> None:
    """If the first provider fails, the second source does not replace it."""
    with pytest.raises(ProviderError, match="it is down"):
        corroborated(Scripted(failure="it is down"), Scripted(90)).fetch(WINDOW, Deadline.after(5))


def test_source_is_not_compared_with_itself() -> None:
    """If the first provider fell back to the second source, there is no comparison."""
    assert not corroborated(Scripted(10, source="B"), Scripted(10)).fetch(WINDOW, Deadline.after(5)).second_source


def test_missing_samples_do_not_delay_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampled second source never delays a fetch."""
    monkeypatch.setattr("watcher.providers.sampled._CLOSE_SECONDS", 0.1)
    store = Store(None, keep_hours=1, max_megabytes=10)
    hanging = Hanging()
    second = Sampled(hanging, WatchSettings(fetch_timeout_seconds=2 * LIMIT_SECONDS), store, source="B")
    both = corroborated(Scripted(10), second)
    began = time.monotonic()
    assert not both.fetch(WINDOW, Deadline.after(30)).second_source
    assert time.monotonic() - began < LIMIT_SECONDS, "it does not wait as long as a sample may take"
    both.close()
    hanging.released.set()
    store.close()


@pytest.mark.parametrize(
    ("where", "provider", "quality", "second"),
    [
        ("10.0.0.1", "Prometheus", "auto", "KubernetesMetricsServer"),
        ("10.0.0.1", "KubernetesMetricsServer", "auto", None),
        ("10.0.0.1", "Prometheus", "off", None),
        ("", "Prometheus", "auto", None),
        ("", "Prometheus", "fallback", "Fake"),
    ],
)
def test_choice_of_the_second_source(
    monkeypatch: pytest.MonkeyPatch, where: str, provider: str, quality: str, second: str | None
) -> None:
    """In a cluster the metrics server corroborates, unless it is the provider itself or the setting says otherwise."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", where)
    settings = Settings(
        provider=ProviderSettings(name=provider),
        fallback=FallbackSettings(providers=[ProviderSettings(name="Fake")]),
        quality=QualitySettings(corroborate=quality),
    )
    found = settings.corroborating()
    assert (found and found.provider.name) == second


class Cluster:
    """Provider of six nodes with configurable values."""

    def __init__(self, **values: float) -> None:
        self.values = values

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the configured values."""
        return Fetched(
            {
                name: NodeMetrics((Metric("cpu", "CPU", "AVG", window.duration, value),))
                for name, value in self.values.items()
            }
        )

    def check(self) -> Iterator[Check]:
        """Yield nothing."""
        yield from ()


def test_watcher_marks_contradicted_nodes() -> None:
    """A node that the second source contradicts for several fetches is served with a mark in all windows."""
    true = {f"n{number}": 40.0 + number for number in range(6)}
    second = Cluster(**true)
    both = Corroborated(("A", Cluster(**true | {"n3": 4.0})), ("B", second), "5m")
    now = 1_700_000_000.0
    store = Store(None, keep_hours=1, max_megabytes=10)
    watcher = Watcher(both, store, WatchSettings(), source="A", clock=lambda: now)
    for _ in range(4):
        assert watcher.fetch_once()
        now += 60
    (found,) = [finding for finding in watcher.findings() if finding.kind is Kind.DISAGREEMENT]
    assert (found.node, found.action, found.since) == ("n3", "marked", 1_700_000_000)
    served = watcher.published("15m").metrics.data
    assert [name for name, node in served.items() if node.metadata.get("suspect") == "disagreement"] == ["n3"]
    assert served["n3"].metrics[0].value == 4.0
    watcher.stop()


def test_factory_builds_the_second_source() -> None:
    """With two providers of one name and corroborate = fallback, the watcher fetches metrics."""
    settings = Settings(
        provider=ProviderSettings(name="Fake"),
        fallback=FallbackSettings(providers=[ProviderSettings(name="Fake")]),
        quality=QualitySettings(corroborate="fallback"),
    )
    watcher = open_watcher(settings, None)
    assert watcher.fetch_once()
    watcher.stop()


def test_watcher_starts_without_the_metrics_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without access to the cluster's API, metrics are fetched without comparison, and the doctor reports it."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    settings = Settings(provider=ProviderSettings(name="Fake"))
    watcher = open_watcher(settings, None)
    assert watcher.fetch_once()
    watcher.stop()
    (told,) = [check for check in examine(settings) if check.step == "corroborate"]
    assert told.ok
    assert "KubernetesMetricsServer" in told.message
