"""Sums over the pods of each node: requests and limits, as Trimaran and as kube-scheduler count them, and numbers."""

from collections.abc import Iterable, Mapping

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s

_NON_ZERO = tuple(pod_demand.NON_ZERO_REQUESTS)
# One more pod still fits 64 bits. Amounts read from Kubernetes are limited to far less: see ``objects.MAX_AMOUNT``.
_MAX_SUM = 2**62
_COUNTS = 3  # pods, terminating, nominated


class PodSums:
    """Sums over the pods of each node, in one array that is modified in place, so a copy of the sums is fast.

    Args:
        column: index of each resource to sum, from 0 on; other resources of pods are ignored.
        amounts: array of all sums, one column per node. The properties of this class are views of its rows.
    """

    __slots__ = ("amounts", "column")

    def __init__(self, column: Mapping[str, int], amounts: Int64s) -> None:
        self.column = column
        self.amounts = amounts

    @classmethod
    def zeros(cls, column: Mapping[str, int], nodes: int) -> "PodSums":
        """Return the sums, all 0, of a number of nodes without pods.

        Args:
            column: index of each resource to sum.
            nodes: number of nodes.
        """
        return cls(column, np.zeros((3 * len(column) + len(_NON_ZERO) + _COUNTS, nodes), np.int64))

    def __repr__(self) -> str:
        return f"PodSums({self.column!r}, {self.amounts.tolist()!r})"

    @property
    def requests(self) -> Int64s:
        """Sums of the requests as Trimaran counts them, shape (resources, nodes).

        See :mod:`runtime.kubernetes.pod_demand` for the ways to count.
        """
        return self.amounts[: len(self.column)]

    @property
    def limits(self) -> Int64s:
        """Sums of the limits, where each pod counts with at least its request, shape (resources, nodes)."""
        return self.amounts[len(self.column) : 2 * len(self.column)]

    @property
    def in_tree_requests(self) -> Int64s:
        """Sums of the requests as kube-scheduler's own ("in-tree") plugins count them, shape (resources, nodes)."""
        return self.amounts[2 * len(self.column) : 3 * len(self.column)]

    @property
    def in_tree_non_zero(self) -> Int64s:
        """Sums of CPU and memory requests as kube-scheduler counts them for scores, shape (2, nodes).

        A container without a request counts as 100m CPU or 200 MiB.
        """
        return self.amounts[3 * len(self.column) : -_COUNTS]

    @property
    def pods(self) -> Int64s:
        """Number of pods on each node, shape (nodes,)."""
        count: Int64s = self.amounts[-3]
        return count

    @property
    def terminating(self) -> Int64s:
        """Number of terminating pods on each node, shape (nodes,)."""
        count: Int64s = self.amounts[-2]
        return count

    @property
    def nominated(self) -> Int64s:
        """Number of pending pods nominated to each node, shape (nodes,)."""
        count: Int64s = self.amounts[-1]
        return count

    def count(self, node: int, pod: Pod, sign: int) -> None:
        """Add a pod to a node's sums, or subtract it.

        Args:
            node: row of the node.
            pod: the pod.
            sign: 1 to add, -1 to subtract.

        Raises:
            ValueError: a sum would be above 2^62; nothing is added.
        """
        change = self.change(pod)
        before = self.amounts[:, node]
        after = before + change if sign > 0 else before - change
        if np.maximum.reduce(after) > _MAX_SUM:
            raise ValueError(f"pod {pod.namespace}/{pod.name}: the requests of the node's pods would overflow")
        self.amounts[:, node] = after
        if pod.terminating:
            self.terminating[node] += sign

    def change(self, pod: Pod) -> Int64s:
        """Return the column of ``amounts`` that a pod adds to a node, except for the number of terminating pods.

        The array is shared and must not be modified.

        Raises:
            ValueError: an amount is above 2^62.
        """
        # Pods of the same requests share a cache of the change; read it once, since another thread may replace it.
        known = pod.cached_requests
        cached = None if known is None else known.node_change
        if cached is not None and cached[0] is self.column:
            return cached[1]
        change = self._computed_change(pod)
        if known is not None:
            known.node_change = self.column, change
        return change

    def _computed_change(self, pod: Pod) -> Int64s:
        size = len(self.column)
        change = [0] * len(self.amounts)
        for name in pod_demand.resource_names(pod):
            place = self.column.get(name)
            if place is not None:
                change[place] = pod_demand.requests(pod, name)
                change[size + place] = pod_demand.limits(pod, name)
                change[2 * size + place] = pod_demand.in_tree_requests(pod, name)
        for place, name in enumerate(_NON_ZERO, 3 * size):
            change[place] = pod_demand.in_tree_requests(pod, name, non_zero=True)
        change[-_COUNTS] = 1
        if max(change) > _MAX_SUM:
            raise ValueError(f"pod {pod.namespace}/{pod.name} requests more than any node has")
        return np.array(change, np.int64)

    def copy(self) -> "PodSums":
        """Return an independent copy."""
        return PodSums(self.column, self.amounts.copy())

    def take(self, nodes: Int64s) -> "PodSums":
        """Return a copy of the sums of some nodes, in the given order."""
        return PodSums(self.column, self.amounts[:, nodes])

    def extended(self, more: int) -> "PodSums":
        """Return a copy with ``more`` additional nodes at the end, which have no pods."""
        return PodSums(self.column, np.pad(self.amounts, ((0, 0), (0, more))))

    def for_resources(self, column: Mapping[str, int], pods: Iterable[tuple[int, Pod]]) -> "PodSums":
        """Return the sums for another set of resources.

        Args:
            column: index of each resource to sum.
            pods: all pods with their rows; read only if there is a resource that was not summed before.
        """
        # Copy the sums that exist already.
        after = PodSums.zeros(column, self.amounts.shape[1])
        after.amounts[3 * len(column) :] = self.amounts[3 * len(self.column) :]
        new = {name: place for name, place in column.items() if name not in self.column}
        for name, place in column.items():
            if name not in new:
                for kind in ("requests", "limits", "in_tree_requests"):
                    getattr(after, kind)[place] = getattr(self, kind)[self.column[name]]
        # Sum the new resources over all pods.
        for row, pod in pods if new else ():
            for name in new.keys() & pod_demand.resource_names(pod):
                after.requests[new[name], row] += pod_demand.requests(pod, name)
                after.limits[new[name], row] += pod_demand.limits(pod, name)
                after.in_tree_requests[new[name], row] += pod_demand.in_tree_requests(pod, name)
        return after
