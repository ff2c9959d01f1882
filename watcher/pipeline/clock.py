"""Detection of a system clock that was set back, which makes older timestamps look more recent than they are."""

import time
from collections.abc import Callable

from watcher.freshness import CLOCK_CORRECTION_SECONDS


class ClockGuard:
    """Detects that the system clock was set back, by comparison with the monotonic clock, which cannot be set."""

    def __init__(self, now: float, steady: Callable[[], float] = time.monotonic) -> None:
        """Record the present time of both clocks.

        Args:
            now: time of the system clock, Unix seconds.
            steady: function that returns the seconds of a monotonic clock.
        """
        self._now = now
        self._steady = steady
        self._read_at = steady()

    def seconds_set_back(self, now: float) -> float:
        """Return the seconds by which the system clock was set back since the last call, or since the start.

        Return 0 for steps of up to 5 seconds, which are corrections by time servers.
        """
        read_at = self._steady()
        back = (self._now - now) + (read_at - self._read_at)
        self._now, self._read_at = now, read_at
        return back if back > CLOCK_CORRECTION_SECONDS else 0.0
