"""Backfill of the history, with a real Prometheus and with a provider whose values follow from the time."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.servers import PROMETHEUS_SERVERS, run_prometheus, wait_until
from support.waiting import LIMIT_SECONDS

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError
from watcher.history import History
from watcher.model import Metric, NodeMetrics, Window
from watcher.pipeline.factory import open_watcher
from watcher.pipeline.watcher import Watcher
from watcher.providers.base import Check, Fetched
from watcher.quality.past_values import clean_past
from watcher.settings import ProviderSettings, Settings, StoreSettings, WatchSettings
from watcher.windows.past_metrics import PastMetrics

_NOW = 1_795_250_000 // 3600 * 3600 + 30 * 60 + 20  # half past an hour


class _Tide:
    """Provider whose CPU values follow from the end of the window; it knows the past.

    Attributes:
        asked: ends of the windows of each successful call of ``past``.
        most: number of windows above which ``past`` fails.
    """

    def __init__(self, nodes: int = 2, most: int = 60) -> None:
        self.nodes, self.most = nodes, most
        self.offset = 0.0
        self.asked: list[range] = []

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        cpu = Metric("cpu", "CPU", "AVG", window.duration, _percent(window.end) + self.offset)
        return Fetched({f"n{number}": NodeMetrics((cpu,)) for number in range(self.nodes)})

    def past(self, window: str, ends: range, deadline: Deadline) -> PastMetrics:
        if len(ends) > self.most:
            raise ProviderAnswerError("too many windows")
        self.asked.append(ends)
        values = np.array([[_percent(end) for end in ends]] * self.nodes)
        return PastMetrics(np.array(ends), tuple(f"n{n}" for n in range(self.nodes)), {("CPU", "AVG", "cpu"): values})

    def check(self) -> Iterator[Check]:
        yield Check("tide", ok=True, message="comes in")


def _percent(at: float) -> float:
    return float(at // 60 % 97)


def _watcher(folder: Path, provider: _Tide, clock: list[float], **store: float) -> Watcher:
    """Return a watcher with settings of the store, or constants that are none."""
    path = folder / "store.sqlite"
    settings = Settings(
        provider=ProviderSettings(name="Tide"),
        watch=WatchSettings(windows=["15m"]),
        store=StoreSettings(path=path).model_copy(update=store),
    )
    return open_watcher(settings, path, provider=provider, clock=lambda: clock[0])


def _minutes(watcher: Watcher, node: str = "n0") -> dict[int, float]:
    """Return the values of a node by minute of Unix time."""
    history = watcher.history(node, "CPU", "AVG", step=60)
    values = history.of("CPU") if history.series else np.empty((1, 0))
    return {
        int(at) // 60: float(value) for at, value in zip(history.times, values[0], strict=False) if np.isfinite(value)
    }


def _fill(watcher: Watcher) -> None:
    watcher._backfill.fill_once()


def _filled(folder: Path, provider: _Tide, **store: float) -> dict[int, float]:
    """Return the values of a node by minute after the first fetch of a watcher and the fill."""
    watcher = _watcher(folder, provider, [float(_NOW)], **store)
    watcher.fetch_once()
    _fill(watcher)
    minutes = _minutes(watcher)
    watcher.stop()
    return minutes


def test_first_day_is_filled(tmp_path: Path) -> None:
    """After the first fetch the history has every minute of the last day, as fetches would have recorded it."""
    minutes = _filled(tmp_path, _Tide())
    assert set(minutes) == set(range(_NOW // 60 - 1440, _NOW // 60 + 1))
    assert all(value == _percent(minute * 60) for minute, value in minutes.items())


def test_only_gaps_are_filled(tmp_path: Path) -> None:
    """After an outage the gap in the middle is filled, and recorded values stay; nothing else is asked for."""
    clock, provider = [float(_NOW)], _Tide()
    provider.offset = 1.5  # tells recorded values from filled ones
    watcher = _watcher(tmp_path, provider, clock, backfill_hours=1)
    for _ in range(3):
        watcher.fetch_once()
        clock[0] += 60
    _fill(watcher)
    watcher.stop()
    clock[0] += 40 * 60
    provider.asked.clear()
    watcher = _watcher(tmp_path, provider, clock, backfill_hours=1)
    watcher.fetch_once()
    _fill(watcher)
    minutes = _minutes(watcher)
    watcher.stop()
    recorded = {_NOW // 60 + step for step in (0, 1, 2, 43)}
    assert {minute for minute, value in minutes.items() if value != _percent(minute * 60)} == recorded
    asked = {end // 60 for ends in provider.asked for end in ends}
    assert asked == set(range(_NOW // 60 + 3, _NOW // 60 + 43))


def test_outage_of_the_source_is_filled_without_a_restart(tmp_path: Path) -> None:
    """Minutes whose fetches failed are filled after the next fetch that succeeds."""
    clock, provider = [float(_NOW)], _Tide()
    watcher = _watcher(tmp_path, provider, clock, backfill_hours=1)
    watcher.fetch_once()
    _fill(watcher)
    provider.asked.clear()
    clock[0] += 20 * 60
    watcher.fetch_once()
    _fill(watcher)
    watcher.stop()
    assert {end // 60 for ends in provider.asked for end in ends} == set(range(_NOW // 60 + 1, _NOW // 60 + 20))


def test_refused_chunk_is_read_in_halves(tmp_path: Path) -> None:
    """A provider that refuses long ranges is asked for shorter ones, and every gap is filled."""
    assert len(_filled(tmp_path, _Tide(most=7), backfill_hours=2)) == 121


def test_failure_leaves_a_gap_that_is_filled_later(tmp_path: Path) -> None:
    """A provider that fails is asked again, only for the gaps that remain."""
    clock, provider = [float(_NOW)], _Tide()
    watcher = _watcher(tmp_path, provider, clock, backfill_hours=2)
    watcher.fetch_once()
    provider.past, past = _failing_after(provider, 1), provider.past  # type: ignore[method-assign]
    with pytest.raises(ProviderAnswerError):
        _fill(watcher)
    filled = set(_minutes(watcher))
    provider.past = past  # type: ignore[method-assign]
    provider.asked.clear()
    _fill(watcher)
    asked = {end // 60 for ends in provider.asked for end in ends}
    assert len(filled) > 1
    assert not asked & filled
    assert len(_minutes(watcher)) == 121
    watcher.stop()


def _failing_after(provider: _Tide, calls: int):  # type: ignore[no-untyped-def]
    past = provider.past

    def fail(window: str, ends: range, deadline: Deadline) -> PastMetrics:
        if len(provider.asked) >= calls:
            raise ProviderAnswerError("no more today")
        return past(window, ends, deadline)

    return fail


def test_large_clusters_are_filled_at_one_minute_of_five(tmp_path: Path) -> None:
    """With more than 1,000 nodes a filled day has a value every five minutes, so that it is complete in a minute."""
    minutes = _filled(tmp_path, _Tide(nodes=1001), backfill_hours=1)
    assert len(minutes) == 13
    assert all(minute % 5 == 0 for minute in minutes if minute != _NOW // 60)


@pytest.mark.parametrize("settings", [{"backfill_hours": 0}, {"history_megabytes": 0}])
def test_nothing_is_read_when_switched_off(tmp_path: Path, settings: dict[str, float]) -> None:
    """With no hours to fill, or without a history, the provider is not asked for the past."""
    provider = _Tide()
    _filled(tmp_path, provider, **settings)
    assert not provider.asked


def test_no_chunk_starts_during_a_fetch(tmp_path: Path) -> None:
    """While a fetch is in progress the background thread waits; after it, the history is filled."""
    provider = _Tide()
    watcher = _watcher(tmp_path, provider, [float(_NOW)], backfill_hours=1)
    backfill = watcher._backfill
    backfill.start()
    with backfill.fetch():
        watcher._fetch_once()
        time.sleep(0.3)
        assert not provider.asked
    wait_until(lambda: provider.asked, "the history is filled after the fetch")
    watcher.stop()


def test_a_slow_chunk_delays_neither_a_fetch_nor_the_stop(tmp_path: Path) -> None:
    """While a chunk takes long, the next fetch is complete at once, and so is stopping; then nothing is stored."""
    provider, clock = _Tide(), [float(_NOW)]
    begun, released = threading.Event(), threading.Event()
    past = provider.past

    def slow(window: str, ends: range, deadline: Deadline) -> PastMetrics:
        begun.set()
        released.wait(2 * LIMIT_SECONDS)
        return past(window, ends, deadline)

    provider.past = slow  # type: ignore[method-assign]
    watcher = _watcher(tmp_path, provider, clock, backfill_hours=1)
    watcher.fetch_once()
    watcher._backfill.start()
    assert begun.wait(10)
    clock[0] += 60
    began = time.monotonic()
    assert watcher.fetch_once()
    assert time.monotonic() - began < LIMIT_SECONDS
    stopping = threading.Thread(target=watcher.stop)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()
    released.set()
    wait_until(lambda: not watcher._backfill._thread.is_alive(), "the thread ends")  # type: ignore[union-attr]
    watcher = _watcher(tmp_path, provider, clock, backfill_hours=0)
    assert set(_minutes(watcher)) == {_NOW // 60, _NOW // 60 + 1}
    watcher.stop()


@pytest.mark.server
@pytest.mark.parametrize("server", PROMETHEUS_SERVERS)
def test_filled_history_equals_a_recorded_one(tmp_path: Path, server: str) -> None:
    """A history filled from Prometheus equals the one that fetches at each minute record, in every value."""
    end = int(time.time()) // 60 * 60 - 120
    first = end - 12 * 60
    with run_prometheus(tmp_path, _samples(first - 1800, end), server=server) as address:
        recorded = _history(tmp_path / "recorded.sqlite", address, [*range(first, end, 60), end], 0)
        filled = _history(tmp_path / "filled.sqlite", address, [end], 12.5 / 60)
    assert recorded.nodes == filled.nodes == ("a", "b", "c", "d")
    assert {(each.type, each.operator) for each in recorded.series} == {
        (type_, operator) for type_ in ("CPU", "Memory") for operator in ("AVG", "STD")
    }
    compared = 0
    for one, other in zip(recorded.series, filled.series, strict=True):
        assert (one.name, one.type, one.operator) == (other.name, other.type, other.operator)
        # VictoriaMetrics holds the newest value for five minutes, as Prometheus does, but not in a range of times.
        is_gap = np.isnan(other.values) & np.isfinite(one.values) & (server == "victoria-metrics")
        assert np.sum(is_gap) <= 4
        np.testing.assert_array_equal(np.where(is_gap, np.nan, one.values), other.values)
        compared += int(np.isfinite(one.values).sum())
    assert compared > 150


def test_past_values_are_those_of_a_fetch() -> None:
    """The first nodes with valid names are kept, with percentages, and deviations where there is an average."""
    average, deviation = ("CPU", "AVG", "cpu"), ("CPU", "STD", "cpu")
    given = np.array([[1.0] * 5, [2.0] * 5, [-2e-6, -1e-6, 105, 105.1, np.nan], [3.0] * 5])
    past = PastMetrics(60 * np.arange(5), ("b", "a/b", "a", "c"), {average: given, deviation: np.full((4, 5), 7.0)})
    cleaned = clean_past(past, 2)
    assert cleaned.nodes == ("a", "b")
    np.testing.assert_array_equal(cleaned.series[average], [[np.nan, 0, 100, np.nan, np.nan], [1] * 5])
    np.testing.assert_array_equal(cleaned.series[deviation], [[np.nan, 7, 7, np.nan, np.nan], [7] * 5])


def _history(store: Path, address: str, times: list[int], hours: float) -> History:
    settings = Settings(
        provider=ProviderSettings(name="Prometheus", address=address),
        watch=WatchSettings(windows=["5m"]),
        store=StoreSettings(path=store).model_copy(update={"backfill_hours": hours}),
    )
    clock = [0.0]
    watcher = open_watcher(settings, store, clock=lambda: clock[0])
    for clock[0] in times:
        assert watcher.fetch_once()
    _fill(watcher)
    steps = watcher.history("a", since=times[-1] - 12 * 60, step=60).steps
    history = watcher._store.load_history(["Prometheus"], steps, None, None, None, until=clock[0])
    watcher.stop()
    return history


def _samples(first: int, end: int) -> Iterator[str]:
    """Yield samples of four nodes: one by processors, one with two replicas, one with a gap, one above capacity."""
    random = np.random.default_rng(7)
    times = range(first, end + 1, 15)
    yield "# TYPE kube_node_info gauge\n"
    for number, node in enumerate("abcd"):
        for at in times:
            yield f'kube_node_info{{node="{node}",internal_ip="10.0.0.{number}"}} 1 {at}\n'
    yield "# TYPE instance:node_cpu:ratio gauge\n"
    for number, replica in ((0, "x"), (1, "x"), (1, "y"), (2, "x"), (3, "x")):
        for at in times:
            if number == 2 and end - 600 < at < end - 240:
                continue
            value = random.uniform(0.1, 0.9) + (0.6 if number == 3 and at > end - 400 else 0)
            yield f'instance:node_cpu:ratio{{instance="10.0.0.{number}:9100",replica="{replica}"}} {value!r} {at}\n'
    for name in ("MemAvailable", "MemTotal"):
        yield f"# TYPE node_memory_{name}_bytes gauge\n"
        for number in range(4):
            for at in times:
                value = 100.0 if name == "MemTotal" else float(random.uniform(5, 95))
                yield f'node_memory_{name}_bytes{{instance="10.0.0.{number}:9100"}} {value!r} {at}\n'
