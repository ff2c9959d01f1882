"""Fetch loop: runs rounds at a fixed interval, with exponential backoff after failures. A failure never ends the loop.

A round is one fetch of all windows with all that follows from it, such as publishing.
"""

import logging
import threading
import time
from collections.abc import Callable

from runtime.threads import TurnGuard, start_thread

_log = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS = 2.0


class Loop:
    """Calls a function, which runs one round, again and again in a background thread, until ``stop()`` is called.

    Args:
        run: function that runs one round and returns whether the round succeeded.
        interval_seconds: seconds from the start of one round to the start of the next. After a failed round the next
            starts after 2 seconds; this time doubles with each further failure, up to the interval.
        round_seconds: maximum duration of a round; if a round takes longer, ``is_alive`` becomes false.
    """

    def __init__(self, run: Callable[[], bool], interval_seconds: float, round_seconds: float) -> None:
        self._run_once = run
        self._interval = interval_seconds
        self._longest_pause = interval_seconds + round_seconds
        self._ticked_at = time.monotonic()
        self._first = threading.Event()
        self._turns = TurnGuard(_log, "a round failed unexpectedly", "rounds succeed again")
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_stopped(self) -> bool:
        """True after ``stop()`` was called."""
        return self._stopped.is_set()

    @property
    def is_alive(self) -> bool:
        """True while rounds start on time, even if each fails; false if a round hangs, and after ``stop()``."""
        return not self.is_stopped and time.monotonic() - self._ticked_at < self._longest_pause

    def start(self) -> None:
        """Start the first round in a background thread."""
        self._thread = start_thread(self._run, "watching")

    def stop(self) -> None:
        """Prevent further rounds. A round in progress continues; use :meth:`join` to wait for its end."""
        self._stopped.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until the last round has ended, at most this many seconds."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def wait_for_first(self, timeout_seconds: float) -> None:
        """Wait until the first round has ended, successfully or not."""
        self._first.wait(timeout_seconds)

    def _run(self) -> None:
        retry = _FIRST_RETRY_SECONDS
        while not self._stopped.is_set():
            self._ticked_at = began = time.monotonic()
            worked = self._turns.run(self._run_once, otherwise=False)  # snapshots stay valid until they expire
            self._first.set()
            pause = self._interval if worked else min(retry, self._interval)
            retry = _FIRST_RETRY_SECONDS if worked else min(2 * retry, self._interval)
            self._stopped.wait(max(0.0, began + pause - time.monotonic()))
