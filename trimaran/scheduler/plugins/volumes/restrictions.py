"""VolumeRestrictions: volumes that only one pod may use, in the cluster or on a node.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumerestrictions.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.storage_objects import READ_WRITE_ONCE_POD
from trimaran.scheduler.plugins.volumes.storage import Storage

DISK_CONFLICT = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class VolumeRestrictions(FilterPlugin):
    """Filter for claims with ``ReadWriteOncePod``, and for disks that a pod names itself: no other pod may use them.

    Args:
        objects: claims.
    """

    name = "VolumeRestrictions"
    requeued_by = frozenset({
        ClusterEvent.POD_GONE, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.VOLUME_CHANGED,
    })  # fmt: skip

    def __init__(self, objects: Storage) -> None:
        self._objects = objects

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes where no other pod prevents the use of the pod's volumes; None without such volumes."""
        exclusive = {name for name in pod.scheduling.claims if self._is_exclusive(pod.namespace, name)}
        disks = pod.scheduling.disks
        if not exclusive and not disks:
            return None
        chosen = np.arange(len(nodes))[rows].tolist()
        disk_is_free = np.array([not disks or not _conflicts(disks, nodes, row) for row in chosen], np.bool_)
        if exclusive and _is_in_use(exclusive, pod.namespace, nodes):
            return FilterVerdict(
                np.zeros(len(chosen), np.bool_), lambda index: (IN_USE if disk_is_free[index] else DISK_CONFLICT,)
            )
        return FilterVerdict(disk_is_free, DISK_CONFLICT)

    def _is_exclusive(self, namespace: str, name: str) -> bool:
        claim = self._objects.claim(namespace, name)
        return claim is not None and READ_WRITE_ONCE_POD in claim.access_modes


def _is_in_use(names: set[str], namespace: str, nodes: NodeTable) -> bool:
    """Return whether a pod in the cluster uses one of the claims. Reads all pods, but few pods have such claims."""
    return any(
        placed.pod.scheduling.claims
        and placed.pod.namespace == namespace
        and not names.isdisjoint(placed.pod.scheduling.claims)
        for _, placed in nodes.placed_pods()
    )


def _conflicts(disks: Collection[tuple[Any, ...]], nodes: NodeTable, row: int) -> bool:
    return any(
        _exclude_each_other(disk, other)
        for placed in nodes.placed_on(row)
        for other in placed.pod.scheduling.disks
        for disk in disks
    )


def _exclude_each_other(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two pods cannot use these disks on one node: the same disk, unless both only read."""
    kind, *identity = one
    other_kind, *other_identity = other
    if kind != other_kind:
        return False
    if kind == "awsElasticBlockStore":
        return identity == other_identity
    *name, reads = identity
    *other_name, other_reads = other_identity
    if kind == "rbd":
        (monitors, *image), (other_monitors, *other_image) = name, other_name
        is_same = image == other_image and not set(monitors).isdisjoint(other_monitors)
    else:
        is_same = name == other_name
    return is_same and not (reads and other_reads)
