"""Largest CPU that pods may need on another node: measured use on a saturated node is a lower bound of demand.

Processes that compete for a CPU use less than they demand. So a pod counts as held back if its node was at 90 percent
of its capacity or more in a step of the last hour, by its pods or by its metrics, or if the pod waited for CPU that no
limit of its own withheld. The bound of such a pod is the first of these that is known, and at least its use:

1. the highest use of its replicas that are not held back,
2. the highest of its own past hours in which its node was not saturated, and of the workload's hourly profile where
   the profile is above the use,
3. the higher of twice its use and its use over the share of the time for which it did not wait; at most the capacity
   of its node.

The pod's own limit bounds each of them, so a pod that this limit throttles has no hidden demand. Twice the use is the
upper end of the 80 percent interval of a workload that is not known: the CPU of owners deviates by up to 80 percent
from the expected one, see :mod:`watcher.usage.learn.learner`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from runtime.kubernetes.objects import CPU, Pod
from runtime.kubernetes.workloads import Workload
from scoring.arrays import Bools, Float64s
from trimaran.rebalancer.lineage import Member
from trimaran.rebalancer.look import HOUR_STEPS, ClusterLook, PlanArrays, measured_cpu

SATURATED: Final = 0.9
"""Share of a node's CPU from which on the use of its pods may be less than they need."""
WAITING: Final = 0.1
"""Share of the time waiting for CPU from which on a pod is held back, as for recommended requests."""
_LONGEST_WAIT: Final = 0.95
_UNKNOWN: Final = 1 + 1.28 * 0.8
_ABOVE: Final = 1.1  # a profile less than 10 percent above the use may have been learned while held back, too


def demand_bounds(look: ClusterLook, arrays: PlanArrays, node_cpu: Float64s, measured: Mapping[str, float]) -> Float64s:
    """Return an upper bound of each pod's CPU demand, cores, shape (pods,): at least its mean use in the last hour.

    Args:
        look: snapshot of the cluster.
        arrays: the move problem of the snapshot, whose first rows are the pods of ``look.running``.
        node_cpu: CPU use of each node in the past by its pods, cores, shape (nodes, steps).
        measured: CPU load of each node with fresh metrics, corrected for recent moves, percent.
    """
    problem, members = arrays.problem, arrays.members
    used: Float64s = problem.cpu[:, -HOUR_STEPS:].mean(axis=1, dtype=np.float64)
    peaks, capacity = _hourly_peaks(node_cpu), problem.capacity[0]
    waiting = _waiting(look, len(used))
    is_full = np.array([measured.get(name, 0.0) >= 100 * SATURATED for name in look.table.names], np.bool_)
    is_full |= peaks[:, -1] >= SATURATED * capacity
    held = is_full[problem.rows] | (waiting >= WAITING)
    if not held.any():
        return used
    # Where pods wait for CPU, the node is full at its present use: other programs take the rest of its capacity.
    full = capacity.copy()
    rows = np.unique(problem.rows[held])
    full[rows] = np.minimum(capacity[rows], peaks[rows, -1])
    saturated = peaks >= SATURATED * full[:, None]
    free = _highest_of_free_replicas(members, used, held | ~arrays.is_known)
    places = np.flatnonzero(held[: len(members)])
    pods = [members[place].pod for place in places.tolist()]
    learned = _learned(look, pods, used[places], saturated[problem.rows[places]])
    upper = used * np.maximum(_UNKNOWN, 1 / (1 - np.minimum(waiting, _LONGEST_WAIT)))
    upper = np.minimum(upper, capacity[problem.rows])
    bounds = used.copy()
    for place, pod, known in zip(places.tolist(), pods, learned.tolist(), strict=True):
        bound = free.get(pod.workload) if pod.workload is not None else None
        if bound is None:
            bound = float(upper[place]) if np.isnan(known) else known
        limit = cpu_limit(pod)
        bounds[place] = max(used[place], bound if limit is None else min(bound, limit))
    return bounds


def cpu_limit(pod: Pod) -> float | None:
    """Return the CPU limit of a pod, cores: the lower of its own and the sum of its containers' (if all have a limit).

    None if neither is set.
    """
    lasting = [*pod.containers, *(each for each in pod.init_containers if each.restartable)]
    bounds = [pod.limits.nano(CPU)] if pod.limits.get(CPU) else []
    if lasting and all(each.limits.get(CPU) for each in lasting):
        bounds.append(sum(each.limits.nano(CPU) for each in lasting))
    return min(bounds) / 1e9 if bounds else None


def _hourly_peaks(use: Float64s) -> Float64s:
    """Return the highest use of each node in a step of each past hour, the last hour last, shape (nodes, hours)."""
    hours = max(use.shape[1] // HOUR_STEPS, 1)
    return np.asarray(use[:, -hours * HOUR_STEPS :].reshape(len(use), hours, -1).max(axis=2))


def _waiting(look: ClusterLook, pods: int) -> Float64s:
    """Return the share of the time for which each pod waited for its node's CPU, 0 if unknown, shape (pods,)."""
    waits = np.zeros(pods)
    if look.use.waiting is not None:
        share = dict(zip(look.use.uids, np.nan_to_num(look.use.waiting).tolist(), strict=True))
        waits[: len(look.running)] = [share.get(member.pod.uid, 0.0) for _, member in look.running]
    return waits


def _highest_of_free_replicas(
    members: Sequence[Member], used: Float64s, is_left_out: Bools
) -> Mapping[Workload, float]:
    """Return by workload the highest CPU use of its pods that are not held back, cores."""
    highest: dict[Workload, float] = defaultdict(float)
    for place in np.flatnonzero(~is_left_out[: len(members)]).tolist():
        pod = members[place].pod
        if pod.workload is not None and not pod.terminating:
            highest[pod.workload] = max(highest[pod.workload], float(used[place]))
    return highest


def _learned(look: ClusterLook, pods: Sequence[Pod], used: Float64s, saturated: Bools) -> Float64s:
    """Return the use of pods that was learned while they were not held back, cores, shape (pods,); NaN if none was.

    Args:
        look: the cluster.
        pods: the pods.
        used: their use in the last hour, cores, shape (pods,).
        saturated: whether their nodes were saturated in each past hour, shape (pods, hours).
    """
    cpu, course = measured_cpu(look.use, pods)
    count, hours = saturated.shape
    steps = cpu[:, -hours * HOUR_STEPS :].reshape(count, hours, -1).astype(np.float64)
    means = steps.mean(axis=2)  # NaN for an hour that is not known as a whole
    highest = np.where(saturated, np.nan, means)
    return np.asarray(np.fmax(np.fmax.reduce(highest, axis=1), np.where(course > _ABOVE * used, course, np.nan)))
