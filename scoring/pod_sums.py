"""What the pods of each node add up to, counted in each way that some score needs."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from scoring import pod_demand
from scoring.objects import Pod

Int64s = NDArray[np.int64]

_KINDS = 3  # requests, limits, in-tree requests
_NON_ZERO = tuple(pod_demand.NON_ZERO_REQUESTS)
_COUNTS = 3  # pods, terminating, nominated


class PodSums:
    """Sums over each node's pods, in one array that changes in place; a copy is one copy.

    Args:
        resources: the resources to sum; pods' other resources are left out.
        amounts: the sums, one column a node. Its rows are the attributes below, in their order.

    Attributes:
        requests: as Trimaran counts them, shape (resources, nodes); :mod:`scoring.pod_demand` says how.
        limits: each pod's at least its request, shape (resources, nodes).
        in_tree_requests: as kube-scheduler counts them, shape (resources, nodes).
        in_tree_non_zero: the same of CPU and memory, containers without a request counted as 100m CPU and 200 MiB,
            shape (2, nodes).
        pods: how many pods, shape (nodes,).
        terminating: how many of them are terminating, shape (nodes,).
        nominated: how many pending pods are nominated, shape (nodes,); kept by the table.
    """

    __slots__ = (
        "_column", "amounts", "in_tree_non_zero", "in_tree_requests", "limits", "nominated", "pods", "requests",
        "resources", "terminating",
    )  # fmt: skip

    def __init__(self, resources: Sequence[str], amounts: Int64s) -> None:
        self.resources = resources
        self.amounts = amounts
        self._column = {name: column for column, name in enumerate(resources)}
        size = len(resources)
        self.requests, self.limits, self.in_tree_requests = (amounts[k * size : (k + 1) * size] for k in range(_KINDS))
        self.in_tree_non_zero = amounts[_KINDS * size : -_COUNTS]
        self.pods, self.terminating, self.nominated = amounts[-_COUNTS:]

    @classmethod
    def zeros(cls, resources: Sequence[str], nodes: int) -> "PodSums":
        """Return the sums of nodes without pods."""
        return cls(resources, np.zeros((_KINDS * len(resources) + len(_NON_ZERO) + _COUNTS, nodes), np.int64))

    def __repr__(self) -> str:
        return f"PodSums({self.resources!r}, {self.amounts.tolist()!r})"

    def __reduce__(self) -> tuple[type["PodSums"], tuple[Sequence[str], Int64s]]:
        return PodSums, (self.resources, self.amounts)  # the others are views of it

    def count(self, node: int, pod: Pod, sign: int) -> None:
        """Add a pod to a node (sign 1), or take it away (-1)."""
        size = len(self.resources)
        column = [0] * len(self.amounts)
        for name in pod_demand.names(pod):
            place = self._column.get(name)
            if place is not None:
                column[place] = pod_demand.requests(pod, name)
                column[size + place] = pod_demand.limits(pod, name)
                column[2 * size + place] = pod_demand.in_tree_requests(pod, name)
        for place, name in enumerate(_NON_ZERO, _KINDS * size):
            column[place] = pod_demand.in_tree_requests(pod, name, non_zero=True)
        column[-3:] = 1, int(pod.terminating), 0
        if sign > 0:
            self.amounts[:, node] += column
        else:
            self.amounts[:, node] -= column

    def copy(self) -> "PodSums":
        """Return sums of their own that are equal now."""
        return PodSums(self.resources, self.amounts.copy())

    def take(self, nodes: Int64s) -> "PodSums":
        """Return sums of their own of some nodes, in that order."""
        return PodSums(self.resources, self.amounts[:, nodes])

    def joined(self, more: int) -> "PodSums":
        """Return sums with so many more nodes, without pods, at the end."""
        return PodSums(self.resources, np.pad(self.amounts, ((0, 0), (0, more))))

    def of_resources(self, resources: Sequence[str], pods: Iterable[tuple[int, Pod]]) -> "PodSums":
        """Return sums of other resources.

        Args:
            resources: the resources to sum.
            pods: every pod with its row; read only where there is a resource that was not summed before.
        """
        after = PodSums.zeros(resources, self.amounts.shape[1])
        after.amounts[_KINDS * len(resources) :] = self.amounts[_KINDS * len(self.resources) :]
        kinds = "requests", "limits", "in_tree_requests"
        for place, name in enumerate(resources):
            if name in self._column:
                for kind in kinds:
                    getattr(after, kind)[place] = getattr(self, kind)[self._column[name]]
        new = [(place, name) for place, name in enumerate(resources) if name not in self._column]
        for row, pod in pods if new else ():
            named = pod_demand.names(pod)
            for place, name in new:
                if name in named:
                    after.requests[place, row] += pod_demand.requests(pod, name)
                    after.limits[place, row] += pod_demand.limits(pod, name)
                    after.in_tree_requests[place, row] += pod_demand.in_tree_requests(pod, name)
        return after
