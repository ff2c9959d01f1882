"""Windows computed from the points that a source with history returns.

A table holds the points of one metric, nodes by time steps. Several series of one node are averaged at each step: a
host that was registered again in the middle of a window has two series, each for one half of the window.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.windows.operators import Floats, statistics

_MAX_POINTS = 288  # in one series: 4.8 hours at 1 minute, one day at 5 minutes
_STEP_NAMES = {3600: "h", 60: "m", 1: "s"}


def choose_step(window: Window, steps: Sequence[int]) -> int:
    """Return the finest of the source's steps, in seconds, that keeps the number of points within the maximum."""
    span = window.end - window.start
    return next((step for step in steps if span <= step * _MAX_POINTS), steps[-1])


def step_tags(step_seconds: int) -> dict[str, str]:
    """Return the tags of values that were computed from averages over steps of this length."""
    unit = next(unit for unit in _STEP_NAMES if step_seconds % unit == 0)
    name = f"{step_seconds // unit}{_STEP_NAMES[unit]}"
    return {"step": name, "smoothing": name}


def to_floats(values: Any, columns: int = 0) -> Floats:
    """Return values from JSON as floats; values that are not numbers become NaN.

    Args:
        values: a list of values; any other type counts as an empty list.
        columns: length of each element where the elements are lists; elements of other lengths are left out.
    """
    if not isinstance(values, list):
        values = []
    if columns:
        values = [row for row in values if isinstance(row, list) and len(row) == columns]
    try:
        floats = np.array(values, dtype=np.float64)  # null becomes NaN
    except (TypeError, ValueError, OverflowError):
        numbers = [[_number(value) for value in row] if columns else _number(row) for row in values]
        floats = np.array(numbers, dtype=np.float64)
    return floats.reshape(-1, columns) if columns else floats.reshape(-1)


class PointTable:
    """Points of one metric in one window.

    Args:
        name: the metric's published name.
        type_: the resource.
        window: the time span; points before the step that contains the window's start, or after its end, are left out.
        step_seconds: the distance of points; points in the same step are averaged.

    Attributes:
        newest: node name to the end of the step of its newest point, Unix seconds.
    """

    def __init__(self, name: str, type_: str, window: Window, step_seconds: int) -> None:
        self.name = name
        self.type = type_
        self._window = window
        self._step = step_seconds
        # Two more columns: for the step that contains the window's start, and for a step that begins at its end.
        self._columns = -(-(window.end - window.start) // step_seconds) + 2
        self._rows: dict[str, int] = {}
        self._parts: list[tuple[int, npt.NDArray[np.intp], Floats]] = []
        self._series: dict[str, int] = {}
        self.newest: dict[str, float] = {}

    def add(self, node: str, times: Floats, values: Floats) -> bool:
        """Add a series of a node and return whether it has points in the window.

        A series without points adds nothing, as the node may no longer exist.

        Args:
            node: the node's name.
            times: Unix seconds, shape (points,).
            values: percent, shape (points,); NaN is not a point.
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
        """Return the points, shape (nodes, steps); NaN where a step has no point."""
        sums, counts = np.zeros((2, len(self._rows), self._columns))
        with np.errstate(over="ignore", invalid="ignore"):
            for row, slots, values in self._parts:
                np.add.at(sums[row], slots, values)
                np.add.at(counts[row], slots, 1)
            return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def compute(self, operators: Sequence[Operator]) -> Iterable[tuple[str, list[Metric], float]]:
        """Yield each node with its metrics and its coverage, the share of the window that has points.

        The deviation of a single point is left out.
        """
        values = self.values()
        counts, computed = statistics(values, operators)
        expected = self._expected(values)
        for node, row in self._rows.items():
            metrics = [
                Metric(self.name, self.type, operator, self._window.duration, float(result[row]))
                for operator, result in computed.items()
                if counts[row] > 1 or operator is not Operator.STD
            ]
            yield node, metrics, min(1.0, int(counts[row]) / expected)

    def duplicates(self) -> dict[str, int]:
        """Return the number of series of each node that has several."""
        return {node: count for node, count in self._series.items() if count > 1}

    def _expected(self, values: Floats) -> int:
        """Return the number of points in a complete window.

        Sources may return points at a larger distance than requested, which shows in all nodes at once. The newest step
        is usually not complete yet, so it is not counted.
        """
        filled_steps = np.flatnonzero((~np.isnan(values)).any(axis=0))
        distance = float(np.median(np.diff(filled_steps))) if len(filled_steps) > 1 else 1.0
        return max(1, int((self._columns - 2) // distance) - 1)


def combine(
    tables: Iterable[PointTable], window: Window, operators: Sequence[Operator], tags: dict[str, str], hint: str
) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Merge the metrics of several tables by node.

    Args:
        tables: a table for each metric.
        window: the window.
        operators: the operators to compute.
        tags: the tags that describe the points.
        hint: the settings that tell several series of a node apart.

    Returns:
        The metrics by node name, and a finding for each node that has several series.
    """
    metrics: dict[str, list[Metric]] = {}
    coverages: dict[str, float] = {}
    findings: list[Finding] = []
    for table in tables:
        for node, computed, coverage in table.compute(operators):
            metrics.setdefault(node, []).extend(computed)
            coverages[node] = min(coverage, coverages.get(node, 1.0))
        for node, count in table.duplicates().items():
            message = f"this node has {count} series: they are averaged at each step ({hint})"
            findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, table.name, Action.MERGED))
    nodes = {
        node: NodeMetrics(
            tuple(computed), tags, {} if coverages[node] >= 1 else {"coverage": round(coverages[node], 4)}
        )
        for node, computed in metrics.items()
    }
    return nodes, findings


def newest(tables: Iterable[PointTable]) -> dict[str, float]:
    """Return the time of each node's newest point in any of the tables, Unix seconds."""
    times: dict[str, float] = {}
    for table in tables:
        for node, time in table.newest.items():
            times[node] = max(time, times.get(node, time))
    return times


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
