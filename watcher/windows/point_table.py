"""Computation of a window's metrics from the data points that a source with history returns.

A table contains the points of one metric as an array of shape (nodes, steps of time). If a node has several series,
they are averaged at each step. A series that ended before another one is of an earlier machine, and is dropped.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.windows.operators import Floats, statistics
from watcher.windows.sample_range import leave_out, left_out
from watcher.windows.shared_names import LEAST_PERCENT, SharedNameMemory, mark_shared_names

_MAX_POINTS = 288  # in one series: 4.8 hours at 1 minute, one day at 5 minutes
_ENDED_SECONDS = 120  # a series has ended if another series of the node has points newer by this
_STEP_NAMES = {3600: "h", 60: "m", 1: "s"}


def choose_step(window: Window, steps: Sequence[int]) -> int:
    """Return the first of the source's steps with which a series has at most 288 points in the window.

    Args:
        window: the window.
        steps: the distances of points that the source supports, in seconds, ascending. If all of them give more than
            288 points, the last one is returned.
    """
    span = window.end - window.start
    return next((step for step in steps if span <= step * _MAX_POINTS), steps[-1])


def averages_text(step_seconds: int) -> str:
    """Return the note for ``trimaran doctor`` that the source averages samples over steps of this length."""
    return f"each point is an average over {step_seconds} s, whose samples out of range are searched for once an hour"


def step_tags(step_seconds: int) -> dict[str, str]:
    """Return the tags of values computed from averages over steps of this length: ``step`` and ``smoothing``."""
    unit = next(unit for unit in _STEP_NAMES if step_seconds % unit == 0)
    name = f"{step_seconds // unit}{_STEP_NAMES[unit]}"
    return {"step": name, "smoothing": name}


def to_floats(values: Any, columns: int = 0) -> Floats:
    """Convert values from JSON into an array of floats; values that are not numbers become NaN.

    The array has shape (values,), or (elements, ``columns``) if ``columns`` is not 0.

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
    """Data points of one metric of all nodes in one window.

    Args:
        name: the metric's published name.
        type_: the resource.
        window: the window. Points before the step that contains the window's start, or after its end, are left out.
        step_seconds: length of a step of time; points of a node in the same step are averaged.

    Attributes:
        newest: node name to the end of the step with the node's newest point, Unix seconds.
    """

    def __init__(self, name: str, type_: str, window: Window, step_seconds: int) -> None:
        self.name = name
        self.type = type_
        # Node to number of points left out, number of all points, one that was left out, and length of averaged steps.
        self._left_out: dict[str, tuple[int, int, float, int]] = {}
        self._window = window
        self._step = step_seconds
        # Two more columns: for the step that contains the window's start, and for a step that begins at its end.
        self._columns = -(-(window.end - window.start) // step_seconds) + 2
        self._rows: dict[str, int] = {}
        self._parts: list[tuple[int, npt.NDArray[np.intp], Floats]] = []
        self._series: dict[str, int] = {}
        self.newest: dict[str, float] = {}

    def add(self, node: str, times: Floats, values: Floats, step_seconds: int | None = None) -> bool:
        """Add a series of a node; return whether the series has points in the window.

        A node is not added by a series without points in the window, since the node may no longer exist.

        Args:
            node: the node's name.
            times: Unix seconds, shape (points,).
            values: percent, shape (points,); a NaN is ignored.
            step_seconds: length of the steps that the points are averages of, if it is shorter than the table's.
        """
        step = self._step if step_seconds is None else step_seconds
        keep = ~np.isnan(values) & (times > self._window.start - step) & (times <= self._window.end)
        valid, dropped, example = leave_out(np.where(keep, values, np.nan)[None])
        if dropped[0]:
            before, total, *_ = self._left_out.get(node, (0, 0, 0.0, 0))
            self._left_out[node] = before + int(dropped[0]), total + int(keep.sum()), float(example[0]), step
            keep &= ~np.isnan(valid[0])
        if not keep.any():
            return False
        row = self._rows.setdefault(node, len(self._rows))
        slots = np.floor_divide(times[keep] - (self._window.start - self._step), self._step)
        self._parts.append((row, slots.astype(np.intp), values[keep]))
        self._series[node] = self._series.get(node, 0) + 1
        end = min(float(times[keep].max()) + step, float(self._window.end))
        self.newest[node] = max(end, self.newest.get(node, end))
        return True

    def values(self) -> Floats:
        """Return the mean of the points in each step, in percent, shape (nodes, steps); NaN if a step has no point."""
        sums, counts = np.zeros((2, len(self._rows), self._columns))
        with np.errstate(over="ignore", invalid="ignore"):
            for row, slots, values in self._parts:
                np.add.at(sums[row], slots, values)
                np.add.at(counts[row], slots, 1)
            return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def compute(self, operators: Sequence[Operator]) -> Iterable[tuple[str, list[Metric], float]]:
        """Yield the name, the metrics and the coverage of each node.

        The coverage is the share of the window that has points, 0 to 1. If a node has points in one step only, its
        standard deviation is left out.
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

    def separate(self, least_percent: float) -> dict[str, str]:
        """Drop series that ended while another one of the node goes on; return node names that several machines have.

        Args:
            least_percent: smallest distance between the ranges of two machines, percentage points.

        Returns:
            Node name to the values that differ, as text for a finding.
        """
        still = max(2, -(-_ENDED_SECONDS // self._step))
        shared = {}
        for node in self.duplicates():
            row = self._rows[node]
            own = [part for part in self._parts if part[0] == row]
            last = max(int(slots.max()) for _, slots, _ in own)
            going = [part for part in own if part[1].max() >= last - still]
            self._parts = [part for part in self._parts if part[0] != row] + going
            self._series[node] = len(going)
            low, high = (
                choose(bound(values) for *_, values in going) for choose, bound in ((min, np.max), (max, np.min))
            )
            if high > low + least_percent:
                shared[node] = f"several machines have this name: {self.type} is {high:.0f} and {low:.0f} percent"
        return shared

    def duplicates(self) -> dict[str, int]:
        """Return node name to number of series, for the nodes that have more than one series."""
        return {node: count for node, count in self._series.items() if count > 1}

    def findings(self) -> list[Finding]:
        """Return a finding for each node with points that were left out."""
        return [
            left_out(node, self.name, self._window.duration, few, total, one, step if step > 1 else 0)
            for node, (few, total, one, step) in self._left_out.items()
        ]

    def _expected(self, values: Floats) -> int:
        """Return the number of steps with points that a node without gaps has, at least 1.

        A source may return points at a larger distance than requested. So the usual distance of the steps in which any
        node has a point is used. The newest step is usually not complete yet, so it is not counted.
        """
        filled_steps = np.flatnonzero((~np.isnan(values)).any(axis=0))
        distance = float(np.median(np.diff(filled_steps))) if len(filled_steps) > 1 else 1.0
        return max(1, int((self._columns - 2) // distance) - 1)


def combine(
    tables: Iterable[PointTable],
    window: Window,
    operators: Sequence[Operator],
    tags: dict[str, str],
    hint: str,
    memory: SharedNameMemory | None = None,
) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Compute the metrics of each node from several tables.

    Args:
        tables: a table for each metric.
        window: the window.
        operators: the operators to compute.
        tags: tags to give to each node, see :func:`step_tags`.
        hint: remedy for nodes with several series, as text for the finding: the settings that select one of the series.
        memory: the names that several machines had in earlier fetches; None for none.

    Returns:
        The metrics by node name, and a finding for each node that has several series, or points that were left out.
    """
    metrics: dict[str, list[Metric]] = {}
    coverages: dict[str, float] = {}
    findings: list[Finding] = []
    shared: dict[str, str] = {}
    for table in tables:
        shared |= {node: f"{text} ({hint})" for node, text in table.separate(LEAST_PERCENT).items()}
        for node, computed, coverage in table.compute(operators):
            metrics.setdefault(node, []).extend(computed)
            coverages[node] = min(coverage, coverages.get(node, 1.0))
        findings += table.findings()
        for node, count in table.duplicates().items():
            if node in shared:
                continue
            message = f"this node has {count} series: they are averaged at each step ({hint})"
            findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, table.name, Action.MERGED))
    nodes = {
        node: NodeMetrics(
            tuple(computed), tags, {} if coverages[node] >= 1 else {"coverage": round(coverages[node], 4)}
        )
        for node, computed in metrics.items()
    }
    mark_shared_names(nodes, (memory or SharedNameMemory()).noticed(shared, window), window, findings)
    return nodes, findings


def newest(tables: Iterable[PointTable]) -> dict[str, float]:
    """Return node name to the time of the node's newest point in any of the tables, Unix seconds."""
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
