"""Detection of a clock that was set back: earlier timestamps would look too recent."""

import time
from collections.abc import Callable

from watcher.freshness import CLOCK_CORRECTION_SECONDS


class ClockGuard:
    """Compares the system clock, which can be set, with the monotonic clock, which cannot."""

    def __init__(self, now: float, steady: Callable[[], float] = time.monotonic) -> None:
        """Start at ``now``, Unix seconds by the system clock."""
        self._now = now
        self._steady = steady
        self._read_at = steady()

    def seconds_set_back(self, now: float) -> float:
        """Return by how much the clock was set back since the last call; 0 for small steps, as of time servers."""
        read_at = self._steady()
        back = (self._now - now) + (read_at - self._read_at)
        self._now, self._read_at = now, read_at
        return back if back > CLOCK_CORRECTION_SECONDS else 0.0
