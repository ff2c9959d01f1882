"""Assumed placements: pods between their scores and their binding.

A scheduler that asks for the scores of the next pod before the API server has reported the last binding would see the
same node idle again. The best candidate is therefore assumed, one for each pod, until the watch shows that the pod is
bound, unschedulable or deleted, or until the assumption expires. Counters say how often the pod was bound to the
assumed node.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """Pod that is expected on a node; ``at`` is the monotonic time of the score."""

    node_name: str
    at: float


@dataclass(slots=True)
class AssumptionOutcomes:
    """Number of assumptions by the way they ended.

    Attributes:
        hits: the pod was bound to the assumed node.
        misses: the pod was bound to another node.
        dropped: the pod was unschedulable or deleted.
        expired: nothing was heard of the pod in time.
    """

    hits: int = 0
    misses: int = 0
    dropped: int = 0
    expired: int = 0


class Assumptions:
    """Assumptions by pod uid, oldest first. Needs the caller's lock.

    Args:
        keep_seconds: time until an assumption expires.

    Attributes:
        outcomes: number of assumptions by the way they ended.
    """

    def __init__(self, keep_seconds: float = 30.0) -> None:
        self._keep_seconds = keep_seconds
        self._by_uid: dict[str, Assumption] = {}
        self.outcomes = AssumptionOutcomes()

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def add(self, uid: str, node_name: str, at: float) -> None:
        """Assume a pod on a node; replaces the pod's earlier assumption."""
        self._by_uid.pop(uid, None)
        self._by_uid[uid] = Assumption(node_name, at)

    def resolve(self, uid: str, node_name: str) -> None:
        """Count a hit or a miss for a pod that was bound, if the pod was assumed."""
        assumption = self._by_uid.pop(uid, None)
        if assumption is not None:
            self.outcomes.hits += assumption.node_name == node_name
            self.outcomes.misses += assumption.node_name != node_name

    def drop(self, uid: str) -> bool:
        """Drop the assumption of a pod; return whether there was one."""
        existed = self._by_uid.pop(uid, None) is not None
        self.outcomes.dropped += existed
        return existed

    def expire(self, now: float) -> list[str]:
        """Drop expired assumptions at a monotonic time; return the uids of their pods."""
        expired = []
        for uid, assumption in self._by_uid.items():
            if now - assumption.at < self._keep_seconds:
                break  # the others are younger
            expired.append(uid)
        for uid in expired:
            del self._by_uid[uid]
        self.outcomes.expired += len(expired)
        return expired
