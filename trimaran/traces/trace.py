"""A trace: nodes, pods and what each pod really used, minute by minute. What a replay is made from.

On disk it is a folder:

    world.json   overcommit (cpu, memory; or one number for both; none is 1), warm_up_minutes (none is 0), minutes
    nodes.csv    node, cpu_capacity_milli, memory_capacity_bytes; allocatable is capacity
    pods.csv     pod, owner_kind, owner (empty: it has none), arrival_minute, end_minute (it ends before that minute),
                 cpu_request_milli, memory_request_bytes, cpu_limit_milli, memory_limit_bytes (empty, or no such column:
                 none)
    events.csv   nodes that fail and join, see :mod:`trimaran.traces.events`; may be absent
    usage.npz    offsets (pods + 1); cpu and memory: use in parts of the request, minute by minute from the arrival on,
                 pod i's at offsets[i] to offsets[i + 1]

This is a boundary: what is wrong is refused with the file, and the row where there is one.
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
_MOST_MINUTES = 10_000_000
MOST_LEVEL = 10_000.0
LEAST_OVERCOMMIT, MOST_OVERCOMMIT = 0.01, 1000.0
_ARRAYS = ("offsets", "cpu", "memory")


@dataclass(frozen=True, eq=False)
class PodUse:
    """What pods used, in parts of their requests, minute by minute.

    Attributes:
        offsets: where each pod's minutes begin and, one further, end; shape (pods + 1,).
        cpu: shape (minutes of all pods,).
        memory: the same.
    """

    offsets: Int64s
    cpu: NDArray[np.floating[Any]]
    memory: NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Trace:
    """Nodes, pods and their use; all pods' arrays have shape (pods,), nodes' (nodes,).

    Attributes:
        name: of the world, for reports.
        nodes: the nodes' names.
        cpu_capacity_milli: allocatable is capacity.
        memory_capacity_bytes: the same.
        pods: the pods' names.
        owner_kinds: such as ``Deployment``, ``Job``.
        owners: the names of what made them; a pod that nothing made is its own.
        arrival_minute: when each is created, ascending.
        end_minute: it runs before this minute.
        cpu_request_milli: as its user wrote it, that is, before overcommit.
        memory_request_bytes: the same.
        cpu_limit_milli: -1 without one.
        memory_limit_bytes: -1 without one.
        use: what they really use.
        overcommit: what an admission webhook divides requests by: of CPU and of memory.
        warm_up_minutes: what is not measured.
        minutes: how long it is.
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
        """Return the millicores and bytes of each node that is there at first."""
        both = zip(self.cpu_capacity_milli.tolist(), self.memory_capacity_bytes.tolist(), strict=True)
        return dict(zip(self.nodes, both, strict=True))

    def used(self, pod: int, begin: int = 0, end: int = _MOST_MINUTES) -> Float64s:
        """Return what a pod uses in the minutes from one on and before another, both counted from its arrival.

        Millicores and bytes, shape (2, minutes); what lies beyond its minutes is left out.
        """
        first, last = self.use.offsets[pod : pod + 2].tolist()
        first, last = min(first + begin, last), min(first + end, last)
        used = np.empty((2, max(last - first, 0)))
        cpu, memory = self.use.cpu[first:last], self.use.memory[first:last]
        np.multiply(cpu, self.cpu_request_milli[pod], out=used[0], dtype=np.float64)
        np.multiply(memory, self.memory_request_bytes[pod], out=used[1], dtype=np.float64)
        return used


def named_path(folder: Path) -> Path:
    """Return a folder's whole path as it is named: a link is another folder than the one that it leads to."""
    return Path(os.path.abspath(folder))  # noqa: PTH100  Path.absolute keeps "..", and resolve follows links


def world_name(folder: Path) -> str:
    """Return what the world in a folder is called: as the folder is."""
    return named_path(folder).name


def read_trace(folder: Path) -> Trace:
    """Read a trace from its folder. What lies beyond the minutes of its world is left out.

    Raises:
        TraceError: something is missing or has no meaning.
    """
    if not folder.is_dir():
        raise TraceError(f"{folder}: is no folder; a trace is a folder with {WORLD}, {NODES}, {PODS} and {USAGE}")
    world = _world(folder / WORLD)
    minutes = _whole(folder / WORLD, world, "minutes", 1, _MOST_MINUTES)
    nodes = read_table(folder / NODES, NODE_COLUMNS)
    pods = read_table(folder / PODS, POD_COLUMNS, LIMIT_COLUMNS)
    if not nodes["node"]:
        raise TraceError(f"{folder / NODES}: has no nodes")
    arrival, end = (np.minimum(pods.whole_numbers(name), minutes) for name in ("arrival_minute", "end_minute"))
    trace = Trace(
        name=world_name(folder),
        nodes=nodes.names("node"),
        cpu_capacity_milli=nodes.whole_numbers("cpu_capacity_milli", least=1),
        memory_capacity_bytes=nodes.whole_numbers("memory_capacity_bytes", least=1),
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
    _check_lives(folder, trace)
    check_events(trace.events, trace.amounts(), folder)
    return trace


def write_trace(trace: Trace, folder: Path) -> None:
    """Write a trace into a folder, which is made."""
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
        raise TraceError(f"{path}: is no JSON: {error}") from None
    if not isinstance(world, dict):
        raise TraceError(f"{path}: must be an object")
    return world


def _whole(path: Path, world: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = world.get(key)
    # Some libraries write whole numbers as 360.0.
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or not least <= value <= most:
        raise TraceError(f"{path}: {key} must be a whole number from {least} to {most}, got {value!r}")
    return int(value)


def _overcommit(path: Path, world: Mapping[str, Any]) -> tuple[float, float]:
    """Return the factors of CPU and of memory: of an object, one number for both, or none, which is 1."""
    written = world.get("overcommit")
    if written is None:
        return 1.0, 1.0
    if isinstance(written, dict):
        missing, unknown = set(RESOURCES) - set(written), [key for key in written if key not in RESOURCES]
        if missing and unknown:  # more likely misspelt than meant to be 1
            raise TraceError(f"{path}: overcommit is of {' and '.join(RESOURCES)}, got {unknown[0]!r}")
        cpu, memory = (_factor(path, f"overcommit.{name}", written.get(name, 1.0)) for name in RESOURCES)
        return cpu, memory
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise TraceError(f"{path}: overcommit must be an object, or one number, got {written!r}")
    both = _factor(path, "overcommit", written)
    return both, both


def _factor(path: Path, key: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not LEAST_OVERCOMMIT <= value <= MOST_OVERCOMMIT
    ):
        raise TraceError(
            f"{path}: {key} must be a number from {LEAST_OVERCOMMIT:g} to {MOST_OVERCOMMIT:g}, got {value!r}"
        )
    return float(value)


def _use(path: Path, pods: Sequence[str]) -> PodUse:
    offsets, cpu, memory = _arrays(path)
    if offsets.shape != (len(pods) + 1,) or not np.issubdtype(offsets.dtype, np.integer):
        raise TraceError(f"{path}: offsets must be {len(pods) + 1} whole numbers, one more than pods")
    for name, values in (("cpu", cpu), ("memory", memory)):
        if values.ndim != 1 or values.dtype.kind not in "fiu":
            raise TraceError(f"{path}: {name} must be a row of numbers")
    if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any():  # a difference of unsigned ones is never below 0
        raise TraceError(f"{path}: offsets must ascend from 0 on")
    if offsets[-1] > min(cpu.size, memory.size):
        raise TraceError(f"{path}: offsets end at {offsets[-1]}, cpu at {cpu.size} and memory at {memory.size}")
    for name, values in (("cpu", cpu), ("memory", memory)):
        wrong = np.flatnonzero(~((values >= 0) & (values <= MOST_LEVEL)))  # which what is not a number is not
        if wrong.size:
            pod = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
            whose = f"pod {pods[pod]}" if 0 <= pod < len(pods) else "no pod"
            raise TraceError(
                f"{path}: {name} must be from 0 to {MOST_LEVEL:g} times the request, got {values[wrong[0]]} of {whose}"
            )
    cpu, memory = (v if v.dtype.kind == "f" else v.astype(np.float32) for v in (cpu, memory))
    return PodUse(offsets.astype(np.int64), cpu, memory)


def _arrays(path: Path) -> list[NDArray[Any]]:
    wanted = f"{path}: must be an .npz archive as numpy.savez writes it, with the arrays {', '.join(_ARRAYS)}"
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):  # numpy would take it for a pickle
                raise TraceError(wanted)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                missing = [name for name in _ARRAYS if name not in archive]
                if missing:
                    raise TraceError(f"{wanted}: has no array {missing[0]}")
                return [archive[name] for name in _ARRAYS]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TraceError(f"{wanted}: {error}") from None


def _check_lives(folder: Path, trace: Trace) -> None:
    lives = trace.end_minute - trace.arrival_minute
    wrong = np.flatnonzero(lives < 0)
    if wrong.size:
        raise TraceError(f"{folder / PODS}: pod {trace.pods[wrong[0]]} ends before it arrives")
    short = np.flatnonzero(np.diff(trace.use.offsets) < lives)
    if short.size:
        raise TraceError(f"{folder / USAGE}: pod {trace.pods[short[0]]} has fewer minutes of use than it lives")
