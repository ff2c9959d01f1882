"""Stranded room: free CPU of a node for which no free memory is left, or the other way round.

Pods request both, so free room of one resource is lost where the other one is requested completely. Let f be the free
and r the requested share of a node's allocatable CPU and memory, before the pending pod is placed:

    stranding = (|(f_cpu - r_cpu) - (f_memory - r_memory)| - |f_cpu - f_memory|) / (r_cpu + r_memory)

It is 1 if the pod takes only the scarcer resource of the node, -1 if it takes only the more plentiful one, and near 0
if it takes both alike. It does not depend on the size of the pod: many small pods strand as much as a large one.
"""

from collections.abc import Sequence

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Pod
from scoring.arrays import Float64s, Int64s
from scoring.plugins.base import Terms, per_pod
from scoring.table.node_table import NodeTable

_SMALLEST_SHARE = 1e-9  # below every deliberate request; for smaller shares the rounding error would decide


def size_terms(nodes: NodeTable) -> Terms:
    """Return the allocatable CPU and memory of each node; infinite where a node has none."""
    return {f"_{name}.size": _sizes(nodes.allocatable(name)) for name in (CPU, MEMORY)}


def unmatched_room(nodes: NodeTable, rows: Int64s) -> Float64s:
    """Return each row's free share of CPU minus its free share of memory, -1 to 1, shape (k,)."""
    cpu, memory = (
        np.minimum(nodes.in_tree_requests(name).take(rows) / _sizes(nodes.allocatable(name).take(rows)), 1.0)
        for name in (CPU, MEMORY)
    )
    return np.asarray(memory - cpu)


def stranded_by(pods: Sequence[Pod], node: Terms, unmatched: Float64s) -> Float64s:
    """Return how far pods enlarge the stranded room of nodes, -1 to 1, shape (pods, nodes).

    Args:
        pods: pending pods.
        node: terms of :func:`size_terms`.
        unmatched: result of :func:`unmatched_room`.
    """
    cpu, memory = (per_pod(pods, pod_demand.in_tree_requests, name) / node[f"_{name}.size"] for name in (CPU, MEMORY))
    taken = cpu + memory
    change = np.abs(unmatched - (cpu - memory)) - np.abs(unmatched)
    return np.asarray(np.where(taken > _SMALLEST_SHARE, change / np.maximum(taken, _SMALLEST_SHARE), 0.0))


def _sizes(allocatable: Int64s) -> Float64s:
    return np.where(allocatable > 0, allocatable, np.inf)
