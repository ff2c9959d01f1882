"""NodePorts: a pod's host ports must be free on its node. Source: the plugin nodeports of kube-scheduler."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class NodePorts(FilterPlugin):
    """Plugin NodePorts, which has no arguments."""

    name: ClassVar[str] = "NodePorts"
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.POD_GONE, ClusterEvent.POD_CHANGED}
    )

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return on which nodes the pod's host ports are free; None for a pod without host ports."""
        if not pod.scheduling.host_ports:
            return None
        placed = nodes.placed_rules
        allowed = np.ones(len(nodes), np.bool_)
        for address, protocol, number in pod.scheduling.host_ports:
            taken = placed.has_port(address, protocol, number)
            if taken is not None:
                allowed &= ~taken
        return FilterVerdict(allowed[rows], "node(s) didn't have free ports for the requested pod ports")
