"""What is reported of a replay. Side by side, none preferred; all of them after the warm-up.

hot_minutes_70, _80, _90      node-minutes with CPU use at or above so many percent of capacity
throttled_core_seconds        CPU that was asked for above capacity
p99_node_cpu_percent          the 99th percentile of node-minutes' CPU use, which may be above 100
memory_overrun_minutes        node-minutes with memory use above capacity
fragmentation_percent         of the free CPU, what a pod drawn from the trace cannot use, because the pod does not fit
service_hot_pod_minutes       minutes that services' pods were on nodes at or above 80 percent
job_hot_pod_minutes           the same of jobs
unplaced_pods                 pods that found no place before their end or that of the replay (from the start on)
waited_pod_minutes            how long pods waited until they fitted (from the start on)
moves                         pods moved (from the start on)
moves_percent_per_hour        the same an hour, in percent of the pods that ran, on average
displaced_pods                pods that lost their node (from the start on)
nodes                         nodes there were at the end
node_minutes                  how long nodes were there, added up
"""

import numpy as np

from scoring.arrays import Bools, Float64s
from simulator.replay import Outcome

HOT_PERCENTS = (70, 80, 90)
_SAMPLED_PODS = 200
_SAMPLED_EVERY = 60


def measures(outcome: Outcome) -> dict[str, float]:
    """Return each measure of a replay by its name."""
    cluster, trace = outcome.cluster, outcome.cluster.trace
    warm_up = trace.warm_up_minutes
    cpu = cluster.ledger.cpu_milli[:, warm_up:] / cluster.ledger.capacity[0][:, None]
    memory = cluster.ledger.memory_bytes[:, warm_up:] / cluster.ledger.capacity[1][:, None]
    there = cluster.ledger.there()[:, warm_up:]
    hot = {percent: np.count_nonzero(cpu >= percent / 100) for percent in HOT_PERCENTS}
    throttled = np.maximum(cpu - 1, 0).sum(axis=1) @ cluster.ledger.capacity[0] / 1000 * 60
    services, jobs = _hot_pod_minutes(outcome, cpu >= 0.8)
    return {
        **{f"hot_minutes_{percent}": float(count) for percent, count in hot.items()},
        "throttled_core_seconds": round(float(throttled), 3),
        "p99_node_cpu_percent": round(100 * float(np.percentile(cpu[there], 99)), 3) if there.any() else 0.0,
        "memory_overrun_minutes": float(np.count_nonzero(memory > 1)),
        "fragmentation_percent": round(fragmentation_percent(outcome), 3),
        "service_hot_pod_minutes": services,
        "job_hot_pod_minutes": jobs,
        "unplaced_pods": float(len(outcome.never_placed)),
        "waited_pod_minutes": float(outcome.waited_minutes),
        "moves": float(outcome.moves),
        "moves_percent_per_hour": round(moves_percent_per_hour(outcome), 4),
        "displaced_pods": float(outcome.displaced),
        "nodes": float(len(cluster.nodes)),
        "node_minutes": float(np.count_nonzero(there)),
    }


def fragmentation_percent(outcome: Outcome) -> float:
    """Return the share of free CPU that a pod drawn from the trace cannot use, sampled each hour, in percent."""
    cluster, trace = outcome.cluster, outcome.cluster.trace
    if not trace.pods:
        return 0.0
    every = max(len(trace.pods) // _SAMPLED_PODS, 1)
    asked = np.array([cluster.requests(number) for number in range(0, len(trace.pods), every)], np.float64)
    free, lost, there = 0.0, 0.0, cluster.ledger.there()
    for minute in range(trace.warm_up_minutes, trace.minutes, _SAMPLED_EVERY):
        left = (cluster.ledger.capacity - requested_at(outcome, minute))[:, there[:, minute]]
        fits = (left[0] >= asked[:, :1]) & (left[1] >= asked[:, 1:])
        cpu = np.maximum(left[0], 0)
        free += float(cpu.sum())
        lost += float((~fits @ cpu).mean())
    return 100 * lost / free if free else 0.0


def requested_at(outcome: Outcome, minute: int) -> Float64s:
    """Return what the pods on each node request in a minute, as the policy counts them, shape (2, nodes)."""
    cluster = outcome.cluster
    there = [stay for stay in cluster.stays if stay.start <= minute < stay.end]
    nodes = np.array([stay.node for stay in there], np.int64)
    asked = np.array([cluster.requests(stay.pod) for stay in there], np.float64).reshape(len(there), 2)
    count = cluster.ledger.capacity.shape[1]
    return np.stack([np.bincount(nodes, asked[:, resource], count) for resource in (0, 1)])


def moves_percent_per_hour(outcome: Outcome) -> float:
    """Return the pods moved in an hour on average, in percent of the pods that ran."""
    pod_minutes = sum(stay.end - stay.start for stay in outcome.cluster.stays)
    return 100 * outcome.moves * 60 / pod_minutes if pod_minutes else 0.0


def _hot_pod_minutes(outcome: Outcome, hot: Bools) -> tuple[float, float]:
    """Return how long pods of services, and of jobs, were on hot nodes, minutes."""
    cluster = outcome.cluster
    counts = np.concatenate([np.zeros((len(hot), 1), np.int64), np.cumsum(hot, axis=1)], axis=1)
    warm_up = cluster.trace.warm_up_minutes
    total: dict[bool, list[int]] = {False: [], True: []}
    for stay in cluster.stays:
        start, end = max(stay.start - warm_up, 0), max(stay.end - warm_up, 0)
        total[cluster.is_job(stay.pod)].append(int(counts[stay.node, end] - counts[stay.node, start]))
    return float(sum(total[False])), float(sum(total[True]))
