"""Score of VolumeBinding: prefer nodes where a pod's new volumes leave the most free storage.

For the unbound claims of a pod, grouped by StorageClass, let r be the sum of the requested sizes and c the capacity of
the existing volumes that were chosen on the node; if none was chosen, the free space that the CSI driver reports for
the node. The score is the mean over the classes of a piecewise linear function of r * 100 / c, by default from 100 at 0
to 0 at 100, rounded. kube-scheduler scores so by default from 1.37 on (feature gate StorageCapacityScoring).
Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import MAX_AMOUNT, Pod
from scoring.arguments import CheckedArguments, not_empty
from scoring.arrays import Int64s
from scoring.go_math import rounded_score
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.plugins.node_resources_fit import ShapePoint, ascending, broken_linear
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.volumes.claims import claim_names, claims_of
from trimaran.scheduler.plugins.volumes.matching import ClaimMatches, match_volumes
from trimaran.scheduler.plugins.volumes.storage import Storage

_SCALE = MAX_NODE_SCORE // 10  # the scores of a shape are from 0 to 10


@dataclass(frozen=True)
class VolumeCapacityScore(CheckedArguments, WithoutNodeTerms):
    """Score of VolumeBinding.

    Attributes:
        objects: claims, volumes, classes and free space.
        shape: score by utilization of the storage, by ascending utilization.
    """

    objects: Storage
    shape: Annotated[tuple[ShapePoint, ...], not_empty, ascending] = (ShapePoint(0, 10), ShapePoint(100, 0))

    name: ClassVar[str] = "VolumeBinding"

    def skips(self, pod: Pod) -> bool:
        """Return true for a pod without claims, which scores 0 everywhere."""
        return not claim_names(pod)

    def equal_score(self, pod: Pod, nodes: NodeTable) -> int | None:  # noqa: ARG002
        """Return 0 for a pod without unbound claims."""
        return None if claims_of(pod, self.objects).unbound else 0

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score of each node."""
        return {"score": np.array([self._scores(pod, nodes)[rows] for pod in pods])}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the score as a sentence."""
        return f"free storage for the volumes of the pod's unbound claims: {terms['score']}"

    def _scores(self, pod: Pod, nodes: NodeTable) -> Int64s:
        """Return the score of every node for a pod, shape (nodes,)."""
        unbound = claims_of(pod, self.objects).unbound
        if not unbound:
            return np.zeros(len(nodes), np.int64)
        claims = match_volumes((), unbound, nodes.rows, self.objects).claims
        # A node with an existing volume for a claim is scored by its existing volumes alone.
        has_existing = np.logical_or.reduce([each.exists for each in claims])
        total, classes = np.zeros((2, len(nodes)), np.int64)
        for name in dict.fromkeys(each.claim.storage_class for each in claims):
            of_class = [each for each in claims if each.claim.storage_class == name]
            existing, to_make = _existing(of_class, len(nodes)), _to_make(of_class, len(nodes))
            requested, capacity, counts = np.where(has_existing, existing, to_make)
            full = (capacity == 0) | (requested > capacity)
            utilization = np.where(full, 100, requested * 100 // np.maximum(capacity, 1))
            total += np.where(counts, self._by_utilization(utilization), 0)
            classes += counts != 0
        return np.where(classes, rounded_score(total / np.maximum(classes, 1)), 0)

    def _by_utilization(self, utilization: Int64s) -> Int64s:
        return broken_linear([(point.utilization, point.score * _SCALE) for point in self.shape], utilization)


def _existing(claims: Sequence[ClaimMatches], size: int) -> Int64s:
    """Return requested size, capacity and number of the existing volumes chosen for claims, shape (3, nodes)."""
    sums = np.zeros((3, size), np.int64)
    for each in claims:
        capacities = np.array([*(volume.capacity for volume in each.volumes), 0], np.int64)
        sums[0] += np.where(each.exists, min(each.claim.request or 0, MAX_AMOUNT), 0)
        sums[1] += np.where(each.exists, np.minimum(capacities[each.chosen], MAX_AMOUNT), 0)
        sums[2] += each.exists
    return np.minimum(sums, MAX_AMOUNT)  # 100 times as much fits 64 bits


def _to_make(claims: Sequence[ClaimMatches], size: int) -> Int64s:
    """Return requested size, free space and number of the new volumes for claims, shape (3, nodes).

    A claim counts where the CSI driver reports free space. All claims of a class share that space.
    """
    sums = np.zeros((3, size), np.int64)
    for each in claims:
        known = each.free_space >= 0
        sums[0] += np.where(known, min(each.claim.request or 0, MAX_AMOUNT), 0)
        sums[1] = np.where(known, each.free_space, sums[1])
        sums[2] += known
    return np.minimum(sums, MAX_AMOUNT)
