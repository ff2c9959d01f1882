"""Number of a gang's pods that fit, by their requests, so that gangs that cannot fit do not take nodes in vain."""

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.gang_directory import Gang

_MANY = 1000  # pods per node


def are_alike(gang: Gang) -> bool:
    """Return whether all pods of a gang have the same requests."""
    return len({pod_demand.filter_requests(pod) for pod in gang.pods.values()}) == 1


def room_for(pod: Pod, nodes: NodeTable) -> int:
    """Return how many pods with the requests of ``pod`` fit on the nodes, by requests and number of pods."""
    most = nodes.allocatable("pods")
    # Nodes of a trace have no largest number of pods.
    room = most - nodes.pod_counts if most.any() else np.full(len(nodes), _MANY)
    for name, amount in pod_demand.filter_requests(pod):
        if name != "pods":
            room = np.minimum(room, (nodes.allocatable(name) - nodes.in_tree_requests(name)) // amount)
    return sum(np.maximum(room, 0)[nodes.rows.constraints.allows(pod)].tolist())  # Python's integers cannot wrap
