"""What the pods of each node add up to, counted in each way that some score needs."""

from collections.abc import Iterable, Mapping

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s

_NON_ZERO = tuple(pod_demand.NON_ZERO_REQUESTS)
# With one more pod it is still within 64 bits. What comes from outside is held to far less: see ``objects.MOST``.
_MOST_ON_A_NODE = 2**62
_COUNTS = 3  # pods, terminating, nominated


class PodSums:
    """Sums over each node's pods, in one array that changes in place; a copy is one copy.

    Args:
        column: the resources to sum, each with its place, from 0 on; pods' other resources are left out.
        amounts: the sums, one column a node. Its rows are the properties below, in their order.
    """

    __slots__ = ("amounts", "column")

    def __init__(self, column: Mapping[str, int], amounts: Int64s) -> None:
        self.column = column
        self.amounts = amounts

    @classmethod
    def zeros(cls, column: Mapping[str, int], nodes: int) -> "PodSums":
        """Return the sums of nodes without pods."""
        return cls(column, np.zeros((3 * len(column) + len(_NON_ZERO) + _COUNTS, nodes), np.int64))

    def __repr__(self) -> str:
        return f"PodSums({self.column!r}, {self.amounts.tolist()!r})"

    @property
    def requests(self) -> Int64s:
        """Requests as Trimaran counts them, shape (resources, nodes); :mod:`runtime.kubernetes.pod_demand` says how."""
        return self.amounts[: len(self.column)]

    @property
    def limits(self) -> Int64s:
        """Limits, each pod's at least its request, shape (resources, nodes)."""
        return self.amounts[len(self.column) : 2 * len(self.column)]

    @property
    def in_tree_requests(self) -> Int64s:
        """Requests as kube-scheduler counts them, shape (resources, nodes)."""
        return self.amounts[2 * len(self.column) : 3 * len(self.column)]

    @property
    def in_tree_non_zero(self) -> Int64s:
        """The same of CPU and memory, with 100m CPU and 200 MiB for containers that request none, shape (2, nodes)."""
        return self.amounts[3 * len(self.column) : -_COUNTS]

    @property
    def pods(self) -> Int64s:
        """How many pods, shape (nodes,)."""
        count: Int64s = self.amounts[-3]
        return count

    @property
    def terminating(self) -> Int64s:
        """How many of the pods are terminating, shape (nodes,)."""
        count: Int64s = self.amounts[-2]
        return count

    @property
    def nominated(self) -> Int64s:
        """How many pending pods are nominated, shape (nodes,)."""
        count: Int64s = self.amounts[-1]
        return count

    def count(self, node: int, pod: Pod, sign: int) -> None:
        """Add a pod to a node (sign 1), or take it away (-1).

        Raises:
            ValueError: the sum would leave what scores can be computed from; nothing is added.
        """
        known = pod.known_requests
        kept = None if known is None else known.change  # read once: others may count the same for another table
        if kept is not None and kept[0] is self.column:
            change = kept[1]
        else:
            change = self._change(pod)
            if known is not None:
                known.change = self.column, change
        before = self.amounts[:, node]
        after = before + change if sign > 0 else before - change
        if np.maximum.reduce(after) > _MOST_ON_A_NODE:
            raise ValueError(f"pod {pod.namespace}/{pod.name}: with it, a node's pods ask for more than can be counted")
        self.amounts[:, node] = after
        if pod.terminating:
            self.terminating[node] += sign

    def _change(self, pod: Pod) -> Int64s:
        """Return what a pod that is not terminating adds to a node's sums."""
        size = len(self.column)
        change = [0] * len(self.amounts)
        for name in pod_demand.names(pod):
            place = self.column.get(name)
            if place is not None:
                change[place] = pod_demand.requests(pod, name)
                change[size + place] = pod_demand.limits(pod, name)
                change[2 * size + place] = pod_demand.in_tree_requests(pod, name)
        for place, name in enumerate(_NON_ZERO, 3 * size):
            change[place] = pod_demand.in_tree_requests(pod, name, non_zero=True)
        change[-_COUNTS] = 1
        if max(change) > _MOST_ON_A_NODE:
            raise ValueError(f"pod {pod.namespace}/{pod.name} asks for more than any node has")
        return np.array(change, np.int64)

    def copy(self) -> "PodSums":
        """Return sums of their own that are equal now."""
        return PodSums(self.column, self.amounts.copy())

    def take(self, nodes: Int64s) -> "PodSums":
        """Return sums of their own of some nodes, in that order."""
        return PodSums(self.column, self.amounts[:, nodes])

    def extended(self, more: int) -> "PodSums":
        """Return sums with so many more nodes, without pods, at the end."""
        return PodSums(self.column, np.pad(self.amounts, ((0, 0), (0, more))))

    def for_resources(self, column: Mapping[str, int], pods: Iterable[tuple[int, Pod]]) -> "PodSums":
        """Return sums of other resources.

        Args:
            column: the resources to sum, each with its place.
            pods: every pod with its row; read only where there is a resource that was not summed before.
        """
        after = PodSums.zeros(column, self.amounts.shape[1])
        after.amounts[3 * len(column) :] = self.amounts[3 * len(self.column) :]
        new = {name: place for name, place in column.items() if name not in self.column}
        for name, place in column.items():
            if name not in new:
                for kind in ("requests", "limits", "in_tree_requests"):
                    getattr(after, kind)[place] = getattr(self, kind)[self.column[name]]
        for row, pod in pods if new else ():
            for name in new.keys() & pod_demand.names(pod):
                after.requests[new[name], row] += pod_demand.requests(pod, name)
                after.limits[new[name], row] += pod_demand.limits(pod, name)
                after.in_tree_requests[new[name], row] += pod_demand.in_tree_requests(pod, name)
        return after
