"""Feasible nodes of a pod: the filters that kube-scheduler applies before it scores nodes.

Source: the filters NodeResourcesFit, NodeUnschedulable, TaintToleration and NodeAffinity of kube-scheduler, and
``RunFilterPluginsWithNominatedPods`` of its framework. Ports, volumes, topology spread and affinity to other pods are
not checked.
"""

from collections.abc import Mapping

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.quantity import MAX_INT64
from scoring.arrays import Bools, Int64s
from scoring.table.node_rows import ALWAYS
from scoring.table.occupancy import Occupancy

Requests = tuple[tuple[str, int], ...]
"""Names and amounts of requested resources."""


def fitting(pod: Pod, occupancy: Occupancy, wanted: Requests | None = None) -> Bools:
    """Return a mask of the nodes with enough free resources for the pod, shape (nodes,).

    Nominated pods of the same or a higher priority count as if they ran on their nominated node. Only resources that
    the pod requests are compared, and the number of pods with the node's allocatable ``pods``, if the node lists it.

    Args:
        pod: pending pod.
        occupancy: nodes and the pods on them.
        wanted: requests to compare; by default all requests of the pod.
    """
    rows, sums = occupancy.rows, occupancy.sums
    nominated = _nominated(pod, occupancy)
    fits: Bools | None = None
    requests = sums.in_tree_requests
    for name, request in pod_demand.filter_requests(pod) if wanted is None else wanted:
        place = rows.column.get(name)
        if place is None:
            return np.zeros(len(rows), np.bool_)
        requested: Int64s = requests[place]
        if nominated:
            requested = requested.copy()
            for row, other in nominated:
                requested[row] = _saturated(requested[row], pod_demand.in_tree_requests(other, name))
        enough = requested <= rows.allocatable[place] - request  # cannot wrap, as a sum could
        fits = enough if fits is None else np.logical_and(fits, enough, out=fits)
    if fits is None:
        fits = np.ones(len(rows), np.bool_)
    if "pods" in rows.column:
        count = sums.pods
        if nominated:
            count = count.copy()
            for row, _ in nominated:
                count[row] += 1
        fits &= count < rows.allocatable[rows.column["pods"]]
    return fits


def too_small(occupancy: Occupancy, wanted: Requests) -> Bools:
    """Return a mask of the nodes that could not meet the requests even without pods, shape (nodes,)."""
    rows = occupancy.rows
    small = np.zeros(len(rows), np.bool_)
    for name, request in wanted:
        place = rows.column.get(name)
        if place is None:
            small[:] = True
        else:
            small |= rows.allocatable[place] < request
    return small


def shortages(pod: Pod, occupancy: Occupancy, wanted: Requests) -> Mapping[str, Bools]:
    """Return which nodes lack resources for a pod, by kube-scheduler's reasons, such as ``Insufficient cpu``.

    Args:
        pod: pending pod.
        occupancy: nodes and the pods on them.
        wanted: requests to compare.

    Returns:
        Mask of the nodes for each reason, shape (nodes,).
    """
    rows, sums, nominated = occupancy.rows, occupancy.sums, _nominated(pod, occupancy)
    lacking: dict[str, Bools] = {}
    place = rows.column.get("pods")
    if place is not None:
        count = sums.pods.copy()
        for row, _ in nominated:
            count[row] += 1
        lacking["Too many pods"] = count >= rows.allocatable[place]
    for name, request in _native_first(wanted):
        place = rows.column.get(name)
        if place is None:
            lacking[f"Insufficient {name}"] = np.ones(len(rows), np.bool_)
            continue
        requested = sums.in_tree_requests[place].copy()
        for row, other in nominated:
            requested[row] = _saturated(requested[row], pod_demand.in_tree_requests(other, name))
        lacking[f"Insufficient {name}"] = requested > rows.allocatable[place] - request
    return lacking


def _saturated(requested: np.int64, more: int) -> int:
    return min(int(requested) + more, MAX_INT64)


def _nominated(pod: Pod, occupancy: Occupancy) -> list[tuple[int, Pod]]:
    """Return the other nominated pods that count for a pod, with the rows of their nominated nodes."""
    rows = occupancy.rows
    return [
        (rows.row_by_name[name], other)
        for uid, (name, other) in occupancy.nominated.items()
        if other.priority >= pod.priority and uid != pod.uid
    ]


def _native_first(wanted: Requests) -> Requests:
    """Return requests in kube-scheduler's order: cpu, memory, ephemeral-storage, then the others."""
    return tuple(sorted(wanted, key=lambda request: ALWAYS.index(request[0]) if request[0] in ALWAYS else len(ALWAYS)))


def feasible(pod: Pod, occupancy: Occupancy) -> Bools:
    """Return a mask of the nodes with enough free resources that the pod's constraints allow, shape (nodes,).

    The constraints are cordons, taints, the node selector and required node affinity.
    """
    fits, constraints = fitting(pod, occupancy), occupancy.rows.constraints
    return fits & constraints.allows(pod) if constraints.applies_to(pod) else fits
