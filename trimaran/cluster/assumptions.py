"""Assumptions: pods that are scored but not yet known to be bound, each with the node that it is expected on.

Without an assumption the next pod, scored before the API server has reported the last binding, would find the same node
idle again. A scored pod therefore counts on its expected node until the watch shows that the pod is bound,
unschedulable or deleted, or until the assumption expires. Counters say how often a pod was bound to the expected node.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """Node that a scored pod is expected to be bound to; ``at`` is the monotonic time of the assumption."""

    node_name: str
    at: float


@dataclass(slots=True)
class AssumptionOutcomes:
    """Number of ended assumptions, by the reason for the end.

    Attributes:
        hits: the pod was bound to the expected node.
        misses: the pod was bound to another node.
        dropped: the pod was unschedulable, deleted or scored again, or its expected node was deleted.
        expired: the API server reported nothing about the pod in time.
    """

    hits: int = 0
    misses: int = 0
    dropped: int = 0
    expired: int = 0


class Assumptions:
    """Assumptions by pod uid, oldest first. Not thread-safe: the caller must hold a lock.

    Args:
        keep_seconds: time until an assumption expires.

    Attributes:
        outcomes: number of ended assumptions, by the reason for the end.
    """

    def __init__(self, keep_seconds: float = 30.0) -> None:
        self._keep_seconds = keep_seconds
        self._by_uid: dict[str, Assumption] = {}
        self.outcomes = AssumptionOutcomes()

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def node_of(self, uid: str) -> str:
        """Return the name of the node that a pod is assumed on; empty without an assumption."""
        assumption = self._by_uid.get(uid)
        return "" if assumption is None else assumption.node_name

    def add(self, uid: str, node_name: str, at: float) -> None:
        """Assume that a pod will be bound to a node; replaces the pod's earlier assumption."""
        self._by_uid.pop(uid, None)
        self._by_uid[uid] = Assumption(node_name, at)

    def resolve(self, uid: str, node_name: str) -> None:
        """End the assumption of a pod that was bound to a node, and count a hit or a miss. Ignores other pods."""
        assumption = self._by_uid.pop(uid, None)
        if assumption is not None:
            self.outcomes.hits += assumption.node_name == node_name
            self.outcomes.misses += assumption.node_name != node_name

    def drop(self, uid: str) -> bool:
        """Drop the assumption of a pod; return False if the pod has no assumption."""
        existed = self._by_uid.pop(uid, None) is not None
        self.outcomes.dropped += existed
        return existed

    def expire(self, now: float) -> list[str]:
        """Drop the assumptions that have expired at ``now``, monotonic seconds; return the uids of their pods."""
        expired = []
        for uid, assumption in self._by_uid.items():
            if now - assumption.at < self._keep_seconds:
                break  # the order is by age: all later assumptions are younger
            expired.append(uid)
        for uid in expired:
            del self._by_uid[uid]
        self.outcomes.expired += len(expired)
        return expired
