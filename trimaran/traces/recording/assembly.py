"""From lives and what is known of pods to a trace."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import CPU, MEMORY
from scoring import Node
from trimaran.traces.recording.lives import Life
from trimaran.traces.recording.pods import Key, Known
from trimaran.traces.trace import MOST_LEVEL, PodUse, Trace

_LEAST_REQUESTS = (1, 1024**2)  # of pods that ask for nothing: use is written in parts of the request


@dataclass(frozen=True, eq=False)
class _Run:
    """A life as it is written; levels have the shape (2, its minutes)."""

    pod: Key
    number: int
    start: int
    end: int
    known: Known
    requests: tuple[int, int]
    levels: NDArray[np.float16]


@dataclass
class Counts:
    """What became of the pods that were seen.

    Attributes:
        recorded: how many runs of pods are in the trace.
        fixed: pods of DaemonSets and static pods: their requests are taken off their nodes.
        unknown: pods whose requests nobody knew any more.
        elsewhere: pods on nodes that were not chosen.
        without_requests: of those recorded, pods that ask for no CPU or no memory.
        examples: names of pods that were unknown.
    """

    recorded: int = 0
    fixed: int = 0
    unknown: int = 0
    elsewhere: int = 0
    without_requests: int = 0
    examples: list[str] = field(default_factory=list)


def assemble(
    name: str,
    nodes: Sequence[Node],
    lives: Iterable[Life],
    known: Mapping[Key, Known],
    *,
    minutes: int,
    warm_up_minutes: int,
    only_these_nodes: bool,
) -> tuple[Trace, Counts]:
    """Return the trace, and what became of the pods.

    Args:
        name: of the world.
        nodes: what pods can be placed on; what they can allocate becomes their capacity.
        lives: of pods, in any order.
        known: what they ask for.
        minutes: how long the trace is.
        warm_up_minutes: of these, what is not measured.
        only_these_nodes: leave out pods that are known to be on others.
    """
    counts = Counts()
    names = {node.name for node in nodes}
    runs: list[_Run] = []
    for life in lives:
        pod = known.get(life.key)
        if pod is None:
            counts.unknown += 1
            counts.examples += ["/".join(life.key)] if len(counts.examples) < 3 else []
        elif pod.is_fixed:
            counts.fixed += 1
        elif only_these_nodes and pod.node and pod.node not in names:
            counts.elsewhere += 1
        else:
            runs.append(_run(life, pod))
            counts.without_requests += 0 in pod.requests
    counts.recorded = len(runs)
    runs.sort(key=lambda each: (each.start, each.pod, each.number))
    free = _free(nodes, [pod for pod in known.values() if pod.is_fixed])
    cpu, memory = (np.concatenate([np.zeros(0, np.float16), *(each.levels[row] for each in runs)]) for row in (0, 1))
    requests, limits = (np.array(rows, np.int64).reshape(len(runs), 2) for rows in (
        [each.requests for each in runs], [each.known.limits for each in runs]
    ))  # fmt: skip
    trace = Trace(
        name=name,
        nodes=tuple(node.name for node in nodes),
        cpu_capacity_milli=np.array([free[node.name][0] for node in nodes], np.int64),
        memory_capacity_bytes=np.array([free[node.name][1] for node in nodes], np.int64),
        pods=tuple("/".join(each.pod) + (f"#{each.number}" if each.number else "") for each in runs),
        owner_kinds=tuple(each.known.owner_kind for each in runs),
        owners=tuple(each.known.owner for each in runs),
        arrival_minute=np.array([each.start for each in runs], np.int64),
        end_minute=np.array([each.end for each in runs], np.int64),
        cpu_request_milli=requests[:, 0],
        memory_request_bytes=requests[:, 1],
        cpu_limit_milli=limits[:, 0],
        memory_limit_bytes=limits[:, 1],
        use=PodUse(np.cumsum([0, *(each.end - each.start for each in runs)]), cpu, memory),
        overcommit=(1.0, 1.0),
        warm_up_minutes=warm_up_minutes,
        minutes=minutes,
    )
    return trace, counts


def _free(nodes: Sequence[Node], fixed: Iterable[Known]) -> dict[str, list[int]]:
    """Return what each node can allocate, less what its fixed pods request; at least 1 of each."""
    free = {node.name: [node.allocatable.amount(CPU), node.allocatable.amount(MEMORY)] for node in nodes}
    for pod in fixed:
        if pod.node in free:
            free[pod.node] = [amount - taken for amount, taken in zip(free[pod.node], pod.requests, strict=True)]
    return {name: [max(amount, 1) for amount in amounts] for name, amounts in free.items()}


def _run(life: Life, known: Known) -> _Run:
    """Return what is written of a life: use in parts of the request, or without any of the least that can tell it."""
    peaks = life.use.max(axis=1, initial=0.0) * [1000, 1]
    cpu, memory = (
        asked or max(least, int(np.ceil(peak / MOST_LEVEL)))
        for asked, least, peak in zip(known.requests, _LEAST_REQUESTS, peaks.tolist(), strict=True)
    )
    levels = np.minimum(life.use / [[cpu / 1000], [memory]], MOST_LEVEL).astype(np.float16)
    return _Run(life.key, life.number, life.start, life.end, known, (cpu, memory), levels)
