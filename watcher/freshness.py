"""What is fresh enough to act on, by a clock that may be set."""

from dataclasses import dataclass

#: Fetches, or rounds of samples, that are forgotten at a time: more than one adds, so that it catches up; and few, so
#: that a clock that is ahead for a moment does not take the history with it.
PRUNED_AT_ONCE = 5
CLOCK_CORRECTION_SECONDS = 5.0  # as time servers make them; what is more is a clock that was set


@dataclass(frozen=True, slots=True)
class Freshness:
    """What is fresh at a moment: what ended no more than ``expiry_seconds`` before it.

    What ends after it is not, but for small corrections: then the clock was set back, and the age says nothing.
    """

    now: float
    expiry_seconds: float

    def holds(self, end: float) -> bool:
        """Return whether measurements that end then, unix seconds, are fresh."""
        return -CLOCK_CORRECTION_SECONDS <= self.now - end <= self.expiry_seconds
