"""Windows computed here, from the points that a source with history returns.

A table holds the points of one metric, nodes by steps of time. Several series of a node are averaged step by step: a
host that was registered anew half a window ago has two series, one for each half, and they are one node.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.windows.operators import Floats, statistics

_MAX_POINTS = 288  # of one series: 4.8 hours of minutes, a day of five minutes
_STEP_NAMES = {3600: "h", 60: "m", 1: "s"}


def choose_step(window: Window, steps: Sequence[int]) -> int:
    """Return the finest of the source's steps, in seconds, that does not make more points than are worth their way."""
    span = window.end - window.start
    return next((step for step in steps if span <= step * _MAX_POINTS), steps[-1])


def step_tags(step_seconds: int) -> dict[str, str]:
    """Return the tags of values that were computed from averages over steps of this length."""
    unit = next(unit for unit in _STEP_NAMES if step_seconds % unit == 0)
    name = f"{step_seconds // unit}{_STEP_NAMES[unit]}"
    return {"step": name, "smoothing": name}


def to_floats(values: Any, columns: int = 0) -> Floats:
    """Return values out of JSON as floats, NaN for whatever is no number.

    Args:
        values: a list of values; anything else is an empty one.
        columns: how many values each element has, which then is a list itself; those of other lengths are left out.
    """
    if not isinstance(values, list):
        values = []
    if columns:
        values = [row for row in values if isinstance(row, list) and len(row) == columns]
    try:
        floats = np.array(values, dtype=np.float64)  # null becomes NaN
    except (TypeError, ValueError, OverflowError):
        number = [[_number(value) for value in row] if columns else _number(row) for row in values]
        floats = np.array(number, dtype=np.float64)
    return floats.reshape(-1, columns) if columns else floats.reshape(-1)


class PointTable:
    """The points of one metric in one window.

    Args:
        name: the metric's name, as published.
        type_: the resource.
        window: the span of time; points outside it, and outside the step that its start cuts, are left out.
        step_seconds: how far apart points are; those in the same step are averaged.

    Attributes:
        newest: node to when the step of its newest point ends, unix seconds.
    """

    def __init__(self, name: str, type_: str, window: Window, step_seconds: int) -> None:
        self.name = name
        self.type = type_
        self._window = window
        self._step = step_seconds
        self._columns = (
            -(-(window.end - window.start) // step_seconds) + 2
        )  # the cut step, and one that begins at the end
        self._rows: dict[str, int] = {}
        self._parts: list[tuple[int, npt.NDArray[np.intp], Floats]] = []
        self._series: dict[str, int] = {}
        self.newest: dict[str, float] = {}

    def add(self, node: str, times: Floats, values: Floats) -> bool:
        """Add a series and return whether it has points in the window; ``times`` are unix seconds, NaN are no points.

        One without points leaves no trace: the node may be gone.
        """
        keep = ~np.isnan(values) & (times > self._window.start - self._step) & (times <= self._window.end)
        if not keep.any():
            return False
        row = self._rows.setdefault(node, len(self._rows))
        slots = np.floor_divide(times[keep] - (self._window.start - self._step), self._step)
        self._parts.append((row, slots.astype(np.intp), values[keep]))
        self._series[node] = self._series.get(node, 0) + 1
        end = min(float(times[keep].max()) + self._step, float(self._window.end))
        self.newest[node] = max(end, self.newest.get(node, end))
        return True

    def values(self) -> Floats:
        """Return the points, shape (nodes, steps), NaN where there is none."""
        sums, counts = np.zeros((2, len(self._rows), self._columns))
        with np.errstate(over="ignore", invalid="ignore"):
            for row, slots, values in self._parts:
                np.add.at(sums[row], slots, values)
                np.add.at(counts[row], slots, 1)
            return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def compute(self, operators: Sequence[Operator]) -> Iterable[tuple[str, list[Metric], float]]:
        """Yield each node with its metrics and the share of the window that has points.

        A single point has no deviation, and none is published.
        """
        values = self.values()
        counts, computed = statistics(values, operators)
        expected = self._expected(values)
        for node, row in self._rows.items():
            metrics = [
                Metric(self.name, self.type, operator, self._window.duration, float(found[row]))
                for operator, found in computed.items()
                if counts[row] > 1 or operator is not Operator.STD
            ]
            yield node, metrics, min(1.0, int(counts[row]) / expected)

    def duplicates(self) -> dict[str, int]:
        """Return the nodes that have several series, and how many."""
        return {node: count for node, count in self._series.items() if count > 1}

    def _expected(self, values: Floats) -> int:
        """Return how many points a whole window has.

        Sources may give points further apart than they were asked for, which shows in all nodes at once; and the
        newest step is usually still on its way.
        """
        filled = np.flatnonzero((~np.isnan(values)).any(axis=0))
        apart = float(np.median(np.diff(filled))) if len(filled) > 1 else 1.0
        return max(1, int((self._columns - 2) // apart) - 1)


def combine(
    tables: Iterable[PointTable], window: Window, operators: Sequence[Operator], tags: dict[str, str], hint: str
) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Put the metrics of each node together.

    Args:
        tables: one for each metric.
        window: the window.
        operators: what to compute.
        tags: how the points were made.
        hint: the settings that keep several series of a node apart.
    """
    metrics: dict[str, list[Metric]] = {}
    coverages: dict[str, float] = {}
    findings: list[Finding] = []
    for table in tables:
        for node, found, coverage in table.compute(operators):
            metrics.setdefault(node, []).extend(found)
            coverages[node] = min(coverage, coverages.get(node, 1.0))
        for node, count in table.duplicates().items():
            message = f"{count} series are about this node: they are averaged step by step ({hint})"
            findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, table.name, Action.MERGED))
    nodes = {
        node: NodeMetrics(tuple(found), tags, {} if coverages[node] >= 1 else {"coverage": round(coverages[node], 4)})
        for node, found in metrics.items()
    }
    return nodes, findings


def newest(tables: Iterable[PointTable]) -> dict[str, float]:
    """Return each node's newest time in any of the tables."""
    found: dict[str, float] = {}
    for table in tables:
        for node, time in table.newest.items():
            found[node] = max(time, found.get(node, time))
    return found


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
