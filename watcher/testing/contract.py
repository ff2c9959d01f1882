"""Provider contract as tests: whatever the source does, a fetch returns correct metrics or reports the problem.

Subclass the suites that apply, in a class whose name pytest collects, and set its harness::

    class TestInventory(ProviderContract, HttpContract):
        harness = Harness()
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest

from runtime import duration
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.model import Window
from watcher.providers.base import Fetched, WindowProvider, close_provider, open_provider
from watcher.quality import analyzer
from watcher.testing.harness import STEP_SECONDS, BreakingHarness, DuplicatingHarness, Harness, Series, WindowSource
from watcher.testing.servers import reply, serving, trickling

_MINUTES = 20
_HANGS_SECONDS = 60  # a longer fetch counts as hanging
_WINDOWS = ("15m", "10m", "5m")


class ProviderContract:
    """Tests of the result of a fetch, for every provider."""

    harness: ClassVar[Harness]

    def test_average_and_deviation_match_numpy(self) -> None:
        """AVG and STD (population) of every window equal numpy's over the same samples."""
        nodes = {f"node-{number}": _series(number) for number in range(3)}
        windows = [_window(name, nodes) for name in _WINDOWS]
        with self.harness.running(nodes) as source:
            results = [_values(source.fetch(window)) for window in windows]
        for window, values in zip(windows, results, strict=True):
            for node, samples in nodes.items():
                covered = samples.inside(window)
                for type_, expected in (("CPU", covered.cpu), ("Memory", covered.memory)):
                    average, deviation = values[node, type_, "AVG"], values[node, type_, "STD"]
                    assert average == pytest.approx(expected.mean(), rel=self.harness.tolerance), window.duration
                    assert deviation == pytest.approx(expected.std(), rel=self.harness.tolerance, abs=1e-9)

    def test_nodes_without_samples_are_left_out(self) -> None:
        """A node without samples in the window is left out; other nodes keep their names, dots included."""
        nodes = {"node-1": _series(1), "node-2.example.com": _series(2), "node-2.example.org": _series(3)}
        window = _window("15m", nodes)
        with self.harness.running({**nodes, "gone": _earlier(_series(4), 3600)}) as source:
            fetched = source.fetch(window)
        assert set(fetched.nodes) == set(nodes)

    def test_bad_series_do_not_affect_other_nodes(self) -> None:
        """For any samples of one node, published values are within 0 to 100, and the other nodes are served."""
        good = _series(1)
        nodes = {"good": good}
        for number, bad_value in enumerate((float("nan"), float("inf"), -50.0, 1e308)):
            nodes[f"bad-{number}"] = Series(good.times, np.full_like(good.cpu, bad_value), good.memory)
        with self.harness.running(nodes) as source:
            values = _values(source.fetch(_window("15m", nodes)))
        assert {("good", "CPU", "AVG"), ("good", "CPU", "STD"), ("good", "Memory", "AVG")} <= values.keys()
        assert all(0 <= value <= 100 for value in values.values())

    def test_no_nodes_give_an_error_or_an_empty_fetch(self) -> None:
        """A source without nodes yields a ProviderError or an empty fetch, never metrics."""
        nodes = {"elsewhere": _series(1)}
        with self.harness.running({name: _earlier(series, 7200) for name, series in nodes.items()}) as source:
            fetched = Fetched({})
            with contextlib.suppress(ProviderError):
                fetched = source.fetch(_window("15m", nodes))
        assert not fetched.nodes


class DuplicatedSeriesContract:
    """Tests of two series of one node, for providers of sources that can hold them."""

    harness: ClassVar[DuplicatingHarness]

    def test_duplicated_series_are_merged(self) -> None:
        """Two series of one node give one value for each operator, and a finding."""
        nodes = {"node-1": _series(1), "node-2": _series(2)}
        window = _window("15m", nodes)
        with self.harness.running(nodes, duplicated="node-1") as source:
            fetched = source.fetch(window)
        expected = nodes["node-1"].inside(window).cpu.mean()
        assert _values(fetched)["node-1", "CPU", "AVG"] == pytest.approx(expected, rel=1e-6)
        assert [finding.node for finding in fetched.findings if finding.kind == "duplicate"]


class PastContract:
    """Tests of the past, for providers with ``past()``; the harness runs a :class:`WindowSource`."""

    harness: ClassVar[Harness]

    def test_past_equals_fetches(self) -> None:
        """For every node, metric and time, the past has the value of a fetch at that time, and nothing else."""
        nodes = {f"node-{number}": _series(number) for number in range(3)}
        nodes["ended"] = _earlier(_series(3), 4 * STEP_SECONDS)
        newest = _window("5m", nodes).end
        ends = range(newest - 14 * STEP_SECONDS, newest + 1, 7 * STEP_SECONDS)
        with self.harness.running(nodes) as source:
            assert isinstance(source, WindowSource)
            past = source.past("5m", ends)
            fetches = [source.fetch(Window("5m", end - 300, end)) for end in ends]
        assert past.ends.tolist() == list(ends)
        for column, fetched in enumerate(fetches):
            expected = {
                (node, metric.type, metric.operator, metric.name): metric.value
                for node, metrics in fetched.nodes.items()
                for metric in metrics.metrics
            }
            actual = {
                (node, *series): float(values[row, column])
                for series, values in past.series.items()
                for row, node in enumerate(past.nodes)
                if np.isfinite(values[row, column])
            }
            assert actual == pytest.approx(expected, rel=self.harness.tolerance, abs=1e-9)


class BrokenNodeContract:
    """Tests of one node that the source describes in an unreadable form, for providers that read such descriptions."""

    harness: ClassVar[BreakingHarness]

    def test_a_broken_node_costs_only_itself(self) -> None:
        """A node that cannot be read is left out with a finding that names it; the others have all their values."""
        nodes = {f"node-{number}": _series(number) for number in range(3)}
        with self.harness.running(nodes, broken="node-1") as source:
            try:
                fetched = source.fetch(_window("15m", nodes))
            except ProviderError as error:
                pytest.fail(f"one node that cannot be read costs all nodes: {error}")
        assert {node for node, _, _ in _values(fetched)} == {"node-0", "node-2"}
        findings = [finding for finding in fetched.findings if "node-1" in {finding.node, *finding.message.split()}]
        assert findings, "no finding names the node that is left out; return Samples or Fetched with findings"


class HttpContract:
    """Tests of failures, for providers that use HTTP with ``provider.address``."""

    harness: ClassVar[Harness]

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
    def test_error_statuses_become_provider_errors(
        self, status: int, headers: dict[str, str], expected: type[ProviderError]
    ) -> None:
        """An error status becomes a ProviderError with provider and status, without a wait for Retry-After."""
        with _answering(status, b'{"error": "because"}', **headers) as address:
            error = self._failure(address)
        assert isinstance(error, expected)
        assert str(status) in str(error)
        assert self.harness.name in str(error)

    @pytest.mark.parametrize(
        "body",
        [b"<html>please log in</html>", b"", b"[]", b"null", b'{"data": 7}', b'{"data": {"result": {}}}', b"\xff"],
    )
    def test_unexpected_bodies_are_errors(self, body: bytes) -> None:
        """A proxy's page, or JSON of another shape, becomes a ProviderError that names the provider."""
        with _answering(200, body, Content_Type="application/json") as address:
            error = self._failure(address)
        assert self.harness.name in str(error)

    def test_closed_port_is_unavailable(self) -> None:
        """A closed port becomes a ProviderUnavailable that names the setting."""
        with _answering(200) as address:
            pass
        error = self._failure(address)
        assert isinstance(error, ProviderUnavailable)
        assert "provider.address" in str(error)

    def test_slow_response_ends_at_the_deadline(self) -> None:
        """A response that never ends is aborted at the deadline, and no thread is left."""
        with trickling() as address:
            error = self._failure(address, seconds=0.3)
            assert isinstance(error, ProviderUnavailable)
            limit = time.monotonic() + _HANGS_SECONDS
            while [thread for thread in threading.enumerate() if thread.name.startswith("gather-")]:
                assert time.monotonic() < limit, "a call was left behind"
                time.sleep(0.01)

    def test_check_reports_a_refusing_server(self) -> None:
        """For a refusing server, check() yields a failed step that names a setting, and does not raise."""
        with _answering(401) as address:
            provider = open_provider(self.harness.settings(address))
            try:
                steps = list(provider.check())
            finally:
                close_provider(provider)
        assert [step for step in steps if not step.ok and step.setting and step.message]

    def _failure(self, address: str, seconds: float = 5) -> ProviderError:
        """Return the error that a fetch or a sample from an address raises; assert that its message has no secret."""
        provider = open_provider(self.harness.settings(address))
        end, deadline = int(time.time()), Deadline.after(seconds)
        request: Callable[[], object] = (
            (lambda: provider.fetch(Window("5m", end - 300, end), deadline))
            if isinstance(provider, WindowProvider)
            else (lambda: provider.sample(deadline))
        )
        raised: list[BaseException] = []

        def call() -> None:
            try:
                request()
            except BaseException as error:  # noqa: BLE001  checked by the test
                raised.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(_HANGS_SECONDS)
        assert not thread.is_alive(), f"the fetch hangs, {_HANGS_SECONDS} s after it began"
        close_provider(provider)
        assert raised, "no error was raised"
        (error,) = raised
        assert isinstance(error, ProviderError), f"not a ProviderError: {error!r}"
        assert "right-token" not in str(error)
        return error


def _series(seed: int) -> Series:
    """Return 20 minutes of plausible samples up to now, on whole minutes, because some sources only store these."""
    random = np.random.default_rng(seed)
    now = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    times = np.arange(now - (_MINUTES - 1) * STEP_SECONDS, now + 1, STEP_SECONDS)
    cpu, memory = np.clip(random.uniform(10, 80) + random.normal(0, 5, (2, len(times))), 0, 100)
    return Series(times, cpu, memory)


def _earlier(series: Series, seconds: int) -> Series:
    return Series(series.times - seconds, series.cpu, series.memory)


def _window(name: str, nodes: Mapping[str, Series]) -> Window:
    """Return a window that ends half a step after the newest sample, so that no sample lies on its ends.

    Sources differ in whether a window's ends belong to it.
    """
    end = int(max(series.times[-1] for series in nodes.values())) + STEP_SECONDS // 2
    return Window(name, end - duration.seconds(name), end)


def _values(fetched: Fetched) -> dict[tuple[str, str, str], float]:
    """Return the values that would be published, by node, type and operator."""
    cleaned, _ = analyzer.clean(fetched.nodes, "15m")
    values: dict[tuple[str, str, str], float] = {}
    for node, metrics in cleaned.items():
        for metric in metrics.metrics:
            key = (node, metric.type, metric.operator)
            assert key not in values, f"{key} comes twice"
            values[key] = metric.value
    return values


@contextmanager
def _answering(status: int, body: bytes = b"", **headers: str) -> Iterator[str]:
    """Run a server that sends one response to every request."""
    with serving(lambda handler: reply(handler, body, status, **headers)) as fake:
        yield fake.url
