"""The pace of the rounds, and the clock that is held against one that nobody sets."""

import itertools
import threading
import time

import pytest

from watcher.pipeline.clock import ClockGuard
from watcher.pipeline.loop import Loop


class Pauses(threading.Event):
    """An event that nobody waits for: it notes how long, and is set after some pauses."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(round(timeout or 0.0))
        if len(self.seconds) == self._most:
            self.set()
        return self.is_set()


def test_after_a_failure_the_next_round_comes_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after a failure is 2 s, doubles up to the interval, and starts over with a round that works."""
    outcomes = iter([True, False, False, False, False, False, False, True, False])
    subject = Loop(lambda: next(outcomes), 60, 90)
    pauses = Pauses(9)
    monkeypatch.setattr(subject, "_stopped", pauses)
    subject.start()
    subject.join(10)
    assert pauses.seconds == [60, 2, 4, 8, 16, 32, 60, 60, 2]


def test_the_first_round_is_waited_for_however_it_ends() -> None:
    """A waiter goes on when the first round is done, also when that raised; before that it waits its time."""
    release = threading.Event()

    def fail() -> bool:
        release.wait(10)
        raise RuntimeError("a defect")

    subject = Loop(fail, 60, 90)
    subject.start()
    subject.wait_for_first(0.01)
    assert not subject._first.is_set()
    release.set()
    subject.wait_for_first(10)
    assert subject._first.is_set()
    subject.stop()
    subject.join(10)


def test_a_round_that_hangs_is_no_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is alive while rounds begin, not once none has for an interval and a round's time, nor when stopped."""
    now = itertools.count(0, 50)  # each look is 50 s later
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    subject = Loop(lambda: True, 60, 90)
    assert [subject.is_alive for _ in range(4)] == [True, True, False, False]
    monkeypatch.undo()
    subject = Loop(lambda: True, 60, 90)
    subject.stop()
    assert not subject.is_alive


@pytest.mark.parametrize(
    ("clock", "steady", "back"),
    [(60, 60, 0), (3600, 60, 0), (56, 60, 0), (50, 60, 10), (-3600, 0, 3600), (0, 3600, 3600)],
)
def test_a_clock_that_was_set_back_is_noticed(clock: float, steady: float, back: float) -> None:
    """What passed by the clock is held against what passed; a few seconds are a correction, ahead is no harm."""
    times = iter([100.0, 100.0 + steady])
    guard = ClockGuard(1000.0, lambda: next(times))
    assert guard.seconds_set_back(1000.0 + clock) == back
