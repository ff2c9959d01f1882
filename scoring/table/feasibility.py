"""Feasible nodes of a pod: the filters that kube-scheduler applies before it scores nodes.

Source: the filters NodeResourcesFit, NodeUnschedulable, TaintToleration and NodeAffinity of kube-scheduler, and
``RunFilterPluginsWithNominatedPods`` of its framework. Ports, volumes, topology spread and affinity to other pods are
not checked.
"""

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.table.occupancy import Occupancy


def fitting(pod: Pod, occupancy: Occupancy) -> Bools:
    """Return a mask of the nodes with enough free resources for the pod, shape (nodes,).

    Nominated pods of the same or a higher priority count as if they ran on their nominated node. Only resources that
    the pod requests are compared, and the number of pods with the node's allocatable ``pods``, if the node lists it.
    """
    rows, sums = occupancy.rows, occupancy.sums
    nominated = [
        (rows.row_by_name[name], other)
        for uid, (name, other) in occupancy.nominated.items()
        if other.priority >= pod.priority and uid != pod.uid
    ]
    fits: Bools | None = None
    requests = sums.in_tree_requests
    for name, request in pod_demand.filter_requests(pod):
        place = rows.column.get(name)
        if place is None:
            return np.zeros(len(rows), np.bool_)
        requested: Int64s = requests[place]
        if nominated:
            requested = requested.copy()
            for row, other in nominated:
                requested[row] += pod_demand.in_tree_requests(other, name)
        enough = requested + request <= rows.allocatable[place]
        fits = enough if fits is None else np.logical_and(fits, enough, out=fits)
    if fits is None:
        fits = np.ones(len(rows), np.bool_)
    if "pods" in rows.column:
        count = sums.pods.copy()
        for row, _ in nominated:
            count[row] += 1
        fits &= count < rows.allocatable[rows.column["pods"]]
    return fits


def feasible(pod: Pod, occupancy: Occupancy) -> Bools:
    """Return a mask of the nodes with enough free resources that the pod's constraints allow, shape (nodes,).

    The constraints are cordons, taints, the node selector and required node affinity.
    """
    fits, constraints = fitting(pod, occupancy), occupancy.rows.constraints
    return fits & constraints.allows(pod) if constraints.applies_to(pod) else fits
