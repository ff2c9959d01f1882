"""Past of a trace in Prometheus: cAdvisor's series of its pods before and after minute 0, and the owners of ended pods.

A row of the trace's history is the mean pod of an owner on one day. Each pod of the owner that runs has used that, if
the row is of the present revision. Of an earlier revision there is one pod. A job's pods follow one another: each time
in which its use is known is one pod.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from control_plane.world_player import JOB_SUFFIX

from scoring.arrays import Float64s
from trimaran.simulator.past_days import CONTAINER
from trimaran.traces.history import STEP_SECONDS
from trimaran.traces.trace import JOB, Trace

_DAY, _MINUTE = 1440, 60
_MEMORY_MINUTES = 5  # between two samples of memory; a minute at the end, where rounds need two samples
_STATE_MINUTES = 60  # between two samples of kube-state-metrics
_UNITS = [[1000], [1]]  # millicores of a core

_Owner = tuple[str, str]  # kind and name


@dataclass(frozen=True, eq=False)
class PastPod:
    """Use of a pod, minute by minute.

    Attributes:
        name: name of the pod.
        owner: kind and name of its owner in the trace.
        revision: revision of the history; "" for that of the trace's pods.
        begin: minute of the trace in which the use begins.
        use: cores and bytes, shape (2, minutes); NaN while the pod did not run.
        is_running: whether the pod is in the cluster; otherwise only kube-state-metrics knows its owner.
    """

    name: str
    owner: _Owner
    revision: str
    begin: int
    use: Float64s
    is_running: bool


def running_pods(trace: Trace, minute: int) -> list[int]:
    """Return the numbers of the pods that arrived before a minute and run in it."""
    return np.flatnonzero((trace.arrival_minute < minute) & (trace.end_minute > minute)).tolist()


def past_pods(trace: Trace, running: Sequence[int]) -> Iterator[PastPod]:
    """Yield the pods that run in the cluster, with their use before and after minute 0, and those of the history.

    Args:
        trace: the trace.
        running: numbers of the pods in the cluster.
    """
    past = _past(trace)
    numbers: dict[_Owner, list[int]] = defaultdict(list)
    for number in running:
        numbers[trace.owner_kinds[number], trace.owners[number]].append(number)
    for owner, members in numbers.items():
        before = np.zeros((2, 0)) if owner[0] == JOB else past.pop((owner, ""), np.zeros((2, 0)))
        for number in members:
            arrival, own = int(trace.arrival_minute[number]), trace.usage(number) / _UNITS
            use = np.concatenate([before, np.full((2, arrival), np.nan), own], axis=1)
            yield PastPod(trace.pods[number], owner, "", -before.shape[1], use, is_running=True)
    for (owner, revision), use in past.items():
        known = np.flatnonzero(np.isfinite(use).all(axis=0))
        runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if owner[0] == JOB else [known]
        for number, part in enumerate(runs):
            first, last = int(part[0]), int(part[-1]) + 1
            name = f"{owner[1]}{revision}-ended-{number}"
            yield PastPod(name, owner, revision, first - use.shape[1], use[:, first:last], is_running=False)


def past_lines(pods: Sequence[PastPod], origin: int) -> Iterator[str]:
    """Yield the series as OpenMetrics text.

    Args:
        pods: the pods.
        origin: Unix time of minute 0.
    """
    yield "# TYPE container_cpu_usage_seconds counter\n"
    for pod in pods:
        used = np.cumsum(np.nan_to_num(pod.use[0])) * _MINUTE
        values = np.concatenate([[0], used])
        yield from _samples("container_cpu_usage_seconds_total", _labels(pod), pod, values, origin)
    yield "# TYPE container_memory_working_set_bytes gauge\n"
    for pod in pods:
        values = np.concatenate([pod.use[1, :1], pod.use[1]])
        yield from _samples("container_memory_working_set_bytes", _labels(pod), pod, values, origin, _MEMORY_MINUTES)
    for name, labels_of in (("kube_pod_info", _info), ("kube_replicaset_owner", _replica_set)):
        yield f"# TYPE {name} gauge\n"
        for pod in pods:
            if not pod.is_running and (name == "kube_pod_info" or pod.owner[0] != JOB):
                ones = np.ones(pod.use.shape[1] + 1)
                yield from _samples(name, labels_of(pod), pod, ones, origin, _STATE_MINUTES)


def _past(trace: Trace) -> dict[tuple[_Owner, str], Float64s]:
    """Return the use of a mean pod in the minutes before minute 0, by owner and revision; NaN where unknown."""
    history, requests = trace.history, trace.mean_requests()
    past: dict[tuple[_Owner, str], Float64s] = {}
    if history is None:
        return past
    oldest = int(history.days.min())
    for row, owner in enumerate(zip(history.owner_kinds, history.owners, strict=True)):
        if owner in requests:
            use = past.setdefault((owner, history.revisions[row]), np.full((2, -oldest * _DAY), np.nan))
            first = (int(history.days[row]) - oldest) * _DAY
            shares = np.array([history.cpu[row], history.memory[row]], np.float64)
            use[:, first : first + _DAY] = np.repeat(shares * requests[owner][:, None], STEP_SECONDS // _MINUTE, axis=1)
    return past


def _samples(metric: str, labels: str, pod: PastPod, values: Float64s, origin: int, every: int = 1) -> Iterator[str]:
    """Yield the samples of a pod at the ends of its minutes, and at its start."""
    known = np.isfinite(pod.use).all(axis=0)
    is_sampled = np.concatenate([known, [False]]) | np.concatenate([[False], known])
    minutes = pod.begin + np.arange(len(values))
    is_edge = is_sampled & ~(np.roll(is_sampled, 1) & np.roll(is_sampled, -1))
    chosen = np.flatnonzero(is_sampled & ((minutes % every == 0) | (minutes > -2 * every) | is_edge))
    yield "".join(
        f"{metric}{{{labels}}} {value!r} {origin + minute * _MINUTE}\n"
        for value, minute in zip(values[chosen].tolist(), minutes[chosen].tolist(), strict=True)
    )


def _labels(pod: PastPod) -> str:
    return f'namespace="default",pod="{pod.name}",container="{CONTAINER}",image="i"'


def _info(pod: PastPod) -> str:
    kind, name = ("Job", f"{pod.owner[1]}{JOB_SUFFIX}") if pod.owner[0] == JOB else ("ReplicaSet", _set_name(pod))
    return f'namespace="default",pod="{pod.name}",uid="u",node="n",created_by_kind="{kind}",created_by_name="{name}"'


def _replica_set(pod: PastPod) -> str:
    owner = f'owner_kind="Deployment",owner_name="{pod.owner[1]}",owner_is_controller="true"'
    return f'namespace="default",replicaset="{_set_name(pod)}",{owner}'


def _set_name(pod: PastPod) -> str:
    return f"{pod.owner[1]}-r{pod.revision.removeprefix('-')}"
