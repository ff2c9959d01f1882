"""The pace of the fetch loop, and the guard against a clock that was set back."""

import itertools
import threading
import time

import pytest

from watcher.loop import Loop
from watcher.pipeline.clock import ClockGuard


class RecordedPauses(threading.Event):
    """An event whose waits return at once; records each timeout and is set after a number of waits."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(round(timeout or 0.0))
        if len(self.seconds) == self._most:
            self.set()
        return self.is_set()


def test_backoff_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after a failure is 2 s and doubles up to the interval; a successful round resets it."""
    outcomes = iter([True, False, False, False, False, False, False, True, False])
    subject = Loop(lambda: next(outcomes), 60, 90)
    pauses = RecordedPauses(9)
    monkeypatch.setattr(subject, "_stopped", pauses)
    subject.start()
    subject.join(10)
    assert pauses.seconds == [60, 2, 4, 8, 16, 32, 60, 60, 2]


@pytest.mark.parametrize("error", [RuntimeError("a defect"), SystemExit("of a provider")])
def test_waiting_for_the_first_round(error: BaseException) -> None:
    """wait_for_first returns when the first round has ended, also with an exception, or at its timeout."""
    release = threading.Event()

    def fail() -> bool:
        release.wait(10)
        raise error

    subject = Loop(fail, 60, 90)
    subject.start()
    subject.wait_for_first(0.01)
    assert not subject._first.is_set()
    release.set()
    subject.wait_for_first(10)
    assert subject._first.is_set()
    subject.stop()
    subject.join(10)


def test_a_hanging_round_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is alive while rounds begin in time, and not after a round hangs or the loop was stopped."""
    now = itertools.count(0, 50)  # each reading of the clock is 50 s later
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
def test_clock_set_back_is_detected(clock: float, steady: float, back: float) -> None:
    """The wall clock is compared with the monotonic clock; a step ahead or of a few seconds back is ignored."""
    times = iter([100.0, 100.0 + steady])
    guard = ClockGuard(1000.0, lambda: next(times))
    assert guard.seconds_set_back(1000.0 + clock) == back
