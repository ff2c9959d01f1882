"""Freshness of measurements: a check that they are recent enough to be served, by a clock that may be set back."""

from dataclasses import dataclass

#: Number of old fetches, or rounds of samples, that are deleted at a time. It is more than one so that deletion catches
#: up, and small so that a clock that is ahead for a moment does not delete the whole history.
PRUNE_BATCH_SIZE = 5
CLOCK_CORRECTION_SECONDS = 5.0  # size of the corrections by time servers; larger steps mean that the clock was changed


@dataclass(frozen=True, slots=True)
class Freshness:
    """Check that measurements are fresh, that is, recent enough to be served, at the time ``now``.

    Measurements are fresh until ``expiry_seconds`` after the end of the time that they cover. If this end is more than
    5 seconds in the future, the clock was set back and their age is unknown, so they are not fresh. Smaller differences
    are corrections by time servers.

    Attributes:
        now: Unix seconds.
        expiry_seconds: age above which measurements are not fresh.
    """

    now: float
    expiry_seconds: float

    def is_fresh(self, end: float) -> bool:
        """Return whether measurements over a time that ends at ``end``, Unix seconds, are fresh."""
        return -CLOCK_CORRECTION_SECONDS <= self.now - end <= self.expiry_seconds
