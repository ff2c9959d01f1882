"""Rolling windows for sources that only know the present."""

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from support.servers import wait_until

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
    """A provider whose next answers are given; it may raise them too."""

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
    """A Sampled over a Source, with a clock that stands until it is set; the thread of its own does not run."""

    def __init__(self, path: Path | None = None, source: Source | None = None, interval: float = 15) -> None:
        self.now = START
        self.source = source or Source()
        self.store = Store(path)
        settings = WatchSettings(sample_interval_seconds=interval, fetch_timeout_seconds=5)
        self.sampled = Sampled(self.source, settings, self.store, "Test", clock=lambda: self.now)

    def without_thread(self) -> "Bench":
        """Let only the test take samples."""
        self.sampled._thread = threading.Thread()
        return self

    def take(self, at: float, *values: float, node: str = "a", stamp: float | None = None) -> None:
        """Take a sample of one node with a reading each for cpu, memory."""
        self.now = at
        readings = tuple(Reading(name, type_, value) for (name, type_), value in zip(
            (("cpu", "CPU"), ("memory", "Memory")), values, strict=False))  # fmt: skip
        self.source.answer = lambda: {node: Sample(at if stamp is None else stamp, readings)}
        self.sampled.sample_once()

    def fetch(self, duration: str = "5m", seconds: int = 300) -> Fetched:
        """Fetch the window that ends now, without waiting."""
        return self.sampled.fetch(Window(duration, int(self.now) - seconds, int(self.now)), Deadline.after(0))


def values(node: NodeMetrics) -> dict[tuple[str, str], float]:
    """Return a node's values by name and operator."""
    return {(metric.name, metric.operator): metric.value for metric in node.metrics}


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench without a thread."""
    bench = Bench().without_thread()
    yield bench
    bench.store.close()


def test_it_is_a_window_provider(bench: Bench) -> None:
    """The loop, which knows only window providers, takes it as one."""
    assert isinstance(bench.sampled, WindowProvider)


def test_average_and_deviation_are_numpys(bench: Bench) -> None:
    """AVG and STD (of the population) over exactly the samples in the window equal numpy's within 1e-9."""
    random = np.random.default_rng(7)
    cpu, memory = random.uniform(0, 100, 60), random.uniform(0, 100, 60)
    for number in range(60):
        bench.take(START + 15 * number, cpu[number], memory[number])
    for duration, count in (("5m", 20), ("10m", 40), ("15m", 60)):
        node = bench.fetch(duration, count * 15).nodes["a"]
        found = values(node)
        for name, series in (("cpu", cpu[-count:]), ("memory", memory[-count:])):
            assert math.isclose(found[name, "AVG"], np.mean(series), abs_tol=1e-9)
            assert math.isclose(found[name, "STD"], np.std(series), abs_tol=1e-9)
        assert {metric.rollup for metric in node.metrics} == {duration}
        assert node.metadata == {}


def test_a_large_offset_costs_no_precision(bench: Bench) -> None:
    """The deviation of values that hardly differ is right: it is computed in two passes."""
    series = [99.0 + 1e-7 * (number % 2) for number in range(20)]
    for number, value in enumerate(series):
        bench.take(START + 15 * number, value)
    assert math.isclose(values(bench.fetch().nodes["a"])["cpu", "STD"], 5e-8, rel_tol=1e-6)


def test_one_sample_is_not_enough(bench: Bench) -> None:
    """A node is served from two samples on; with one, the error says that two are needed."""
    bench.take(START, 10)
    with pytest.raises(ProviderUnavailable, match="metrics need two"):
        bench.fetch()
    bench.take(START + 15, 20)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}


def test_a_repeated_timestamp_counts_once(bench: Bench) -> None:
    """A source that gives the same sample again, by its own time, adds nothing."""
    for number, stamp in enumerate((1.0, 1.0, 2.0, 2.0, 2.0)):
        bench.take(START + 15 * number, 10 * stamp, stamp=stamp)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}


def test_a_repeat_counts_once_also_after_a_round_without_the_node(bench: Bench) -> None:
    """A node that is missing from one answer and comes back with its old sample adds nothing."""
    bench.take(START, 10, stamp=1)
    bench.take(START + 15, 50, node="b")
    bench.take(START + 30, 10, stamp=1)
    bench.take(START + 45, 20, stamp=2)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}


def test_a_partial_window_tells_its_coverage(bench: Bench) -> None:
    """The share of sampling intervals with a sample is in the metadata."""
    for number in range(5):
        bench.take(START + 15 * number, 10)
    fetched = bench.fetch()
    assert fetched.nodes["a"].metadata == {"coverage": 0.25}
    for number in range(5, 12):
        bench.take(START + 15 * number, 10)
    fetched = bench.fetch()
    assert fetched.nodes["a"].metadata == {"coverage": 0.6}


def test_the_newest_samples_have_the_sources_own_time(bench: Bench) -> None:
    """A fetch tells, for each node, the time that the source gave its newest sample."""
    bench.take(START, 10, stamp=START - 40)
    bench.take(START + 15, 20, stamp=START - 20)
    bench.take(START + 15, 20, stamp=START - 90, node="b")
    assert bench.fetch().newest == {"a": START - 20, "b": START - 90}


def test_a_reading_that_is_missing_at_times(bench: Bench) -> None:
    """Each metric is computed over the samples that have it; NaN is as good as missing."""
    bench.take(START, 10, 50)
    bench.take(START + 15, 20)
    bench.take(START + 30, math.nan, 60)
    assert values(bench.fetch().nodes["a"]) == {
        ("cpu", "AVG"): 15, ("cpu", "STD"): 5, ("memory", "AVG"): 55, ("memory", "STD"): 5,
    }  # fmt: skip


def test_a_failing_source_fails_the_fetch_until_it_works() -> None:
    """With nothing in the window the fetch raises the source's own error, and works when the source does."""
    bench = Bench().without_thread()

    def fail() -> Mapping[str, Sample]:
        raise ProviderUnavailable("the cable is out")

    bench.source.answer = fail
    bench.sampled.sample_once()
    with pytest.raises(ProviderUnavailable, match="the cable is out"):
        bench.fetch()
    bench.take(START + 15, 10)
    bench.take(START + 30, 20)
    assert bench.fetch().findings == ()
    bench.store.close()


def test_a_failure_is_told_while_old_samples_last(bench: Bench) -> None:
    """While the window still has samples it is served, with a finding that no new ones come and why."""
    for number in range(20):
        bench.take(START + 15 * number, 10)

    def fail() -> Mapping[str, Sample]:
        raise ProviderUnavailable("the cable is out")

    bench.source.answer = fail
    bench.sampled.sample_once()
    fetched = bench.fetch()
    assert "a" in fetched.nodes
    assert [(f.kind, f.message) for f in fetched.findings] == [(Kind.FETCH_FAILED, "no new samples: the cable is out")]
    bench.now += 3600
    with pytest.raises(ProviderUnavailable, match="the cable is out"):
        bench.fetch()


def test_a_long_window_does_not_outlive_its_samples(bench: Bench) -> None:
    """What was last sampled longer ago than the expiry is not served as of now, though the window has it."""
    for number in range(3):
        bench.take(START + 15 * number, 10)
    bench.now += 300
    assert "a" in bench.fetch("15m", 900).nodes
    bench.now += 1
    with pytest.raises(ProviderUnavailable, match="no new sample for 301 s"):
        bench.fetch("15m", 900)
    bench.source.answer = lambda: 1 / 0
    bench.sampled.sample_once()
    with pytest.raises(ProviderAnswerError, match="ZeroDivisionError"):
        bench.fetch("15m", 900)


def test_a_clock_set_back_leaves_no_samples_of_the_future(bench: Bench) -> None:
    """Samples from before the clock was set back count in no window, and are forgotten."""
    for number in range(5):
        bench.take(START + 3600 + 15 * number, 90)
    bench.take(START, 10)
    bench.take(START + 15, 20)
    assert values(bench.fetch().nodes["a"]) == {("cpu", "AVG"): 15, ("cpu", "STD"): 5}
    assert len(bench.sampled._rounds) == 2


@pytest.mark.parametrize("how", ["fails", "repeats"])
@pytest.mark.parametrize("seconds", [10, 200, 600, 3600])
def test_a_clock_set_back_makes_no_sample_younger(tmp_path: Path, how: str, seconds: int) -> None:
    """With no new sample since, the old ones are not served as of now: not then, not later, not after a restart."""
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
    again.now = START + 900 + 60  # an hour later, where the clock was set back by one
    with pytest.raises(ProviderUnavailable):
        again.fetch("15m", 900)
    again.store.close()


def test_a_clock_that_is_ahead_for_a_moment_costs_few_samples(tmp_path: Path) -> None:
    """Set right again the windows are as full as they were, but for what cannot be dated; in the store too."""
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


def test_samples_of_the_future_are_not_kept_for_when_it_comes(tmp_path: Path) -> None:
    """What a run with a clock ahead left behind is given up at the start: the next restart does not find it either."""
    path = tmp_path / "store.sqlite"
    for now, taking in ((START + 3600, True), (START, False), (START + 3660, False)):
        bench = Bench(path).without_thread()
        bench.now = now
        for number in range(10) if taking else ():
            bench.take(now + 15 * number, 90)
        if not taking:
            with pytest.raises(ProviderUnavailable, match="no sample was taken"):
                bench.fetch("15m", 900)
        bench.store.close()


def test_the_age_of_samples_is_told_by_the_clock_that_is_never_set(bench: Bench) -> None:
    """A clock set back by less than the source was silent for leaves nothing in the future, and hides no silence."""
    for number in range(3):
        bench.take(START + 15 * number, 90)
    bench.sampled._sampled_at -= 301
    with pytest.raises(ProviderUnavailable, match="no new sample for 301 s"):
        bench.fetch()
    bench.take(START + 45, 90)
    assert "a" in bench.fetch().nodes


def test_a_restart_loses_no_sample(tmp_path: Path) -> None:
    """A new process computes its first window over the samples that the one before kept, repeats counted once."""
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
def test_samples_that_cannot_be_read_at_the_start_come_later(tmp_path: Path) -> None:
    """Where the file is in use for a moment, its samples join those taken since, and those are kept in it."""
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


def test_the_first_fetch_waits_for_the_second_sample() -> None:
    """A watcher that was just started has AVG and STD in its first answer; the thread samples by itself."""
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
    assert not any(thread.name == "sampling" for thread in threading.enumerate())
    bench.store.close()


@pytest.mark.parametrize("answer", [{"a": None}, {"a": Sample(1, (Reading("cpu", "CPU", "x"),))}, None, 17])  # type: ignore[arg-type]
def test_an_odd_answer_does_not_end_the_sampling(
    bench: Bench, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer of another shape is a failure of that sample, logged with its traceback; the next one counts."""
    bench.source.answer = lambda: answer  # type: ignore[return-value,assignment]
    bench.sampled.sample_once()
    with pytest.raises(ProviderAnswerError, match="failed unexpectedly"):
        bench.fetch()
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]
    bench.take(START, 10)
    bench.take(START + 15, 20)
    assert "a" in bench.fetch().nodes


def test_whatever_a_source_raises_the_thread_goes_on() -> None:
    """A provider that raises what it should not is asked again."""
    bench = Bench(interval=0.1)

    def fail() -> Mapping[str, Sample]:
        raise ZeroDivisionError("oops")

    bench.source.answer = fail
    with pytest.raises(ProviderAnswerError, match="ZeroDivisionError: oops"):
        bench.sampled.fetch(Window("5m", 0, 300), Deadline.after(5))
    wait_until(lambda: bench.source.asked >= 3, "the thread asks again")
    bench.sampled.close()
    bench.store.close()


def test_closing_does_not_wait_for_a_source_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """close() returns although a sample is under way that ends much later."""
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


def test_check_is_the_sources(bench: Bench) -> None:
    """check() yields the source's own steps."""
    assert [step.step for step in bench.sampled.check()] == ["look"]
