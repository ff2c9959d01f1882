"""Freshness of measurements, by a wall clock that may be changed."""

from dataclasses import dataclass

#: Number of old fetches, or rounds of samples, that are deleted at a time. It is more than one so that deletion catches
#: up, and small so that a clock that is ahead for a moment does not delete the whole history.
PRUNE_BATCH_SIZE = 5
CLOCK_CORRECTION_SECONDS = 5.0  # size of the corrections by time servers; larger steps mean that the clock was changed


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness check at a moment: measurements are fresh for ``expiry_seconds`` after their end.

    Measurements that end in the future are not fresh, except for small clock corrections: the clock was set back, so
    their age is unknown.
    """

    now: float
    expiry_seconds: float

    def is_fresh(self, end: float) -> bool:
        """Return whether measurements that end at ``end``, Unix seconds, are fresh."""
        return -CLOCK_CORRECTION_SECONDS <= self.now - end <= self.expiry_seconds
