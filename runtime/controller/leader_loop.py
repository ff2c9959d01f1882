"""Loop that runs the cycles of a controller with leader election; an error in one cycle does not end the loop."""

import logging
import threading
import time
from collections.abc import Callable

from runtime.controller.leadership import Leadership
from runtime.threads import TurnGuard, join_all

_STUCK_SECONDS = 300.0
_FIRST_SECONDS = 0.5  # between attempts until the first cycle has run
_JOIN_SECONDS = 3.0
_log = logging.getLogger(__name__)


class LeaderElectedLoop:
    """Threads of a controller: one runs its cycles, the other takes part in the leader election.

    Args:
        leadership: leader election; None for a controller that writes nothing.
        cycle: runs a cycle; returns False if the cycle did not run because its inputs are not available yet.
        interval_seconds: time between two cycles.
    """

    def __init__(self, leadership: Leadership | None, cycle: Callable[[], bool], interval_seconds: float) -> None:
        self._leadership, self._cycle, self._interval = leadership, cycle, interval_seconds
        self._stop = threading.Event()
        self._cycles = TurnGuard(_log, "a cycle failed", "cycles succeed again")
        self._ticked_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="cycle", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._ticked_at = time.monotonic()
        if self._leadership is not None:
            self._leadership.start()
        self._thread.start()

    def is_alive(self) -> bool:
        """Return whether the threads run, and make progress or wait for their next turn."""
        if self._leadership is not None and not self._leadership.is_alive():
            return False
        return self._thread.is_alive() and time.monotonic() - self._ticked_at < _STUCK_SECONDS + self._interval

    @property
    def failure(self) -> str:
        """Reason why the controller does nothing, for the readiness probe; empty if it works.

        The last cycle or renewal failed unexpectedly, or the Lease cannot be acquired by any process.
        """
        return self._cycles.failure or ("" if self._leadership is None else self._leadership.problem)

    def stop(self) -> None:
        """Stop the threads, and release the Lease."""
        self._stop.set()
        join_all([self._thread], _JOIN_SECONDS)
        if self._leadership is not None:
            self._leadership.stop()

    def _run(self) -> None:
        has_run = False
        while not self._stop.is_set():
            self._ticked_at = time.monotonic()
            has_run |= self._cycles.run(self._cycle, otherwise=False)
            self._stop.wait(self._interval if has_run else min(_FIRST_SECONDS, self._interval))
