"""A clock that is set back: what it stamped before passes for younger than it is."""

import time
from collections.abc import Callable

from watcher.freshness import CLOCK_CORRECTION_SECONDS


class ClockGuard:
    """Holds a clock that people set against the one that nobody can."""

    def __init__(self, now: float, steady: Callable[[], float] = time.monotonic) -> None:
        """Begin at ``now``, unix seconds."""
        self._now = now
        self._steady = steady
        self._read_at = steady()

    def seconds_set_back(self, now: float) -> float:
        """Return by how much it was set back since the last call; 0 when it was not, or as time servers do."""
        read_at = self._steady()
        back = (self._now - now) + (read_at - self._read_at)
        self._now, self._read_at = now, read_at
        return back if back > CLOCK_CORRECTION_SECONDS else 0.0
