"""What the pods of each node add up to, counted in each way that some score needs."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scoring import pod_demand
from scoring.objects import Pod

Int64s = NDArray[np.int64]


class PodSums:
    """Sums over each node's pods, as arrays that change in place.

    Args:
        resources: the resources to sum, one row each; pods' other resources are left out.
        nodes: how many nodes, one column each.

    Attributes:
        requests: as Trimaran counts them, shape (resources, nodes); :mod:`scoring.pod_demand` says how.
        limits: each pod's at least its request, shape (resources, nodes).
        in_tree_requests: as kube-scheduler counts them, shape (resources, nodes).
        in_tree_non_zero: the same, containers without a request counted as 100m CPU and 200 MiB; 0 for other resources.
        pods: how many pods, shape (nodes,).
        terminating: how many of them are terminating, shape (nodes,).
        nominated: how many pending pods are nominated, shape (nodes,); kept by the table.
    """

    __slots__ = (
        "_row", "in_tree_non_zero", "in_tree_requests", "limits", "nominated", "pods", "requests", "terminating",
    )  # fmt: skip
    _PER_RESOURCE = ("requests", "limits", "in_tree_requests", "in_tree_non_zero")
    _PER_NODE = ("pods", "terminating", "nominated")

    requests: Int64s
    limits: Int64s
    in_tree_requests: Int64s
    in_tree_non_zero: Int64s
    pods: Int64s
    terminating: Int64s
    nominated: Int64s

    def __init__(self, resources: Sequence[str], nodes: int) -> None:
        self._row = {name: row for row, name in enumerate(resources)}
        for name in self._PER_RESOURCE:
            setattr(self, name, np.zeros((len(resources), nodes), np.int64))
        for name in self._PER_NODE:
            setattr(self, name, np.zeros(nodes, np.int64))

    def count(self, node: int, pod: Pod, sign: int) -> None:
        """Add a pod to a node (sign 1), or take it away (-1)."""
        for name in pod_demand.names(pod):
            row = self._row.get(name)
            if row is not None:
                self.requests[row, node] += sign * pod_demand.requests(pod, name)
                self.limits[row, node] += sign * pod_demand.limits(pod, name)
                self.in_tree_requests[row, node] += sign * pod_demand.in_tree_requests(pod, name)
        for name in pod_demand.NON_ZERO_REQUESTS:
            row = self._row[name]
            self.in_tree_non_zero[row, node] += sign * pod_demand.in_tree_requests(pod, name, non_zero=True)
        self.pods[node] += sign
        self.terminating[node] += sign * pod.terminating

    def copy(self) -> Self:
        """Return sums of their own that are equal now."""
        return self.take(slice(None))

    def take(self, nodes: Int64s | slice) -> Self:
        """Return sums of their own of some nodes, in that order."""
        taken = object.__new__(type(self))
        taken._row = self._row
        for name in (*self._PER_RESOURCE, *self._PER_NODE):
            setattr(taken, name, getattr(self, name)[..., nodes].copy())
        return taken
