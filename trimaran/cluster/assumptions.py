"""Placements that were advised and are not known to have happened: what is in flight between a score and a binding.

A scheduler that asks for the next pod's scores before the API server has told of the last one's binding would find the
same node idle again. So the best candidate is assumed, one for each pod, until the watch speaks: the pod is bound,
could not be scheduled, or is gone; or until an assumption is too old to be believed. How often the best candidate was
the node that the pod was bound to is counted.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """A pod that is expected on a node; ``at`` is the monotonic time when it was advised."""

    node_name: str
    at: float


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of assumptions so far.

    Attributes:
        hits: the pod was bound to the node.
        misses: it was bound to another one.
        dropped: it could not be scheduled, or is gone.
        expired: nothing was heard of it.
    """

    hits: int = 0
    misses: int = 0
    dropped: int = 0
    expired: int = 0


class Assumptions:
    """One assumption for each pod, by uid, in the order they were made in. Needs the caller's lock.

    Args:
        keep_seconds: how long one is believed.
    """

    def __init__(self, keep_seconds: float = 30.0) -> None:
        self._keep_seconds = keep_seconds
        self._by_uid: dict[str, Assumption] = {}
        self._hits = self._misses = self._dropped = self._expired = 0

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def make(self, uid: str, node_name: str, at: float) -> None:
        """Assume a pod on a node, in place of what was assumed of it before."""
        self._by_uid.pop(uid, None)
        self._by_uid[uid] = Assumption(node_name, at)

    def bound(self, uid: str, node_name: str) -> None:
        """Note that a pod was bound; it need not have been assumed."""
        assumption = self._by_uid.pop(uid, None)
        if assumption is not None:
            self._hits += assumption.node_name == node_name
            self._misses += assumption.node_name != node_name

    def drop(self, uid: str) -> bool:
        """Give up an assumption; return whether there was one."""
        there = self._by_uid.pop(uid, None) is not None
        self._dropped += there
        return there

    def expire(self, now: float) -> list[str]:
        """Give up those that are too old by the monotonic time; return their pods' uids."""
        old = []
        for uid, assumption in self._by_uid.items():
            if now - assumption.at < self._keep_seconds:
                break  # the rest is younger
            old.append(uid)
        for uid in old:
            del self._by_uid[uid]
        self._expired += len(old)
        return old

    @property
    def outcomes(self) -> Outcomes:
        """What became of assumptions so far."""
        return Outcomes(self._hits, self._misses, self._dropped, self._expired)
