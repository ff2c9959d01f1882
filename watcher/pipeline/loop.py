"""Fetch loop: runs rounds at a fixed interval, with exponential backoff after failures; no failure ends it."""

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS = 2.0


class Loop:
    """Runs rounds in a thread until it is stopped.

    Args:
        run: runs one round; returns whether it succeeded.
        interval_seconds: seconds from the start of one round to the start of the next. After a failed round the pause
            is 2 seconds, and doubles with each further failure, up to this interval.
        round_seconds: maximum duration of a round, above which the loop counts as hanging.
    """

    def __init__(self, run: Callable[[], bool], interval_seconds: float, round_seconds: float) -> None:
        self._run_once = run
        self._interval = interval_seconds
        self._longest_pause = interval_seconds + round_seconds
        self._ticked_at = time.monotonic()
        self._first = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_stopped(self) -> bool:
        """True after ``stop()``."""
        return self._stopped.is_set()

    @property
    def is_alive(self) -> bool:
        """True while rounds start in time; failed rounds do not change that."""
        return not self.is_stopped and time.monotonic() - self._ticked_at < self._longest_pause

    def start(self) -> None:
        """Start the first round in a background thread."""
        self._thread = threading.Thread(target=self._run, name="watching", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Start no further round, without waiting for a round in progress."""
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
            try:
                worked = self._run_once()
            except Exception:  # noqa: BLE001
                # A bug must not end the service: its snapshots stay valid until they expire.
                _log.exception("the fetch failed unexpectedly")
                worked = False
            self._first.set()
            pause = self._interval if worked else min(retry, self._interval)
            retry = _FIRST_RETRY_SECONDS if worked else min(2 * retry, self._interval)
            self._stopped.wait(max(0.0, began + pause - time.monotonic()))
