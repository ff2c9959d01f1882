"""Reflectors of several kinds of objects that are started, watched and stopped together."""

import time
from collections.abc import Sequence
from typing import Self

from runtime.kubernetes.reflector import Reflector


class ReflectorGroup:
    """Reflectors with a common status: synced once all of them are, with the age of the oldest one.

    Args:
        reflectors: the reflectors, in the order in which they are started.

    Attributes:
        reflectors: the reflectors, in the same order.
    """

    def __init__(self, reflectors: Sequence[Reflector]) -> None:
        self.reflectors = tuple(reflectors)

    def start(self) -> Self:
        """Start to list and watch in the background; :meth:`wait` waits for the first full lists."""
        for reflector in self.reflectors:
            reflector.start()
        return self

    def close(self) -> None:
        """Stop, and abort all requests of the API clients. What was read stays readable."""
        for reflector in self.reflectors:
            reflector.stop()
        for reflector in self.reflectors:
            reflector.join()

    def wait(self, seconds: float) -> bool:
        """Wait for the first full list of every kind; return whether all have arrived."""
        until = time.monotonic() + seconds
        return all(each.synced.wait(max(0.0, until - time.monotonic())) for each in self.reflectors)

    @property
    def is_synced(self) -> bool:
        """True once the first full list of every kind has arrived."""
        return all(each.synced.is_set() for each in self.reflectors)

    @property
    def failures(self) -> tuple[str, ...]:
        """Reasons why the API server cannot be read now, with the missing RBAC rule after a 403."""
        return tuple(dict.fromkeys(each.failure for each in self.reflectors if each.failure))

    @property
    def why_unknown(self) -> str:
        """Reason why the cluster is not known yet, for a readiness probe; empty once it is."""
        reasons = "; ".join(self.failures) or "the first full lists have not arrived"
        return "" if self.is_synced else f"the cluster is not known: {reasons}"

    @property
    def age_seconds(self) -> float:
        """Seconds since the API server last reported on each kind of objects; the longest time counts."""
        return max(each.age_seconds for each in self.reflectors)

    @property
    def was_heard(self) -> bool:
        """True once the API server has answered, if only with an error."""
        return any(each.was_heard for each in self.reflectors)

    @property
    def lists(self) -> int:
        """Number of full lists read: one of each kind, plus one for each relist after a failed watch."""
        return sum(each.lists for each in self.reflectors)
