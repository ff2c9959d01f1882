"""What is reported of a replay. Side by side, none preferred; all but the last three after the warm-up.

hot_minutes_70, _80, _90      node-minutes with CPU use at or above so many percent of capacity
throttled_core_seconds        CPU that was asked for above capacity
p99_node_cpu_percent          the 99th percentile of node-minutes' CPU use, which may be above 100
memory_overrun_minutes        node-minutes with memory use above capacity
fragmentation_percent         of the free CPU, what a pod drawn from the trace cannot use, because the pod does not fit
stranded_core_hours           CPU that was free while pods waited: none of them could use it
unplaced_pods                 pods that waited and got no node before their end or that of the replay
waited_pod_minutes            how long pods waited for a node
moves                         pods moved (from the start on)
moves_percent_per_hour        the same an hour, in percent of the pods that ran, on average
displaced_pods                pods that lost their node (from the start on)
nodes                         nodes there were at the end
node_minutes                  how long nodes were there, added up

And of services and of jobs apart, ``service_`` or ``job_`` before the name:

hot_pod_minutes               minutes that their pods were on nodes at or above 80 percent
throttled_core_seconds        their share of what was throttled, by what each pod of a node used
overrun_pod_minutes           minutes that their pods were on nodes with memory use above capacity
unplaced_pods                 as above
waited_pod_minutes            as above
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from scoring.arrays import Bools, Float64s
from trimaran.simulator.cluster import PodRun
from trimaran.simulator.queue_waits import QueueWait, queue_waits
from trimaran.simulator.replay import ReplayOutcome

HOT_PERCENTS = (70, 80, 90)
_OF_KIND = ("hot_pod_minutes", "throttled_core_seconds", "overrun_pod_minutes", "unplaced_pods", "waited_pod_minutes")
#: What is told of services and of jobs apart.
BY_KIND = tuple(f"{kind}_{name}" for name in _OF_KIND for kind in ("service", "job"))
_SAMPLED_PODS = 200
_SAMPLED_EVERY = 60


def measures(outcome: ReplayOutcome) -> dict[str, float]:
    """Return each measure of a replay by its name."""
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    cpu = _cpu_use(outcome)
    memory = cluster.ledger.memory_bytes[:, warm_up:] / cluster.ledger.capacity[1][:, None]
    there = cluster.ledger.present()[:, warm_up:]
    throttled = np.maximum(cpu - 1, 0).sum(axis=1) @ cluster.ledger.capacity[0] / 1000 * 60
    waited = [
        QueueWait(each.pod, max(each.start, warm_up), each.end, each.is_last)
        for each in queue_waits(outcome)
        if each.end > warm_up
    ]
    return {
        **{f"hot_minutes_{percent}": _hot(cpu, percent) for percent in HOT_PERCENTS},
        "throttled_core_seconds": round(float(throttled), 3),
        "p99_node_cpu_percent": round(100 * float(np.percentile(cpu[there], 99)), 3) if there.any() else 0.0,
        "memory_overrun_minutes": float(np.count_nonzero(memory > 1)),
        "fragmentation_percent": round(fragmentation_percent(outcome), 3),
        "stranded_core_hours": round(_stranded_core_hours(outcome), 3),
        "unplaced_pods": float(sum(each.is_last for each in waited)),
        "waited_pod_minutes": float(sum(each.end - each.start for each in waited)),
        **_by_kind(outcome, cpu, memory > 1, waited),
        "moves": float(outcome.moves),
        "moves_percent_per_hour": round(moves_percent_per_hour(outcome), 4),
        "displaced_pods": float(outcome.displaced),
        "nodes": float(len(cluster.nodes)),
        "node_minutes": float(np.count_nonzero(there)),
    }


def hot_minutes(outcome: ReplayOutcome, percent: int) -> float:
    """Return the node-minutes with CPU use at or above so many percent of capacity, after the warm-up."""
    return _hot(_cpu_use(outcome), percent)


def _hot(cpu: Float64s, percent: int) -> float:
    return float(np.count_nonzero(cpu >= percent / 100))


def _cpu_use(outcome: ReplayOutcome) -> Float64s:
    """Return CPU use in parts of capacity after the warm-up, shape (nodes, minutes)."""
    ledger = outcome.cluster.ledger
    use: Float64s = ledger.cpu_milli[:, outcome.cluster.trace.warm_up_minutes :] / ledger.capacity[0][:, None]
    return use


def fragmentation_percent(outcome: ReplayOutcome) -> float:
    """Return the share of free CPU that a pod drawn from the trace cannot use, sampled each hour, in percent."""
    cluster, trace = outcome.cluster, outcome.cluster.trace
    if not trace.pods:
        return 0.0
    # By what they ask for, so that the order in which pods are told does not matter.
    drawn = np.lexsort((trace.memory_request_bytes, trace.cpu_request_milli))[
        :: max(len(trace.pods) // _SAMPLED_PODS, 1)
    ]
    asked = np.array([cluster.requests(number) for number in drawn.tolist()], np.float64)
    free, lost, there = 0.0, 0.0, cluster.ledger.present()
    for minute in range(trace.warm_up_minutes, trace.minutes, _SAMPLED_EVERY):
        left = (cluster.ledger.capacity - requested_at(outcome, minute))[:, there[:, minute]]
        fits = (left[0] >= asked[:, :1]) & (left[1] >= asked[:, 1:])
        cpu = np.maximum(left[0], 0)
        free += float(cpu.sum())
        lost += float((~fits @ cpu).mean())
    return 100 * lost / free if free else 0.0


def requested_at(outcome: ReplayOutcome, minute: int) -> Float64s:
    """Return what the pods on each node request in a minute, as the policy counts them, shape (2, nodes)."""
    cluster = outcome.cluster
    there = [run for run in cluster.pod_runs if run.start <= minute < run.end]
    nodes = np.array([run.node for run in there], np.int64)
    asked = np.array([run.requests for run in there], np.float64).reshape(len(there), 2)
    count = cluster.ledger.capacity.shape[1]
    return np.stack([np.bincount(nodes, asked[:, resource], count) for resource in (0, 1)])


def moves_percent_per_hour(outcome: ReplayOutcome) -> float:
    """Return the pods moved in an hour on average, in percent of the pods that ran."""
    pod_minutes = sum(run.end - run.start for run in outcome.cluster.pod_runs)
    return 100 * outcome.moves * 60 / pod_minutes if pod_minutes else 0.0


def _stranded_core_hours(outcome: ReplayOutcome) -> float:
    """Return the CPU that no pod requested in minutes in which pods waited: what waits fits on no node."""
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    steps = np.zeros(cluster.trace.minutes + 1)
    for run in cluster.pod_runs:
        steps[run.start] += run.requests[0]
        steps[run.end] -= run.requests[0]
    free = cluster.ledger.capacity[0] @ cluster.ledger.present() - np.cumsum(steps[:-1])
    return float(free[warm_up:][outcome.waited[warm_up:]].sum()) / 1000 / 60


def _by_kind(outcome: ReplayOutcome, cpu: Float64s, overrun: Bools, waited: Iterable[QueueWait]) -> dict[str, float]:
    """Return what services had of it, and what jobs had.

    Args:
        outcome: of the replay.
        cpu: use in parts of capacity after the warm-up, shape (nodes, minutes).
        overrun: where memory use is above capacity, the same shape.
        waited: the waits, of which only what is after the warm-up.
    """
    cluster = outcome.cluster
    hot_before, overrun_before = _counts_before(cpu >= 0.8), _counts_before(overrun)
    throttled_part = np.maximum(1 - 1 / np.maximum(cpu, 1), 0)
    throttled_before = _counts_before(cpu > 1)
    total: dict[str, float] = defaultdict(float)
    for run, start, end in _measured(outcome):
        kind, span = _kind(outcome, run.pod), (run.node, start, end)
        total[f"{kind}_hot_pod_minutes"] += _count(hot_before, *span)
        total[f"{kind}_overrun_pod_minutes"] += _count(overrun_before, *span)
        if _count(throttled_before, *span):
            skipped = start + cluster.trace.warm_up_minutes - run.start
            used = cluster.series(run.pod, run.start)[0, skipped : skipped + end - start]
            total[f"{kind}_throttled_core_seconds"] += float(used @ throttled_part[run.node, start:end]) * 60 / 1000
    for wait in waited:
        total[f"{_kind(outcome, wait.pod)}_unplaced_pods"] += wait.is_last
        total[f"{_kind(outcome, wait.pod)}_waited_pod_minutes"] += wait.end - wait.start
    return {name: round(total[name], 3) for name in BY_KIND}


def _kind(outcome: ReplayOutcome, pod: int) -> str:
    return "job" if outcome.cluster.is_job(pod) else "service"


def _measured(outcome: ReplayOutcome) -> Iterator[tuple[PodRun, int, int]]:
    """Yield each stay that reaches beyond the warm-up, with its first minute and its end, counted from there."""
    warm_up = outcome.cluster.trace.warm_up_minutes
    for run in outcome.cluster.pod_runs:
        if run.end > max(run.start, warm_up):
            yield run, max(run.start - warm_up, 0), run.end - warm_up


def _counts_before(flags: Bools) -> Float64s:
    """Return how many minutes before each were so, shape (nodes, minutes + 1)."""
    return np.concatenate([np.zeros((len(flags), 1)), np.cumsum(flags, axis=1)], axis=1)


def _count(before: Float64s, node: int, start: int, end: int) -> float:
    return float(before[node, end] - before[node, start])
