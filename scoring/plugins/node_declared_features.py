"""NodeDeclaredFeatures: a pod that needs a new feature of the kubelet runs only on nodes that declare it.

The features that a pod needs are read with the pod (``SchedulingRules.node_features``). Source: the plugin
nodedeclaredfeatures of kube-scheduler 1.37 and k8s.io/component-helpers/nodedeclaredfeatures.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class NodeDeclaredFeatures(FilterPlugin):
    """Plugin NodeDeclaredFeatures, which has no arguments."""

    name: ClassVar[str] = "NodeDeclaredFeatures"
    depends_on: ClassVar[Dependence] = Dependence.NODES
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_CHANGED}
    )

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which nodes declare all features that the pod needs; None for a pod that needs none."""
        needed = pod.scheduling.node_features
        if not needed:
            return None
        allowed = np.array([node.declared_features.issuperset(needed) for node in nodes.nodes], np.bool_)
        return unresolvable_everywhere(allowed[rows], "node(s) didn't match Pod's required features")
