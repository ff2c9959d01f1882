"""VolumeZone: volumes that are labeled with zones can only be used from nodes in these zones.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from runtime.kubernetes.objects import Node, Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.storage_objects import Volume
from trimaran.scheduler.plugins.volumes.storage import Storage

CONFLICT = "node(s) had no available volume zone"
_TODAYS_NAME: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
_SEPARATOR = "__"  # between the zones of a volume that can be used from several


class VolumeZone(FilterPlugin):
    """Nodes in the zones of a pod's bound volumes.

    Args:
        objects: claims and volumes.
    """

    name = "VolumeZone"
    depends_on = Dependence.NODES
    requeued_by = frozenset({ClusterEvent.VOLUME_CHANGED, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED})

    def __init__(self, objects: Storage) -> None:
        self._objects = objects

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which nodes are in the zones of the pod's volumes; None if no volume has a zone.

        VolumeBinding handles claims that do not exist or are not bound yet.
        """
        zones = [zone for volume in self._bound_volumes(pod) for zone in _zones(volume)]
        if not zones:
            return None
        chosen = [nodes.nodes[row] for row in np.arange(len(nodes))[rows].tolist()]
        return unresolvable_everywhere(np.array([_is_inside(node, zones) for node in chosen], np.bool_), CONFLICT)

    def _bound_volumes(self, pod: Pod) -> Iterator[Volume]:
        for name in pod.scheduling.claims:
            claim = self._objects.claim(pod.namespace, name)
            volume = self._objects.volume(claim.volume_name) if claim is not None and claim.volume_name else None
            if volume is not None:
                yield volume


def _zones(volume: Volume) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each label of a volume about zones or regions, and its values."""
    for key in _TODAYS_NAME:
        if key in volume.labels:
            values = frozenset(value.strip() for value in volume.labels[key].split(_SEPARATOR))
            if "" not in values:  # kube-scheduler ignores a label that it cannot read
                yield key, values


def _is_inside(node: Node, zones: list[tuple[str, frozenset[str]]]) -> bool:
    if not any(key in node.labels for key in _TODAYS_NAME):
        return True  # a cluster of one zone may have no such labels
    return all(node.labels.get(key, node.labels.get(_TODAYS_NAME[key])) in values for key, values in zones)
