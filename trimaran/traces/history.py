"""Use of workloads on days before minute 0 of a trace, which the learner of a replay knows at its start.

It is in two optional files of a trace's folder, which docs/simulator.md describes.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Float64s, Int64s
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.tables import read_arrays, read_table, write_table

HISTORY, HISTORY_USE = "history.csv", "history.npz"
STEP_SECONDS, STEPS_A_DAY = 300, 288
MAX_LEVEL = 10_000.0
_COLUMNS = ("owner_kind", "owner", "revision", "day")
_ARRAYS = ("cpu", "memory")
_MOST_DAYS = 366

Owner = tuple[str, str]  # kind and name


@dataclass(frozen=True, eq=False)
class TraceHistory:
    """Use of owners' pods before minute 0. A row is one owner on one day; arrays have shape (rows,) unless stated.

    Attributes:
        owner_kinds: kinds of the owners.
        owners: names of the owners; owners without pods in the trace are ignored.
        revisions: revision of the pods; empty for that of the trace's pods.
        days: day of each row, -1 for the day that ends at minute 0.
        cpu: mean CPU use of a pod as a share of its request, NaN where unknown, shape (rows, 288).
        memory: memory use, in the form of ``cpu``.
    """

    owner_kinds: tuple[str, ...]
    owners: tuple[str, ...]
    revisions: tuple[str, ...]
    days: Int64s
    cpu: NDArray[np.floating[Any]]
    memory: NDArray[np.floating[Any]]


def trace_history(
    days: Iterable[tuple[Owner, int, Float64s]], requests: Mapping[Owner, Float64s]
) -> TraceHistory | None:
    """Return the history of the owners of a trace; None if none of them has any.

    Args:
        days: owner, day, and use of the owner's mean pod on the day: cores and bytes, NaN if unknown, shape (2, 288).
        requests: mean request of the pods of each owner in the trace; other owners are left out.
    """
    known = ((owner, day, use / requests[owner][:, None]) for owner, day, use in days if owner in requests)
    rows = [(*owner, day, np.minimum(levels, MAX_LEVEL)) for owner, day, levels in known]
    if not rows:
        return None
    kinds, owners, numbers, levels = zip(*rows, strict=True)
    cpu, memory = np.stack(levels, axis=1)
    return TraceHistory(kinds, owners, ("",) * len(rows), np.array(numbers, np.int64), cpu, memory)


def read_history(folder: Path, problems: TraceProblems) -> TraceHistory | None:
    """Return the history in a trace's folder; None if the folder has none, or it is invalid."""
    path = folder / HISTORY_USE
    if not any(os.path.lexists(each) for each in (folder / HISTORY, path)):
        return None
    table = read_table(folder / HISTORY, _COLUMNS, problems=problems)
    if table is None:
        return None
    # A day that ends after minute 0 has samples that no learner could have at the start of the replay.
    days = table.whole_numbers("day", minimum=-_MOST_DAYS, maximum=-1)
    try:
        cpu, memory = read_arrays(path, _ARRAYS, problems)
    except TraceError as error:
        problems.refuse(str(error))
        return None
    for name, values in zip(_ARRAYS, (cpu, memory), strict=True):
        if values.shape != (len(days), STEPS_A_DAY) or values.dtype.kind != "f":
            problems.refuse(f"{path}: {name} must be numbers of the shape ({len(days)}, {STEPS_A_DAY}), as {HISTORY}")
        elif not (np.isnan(values) | ((values >= 0) & (values <= MAX_LEVEL))).all():
            problems.refuse(f"{path}: {name} must be from 0 to {MAX_LEVEL:g} times the request, or NaN where unknown")
    kinds, owners, revisions = (tuple(table[name]) for name in _COLUMNS[:3])
    return TraceHistory(kinds, owners, revisions, days, cpu, memory)


def write_history(history: TraceHistory, folder: Path) -> None:
    """Write a history into a trace's folder."""
    columns = (history.owner_kinds, history.owners, history.revisions, history.days)
    write_table(folder / HISTORY, _COLUMNS, columns)
    cpu, memory = (values.astype(np.float16) for values in (history.cpu, history.memory))
    np.savez_compressed(folder / HISTORY_USE, cpu=cpu, memory=memory)
