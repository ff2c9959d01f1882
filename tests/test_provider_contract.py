"""One suite over all providers: what a fetch returns, whatever the source does."""

import contextlib
import importlib.util
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.provider_contract import STEP_SECONDS, Harness, Series
from support.servers import reply, serving

from watcher import duration
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.model import Window
from watcher.providers.base import Fetched, WindowProvider, open_provider
from watcher.quality import analyzer
from watcher.transport.gather import Deadline

FILES = sorted((Path(__file__).parent / "support").glob("harness_*.py"))
MINUTES = 20


def load(file: Path) -> Harness:
    """Import a harness by its file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    harness: Harness = module.Harness()
    return harness


@pytest.fixture(params=FILES, ids=lambda file: file.stem.removeprefix("harness_"))
def harness(request: pytest.FixtureRequest) -> Harness:
    """Every provider in turn."""
    return load(request.param)


def series(seed: int) -> Series:
    """Return 20 minutes of plausible samples on whole minutes, which are what some sources keep, up to the last one."""
    random = np.random.default_rng(seed)
    now = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    times = np.arange(now - (MINUTES - 1) * STEP_SECONDS, now + 1, STEP_SECONDS)
    load = np.clip(random.uniform(10, 80) + random.normal(0, 5, (2, len(times))), 0, 100)
    return Series(times, load[0], load[1])


def window(name: str, nodes: dict[str, Series]) -> Window:
    """Return the window that ends half a step after the newest sample: no sample lies on either of its ends.

    Sources differ in whether a window's ends belong to it.
    """
    end = int(max(each.times[-1] for each in nodes.values())) + STEP_SECONDS // 2
    return Window(name, end - duration.seconds(name), end)


def values(fetched: Fetched) -> dict[tuple[str, str, str], float]:
    """Return what would be published, by node, type and operator."""
    kept, _ = analyzer.clean(fetched.nodes, "15m")
    found: dict[tuple[str, str, str], float] = {}
    for node, metrics in kept.items():
        for metric in metrics.metrics:
            key = (node, metric.type, metric.operator)
            assert key not in found, f"{key} comes twice"
            found[key] = metric.value
    return found


@pytest.mark.parametrize("name", ["15m", "10m", "5m"])
def test_average_and_deviation_are_numpys(harness: Harness, name: str):
    """AVG and STD (population) of every window equal numpy's over the same samples."""
    nodes = {f"node-{number}": series(number) for number in range(3)}
    asked = window(name, nodes)
    with harness.running(nodes) as source:
        found = values(source.fetch(asked))
    for node, samples in nodes.items():
        inside = (samples.times > asked.start) & (samples.times <= asked.end)
        for type_, all_values in (("CPU", samples.cpu), ("Memory", samples.memory)):
            expected = all_values[inside]
            assert found[node, type_, "AVG"] == pytest.approx(expected.mean(), rel=harness.tolerance)
            assert found[node, type_, "STD"] == pytest.approx(expected.std(), rel=harness.tolerance, abs=1e-9)


def test_nodes_come_and_go(harness: Harness):
    """A node without samples in the window is not there; others are, under their own names, dots and all."""
    nodes = {"node-1": series(1), "node-2.example.com": series(2), "node-2.example.org": series(3)}
    gone = series(4)
    nodes["gone"] = Series(gone.times - 3600, gone.cpu, gone.memory)
    with harness.running(nodes) as source:
        fetched = source.fetch(window("15m", {"node-1": nodes["node-1"]}))
    assert set(fetched.nodes) == {"node-1", "node-2.example.com", "node-2.example.org"}


def test_duplicated_series_are_merged(harness: Harness):
    """Two series of one node give one value an operator, and a finding says so."""
    if not harness.duplicates:
        assert harness.name in {"Fake", "Host", "KubernetesMetricsServer"}  # these sources name a node once
        return
    nodes = {"node-1": series(1), "node-2": series(2)}
    with harness.running(nodes, duplicated="node-1") as source:
        fetched = source.fetch(window("15m", nodes))
    doubled = nodes["node-1"]
    inside = doubled.times > window("15m", nodes).start
    assert values(fetched)["node-1", "CPU", "AVG"] == pytest.approx(doubled.cpu[inside].mean(), rel=1e-6)
    assert [finding.node for finding in fetched.findings if finding.kind == "duplicate"]


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -50.0, 1e308])
def test_poisoned_series_cost_only_themselves(harness: Harness, poison: float):
    """Whatever one node's samples are, nothing outside 0 to 100 is published and the other nodes are served."""
    good, bad = series(1), series(2)
    bad = Series(bad.times, np.full_like(bad.cpu, poison), bad.memory)
    with harness.running({"good": good, "bad": bad}) as source:
        found = values(source.fetch(window("15m", {"good": good})))
    assert {("good", "CPU", "AVG"), ("good", "CPU", "STD"), ("good", "Memory", "AVG")} <= found.keys()
    assert all(0 <= value <= 100 for value in found.values())


def test_no_node_is_an_error_or_empty(harness: Harness):
    """A source without any node never yields metrics: it is a ProviderError or an empty fetch."""
    nodes = {"elsewhere": series(1)}
    elsewhere = {name: Series(each.times - 7200, each.cpu, each.memory) for name, each in nodes.items()}
    with harness.running(elsewhere) as source:
        fetched = Fetched({})
        with contextlib.suppress(ProviderError):
            fetched = source.fetch(window("15m", nodes))
    assert not fetched.nodes


@contextmanager
def answering(status: int, body: bytes = b"", **headers: str) -> Iterator[str]:
    """Run a server that gives one answer to everything."""
    with serving(lambda handler: reply(handler, body, status, **headers)) as fake:
        yield fake.url


@contextmanager
def trickling() -> Iterator[str]:
    """Run a server that sends a byte every 50 ms and never comes to an end."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not over.wait(0.05):
                    connection.sendall(b" ")
            except OSError:
                pass  # the provider gave up, as it should

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def fails(harness: Harness, address: str, seconds: float = 5) -> ProviderError:
    """Return the error of a fetch, or of a sample, from an address."""
    provider = open_provider(harness.settings(address))
    end = int(time.time())
    try:
        with pytest.raises(ProviderError) as caught:
            if isinstance(provider, WindowProvider):
                provider.fetch(Window("5m", end - 300, end), Deadline.after(seconds))
            else:
                provider.sample(Deadline.after(seconds))
    finally:
        close = getattr(provider, "close", None)
        if close is not None:
            close()
    assert "right-token" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (401, {}, ProviderRefused),
        (403, {}, ProviderRefused),
        (404, {}, ProviderAnswerError),
        (429, {"Retry_After": "3600"}, ProviderUnavailable),
        (500, {}, ProviderUnavailable),
        (503, {}, ProviderUnavailable),
    ],
)
def test_a_refusal_is_the_error_that_says_so(harness: Harness, status, headers, expected):
    """A status is translated, with provider and status in the message, at once, whatever Retry-After says."""
    if not harness.over_http:
        return
    with answering(status, b'{"error": "because"}', **headers) as address:
        error = fails(harness, address)
    assert isinstance(error, expected)
    assert str(status) in str(error)
    assert harness.name in str(error)


@pytest.mark.parametrize(
    "body", [b"<html>please log in</html>", b"", b"[]", b"null", b'{"data": 7}', b'{"data": {"result": {}}}', b"\xff"]
)
def test_something_else_with_status_200_is_an_error(harness: Harness, body: bytes):
    """A page of a proxy, or JSON of another shape, is a ProviderError that names the provider."""
    if not harness.over_http:
        return
    with answering(200, body, Content_Type="application/json") as address:
        error = fails(harness, address)
    assert harness.name in str(error)


def test_nobody_there_is_unavailable(harness: Harness):
    """A closed port is ProviderUnavailable and names the setting."""
    if not harness.over_http:
        return
    with answering(200) as address:
        pass
    error = fails(harness, address)
    assert isinstance(error, ProviderUnavailable)
    assert "provider.address" in str(error)


def test_a_trickle_does_not_hold_the_fetch(harness: Harness):
    """A server that never comes to an end is given up at the deadline, and no thread stays behind."""
    if not harness.over_http:
        return
    with trickling() as address:
        began = time.monotonic()
        error = fails(harness, address, seconds=1)
        assert time.monotonic() - began < 5
        assert isinstance(error, ProviderUnavailable)
        limit = time.monotonic() + 5
        while [thread for thread in threading.enumerate() if thread.name.startswith("gather-")]:
            assert time.monotonic() < limit, "a call was left behind"
            time.sleep(0.01)


def test_check_finds_what_works_and_what_does_not(harness: Harness):
    """check() yields steps; against a refusing server one is not ok and names a setting."""
    if not harness.over_http:
        assert all(step.ok for step in open_provider(harness.settings("")).check())
        return
    with answering(401) as address:
        steps = list(open_provider(harness.settings(address)).check())
    assert [step for step in steps if not step.ok and step.setting and step.message]
