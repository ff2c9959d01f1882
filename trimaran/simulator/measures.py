"""Measures of a replay.

The measures of moves and displaced pods cover the whole replay, and ``nodes`` its end. All others cover the time after
the warm-up. No measure is preferred to another.

hot_minutes_70, _80, _90      node-minutes with CPU use at or above 70, 80 or 90 percent of capacity
throttled_core_seconds        CPU demand above capacity
p99_node_cpu_percent          99th percentile of CPU use over node-minutes; without the ceiling it may exceed 100
memory_overrun_minutes        node-minutes with memory use above capacity
cpu_short_percent             share of the node-hours with CPU demand above capacity in any of their minutes
memory_short_percent          share of the node-hours with memory use above capacity in any of their minutes
cpu_requested_percent         CPU that the running pods requested on admission, on average, as a share of capacity
fragmentation_percent         share of the free CPU on nodes that a pod drawn from the trace does not fit
stranded_core_hours           free CPU in minutes in which pods waited because they fit no node
unplaced_pods                 pods that waited and got no node before their end or the end of the replay
waited_pod_minutes            time that pods waited for a node
moves                         moved pods
starting_pod_minutes          pod-minutes in which moved pods did not work yet, as they started
moves_percent_per_hour        moved pods per hour, as a percentage of the pods that ran
displaced_pods                pods that lost their node
nodes                         number of nodes at the end
node_minutes                  total time of nodes in the cluster

Measures of services and of jobs have the prefix ``service_`` or ``job_``:

hot_pod_minutes               pod-minutes on nodes with CPU use at or above 80 percent
throttled_core_seconds        CPU that the pods demanded and did not get
overrun_pod_minutes           pod-minutes on nodes with memory use above capacity
unplaced_pods                 as for all pods
waited_pod_minutes            as for all pods
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from scoring.arrays import Bools, Float64s
from trimaran.simulator.queue_waits import QueueWait, queue_waits
from trimaran.simulator.replay import ReplayOutcome

HOT_PERCENTS = (70, 80, 90)
_OF_KIND = ("hot_pod_minutes", "throttled_core_seconds", "overrun_pod_minutes", "unplaced_pods", "waited_pod_minutes")
#: Names of the measures of services and of jobs.
BY_KIND = tuple(f"{kind}_{name}" for name in _OF_KIND for kind in ("service", "job"))
_SAMPLED_PODS = 200
_SAMPLE_MINUTES = 60


def measures(outcome: ReplayOutcome) -> dict[str, float]:
    """Return the measures of a replay by name."""
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    cpu = _cpu_use(outcome)
    memory = cluster.ledger.memory_bytes[:, warm_up:] / cluster.ledger.capacity[1][:, None]
    present = cluster.ledger.present()[:, warm_up:]
    short = cluster.ledger.short_milli[:, warm_up:]
    waits = [
        QueueWait(wait.pod, max(wait.start, warm_up), wait.end, wait.is_last)
        for wait in queue_waits(outcome)
        if wait.end > warm_up
    ]
    return {
        **{f"hot_minutes_{percent}": _hot(cpu, percent) for percent in HOT_PERCENTS},
        "throttled_core_seconds": round(float(short.sum()) / 1000 * 60, 3),
        "p99_node_cpu_percent": round(100 * float(np.percentile(cpu[present], 99)), 3) if present.any() else 0.0,
        "memory_overrun_minutes": float(np.count_nonzero(memory > 1)),
        "cpu_short_percent": _short_percent(short > 0, present),
        "memory_short_percent": _short_percent(memory > 1, present),
        "cpu_requested_percent": round(_requested_percent(outcome), 3),
        "fragmentation_percent": round(fragmentation_percent(outcome), 3),
        "stranded_core_hours": round(_stranded_core_hours(outcome), 3),
        "unplaced_pods": float(sum(wait.is_last for wait in waits)),
        "waited_pod_minutes": float(sum(wait.end - wait.start for wait in waits)),
        **_by_kind(outcome, cpu, memory > 1, waits),
        "moves": float(outcome.moves),
        "starting_pod_minutes": outcome.starting_minutes,
        "moves_percent_per_hour": round(moves_percent_per_hour(outcome), 4),
        "displaced_pods": float(outcome.displaced),
        "nodes": float(len(cluster.nodes)),
        "node_minutes": float(np.count_nonzero(present)),
    }


def hot_minutes(outcome: ReplayOutcome, percent: int) -> float:
    """Return the node-minutes after the warm-up with CPU use at or above a percentage of capacity."""
    return _hot(_cpu_use(outcome), percent)


def _hot(cpu: Float64s, percent: int) -> float:
    return float(np.count_nonzero(cpu >= percent / 100))


def _cpu_use(outcome: ReplayOutcome) -> Float64s:
    """Return CPU use after the warm-up as a share of capacity, shape (nodes, minutes)."""
    ledger = outcome.cluster.ledger
    return np.asarray(ledger.cpu_milli[:, outcome.cluster.trace.warm_up_minutes :] / ledger.capacity[0][:, None])


def _short_percent(short: Bools, present: Bools) -> float:
    """Return the share of the node-hours that are short in any minute, as a percentage.

    Args:
        short: mask of the minutes in which a node is short, shape (nodes, minutes).
        present: mask of the minutes in which a node is in the cluster, the same shape.
    """
    hours = range(0, present.shape[1], 60)
    if not present.any():
        return 0.0
    counts = [np.count_nonzero(np.logical_or.reduceat(each, hours, axis=1)) for each in (short & present, present)]
    return round(100 * float(counts[0] / counts[1]), 3)


def _requested_percent(outcome: ReplayOutcome) -> float:
    """Return the CPU requests of the running pods after the warm-up as a percentage of the nodes' capacity."""
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    capacity = float((cluster.ledger.capacity[0] @ cluster.ledger.present())[warm_up:].sum())
    requested = sum(run.requests[0] * max(run.end - max(run.start, warm_up), 0) for run in cluster.pod_runs)
    return 100 * requested / capacity if capacity else 0.0


def fragmentation_percent(outcome: ReplayOutcome) -> float:
    """Return the percentage of free CPU that a pod drawn from the trace cannot use, sampled every hour."""
    cluster, trace = outcome.cluster, outcome.cluster.trace
    if not trace.pods:
        return 0.0
    # Sampled by request size, so that the order of pods in the trace does not matter.
    by_size = np.lexsort((trace.memory_request_bytes, trace.cpu_request_milli))
    sample = by_size[:: max(len(trace.pods) // _SAMPLED_PODS, 1)]
    requests = np.array([cluster.requests(number) for number in sample.tolist()], np.float64)
    free, unusable, present = 0.0, 0.0, cluster.ledger.present()
    for minute in range(trace.warm_up_minutes, trace.minutes, _SAMPLE_MINUTES):
        left = (cluster.ledger.capacity - requested_at(outcome, minute))[:, present[:, minute]]
        fits = (left[0] >= requests[:, :1]) & (left[1] >= requests[:, 1:])
        cpu = np.maximum(left[0], 0)
        free += float(cpu.sum())
        unusable += float((~fits @ cpu).mean())
    return 100 * unusable / free if free else 0.0


def requested_at(outcome: ReplayOutcome, minute: int) -> Float64s:
    """Return the admitted requests on each node in a minute, millicores and bytes, shape (2, nodes)."""
    cluster = outcome.cluster
    runs = [run for run in cluster.pod_runs if run.start <= minute < run.end]
    nodes = np.array([run.node for run in runs], np.int64)
    requests = np.array([run.requests for run in runs], np.float64).reshape(len(runs), 2)
    count = cluster.ledger.capacity.shape[1]
    return np.stack([np.bincount(nodes, requests[:, resource], count) for resource in (0, 1)])


def moves_percent_per_hour(outcome: ReplayOutcome) -> float:
    """Return the average number of pods moved per hour, as a percentage of the pods that ran."""
    pod_minutes = sum(run.end - run.start for run in outcome.cluster.pod_runs)
    return 100 * outcome.moves * 60 / pod_minutes if pod_minutes else 0.0


def _stranded_core_hours(outcome: ReplayOutcome) -> float:
    """Return the core-hours that no pod requested in minutes in which pods waited."""
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    changes = np.zeros(cluster.trace.minutes + 1)
    for run in cluster.pod_runs:
        changes[run.start] += run.requests[0]
        changes[run.end] -= run.requests[0]
    free = cluster.ledger.capacity[0] @ cluster.ledger.present() - np.cumsum(changes[:-1])
    return float(free[warm_up:][outcome.waited[warm_up:]].sum()) / 1000 / 60


def _by_kind(outcome: ReplayOutcome, cpu: Float64s, overrun: Bools, waits: Iterable[QueueWait]) -> dict[str, float]:
    """Return the measures of services and of jobs.

    Args:
        outcome: outcome of the replay.
        cpu: CPU use after the warm-up as a share of capacity, shape (nodes, minutes).
        overrun: mask of memory use above capacity, the same shape.
        waits: the pods' waits for a node, without the part during the warm-up.
    """
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    # With cumulative counts, the number of hot minutes or overruns in any span is one difference.
    hot_before, overrun_before = _counts_before(cpu >= 0.8), _counts_before(overrun)
    total: dict[str, float] = defaultdict(float)
    for run in cluster.pod_runs:
        start, end = max(run.start - warm_up, 0), run.end - warm_up  # counted from the end of the warm-up
        if end <= start:
            continue
        kind, span = _kind(outcome, run.pod), (run.node, start, end)
        total[f"{kind}_hot_pod_minutes"] += _count(hot_before, *span)
        total[f"{kind}_overrun_pod_minutes"] += _count(overrun_before, *span)
        total[f"{kind}_throttled_core_seconds"] += run.short_milli * 60 / 1000
    for wait in waits:
        total[f"{_kind(outcome, wait.pod)}_unplaced_pods"] += wait.is_last
        total[f"{_kind(outcome, wait.pod)}_waited_pod_minutes"] += wait.end - wait.start
    return {name: round(total[name], 3) for name in BY_KIND}


def _kind(outcome: ReplayOutcome, pod: int) -> str:
    return "job" if outcome.cluster.is_job(pod) else "service"


def _counts_before(flags: Bools) -> Float64s:
    """Return cumulative counts: the number of True flags before each minute, shape (nodes, minutes + 1)."""
    return np.concatenate([np.zeros((len(flags), 1)), np.cumsum(flags, axis=1)], axis=1)


def _count(before: Float64s, node: int, start: int, end: int) -> float:
    return float(before[node, end] - before[node, start])
