"""NodeVolumeLimits: largest number of volumes of a CSI driver on a node, from its CSINode.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits. Volumes of former in-tree plugins are not
counted, except if their class names a CSI driver.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.storage_objects import Claim
from trimaran.scheduler.plugins.volumes.claims import claim_names
from trimaran.scheduler.plugins.volumes.storage import Storage

TOO_MANY = "node(s) exceed max volume count"
_Handle = tuple[str, str]
"""CSI driver and identity of a volume."""


class NodeVolumeLimits(FilterPlugin):
    """Nodes that can attach the volumes of a pod in addition to those that are attached already.

    Args:
        objects: claims, volumes, limits and attachments.
    """

    name = "NodeVolumeLimits"
    requeued_by = frozenset({
        ClusterEvent.POD_GONE, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.VOLUME_CHANGED,
    })  # fmt: skip

    def __init__(self, objects: Storage) -> None:
        self._objects = objects

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which nodes can attach the pod's volumes; None if no volume has a CSI driver, or no node a limit.

        VolumeBinding refuses pods with claims that do not exist.
        """
        wanted = set(self._handles(pod))
        if not wanted or not self._objects.has_volume_limits:
            return None
        attached: dict[str, set[_Handle]] = {}
        for each in self._objects.attachments():
            volume = self._objects.volume(each.volume_name)
            if volume is not None and volume.handle and each.driver:
                attached.setdefault(each.node_name, set()).add((each.driver, volume.handle))
        allowed = [
            self._has_room(row, wanted, attached.get(nodes.names[row], set()), nodes)
            for row in np.arange(len(nodes))[rows].tolist()
        ]
        return FilterVerdict(np.array(allowed, np.bool_), TOO_MANY)

    def _has_room(self, row: int, wanted: set[_Handle], attached: set[_Handle], nodes: NodeTable) -> bool:
        limits = self._objects.volume_limits(nodes.names[row])
        if not any(driver in limits for driver, _ in wanted):
            return True
        used = {handle for placed in nodes.placed_on(row) for handle in self._handles(placed.pod)}
        # As in kube-scheduler, a volume that is attached without a pod that uses it counts twice if this pod uses it.
        more = Counter(driver for driver, _ in wanted - used)
        total = Counter(driver for driver, _ in used | attached)
        return all(total[driver] + count <= limits[driver] for driver, count in more.items() if driver in limits)

    def _handles(self, pod: Pod) -> Iterator[_Handle]:
        """Yield driver and identity of each volume of a pod that has a CSI driver."""
        for name in claim_names(pod):
            claim = self._objects.claim(pod.namespace, name)
            handle = None if claim is None else self._handle(claim)
            if handle is not None:
                yield handle

    def _handle(self, claim: Claim) -> _Handle | None:
        volume = self._objects.volume(claim.volume_name) if claim.volume_name else None
        if volume is not None:
            return (volume.driver, volume.handle) if volume.driver and volume.handle else None
        storage_class = self._objects.storage_class(claim.storage_class) if claim.storage_class else None
        if storage_class is None or not storage_class.provisioner:
            return None
        return storage_class.provisioner, f"{claim.namespace}/{claim.name}"  # the volume is not provisioned yet
