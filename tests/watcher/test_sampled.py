"""Tests of rolling windows for sources that only know the present."""

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.servers import wait_until
from support.threads import started

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.findings import Kind
from watcher.model import NodeMetrics, Window
from watcher.providers.base import Check, Fetched, Reading, Sample, WindowProvider
from watcher.providers.sampled import Sampled
from watcher.settings import WatchSettings
from watcher.store import Store

START = 1_700_000_000.0


class Source:
    """Provider with scripted results or exceptions."""

    def __init__(self) -> None:
        self.answer: Callable[[], Mapping[str, Sample]] = dict
        self.asked = 0
        self.closed = False

    def sample(self, deadline: Deadline) -> Mapping[str, Sample]:
        self.asked += 1
        return self.answer()

    def check(self) -> Iterator[Check]:
        yield Check("look", ok=True, message="fine")

    def close(self) -> None:
        self.closed = True


class Bench:
    """Sampled provider with a scripted source and a manual clock, without its thread."""

    def __init__(self, path: Path | None = None, source: Source | None = None, interval: float = 15) -> None:
        self.now = START
        self.source = source or Source()
        self.store = Store(path)
        settings = WatchSettings(sample_interval_seconds=interval, fetch_timeout_seconds=5)
        self.sampled = Sampled(self.source, settings, self.store, "Test", clock=lambda: self.now)

    def without_thread(self) -> "Bench":
        """Prevent the start of the sampling thread."""
        self.sampled._thread = threading.Thread()
        return self

    def take(self, at: float, *values: float, node: str = "a", stamp: float | None = None) -> None:
        """Take a sample of one node with readings for cpu and memory."""
        self.now = at
        readings = tuple(Reading(name, type_, value) for (name, type_), value in zip(
            (("cpu", "CPU"), ("memory", "Memory")), values, strict=False))  # fmt: skip
        self.source.answer = lambda: {node: Sample(at if stamp is None else stamp, readings)}
        self.sampled.sample_once()

    def fetch(self, duration: str = "5m", seconds: int = 300) -> Fetched:
        """Fetch the window that ends now, without waiting."""
        return self.sampled.fetch(Window(duration, int(self.now) - seconds, int(self.now)), Deadline.after(0))


def cable_is_out() -> Mapping[str, Sample]:
    """Fail as a source that cannot be reached."""
    raise ProviderUnavailable("no cable")


def values(node: NodeMetrics) -> dict[tuple[str, str], float]:
    """Return a node's values by name and operator."""
    return {(metric.name, metric.operator): metric.value for metric in node.metrics}


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Bench without a thread."""
    bench = Bench().without_thread()
    yield bench
    bench.store.close()


@pytest.mark.parametrize(
    "bad", [None, 5, Sample("now", ()), Sample(START, (Reading("cpu", "CPU", "much"),)), Sample(START, None)]
)
def test_a_sample_that_cannot_be_read_costs_its_node_only(bad: Any) -> None:
    """A provider that returns anything in place of one node's sample keeps the other nodes, with a finding."""
    bench = Bench().without_thread()
    for at in (START - 30, START):
        good = Sample(at, (Reading("cpu", "CPU", 20.0),))
        bench.source.answer = lambda good=good: {"bad": bad, "good": good}
        bench.now = at
        bench.sampled.sample_once()
    fetched = bench.sampled.fetch(Window("5m", int(START) - 300, int(START)), Deadline.after(0))
    assert set(fetched.nodes) == {"good"}
    (finding,) = fetched.findings
    assert (finding.kind, finding.node) == (Kind.BAD_VALUE, "bad")
    assert finding.message.startswith("the provider's sample of bad ")


@pytest.mark.parametrize("bad", [-1.3, -1e-3, 150.1, 4e6])
def test_a_sample_that_cannot_be_right_is_left_out(bad: float) -> None:
    """A negative or absurd sample is left out of average and deviation and counted; memory at its time still counts."""
    bench = Bench().without_thread()
    for number, cpu in enumerate((10.0, bad, 10.0, bad, 13.0)):
        bench.take(START + 15 * number, cpu, 140.0 if number == 1 else 50.0)
    fetched = bench.fetch()
    found = values(fetched.nodes["a"])
    assert found["cpu", "AVG"] == pytest.approx(11.0)
    assert found["cpu", "STD"] == pytest.approx(np.std([10, 10, 13]))
    assert found["memory", "AVG"] == pytest.approx(68.0)
    (finding,) = (each for each in fetched.findings if each.kind is Kind.OUT_OF_RANGE)
    assert (finding.node, finding.metric, finding.window) == ("a", "cpu", "5m")
    expected = f"2 of 5 samples are below 0 or above 150 percent of capacity, such as {bad:.4g}:"
    assert finding.message.startswith(expected)
    bench.store.close()


@pytest.mark.parametrize("restart", [False, True])
def test_samples_of_an_earlier_machine_do_not_count(tmp_path: Path, restart: bool) -> None:
    """A window of a node that was created again has the samples of its newest machine only, also after a restart."""
    bench = Bench(tmp_path / "store").without_thread()

    def take(second: int, value: float, since: float) -> None:
        bench.now = START + second
        readings = (Reading("cpu", "CPU", value),)
        samples = {"a": Sample(bench.now, readings, since), "b": Sample(bench.now, readings)}
        bench.source.answer = lambda: samples
        bench.sampled.sample_once()

    for second in range(0, 150, 15):
        take(second, 90.0, START - 1000)
    for second in range(180, 300, 15):
        if restart and second == 240:
            bench.store.close()
            bench = Bench(tmp_path / "store").without_thread()
        take(second, 10.0, START + 170)
    nodes = bench.fetch().nodes
    assert values(nodes["a"])["cpu", "AVG"] == 10
    assert values(nodes["b"])["cpu", "AVG"] > 50
    assert nodes["a"].metadata["coverage"] < 0.5
    bench.store.close()


def test_sampled_is_a_window_provider(bench: Bench) -> None:
    """The class satisfies the WindowProvider protocol."""
    assert isinstance(bench.sampled, WindowProvider)


def test_large_offset_does_not_reduce_precision(bench: Bench) -> None:
    """The deviation of nearly equal values is precise: it is computed in two passes."""
    series = [99.0 + 1e-7 * (number % 2) for number in range(20)]
    for number, value in enumerate(series):
        bench.take(START + 15 * number, value)
    assert math.isclose(values(bench.fetch().nodes["a"])["cpu", "STD"], 5e-8, rel_tol=1e-6)


def test_one_sample_is_not_enough(bench: Bench) -> None:
    """A node is served from two samples on; with one sample the error mentions the two."""
    bench.take(START, 10)
    with pytest.raises(ProviderUnavailable, match="two"):
        bench.fetch()
    bench.take(START + 15, 20)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}


def test_repeated_timestamp_counts_once(bench: Bench) -> None:
    """A sample with the same time of the source is not counted again."""
    for number, stamp in enumerate((1.0, 1.0, 2.0, 2.0, 2.0)):
        bench.take(START + 15 * number, 10 * stamp, stamp=stamp)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}


def test_repeat_after_an_absence_counts_once(bench: Bench) -> None:
    """A node that returns with its old sample adds nothing."""
    bench.take(START, 10, stamp=1)
    bench.take(START + 15, 50, node="b")
    bench.take(START + 30, 10, stamp=1)
    bench.take(START + 45, 20, stamp=2)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}


def test_partial_window_has_its_coverage(bench: Bench) -> None:
    """The share of sampling intervals with a sample is in the metadata."""
    for number in range(5):
        bench.take(START + 15 * number, 10)
    assert bench.fetch().nodes["a"].metadata == {"coverage": 0.25}
    for number, metadata in ((12, {"coverage": 0.6}), (20, {})):
        for earlier in range(5 if number == 12 else 12, number):
            bench.take(START + 15 * earlier, 10)
        assert bench.fetch().nodes["a"].metadata == metadata
    assert {metric.rollup for metric in bench.fetch().nodes["a"].metrics} == {"5m"}


def test_newest_samples_have_the_sources_time(bench: Bench) -> None:
    """A fetch has the source's time of each node's newest sample."""
    bench.take(START, 10, stamp=START - 40)
    bench.take(START + 15, 20, stamp=START - 20)
    bench.take(START + 15, 20, stamp=START - 90, node="b")
    assert bench.fetch().newest == {"a": START - 20, "b": START - 90}


def test_missing_readings(bench: Bench) -> None:
    """Each metric is computed over its samples; NaN counts as missing."""
    bench.take(START, 10, 50)
    bench.take(START + 15, 20)
    bench.take(START + 30, math.nan, 60)
    assert values(bench.fetch().nodes["a"]) == {
        ("cpu", "AVG"): 15, ("cpu", "STD"): 5, ("memory", "AVG"): 55, ("memory", "STD"): 5,
    }  # fmt: skip


def test_failing_source() -> None:
    """Without samples in the window the fetch raises the source's error, until the source works."""
    bench = Bench().without_thread()
    bench.source.answer = cable_is_out
    bench.sampled.sample_once()
    with pytest.raises(ProviderUnavailable, match="no cable"):
        bench.fetch()
    bench.take(START + 15, 10)
    bench.take(START + 30, 20)
    assert bench.fetch().findings == ()
    bench.store.close()


def test_failure_is_a_finding_while_samples_remain(bench: Bench) -> None:
    """While the window has samples it is served, with a finding with the source's error."""
    for number in range(20):
        bench.take(START + 15 * number, 10)
    bench.source.answer = cable_is_out
    bench.sampled.sample_once()
    fetched = bench.fetch()
    assert "a" in fetched.nodes
    assert [(f.kind, "no cable" in f.message) for f in fetched.findings] == [(Kind.FETCH_FAILED, True)]
    bench.now += 3600
    with pytest.raises(ProviderUnavailable, match="no cable"):
        bench.fetch()


def test_expired_samples_are_not_served(bench: Bench) -> None:
    """A window whose newest sample is older than the expiry is not served."""
    for number in range(3):
        bench.take(START + 15 * number, 10)
    bench.now += 300
    assert "a" in bench.fetch("15m", 900).nodes
    bench.now += 1
    with pytest.raises(ProviderUnavailable, match="301 s"):
        bench.fetch("15m", 900)
    bench.source.answer = lambda: 1 / 0
    bench.sampled.sample_once()
    with pytest.raises(ProviderAnswerError, match="ZeroDivisionError"):
        bench.fetch("15m", 900)


def test_future_samples_are_deleted(bench: Bench) -> None:
    """Samples from before the clock was set back are in no window, and are deleted."""
    for number in range(5):
        bench.take(START + 3600 + 15 * number, 90)
    bench.take(START, 10)
    bench.take(START + 15, 20)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}
    assert len(bench.sampled._rounds) == 2


@pytest.mark.parametrize("how", ["fails", "repeats"])
@pytest.mark.parametrize("seconds", [10, 200, 600, 3600])
def test_clock_set_back_does_not_hide_the_age(tmp_path: Path, how: str, seconds: int) -> None:
    """Without a new sample, old samples are not served as recent: not now, not later, not after a restart."""
    bench = Bench(tmp_path / "store.sqlite").without_thread()
    for number in range(61):
        bench.take(START + 15 * number, 90)
    assert "a" in bench.fetch("15m", 900).nodes
    if how == "fails":
        bench.source.answer = lambda: 1 / 0
    bench.now -= seconds
    for _ in range(seconds // 60 + 10):
        bench.sampled.sample_once()
        for duration, length in (("5m", 300), ("15m", 900)):
            with pytest.raises(ProviderError):
                bench.fetch(duration, length)
        bench.now += 60
    bench.store.close()
    again = Bench(tmp_path / "store.sqlite").without_thread()
    again.now = START + 900 + 60  # an hour later; the clock was set back by an hour
    with pytest.raises(ProviderUnavailable):
        again.fetch("15m", 900)
    again.store.close()


def test_clock_ahead_for_a_moment_costs_few_samples(tmp_path: Path) -> None:
    """After a correction the windows have nearly all of their samples, also in the store."""
    path = tmp_path / "store.sqlite"
    bench = Bench(path).without_thread()
    for number in range(60):
        bench.take(START + 15 * number, number)
    bench.take(START + 2 * 86400, 99)
    bench.take(START + 900, 99)
    bench.take(START + 915, 99)
    found = bench.fetch("15m", 900).nodes["a"]
    assert len(bench.sampled._rounds) > 30
    assert 0.5 < found.metadata["coverage"] < 0.8
    bench.store.close()
    again = Bench(path).without_thread()
    again.now = bench.now
    assert again.fetch("15m", 900).nodes["a"] == found
    again.store.close()


def test_stored_future_samples_are_deleted_at_the_start(tmp_path: Path) -> None:
    """Samples of a run with a clock ahead are deleted at the start, also for the next restart."""
    path = tmp_path / "store.sqlite"
    for now, taking in ((START + 3600, True), (START, False), (START + 3660, False)):
        bench = Bench(path).without_thread()
        bench.now = now
        for number in range(10) if taking else ():
            bench.take(now + 15 * number, 90)
        if not taking:
            with pytest.raises(ProviderUnavailable):
                bench.fetch("15m", 900)
        bench.store.close()


def test_age_is_measured_with_the_monotonic_clock(bench: Bench) -> None:
    """A clock set back by less than the source's silence does not hide the silence."""
    for number in range(3):
        bench.take(START + 15 * number, 90)
    bench.sampled._sampled_at -= 301
    with pytest.raises(ProviderUnavailable, match="301 s"):
        bench.fetch()
    bench.take(START + 45, 90)
    assert "a" in bench.fetch().nodes


def test_restart_loses_no_samples(tmp_path: Path) -> None:
    """A new process computes its first window over the stored samples, with repeats counted once."""
    path = tmp_path / "store.sqlite"
    first = Bench(path).without_thread()
    for number in range(18):
        first.take(START + 15 * number, number)
    first.take(START + 15 * 18, 50, node="b")
    first.store.close()
    second = Bench(path)
    second.now = START + 15 * 19
    second.source.answer = lambda: {"a": Sample(START + 15 * 17, (Reading("cpu", "CPU", 17.0),))}
    fetched = second.sampled.fetch(Window("5m", int(second.now) - 300, int(second.now)), Deadline.after(5))
    wait_until(lambda: second.source.asked, "the thread samples")
    assert math.isclose(values(fetched.nodes["a"])["cpu", "AVG"], np.mean(range(18)))
    assert len(second.sampled._rounds) == 19
    second.sampled.close()
    second.store.close()


@pytest.mark.usefixtures("short_handover")
def test_locked_samples_are_read_later(tmp_path: Path) -> None:
    """If the file is locked at the start, its samples are merged later with those taken since."""
    path = tmp_path / "store.sqlite"
    first = Bench(path).without_thread()
    for number in range(10):
        first.take(START + 15 * number, number)
    second = Bench(path).without_thread()
    second.take(START + 150, 10)
    assert len(second.sampled._rounds) == 1
    first.store.close()
    second.take(START + 165, 11)
    found = values(second.fetch().nodes["a"])
    assert math.isclose(found["cpu", "AVG"], np.mean(range(12)))
    second.store.close()
    third = Bench(path).without_thread()
    third.now = START + 165
    assert values(third.fetch().nodes["a"]) == found
    third.store.close()


def test_first_fetch_waits_for_the_second_sample() -> None:
    """The first fetch of a new watcher has AVG and STD; the thread takes the samples."""
    bench = Bench(interval=600)
    counter = iter(range(10, 1000, 10))

    def now() -> Mapping[str, Sample]:
        value = next(counter)
        return {"a": Sample(value, (Reading("cpu", "CPU", value),))}

    bench.source.answer = now
    window = Window("5m", int(START) - 300, int(START))
    fetched = bench.sampled.fetch(window, Deadline.after(10))
    assert values(fetched.nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}
    bench.sampled.close()
    assert bench.source.closed
    assert not started("sampling")
    bench.store.close()


@pytest.mark.parametrize("answer", [{"a": None}, {"a": Sample(1, (Reading("cpu", "CPU", "x"),))}, None, 17])  # type: ignore[arg-type]
def test_invalid_result_does_not_end_the_sampling(
    bench: Bench, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A result of another shape is a failed sample with a logged traceback; the next sample counts."""
    bench.source.answer = lambda: answer  # type: ignore[return-value,assignment]
    bench.sampled.sample_once()
    with pytest.raises(ProviderAnswerError):
        bench.fetch()
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]
    bench.take(START, 10)
    bench.take(START + 15, 20)
    assert "a" in bench.fetch().nodes


def test_exceptions_do_not_end_the_sampling() -> None:
    """After an unexpected exception of the provider, the next sample is taken."""
    bench = Bench(interval=0.1)

    def fail() -> Mapping[str, Sample]:
        raise ZeroDivisionError("oops")

    bench.source.answer = fail
    with pytest.raises(ProviderAnswerError, match="ZeroDivisionError: oops"):
        bench.sampled.fetch(Window("5m", 0, 300), Deadline.after(5))
    wait_until(lambda: bench.source.asked >= 3, "the thread asks again")
    bench.sampled.close()
    bench.store.close()


def test_close_does_not_wait_for_a_hanging_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """close() returns although a sample is in progress."""
    monkeypatch.setattr("watcher.providers.sampled._CLOSE_SECONDS", 0.1)
    bench = Bench()
    release = threading.Event()

    def hang() -> Mapping[str, Sample]:
        release.wait(60)
        return {}

    bench.source.answer = hang

    def fetch() -> None:
        with contextlib.suppress(ProviderUnavailable):
            bench.fetch()

    fetching = threading.Thread(target=fetch, daemon=True)
    fetching.start()
    wait_until(lambda: bench.source.asked, "the sample is under way")
    closing = threading.Thread(target=bench.sampled.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    release.set()
    fetching.join(10)
    bench.store.close()


def test_check_is_the_providers(bench: Bench) -> None:
    """check() yields the provider's steps."""
    assert [step.step for step in bench.sampled.check()] == ["look"]
