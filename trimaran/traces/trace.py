"""Trace of a cluster: nodes, pods, and the CPU and memory that each pod used, minute by minute. Input of a replay.

On disk a trace is a folder; docs/simulator.md lists its files.
:mod:`trimaran.traces.reading` reads and validates such a folder.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Float64s, Int64s
from trimaran.traces.events import EVENTS, Amounts, NodeEvent, write_events
from trimaran.traces.history import TraceHistory, write_history
from trimaran.traces.tables import write_table

WORLD, NODES, PODS, USAGE = "world.json", "nodes.csv", "pods.csv", "usage.npz"
NODE_COLUMNS = ("node", "cpu_capacity_milli", "memory_capacity_bytes")
POD_COLUMNS = (
    "pod", "owner_kind", "owner", "arrival_minute", "end_minute", "cpu_request_milli", "memory_request_bytes",
)  # fmt: skip
LIMIT_COLUMNS = ("cpu_limit_milli", "memory_limit_bytes")
PRIORITY_COLUMN = "priority"
RESOURCES = ("cpu", "memory")
NO_LIMIT = -1
#: Kind of owner whose pods run to their end; pods of all other owners are services.
JOB = "Job"
MAX_MINUTES = 10_000_000
MIN_OVERCOMMIT, MAX_OVERCOMMIT = 0.01, 1000.0
ARRAYS = ("offsets", "cpu", "memory")


@dataclass(frozen=True, eq=False)
class PodUse:
    """Use of pods as a share of their requests, minute by minute.

    Attributes:
        offsets: start of each pod's minutes, followed by the end of the last pod's; shape (pods + 1,).
        cpu: CPU use of all pods one after the other, shape (minutes of all pods,).
        memory: memory use, in the form of ``cpu``.
    """

    offsets: Int64s
    cpu: NDArray[np.floating[Any]]
    memory: NDArray[np.floating[Any]]

    def in_spans(self, first: Int64s, minutes: Int64s) -> Float64s:
        """Return the mean CPU use and the highest memory use in spans of minutes, shape (2, spans).

        Args:
            first: index of each span's first minute in ``cpu``, shape (spans,).
            minutes: lengths of the spans, at least 1.
        """
        if not len(first):
            return np.zeros((2, 0))
        begin = np.cumsum(minutes) - minutes
        at = np.repeat(first - begin, minutes) + np.arange(minutes.sum())
        mean = np.add.reduceat(self.cpu[at].astype(np.float64), begin) / minutes
        return np.stack([mean, np.maximum.reduceat(self.memory[at].astype(np.float64), begin)])


@dataclass(frozen=True, eq=False)
class Trace:
    """Nodes, pods and their use. Arrays of nodes have shape (nodes,), arrays of pods (pods,).

    Attributes:
        name: name of the world in reports.
        nodes: node names.
        cpu_capacity_milli: millicores of the nodes; allocatable equals capacity.
        memory_capacity_bytes: bytes of the nodes; allocatable equals capacity.
        pods: pod names.
        owner_kinds: kinds of the pods' owners, such as ``Deployment`` or ``Job``.
        owners: names of the pods' owners; a pod without an owner has its own name.
        arrival_minute: minute in which each pod is created, ascending.
        end_minute: minute before which each pod ends.
        cpu_request_milli: CPU request in the manifest, before overcommit.
        memory_request_bytes: memory request in the manifest, before overcommit.
        cpu_limit_milli: CPU limit; -1 if there is none.
        memory_limit_bytes: memory limit; -1 if there is none.
        use: measured use of the pods.
        overcommit: divisors that an admission webhook applies to CPU and memory requests.
        warm_up_minutes: first part of the trace, which is not measured.
        minutes: length of the trace.
        events: nodes that fail and join, in the order of their minutes.
        priority: priorities of the pods; None if all are 0.
        history: use of the pods' owners before minute 0; None if it is not known.
    """

    name: str
    nodes: tuple[str, ...]
    cpu_capacity_milli: Int64s
    memory_capacity_bytes: Int64s
    pods: tuple[str, ...]
    owner_kinds: tuple[str, ...]
    owners: tuple[str, ...]
    arrival_minute: Int64s
    end_minute: Int64s
    cpu_request_milli: Int64s
    memory_request_bytes: Int64s
    cpu_limit_milli: Int64s
    memory_limit_bytes: Int64s
    use: PodUse
    overcommit: tuple[float, float]
    warm_up_minutes: int
    minutes: int
    events: tuple[NodeEvent, ...] = ()
    priority: Int64s | None = None
    history: TraceHistory | None = None

    def amounts(self) -> dict[str, Amounts]:
        """Return millicores and bytes of each node at the start of the trace."""
        both = zip(self.cpu_capacity_milli.tolist(), self.memory_capacity_bytes.tolist(), strict=True)
        return dict(zip(self.nodes, both, strict=True))

    def mean_requests(self) -> dict[tuple[str, str], Float64s]:
        """Return the mean request of each owner's pods by kind and name, cores and bytes, shape (2,)."""
        requests: dict[tuple[str, str], list[tuple[int, int]]] = {}
        amounts = zip(self.cpu_request_milli.tolist(), self.memory_request_bytes.tolist(), strict=True)
        for kind, owner, request in zip(self.owner_kinds, self.owners, amounts, strict=True):
            requests.setdefault((kind, owner), []).append(request)
        return {owner: np.mean(each, axis=0) / (1000, 1) for owner, each in requests.items()}

    def usage(self, pod: int, begin: int = 0, end: int = MAX_MINUTES) -> Float64s:
        """Return the use of a pod in the minutes from ``begin`` to before ``end``, counted from its arrival.

        Returns:
            Millicores and bytes, shape (2, minutes); minutes after the pod's last value are left out.
        """
        first, last = self.use.offsets[pod : pod + 2].tolist()
        first, last = min(first + begin, last), min(first + end, last)
        used = np.empty((2, max(last - first, 0)))
        cpu, memory = self.use.cpu[first:last], self.use.memory[first:last]
        np.multiply(cpu, self.cpu_request_milli[pod], out=used[0], dtype=np.float64)
        np.multiply(memory, self.memory_request_bytes[pod], out=used[1], dtype=np.float64)
        return used


def absolute_path(folder: Path) -> Path:
    """Return the absolute path of a folder. Symbolic links are not resolved, because a link has a name of its own."""
    return Path(os.path.abspath(folder))  # noqa: PTH100  Path.absolute keeps "..", and resolve follows links


def world_name(folder: Path) -> str:
    """Return the name of the world (replayed trace) in a folder: the folder's name."""
    return absolute_path(folder).name


def write_trace(trace: Trace, folder: Path) -> None:
    """Write a trace into a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    world = {
        "overcommit": dict(zip(RESOURCES, trace.overcommit, strict=True)),
        "warm_up_minutes": trace.warm_up_minutes,
        "minutes": trace.minutes,
    }
    (folder / WORLD).write_text(json.dumps(world) + "\n")
    columns = (trace.nodes, trace.cpu_capacity_milli, trace.memory_capacity_bytes)
    write_table(folder / NODES, NODE_COLUMNS, columns)
    limits = [
        ["" if limit == NO_LIMIT else limit for limit in amounts.tolist()]
        for amounts in (trace.cpu_limit_milli, trace.memory_limit_bytes)
    ]
    pods = (
        trace.pods, trace.owner_kinds, trace.owners, trace.arrival_minute, trace.end_minute, trace.cpu_request_milli,
        trace.memory_request_bytes, *limits,
    )  # fmt: skip
    priority = () if trace.priority is None else (PRIORITY_COLUMN,)
    write_table(
        folder / PODS, (*POD_COLUMNS, *LIMIT_COLUMNS, *priority), (*pods, *([trace.priority] if priority else ()))
    )
    if trace.events:
        write_events(trace.events, folder / EVENTS)
    if trace.history is not None:
        write_history(trace.history, folder)
    use = trace.use
    np.savez_compressed(
        folder / USAGE, offsets=use.offsets, cpu=use.cpu.astype(np.float16), memory=use.memory.astype(np.float16)
    )
