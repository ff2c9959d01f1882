"""Assembly of a trace from the lifetimes and specifications of pods."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import CPU, MEMORY
from scoring import Node
from trimaran.traces.history import MAX_LEVEL
from trimaran.traces.recording.lifetimes import Lifetime
from trimaran.traces.recording.pods import PodSpec
from trimaran.traces.trace import NO_LIMIT, PodUse, Trace
from watcher.usage.sources.pods import PodKey

MIN_REQUESTS = (1, 1024**2)  # of pods without requests: use is stored as a share of the request, which must not be 0


@dataclass(frozen=True, eq=False)
class _TracePod:
    """Pod of the trace. Its levels are CPU and memory use as shares of the request, shape (2, minutes it ran)."""

    pod: PodKey
    number: int
    start: int
    end: int
    spec: PodSpec
    requests: tuple[int, int]
    levels: NDArray[np.float16]


@dataclass
class RecordingCounts:
    """Numbers of recorded and omitted pods.

    Attributes:
        recorded: pods in the trace; a pod that was recreated under its name counts again.
        node_bound: DaemonSet and static pods; their requests are subtracted from their nodes.
        unknown: pods without known requests.
        elsewhere: pods on nodes that are not recorded.
        without_requests: recorded pods without a CPU or a memory request.
        examples: names of up to three unknown pods.
    """

    recorded: int = 0
    node_bound: int = 0
    unknown: int = 0
    elsewhere: int = 0
    without_requests: int = 0
    examples: list[str] = field(default_factory=list)


def assemble(
    name: str,
    nodes: Sequence[Node],
    lifetimes: Iterable[Lifetime],
    specs: Mapping[PodKey, PodSpec],
    *,
    minutes: int,
    warm_up_minutes: int,
    only_these_nodes: bool,
) -> tuple[Trace, RecordingCounts]:
    """Return the trace, and the numbers of recorded and omitted pods.

    Args:
        name: name of the world.
        nodes: nodes of the trace; their allocatable becomes their capacity.
        lifetimes: lifetimes of pods, in any order.
        specs: specifications of pods.
        minutes: length of the trace.
        warm_up_minutes: first part of the trace, which is not measured.
        only_these_nodes: leave out pods that ran on other nodes.
    """
    counts = RecordingCounts()
    names = {node.name for node in nodes}
    pods: list[_TracePod] = []
    for lifetime in lifetimes:
        spec = specs.get(lifetime.key)
        if spec is None:
            counts.unknown += 1
            counts.examples += ["/".join(lifetime.key)] if len(counts.examples) < 3 else []
        elif spec.is_node_bound:
            counts.node_bound += 1
        elif only_these_nodes and spec.node and spec.node not in names:
            counts.elsewhere += 1
        else:
            pods.append(_trace_pod(lifetime, spec))
            counts.without_requests += 0 in spec.requests
    counts.recorded = len(pods)
    pods.sort(key=lambda pod: (pod.start, pod.pod, pod.number))
    free = _free(nodes, [spec for spec in specs.values() if spec.is_node_bound])
    cpu, memory = (np.concatenate([np.zeros(0, np.float16), *(pod.levels[row] for pod in pods)]) for row in (0, 1))
    requests, limits = (np.array(rows, np.int64).reshape(len(pods), 2) for rows in (
        [pod.requests for pod in pods], [_limits(pod) for pod in pods]
    ))  # fmt: skip
    trace = Trace(
        name=name,
        nodes=tuple(node.name for node in nodes),
        cpu_capacity_milli=np.array([free[node.name][0] for node in nodes], np.int64),
        memory_capacity_bytes=np.array([free[node.name][1] for node in nodes], np.int64),
        pods=tuple("/".join(pod.pod) + (f"#{pod.number}" if pod.number else "") for pod in pods),
        owner_kinds=tuple(pod.spec.owner_kind for pod in pods),
        owners=tuple(pod.spec.owner for pod in pods),
        arrival_minute=np.array([pod.start for pod in pods], np.int64),
        end_minute=np.array([pod.end for pod in pods], np.int64),
        cpu_request_milli=requests[:, 0],
        memory_request_bytes=requests[:, 1],
        cpu_limit_milli=limits[:, 0],
        memory_limit_bytes=limits[:, 1],
        use=PodUse(np.cumsum([0, *(pod.end - pod.start for pod in pods)]), cpu, memory),
        overcommit=(1.0, 1.0),
        warm_up_minutes=warm_up_minutes,
        minutes=minutes,
    )
    return trace, counts


def _limits(pod: _TracePod) -> list[int]:
    """Return a pod's limits. A sum of limits below the request lacks a container without a limit: the pod has none."""
    return [
        NO_LIMIT if limit < request else limit for limit, request in zip(pod.spec.limits, pod.requests, strict=True)
    ]


def _free(nodes: Sequence[Node], node_bound: Iterable[PodSpec]) -> dict[str, list[int]]:
    """Return each node's allocatable resources minus the requests of its DaemonSet and static pods, at least 1."""
    free = {node.name: [node.allocatable.amount(CPU), node.allocatable.amount(MEMORY)] for node in nodes}
    for spec in node_bound:
        if spec.node in free:
            free[spec.node] = [amount - request for amount, request in zip(free[spec.node], spec.requests, strict=True)]
    return {name: [max(amount, 1) for amount in amounts] for name, amounts in free.items()}


def _trace_pod(lifetime: Lifetime, spec: PodSpec) -> _TracePod:
    """Return a pod of the trace, with its use as a share of the request.

    A pod without a request gets a request that is large enough for its highest use.
    """
    peaks = lifetime.use.max(axis=1, initial=0.0) * [1000, 1]
    cpu, memory = (
        request or max(minimum, int(np.ceil(peak / MAX_LEVEL)))
        for request, minimum, peak in zip(spec.requests, MIN_REQUESTS, peaks.tolist(), strict=True)
    )
    levels = np.minimum(lifetime.use / [[cpu / 1000], [memory]], MAX_LEVEL).astype(np.float16)
    return _TracePod(lifetime.key, lifetime.number, lifetime.start, lifetime.end, spec, (cpu, memory), levels)
