"""Reading of traces. All files are validated, and all of their problems are found at once."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import quoted
from runtime.parsing import parse_json
from trimaran.traces import checks
from trimaran.traces.events import EVENTS, event_errors, read_events
from trimaran.traces.history import MAX_LEVEL, read_history
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.tables import Table, read_arrays, read_table
from trimaran.traces.trace import (
    ARRAYS,
    LIMIT_COLUMNS,
    MAX_MINUTES,
    MAX_OVERCOMMIT,
    MIN_OVERCOMMIT,
    NO_LIMIT,
    NODE_COLUMNS,
    NODES,
    POD_COLUMNS,
    PODS,
    PRIORITY_COLUMN,
    RESOURCES,
    USAGE,
    WORLD,
    PodUse,
    Trace,
    world_name,
)

_KEYS = ("overcommit", "warm_up_minutes", "minutes")
_HIGH_OVERCOMMIT = 10.0
_MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True)
class _World:
    """Content of the file world.json, with defaults for invalid values; ``minutes`` None means the last pod's end."""

    minutes: int | None = None
    warm_up_minutes: int = 0
    overcommit: tuple[float, float] = (1.0, 1.0)


def read_trace(folder: Path | str) -> Trace:
    """Read a trace from its folder. Anything after the last minute of the world is left out.

    Raises:
        TraceError: a file, key or column is missing or invalid.
    """
    return read_trace_and_warnings(Path(folder))[0]


def read_trace_and_warnings(folder: Path) -> tuple[Trace, list[str]]:
    """Read a trace, and return its warnings, too.

    Raises:
        TraceError: a file, key or column is missing or invalid.
    """
    trace, problems = examine_trace(folder)
    problems.raise_errors(f"; trimaran simulate check {folder} lists them")
    assert trace is not None  # noqa: S101  there are no errors
    return trace, problems.warnings


def examine_trace(folder: Path) -> tuple[Trace | None, TraceProblems]:
    """Return the trace in a folder, None if it has errors, and all errors and warnings."""
    problems = TraceProblems()
    if not folder.is_dir():
        files = f"{WORLD}, {NODES}, {PODS} and {USAGE}"
        problems.refuse(f"{folder}: is not a folder; a trace is a folder with {files}")
        return None, problems
    world = _read_world(folder / WORLD, problems)
    nodes = read_table(folder / NODES, NODE_COLUMNS, problems=problems)
    pods = read_table(folder / PODS, POD_COLUMNS, (*LIMIT_COLUMNS, PRIORITY_COLUMN), problems=problems)
    use = _read_use(folder / USAGE, None if pods is None else pods["pod"], problems)
    # lexists: a link to a missing file is an error, not a trace without events.
    events = read_events(folder / EVENTS, problems) if os.path.lexists(folder / EVENTS) else ()
    _check_file_names(folder, problems)
    node_columns = None if nodes is None else _node_columns(nodes)
    pod_columns = None if pods is None else _pod_columns(pods)
    if nodes is None or pods is None or use is None or node_columns is None or pod_columns is None:
        return None, problems
    minutes = world.minutes or max(int(pod_columns["end_minute"].max(initial=0)), 1)
    checks.check_minutes(folder, pod_columns["arrival_minute"], pod_columns["end_minute"], minutes, problems)
    for name in ("arrival_minute", "end_minute"):
        pod_columns[name] = np.minimum(pod_columns[name], minutes)
    trace = Trace(
        name=world_name(folder),
        **node_columns,
        **pod_columns,
        use=use,
        overcommit=world.overcommit,
        warm_up_minutes=world.warm_up_minutes,
        minutes=minutes,
        events=events,
        history=read_history(folder, problems),
    )
    problems.refuse(*event_errors(events, trace.amounts(), folder))
    checks.check_joins(folder, trace, problems)
    checks.check_use(folder / USAGE, trace, pods, problems)
    checks.check_fit(trace, pods)
    return (None if problems.errors else trace), problems


def _read_world(path: Path, problems: TraceProblems) -> _World:
    """Read the file world.json."""
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return dict(pairs)

    try:
        world = parse_json(path.read_text(encoding="utf-8-sig"), unique)
    except OSError as error:
        problems.refuse(f"{path}: cannot be read: {error.strerror}")
        return _World()
    except ValueError as error:
        problems.refuse(f"{path}: is not valid JSON: {error}")
        return _World()
    if not isinstance(world, dict):
        problems.refuse(f"{path}: must be a JSON object")
        return _World()
    problems.refuse(*(f"{path}: key {name!r} is given more than once; keep one of them" for name in twice))
    problems.check_names(path, "key", list(world), _KEYS)
    minutes = _whole(path, world, "minutes", 1, MAX_MINUTES, problems)
    most = (minutes or MAX_MINUTES) - 1
    warm_up = _whole(path, {"warm_up_minutes": 0, **world}, "warm_up_minutes", 0, most, problems) or 0
    return _World(minutes, warm_up, _overcommit(path, world, problems))


def _whole(
    path: Path, world: Mapping[str, Any], key: str, minimum: int, maximum: int, problems: TraceProblems
) -> int | None:
    value = world.get(key)
    # Some libraries write whole numbers as 360.0.
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or not minimum <= value <= maximum:
        problems.refuse(f"{path}: {key} must be a whole number from {minimum} to {maximum}, got {quoted(value)}")
        return None
    return int(value)


def _overcommit(path: Path, world: Mapping[str, Any], problems: TraceProblems) -> tuple[float, float]:
    """Return the factors of CPU and memory, written as an object or as one number for both; 1 by default."""
    overcommit = world.get("overcommit")
    if overcommit is None:
        return 1.0, 1.0
    if isinstance(overcommit, dict):
        problems.check_names(path, "key of overcommit", list(overcommit), RESOURCES)
        cpu, memory = (_factor(path, f"overcommit.{name}", overcommit.get(name, 1.0), problems) for name in RESOURCES)
        return cpu, memory
    if isinstance(overcommit, bool) or not isinstance(overcommit, int | float):
        problems.refuse(f"{path}: overcommit must be an object or a number, got {quoted(overcommit)}")
        return 1.0, 1.0
    both = _factor(path, "overcommit", overcommit, problems)
    return both, both


def _factor(path: Path, key: str, value: object, problems: TraceProblems) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not MIN_OVERCOMMIT <= value <= MAX_OVERCOMMIT:
        problems.refuse(
            f"{path}: {key} must be a number from {MIN_OVERCOMMIT:g} to {MAX_OVERCOMMIT:g}, got {quoted(value)}"
        )
        return 1.0
    if value > _HIGH_OVERCOMMIT:
        problems.warn(f"{path}: {key} divides all requests by {value:g}; for {value:g} %, write {value / 100:g}")
    return float(value)


def _check_file_names(folder: Path, problems: TraceProblems) -> None:
    """Warn of files that are probably meant as the optional file of events."""
    if not os.path.lexists(folder / EVENTS):
        others = sorted({path.name for path in folder.iterdir()} - {WORLD, NODES, PODS, USAGE})
        near = get_close_matches(EVENTS, others, n=1, cutoff=0.8)
        problems.warn(*(f"{folder / name}: is not read; node events are read from {EVENTS}" for name in near))


def _node_columns(table: Table) -> dict[str, Any] | None:
    """Return the arrays of a trace with one value per node; None if there are no nodes."""
    if not table["node"]:
        table.problems.refuse(f"{table.path}: has no nodes")
        return None
    names = table.names("node")
    amounts = {name: table.whole_numbers(name, minimum=1) for name in NODE_COLUMNS[1:]}
    checks.check_capacities(table, amounts)
    return {"nodes": names, **amounts}


def _pod_columns(table: Table) -> dict[str, Any]:
    """Return the arrays of a trace with one value per pod."""
    names = table.names("pod")
    numbers = {name: table.whole_numbers(name) for name in POD_COLUMNS[3:]}
    numbers |= {name: table.whole_numbers(name, empty=NO_LIMIT) for name in LIMIT_COLUMNS}
    priority = table.whole_numbers(PRIORITY_COLUMN, minimum=-_MAX_PRIORITY, maximum=_MAX_PRIORITY, empty=0)
    checks.check_lifetimes(table, numbers)
    checks.check_kinds(table)
    checks.check_limits(table, numbers)
    owners = tuple(owner or pod for owner, pod in zip(table["owner"], names, strict=True))
    return {
        "pods": names,
        "owner_kinds": tuple(table["owner_kind"]),
        "owners": owners,
        "priority": priority if priority.any() else None,
        **numbers,
    }


def _read_use(path: Path, pods: Sequence[str] | None, problems: TraceProblems) -> PodUse | None:
    """Return the use of pods, None if it is invalid.

    Args:
        path: path of the file usage.npz.
        pods: names of the pods; None if they are unknown.
        problems: where errors are reported.
    """
    try:
        offsets, cpu, memory = read_arrays(path, ARRAYS, problems)
        return _use(path, offsets, {"cpu": cpu, "memory": memory}, pods, problems)
    except TraceError as error:
        problems.refuse(str(error))
        return None


def _use(
    path: Path,
    offsets: NDArray[Any],
    levels: Mapping[str, NDArray[Any]],
    pods: Sequence[str] | None,
    problems: TraceProblems,
) -> PodUse | None:
    count = "" if pods is None else f"{len(pods) + 1} "
    if (
        offsets.ndim != 1
        or not np.issubdtype(offsets.dtype, np.integer)
        or offsets.size < 1
        or (pods is not None and offsets.size != len(pods) + 1)
    ):
        raise TraceError(f"{path}: offsets must be {count}whole numbers, one more than pods")
    for name, values in levels.items():
        if values.ndim != 1 or values.dtype.kind not in "fiu":
            raise TraceError(f"{path}: {name} must be a one-dimensional array of numbers")
    if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any():  # np.diff of unsigned offsets is never negative
        raise TraceError(f"{path}: offsets must start at 0 or more and ascend")
    sizes = {name: values.size for name, values in levels.items()}
    if offsets[-1] > min(sizes.values()):
        raise TraceError(f"{path}: offsets end at {offsets[-1]}, cpu at {sizes['cpu']} and memory at {sizes['memory']}")
    is_valid = True
    for name, values in levels.items():
        if values.size > offsets[-1]:
            problems.warn(f"{path}: {name} has {values.size} values, and only the first {offsets[-1]} belong to a pod")
        invalid = np.flatnonzero(~((values >= 0) & (values <= MAX_LEVEL)))  # also NaN
        if invalid.size:
            is_valid = False
            owners = np.searchsorted(offsets, invalid, side="right") - 1
            first = {int(owner): values[at] for owner, at in zip(owners[::-1], invalid[::-1], strict=True)}
            problems.refuse_many(
                path,
                [
                    f"{name} must be from 0 to {MAX_LEVEL:g} times the request, got {value} of {_owner(owner, pods)}"
                    for owner, value in sorted(first.items())
                ],
            )
    cpu, memory = (v if v.dtype.kind == "f" else v.astype(np.float32) for v in levels.values())
    return PodUse(offsets.astype(np.int64), cpu, memory) if is_valid else None


def _owner(index: int, pods: Sequence[str] | None) -> str:
    if pods is None:
        return f"the pod in place {index + 1}"
    return f"pod {pods[index]}" if 0 <= index < len(pods) else "no pod"
