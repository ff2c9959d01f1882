"""The loop: rounds at a steady pace, sooner after one that failed, and none that ends it."""

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS = 2.0


class Loop:
    """Runs rounds in a thread until it is stopped.

    Args:
        run: one round; returns whether it worked.
        interval_seconds: time from the beginning of one to that of the next. After one that failed it is
            shorter, and doubles with each that fails, up to this.
        round_seconds: how long one may take at most, to tell a loop that hangs.
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
        """Whether it was told to stop."""
        return self._stopped.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether rounds still begin; one that fails does not stop them."""
        return not self.is_stopped and time.monotonic() - self._ticked_at < self._longest_pause

    def start(self) -> None:
        """Begin with the first round, in the background."""
        self._thread = threading.Thread(target=self._run, name="watching", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin no further round; the one that is under way is not waited for."""
        self._stopped.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until the last round has ended, but no longer than this."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def wait_for_first(self, timeout_seconds: float) -> None:
        """Wait until the first round is done, whether it worked or not."""
        self._first.wait(timeout_seconds)

    def _run(self) -> None:
        retry = _FIRST_RETRY_SECONDS
        while not self._stopped.is_set():
            self._ticked_at = began = time.monotonic()
            try:
                worked = self._run_once()
            except Exception:  # noqa: BLE001
                # A defect of ours must not end the service: what it has stays good until it expires.
                _log.exception("the fetch failed unexpectedly")
                worked = False
            self._first.set()
            pause = self._interval if worked else min(retry, self._interval)
            retry = _FIRST_RETRY_SECONDS if worked else min(2 * retry, self._interval)
            self._stopped.wait(max(0.0, began + pause - time.monotonic()))
