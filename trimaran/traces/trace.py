"""Trace of a cluster: nodes, pods, and the CPU and memory that each pod used, minute by minute. Input of a replay.

On disk a trace is a folder:

    world.json   overcommit (cpu, memory; or one number for both; default 1), warm_up_minutes (default 0), minutes
    nodes.csv    node, cpu_capacity_milli, memory_capacity_bytes; allocatable equals capacity
    pods.csv     pod, owner_kind, owner (may be empty), arrival_minute, end_minute (exclusive), cpu_request_milli,
                 memory_request_bytes, cpu_limit_milli, memory_limit_bytes (no limit if empty or without the column)
    events.csv   nodes that fail and join, see :mod:`trimaran.traces.events`; optional
    usage.npz    offsets, shape (pods + 1,); cpu and memory: use as a share of the request, minute by minute from the
                 arrival on; pod i has the values from offsets[i] to offsets[i + 1]

All input is validated; errors name the file, and the row if there is one.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Float64s, Int64s
from trimaran.traces.events import EVENTS, Amounts, NodeEvent, check_events, read_events, write_events
from trimaran.traces.tables import TraceError, read_table, write_table

__all__ = ["PodUse", "Trace", "TraceError", "read_trace", "write_trace"]

WORLD, NODES, PODS, USAGE = "world.json", "nodes.csv", "pods.csv", "usage.npz"
NODE_COLUMNS = ("node", "cpu_capacity_milli", "memory_capacity_bytes")
POD_COLUMNS = (
    "pod", "owner_kind", "owner", "arrival_minute", "end_minute", "cpu_request_milli", "memory_request_bytes",
)  # fmt: skip
LIMIT_COLUMNS = ("cpu_limit_milli", "memory_limit_bytes")
RESOURCES = ("cpu", "memory")
NO_LIMIT = -1
_MAX_MINUTES = 10_000_000
MAX_LEVEL = 10_000.0
MIN_OVERCOMMIT, MAX_OVERCOMMIT = 0.01, 1000.0
_ARRAYS = ("offsets", "cpu", "memory")


@dataclass(frozen=True, eq=False)
class PodUse:
    """Use of pods as a share of their requests, minute by minute.

    Attributes:
        offsets: start of each pod's minutes, followed by the end of the last pod's; shape (pods + 1,).
        cpu: CPU use of all pods one after the other, shape (minutes of all pods,).
        memory: memory use in the same form.
    """

    offsets: Int64s
    cpu: NDArray[np.floating[Any]]
    memory: NDArray[np.floating[Any]]


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

    def amounts(self) -> dict[str, Amounts]:
        """Return millicores and bytes of each node at the start of the trace."""
        both = zip(self.cpu_capacity_milli.tolist(), self.memory_capacity_bytes.tolist(), strict=True)
        return dict(zip(self.nodes, both, strict=True))

    def usage(self, pod: int, begin: int = 0, end: int = _MAX_MINUTES) -> Float64s:
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


def read_trace(folder: Path) -> Trace:
    """Read a trace from its folder. Anything after the last minute of the world is left out.

    Raises:
        TraceError: a file, key or column is missing or invalid.
    """
    if not folder.is_dir():
        raise TraceError(f"{folder}: is not a folder; a trace is a folder with {WORLD}, {NODES}, {PODS} and {USAGE}")
    world = _world(folder / WORLD)
    minutes = _whole(folder / WORLD, world, "minutes", 1, _MAX_MINUTES)
    nodes = read_table(folder / NODES, NODE_COLUMNS)
    pods = read_table(folder / PODS, POD_COLUMNS, LIMIT_COLUMNS)
    if not nodes["node"]:
        raise TraceError(f"{folder / NODES}: has no nodes")
    arrival, end = (np.minimum(pods.whole_numbers(name), minutes) for name in ("arrival_minute", "end_minute"))
    trace = Trace(
        name=world_name(folder),
        nodes=nodes.names("node"),
        cpu_capacity_milli=nodes.whole_numbers("cpu_capacity_milli", minimum=1),
        memory_capacity_bytes=nodes.whole_numbers("memory_capacity_bytes", minimum=1),
        pods=pods.names("pod"),
        owner_kinds=tuple(pods["owner_kind"]),
        owners=tuple(owner or pod for owner, pod in zip(pods["owner"], pods["pod"], strict=True)),
        arrival_minute=arrival,
        end_minute=end,
        cpu_request_milli=pods.whole_numbers("cpu_request_milli"),
        memory_request_bytes=pods.whole_numbers("memory_request_bytes"),
        cpu_limit_milli=pods.whole_numbers("cpu_limit_milli", empty=NO_LIMIT),
        memory_limit_bytes=pods.whole_numbers("memory_limit_bytes", empty=NO_LIMIT),
        use=_use(folder / USAGE, pods["pod"]),
        overcommit=_overcommit(folder / WORLD, world),
        warm_up_minutes=_whole(folder / WORLD, {"warm_up_minutes": 0, **world}, "warm_up_minutes", 0, minutes - 1),
        minutes=minutes,
        events=read_events(folder / EVENTS) if (folder / EVENTS).exists() else (),
    )
    _check_lifetimes(folder, trace)
    check_events(trace.events, trace.amounts(), folder)
    return trace


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
    write_table(folder / PODS, (*POD_COLUMNS, *LIMIT_COLUMNS), pods)
    if trace.events:
        write_events(trace.events, folder / EVENTS)
    use = trace.use
    np.savez_compressed(
        folder / USAGE, offsets=use.offsets, cpu=use.cpu.astype(np.float16), memory=use.memory.astype(np.float16)
    )


def _world(path: Path) -> Mapping[str, Any]:
    try:
        world = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: is not valid JSON: {error}") from None
    if not isinstance(world, dict):
        raise TraceError(f"{path}: must be a JSON object")
    return world


def _whole(path: Path, world: Mapping[str, Any], key: str, minimum: int, maximum: int) -> int:
    value = world.get(key)
    # Some libraries write whole numbers as 360.0.
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or not minimum <= value <= maximum:
        raise TraceError(f"{path}: {key} must be a whole number from {minimum} to {maximum}, got {value!r}")
    return int(value)


def _overcommit(path: Path, world: Mapping[str, Any]) -> tuple[float, float]:
    """Return the factors of CPU and memory, written as an object or as one number for both; 1 by default."""
    overcommit = world.get("overcommit")
    if overcommit is None:
        return 1.0, 1.0
    if isinstance(overcommit, dict):
        missing, unknown = set(RESOURCES) - set(overcommit), [key for key in overcommit if key not in RESOURCES]
        if missing and unknown:  # probably a misspelled key, not a default
            raise TraceError(f"{path}: the keys of overcommit are {' and '.join(RESOURCES)}, got {unknown[0]!r}")
        cpu, memory = (_factor(path, f"overcommit.{name}", overcommit.get(name, 1.0)) for name in RESOURCES)
        return cpu, memory
    if isinstance(overcommit, bool) or not isinstance(overcommit, int | float):
        raise TraceError(f"{path}: overcommit must be an object or a number, got {overcommit!r}")
    both = _factor(path, "overcommit", overcommit)
    return both, both


def _factor(path: Path, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not MIN_OVERCOMMIT <= value <= MAX_OVERCOMMIT:
        raise TraceError(f"{path}: {key} must be a number from {MIN_OVERCOMMIT:g} to {MAX_OVERCOMMIT:g}, got {value!r}")
    return float(value)


def _use(path: Path, pods: Sequence[str]) -> PodUse:
    offsets, cpu, memory = _arrays(path)
    if offsets.shape != (len(pods) + 1,) or not np.issubdtype(offsets.dtype, np.integer):
        raise TraceError(f"{path}: offsets must be {len(pods) + 1} whole numbers, one more than pods")
    for name, values in (("cpu", cpu), ("memory", memory)):
        if values.ndim != 1 or values.dtype.kind not in "fiu":
            raise TraceError(f"{path}: {name} must be a one-dimensional array of numbers")
    if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any():  # np.diff of unsigned offsets is never negative
        raise TraceError(f"{path}: offsets must start at 0 or more and ascend")
    if offsets[-1] > min(cpu.size, memory.size):
        raise TraceError(f"{path}: offsets end at {offsets[-1]}, cpu at {cpu.size} and memory at {memory.size}")
    for name, values in (("cpu", cpu), ("memory", memory)):
        invalid = np.flatnonzero(~((values >= 0) & (values <= MAX_LEVEL)))  # also NaN
        if invalid.size:
            pod = int(np.searchsorted(offsets, invalid[0], side="right")) - 1
            owner = f"pod {pods[pod]}" if 0 <= pod < len(pods) else "no pod"
            raise TraceError(
                f"{path}: {name} must be from 0 to {MAX_LEVEL:g} times the request, got {values[invalid[0]]} of {owner}"
            )
    cpu, memory = (v if v.dtype.kind == "f" else v.astype(np.float32) for v in (cpu, memory))
    return PodUse(offsets.astype(np.int64), cpu, memory)


def _arrays(path: Path) -> list[NDArray[Any]]:
    expected = f"{path}: must be an .npz archive written by numpy.savez, with the arrays {', '.join(_ARRAYS)}"
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):  # numpy would read it as a pickle
                raise TraceError(expected)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                missing = [name for name in _ARRAYS if name not in archive]
                if missing:
                    raise TraceError(f"{expected}: has no array {missing[0]}")
                return [archive[name] for name in _ARRAYS]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TraceError(f"{expected}: {error}") from None


def _check_lifetimes(folder: Path, trace: Trace) -> None:
    minutes = trace.end_minute - trace.arrival_minute
    negative = np.flatnonzero(minutes < 0)
    if negative.size:
        raise TraceError(f"{folder / PODS}: pod {trace.pods[negative[0]]} ends before it arrives")
    short = np.flatnonzero(np.diff(trace.use.offsets) < minutes)
    if short.size:
        raise TraceError(f"{folder / USAGE}: pod {trace.pods[short[0]]} has fewer minutes of use than its lifetime")
