"""Pods of the pending pod's owner on each node, by :mod:`scoring.plugins.congestion_cost`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Kin, Pod
from scoring.arrays import Float64s, Int64s
from scoring.load.use_levels import UseLevels
from scoring.plugins.base import Rows
from scoring.table.node_table import NodeTable
from scoring.table.occupancy import OwnedPods

CROWD = 0.05
"""Share of a node's CPU, requested by pods of one owner, from which on the factor ``crowding`` applies in full."""
# Up to this number of rows, looking at each row takes less time than the index of all nodes of an owner.
_FEW_ROWS = 16


class OwnersPods(NamedTuple):
    """Pods of the pending pod's owner on each node.

    Attributes:
        places: indices of the nodes that have any, ascending, shape (k,).
        sums: sums over these pods on each such node.
    """

    places: Int64s
    sums: Sequence[OwnedPods]


_NO_PODS = OwnersPods(np.zeros(0, np.int64), ())


def owners_pods(owner: Kin | None, nodes: NodeTable, rows: Rows) -> OwnersPods:
    """Return the pods of a workload or controller on the given rows of a node table; none without an owner."""
    if owner is None:
        return _NO_PODS
    if not isinstance(rows, slice) and len(rows) <= _FEW_ROWS:
        owned = [nodes.owners_on(row).get(owner) for row in rows.tolist()]
        return OwnersPods(
            np.array([place for place, sums in enumerate(owned) if sums is not None], np.int64),
            [sums for sums in owned if sums is not None],
        )
    found = nodes.rows_with(owner)
    if not found.size:
        return _NO_PODS
    has_pods = np.zeros(len(nodes), np.bool_)
    has_pods[found] = True
    places = has_pods[rows].nonzero()[0]
    there = places if isinstance(rows, slice) else rows.take(places)
    return OwnersPods(places, [nodes.owners_on(row)[owner] for row in there.tolist()])


def added_variance(
    levels: UseLevels, pods: Sequence[Pod], name: str, owners: Sequence[OwnersPods], size: int
) -> Float64s:
    """Return the rise in the variance of each node's use that each pod would cause, shape (pods, nodes).

    Args:
        levels: expected use of pods, with deviations.
        pods: pending pods.
        name: name of the resource.
        owners: pods of the same owner on the nodes, for each pending pod.
        size: number of nodes.
    """
    more = np.empty((len(pods), size))
    for row, (pod, there) in enumerate(zip(pods, owners, strict=True)):
        # (s + e) ^ 2 - s ^ 2 = e * (e + 2 * s)
        pod_deviation = levels.deviation(pod.kin, name, 1.0, float(pod_demand.requests(pod, name)))
        more[row] = pod_deviation * pod_deviation
        if there.sums:
            counts = np.array([owned.count for owned in there.sums], np.float64)
            requests = np.array([owned.requests.get(name, 0) for owned in there.sums], np.float64)
            on_nodes = levels.deviation(pod.kin, name, counts, requests)
            more[row, there.places] = pod_deviation * (pod_deviation + 2 * on_nodes)
    return more


def crowding_factors(crowding: float, owners: Sequence[OwnersPods], crowd: Float64s) -> tuple[Int64s, Float64s]:
    """Return the number of pods of the same owner on each node, and the factor on the rise in cost.

    Args:
        crowding: factor where the owner's pods request ``crowd`` or more.
        owners: pods of the same owner on the nodes, for each pending pod.
        crowd: CPU requests in millicores from which on the factor applies in full, shape (nodes,).

    Returns:
        Both of shape (pods, nodes).
    """
    count, factor = np.zeros((len(owners), len(crowd)), np.int64), np.ones((len(owners), len(crowd)))
    for row, there in enumerate(owners):
        if there.sums:
            cpu_milli = np.array([owned.cpu_milli for owned in there.sums], np.float64)
            count[row, there.places] = [owned.count for owned in there.sums]
            # Without the bound a workload with pods on every node would be spread by number, whatever the load.
            factor[row, there.places] = np.power(crowding, np.minimum(cpu_milli / crowd.take(there.places), 1.0))
    return count, factor
