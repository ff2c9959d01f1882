"""NodeName: a pod that names its node runs only there. Source: the plugin nodename of kube-scheduler."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class NodeName(FilterPlugin):
    """Plugin NodeName, which has no arguments."""

    name: ClassVar[str] = "NodeName"
    depends_on: ClassVar[Dependence] = Dependence.NODES
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.POD_CHANGED})

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which node has the name that the pod gives; None if the pod names no node."""
        if not pod.node_name:
            return None
        allowed = np.zeros(len(nodes), np.bool_)
        row = nodes.rows.row_by_name.get(pod.node_name)
        if row is not None:
            allowed[row] = True
        # The words of kube-scheduler's PreFilter, which leaves all other nodes out before the filter runs.
        return unresolvable_everywhere(allowed[rows], "node(s) didn't satisfy plugin(s) [NodeName]")
