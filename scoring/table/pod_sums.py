"""Sums over the pods of each node: requests and limits, as Trimaran and as kube-scheduler count them, and numbers.

Sums saturate and never wrap: those that kube-scheduler's filter compares at the largest 64-bit integer, those of scores
at 2^62, so that the amount of one more pod can be added to them. The sums of a saturated node are also kept exactly, as
Python integers, so that they are right again after a pod has left.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.quantity import MAX_INT64
from scoring.arrays import Int64s

_NON_ZERO = tuple(pod_demand.NON_ZERO_REQUESTS)
_MAX_SCORED = 2**62
_COUNTS = 3  # pods, terminating, nominated


class PodSums:
    """Sums over the pods of each node, in one array that is modified in place, so a copy of the sums is fast.

    Args:
        column: index of each resource to sum, from 0 on; other resources of pods are ignored.
        amounts: array of all sums, one column per node. The properties of this class are views of its rows.
        exact: exact sums, without the numbers of pods, of each node with a sum above 2^62.
    """

    __slots__ = ("amounts", "column", "exact")

    def __init__(
        self, column: Mapping[str, int], amounts: Int64s, exact: Mapping[int, list[int]] | None = None
    ) -> None:
        self.column = column
        self.amounts = amounts
        self.exact = dict(exact or {})

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
        """
        self.add(node, self.change(pod), sign)
        if pod.terminating:
            self.terminating[node] += sign

    def add(self, node: int, change: Int64s, sign: int) -> None:
        """Add a column of ``amounts`` to a node's sums, or subtract it; arguments as for :meth:`count`."""
        before = self.amounts[:, node]
        if node not in self.exact:
            after = before + change if sign > 0 else before - change
            # No sum is negative, so one that has wrapped is above 2^62 as an unsigned number, too.
            if np.maximum.reduce(after.view(np.uint64)) <= _MAX_SCORED:
                self.amounts[:, node] = after
                return
        sums = self.exact.pop(node, None) or before[:-_COUNTS].tolist()
        sums = [total + sign * more for total, more in zip(sums, change.tolist(), strict=False)]
        if max(sums) > _MAX_SCORED:
            self.exact[node] = sums
        filtered = range(2 * len(self.column), 3 * len(self.column))
        before[:-_COUNTS] = [
            min(total, MAX_INT64 if place in filtered else _MAX_SCORED) for place, total in enumerate(sums)
        ]
        before[-_COUNTS:] += sign * change[-_COUNTS:]

    def change(self, pod: Pod) -> Int64s:
        """Return the column of ``amounts`` that a pod adds to a node, except for the number of terminating pods.

        The array is shared and must not be modified.
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
        return np.array(change, np.int64)

    def copy(self) -> "PodSums":
        """Return an independent copy."""
        return PodSums(self.column, self.amounts.copy(), self.exact)

    def take(self, nodes: Int64s) -> "PodSums":
        """Return a copy of the sums of the given nodes, in their order."""
        exact = {place: self.exact[node] for place, node in enumerate(nodes.tolist()) if node in self.exact}
        return PodSums(self.column, self.amounts[:, nodes], exact)

    def extended(self, more: int) -> "PodSums":
        """Return a copy with ``more`` additional nodes at the end, which have no pods."""
        return PodSums(self.column, np.pad(self.amounts, ((0, 0), (0, more))), self.exact)

    def for_resources(self, column: Mapping[str, int], pods: Iterable[tuple[int, Pod]]) -> "PodSums":
        """Return the sums for another set of resources.

        Args:
            column: index of each resource to sum.
            pods: all pods with their rows; read only if there is a resource that was not summed before.
        """
        # Copy the sums that exist already: the three sums of each resource, and all that follow them.
        kinds = range(3)
        to = [kind * len(column) + place for kind in kinds for name, place in column.items() if name in self.column]
        source = [
            kind * len(self.column) + self.column[name] for kind in kinds for name in column if name in self.column
        ]
        more = range(len(self.amounts) - 3 * len(self.column))
        to += [3 * len(column) + place for place in more]
        source += [3 * len(self.column) + place for place in more]
        after = PodSums.zeros(column, self.amounts.shape[1])
        after.amounts[to] = self.amounts[source]
        for node, sums in self.exact.items():
            after.exact[node] = [0] * (len(after.amounts) - _COUNTS)
            for place, before in zip(to[:-_COUNTS], source[:-_COUNTS], strict=True):
                after.exact[node][place] = sums[before]
        # Sum the new resources over all pods.
        new = column.keys() - self.column.keys()
        is_new = np.ones(len(after.amounts), np.bool_)
        is_new[to] = False
        for row, pod in pods if new else ():
            if not new.isdisjoint(pod_demand.resource_names(pod)):
                after.add(row, np.where(is_new, after.change(pod), 0), 1)
        return after
