"""NodeUnschedulable: no pods on cordoned nodes, except for pods that tolerate the taint of a cordon.

Source: the plugin nodeunschedulable of kube-scheduler.
"""

from dataclasses import dataclass
from typing import ClassVar

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class NodeUnschedulable(FilterPlugin):
    """Plugin NodeUnschedulable, which has no arguments."""

    name: ClassVar[str] = "NodeUnschedulable"
    depends_on: ClassVar[Dependence] = Dependence.NODES
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_CHANGED}
    )

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which nodes are not cordoned; None if the pod may use all nodes."""
        allowed = nodes.rows.constraints.uncordoned(pod)
        return None if allowed is None else unresolvable_everywhere(allowed[rows], "node(s) were unschedulable")
