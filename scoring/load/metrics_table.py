"""Metrics of a snapshot as arrays, aligned to the rows of a NodeTable.

Aligning costs a pass over the names, and a pass over the metrics unless the snapshot was read from a watcher. Align
once per snapshot and score any number of pods with the result, which is immutable and may be shared by threads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import isfinite
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import Node
from scoring.arrays import Bools, Float64s, Int64s
from scoring.table.node_table import NodeTable
from watcher.model import AVERAGES, NodeColumns, Operator, WatcherMetrics

Number = TypeVar("Number", np.bool_, np.int64, np.float64)

_MOMENTS = frozenset({*AVERAGES, Operator.STD.value, ""})


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """Metrics of one resource. All arrays have the shape (nodes,); values are percents of capacity.

    Attributes:
        valid: whether the node has a metric of this type.
        average: the AVG value; without one, the last value of "" and Latest; else 0. Upstream's ``GetResourceData``.
        deviation: the STD value, else 0.
        averaged: whether the node has an AVG or Latest value.
        first: the first AVG or Latest value, else 0, as read by Peaks.
        last: the last AVG or Latest value, else 0, as read by TargetLoadPacking.
        percentiles: values by operator (P90, MAX, ...), NaN where a node has none.
    """

    valid: Bools
    average: Float64s
    deviation: Float64s
    averaged: Bools
    first: Float64s
    last: Float64s
    percentiles: Mapping[str, Float64s]

    def take(self, rows: Int64s) -> Self:
        """Return some rows, in the given order."""
        return type(self)(
            self.valid[rows], self.average[rows], self.deviation[rows], self.averaged[rows], self.first[rows],
            self.last[rows], {name: values[rows] for name, values in self.percentiles.items()},
        )  # fmt: skip

    def extended(self, more: Self) -> Self:
        """Return these rows followed by others."""
        joined = {
            name: _joined(getattr(self, name), getattr(more, name))
            for name in ("valid", "average", "deviation", "averaged", "first", "last")
        }
        operators = {**self.percentiles, **more.percentiles}
        unknown = [np.full(len(part.valid), np.nan) for part in (self, more)]
        percentiles = {
            name: _joined(self.percentiles.get(name, unknown[0]), more.percentiles.get(name, unknown[1]))
            for name in operators
        }
        return type(self)(**joined, percentiles=percentiles)

    def predicted(self, rows: Int64s, percents: Float64s) -> Self:
        """Return a copy with averages for the given rows that were not measured; see :meth:`MetricsTable.predicted`."""
        unknown = ~self.valid[rows]
        rows, percents = rows[unknown], percents[unknown]
        changed: dict[str, Any] = {}
        for name in ("valid", "averaged", "average", "first", "last"):
            values = getattr(self, name).copy()
            values[rows] = True if values.dtype == np.bool_ else percents
            changed[name] = _frozen(values)
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class MetricsTable:
    """Metrics of every node of a table.

    Attributes:
        names: node names by row, equal to the names of the aligned table.
        window_start: start of the window of each node's values, Unix seconds, shape (nodes,).
        window_end: end of the window, Unix seconds, shape (nodes,); pods placed later are in no measurement.
        present: whether the snapshot has an entry for the node, shape (nodes,).
        use: measured use by metric type (``CPU``, ``Memory``, ...).
        source: the snapshot, which has the metrics of nodes that join the table later; None if there is none.
        as_received: whether values below zero are unchanged, as in :meth:`align`.
    """

    names: tuple[str, ...]
    window_start: Int64s
    window_end: Int64s
    present: Bools
    use: Mapping[str, MeasuredUse] = field(repr=False)
    source: WatcherMetrics | None = field(default=None, repr=False)
    as_received: bool = False

    @classmethod
    def align(cls, snapshot: WatcherMetrics, nodes: NodeTable, *, as_received: bool = False) -> Self:
        """Align a snapshot's values to the rows of a table.

        Values that are not finite are refused here, so the formulas need not check. A value below zero, which rate
        arithmetic yields for an idle node, counts as zero. Nodes that the snapshot does not contain have no metrics.

        Args:
            snapshot: snapshot from a client, or built by hand.
            nodes: the table; only its names are read.
            as_received: pass values below zero on to the formulas, as the Go plugins do.

        Raises:
            ValueError: a value is NaN or infinite; the message names node, metric and operator.
        """
        names = nodes.names
        columns = NodeColumns.of(snapshot.data)
        start = np.full(len(names), snapshot.window.start, np.int64)
        end = np.full(len(names), snapshot.window.end, np.int64)
        for row, name in enumerate(names if columns.metadata else ()):
            if "window_end" in (metadata := columns.metadata.get(name, {})):
                start[row], end[row] = _node_window(name, metadata)
        values = _Values(columns, names, as_received=as_received)
        use = _use(columns, values)
        return cls(names, _frozen(start), _frozen(end), _frozen(values.present), use, snapshot, as_received)

    @classmethod
    def empty(cls, nodes: NodeTable) -> Self:
        """Return a table without metrics, for profiles whose scores read none."""
        never = _frozen(np.zeros(len(nodes), np.int64))
        return cls(nodes.names, never, never, _frozen(np.zeros(len(nodes), np.bool_)), {})

    def of(self, metric_type: str) -> MeasuredUse:
        """Return one resource's values; without metrics of the type, no node is valid."""
        use = self.use.get(metric_type)
        return _nothing(len(self.names)) if use is None else use

    def take(self, rows: Int64s) -> Self:
        """Return some rows, in the given order."""
        use = {metric_type: values.take(rows) for metric_type, values in self.use.items()}
        names = tuple(self.names[row] for row in rows.tolist())
        return type(self)(
            names, self.window_start[rows], self.window_end[rows], self.present[rows], use, self.source,
            self.as_received,
        )  # fmt: skip

    def follow(self, nodes: NodeTable) -> Self:
        """Return the same metrics aligned to other nodes; metrics of nodes that joined come from the snapshot.

        Raises:
            ValueError: a value of a node that joined is NaN or infinite, as in :meth:`align`.
        """
        names = nodes.names
        if self.names is names or self.names == names:
            return self
        earlier_row = {name: row for row, name in enumerate(self.names)}
        origin = np.array([earlier_row.get(name, -1) for name in names], np.int64)
        joined = [names[row] for row in np.flatnonzero(origin < 0).tolist()]
        # Append the rows of joined nodes to those that remain, then put both into the order of the new table.
        remaining = self.take(origin[origin >= 0])
        index = np.where(origin < 0, len(remaining.names) - 1 + np.cumsum(origin < 0), np.cumsum(origin >= 0) - 1)
        moved = (remaining.extended(self._of(joined)) if joined else remaining).take(index)
        return replace(moved, names=names)

    def extended(self, more: Self) -> Self:
        """Return these rows followed by others."""
        types = {**self.use, **more.use}
        return replace(
            self,
            names=self.names + more.names,
            window_start=_joined(self.window_start, more.window_start),
            window_end=_joined(self.window_end, more.window_end),
            present=_joined(self.present, more.present),
            use={metric_type: self.of(metric_type).extended(more.of(metric_type)) for metric_type in types},
        )

    def _of(self, names: Sequence[str]) -> Self:
        nodes = NodeTable(map(Node, names))
        if self.source is None:
            return type(self).empty(nodes)
        metrics_by_node = {name: self.source.data[name] for name in names if name in self.source.data}
        return type(self).align(replace(self.source, data=metrics_by_node), nodes, as_received=self.as_received)

    def predicted(self, rows: Int64s, percents: Mapping[str, Float64s], until: int) -> Self:
        """Return a copy with predictions for rows that were not measured.

        Args:
            rows: rows to predict; measured values among them are unchanged.
            percents: predicted percent of capacity by metric type, shape (len(rows),), used as an average without
                deviation.
            until: Unix seconds; the predictions include pods placed before then.
        """
        start, end, present = self.window_start.copy(), self.window_end.copy(), self.present.copy()
        start[rows], end[rows], present[rows] = until, until, True
        use = {**self.use, **{name: self.of(name).predicted(rows, values) for name, values in percents.items()}}
        return replace(self, window_start=_frozen(start), window_end=_frozen(end), present=_frozen(present), use=use)


def _nothing(size: int) -> MeasuredUse:
    """Return values of nodes without any measurement."""
    false, zero = _frozen(np.zeros(size, np.bool_)), _frozen(np.zeros(size))
    return MeasuredUse(valid=false, average=zero, deviation=zero, averaged=false, first=zero, last=zero, percentiles={})


def _node_window(name: str, metadata: Mapping[str, str | float]) -> tuple[int, int]:
    try:
        start, end = np.array([int(metadata["window_start"]), int(metadata["window_end"])], np.int64).tolist()
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"node {name}: metadata window_start and window_end must be Unix seconds") from None
    return start, end


class _Values:
    """Values of a snapshot, to be selected by row.

    Each node belongs to a group of nodes that have the same series. The values of a series stand in a column of the
    length of its group.

    Attributes:
        present: whether the snapshot has an entry for the node, shape (nodes,).
        groups: numbers of the groups that have rows, ascending.
    """

    def __init__(self, columns: NodeColumns, names: tuple[str, ...], *, as_received: bool) -> None:
        # Find the snapshot's row of each node.
        place = np.fromiter(map(columns.rows.get, names, repeat(-1)), np.int64, len(names))
        self.present = place >= 0
        self._rows = np.flatnonzero(self.present)
        # Find each node's group, and its index into the numbers of the group's first series.
        self._sizes = np.array([len(group.names) for group in columns.groups], np.int64)
        starts = np.array([group.start for group in columns.groups], np.int64)
        self._group = np.repeat(np.arange(len(self._sizes)), self._sizes)[place[self._rows]]
        self.groups: list[int] = np.bincount(self._group).nonzero()[0].tolist()
        first = np.cumsum(self._sizes) - self._sizes
        self._at = (starts - first)[self._group] + place[self._rows]
        # Check and clip all values at once.
        received = np.asarray(columns.numbers, np.float64)
        self._values = received if as_received else np.where(received < 0, 0.0, received)
        if not np.isfinite(received).all():
            _refuse_infinite(columns, names)

    def pick(self, series: Sequence[int], otherwise: float) -> Float64s:
        """Return a value for each row.

        Args:
            series: the number of the series to take, by group; -1 for none.
            otherwise: value of the rows without the series.
        """
        number = np.array(series, np.int64)[self._group]
        has = number >= 0
        picked = np.full(len(self.present), otherwise)
        picked[self._rows[has]] = self._values[(self._at + number * self._sizes[self._group])[has]]
        return _frozen(picked)

    def where(self, series: Sequence[int]) -> Bools:
        """Return a mask of the rows that have a series, shape (nodes,)."""
        mask = np.zeros(len(self.present), np.bool_)
        mask[self._rows] = np.array(series, np.int64)[self._group] >= 0
        return _frozen(mask)


class _Choice:
    """Series to use for each statistic of one metric type: its number by group, -1 for none."""

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.any, self.average, self.deviation, self.first, self.last = ([-1] * groups for _ in range(5))
        self.has_avg = [False] * groups
        self.percentiles: dict[str, list[int]] = {}

    def put(self, group: int, operator: str, number: int) -> None:
        """Process the next series of a group."""
        self.any[group] = number
        if operator in AVERAGES:
            if self.first[group] < 0:
                self.first[group] = number
            self.last[group] = number
        if operator == Operator.AVG:
            self.average[group] = number
            self.has_avg[group] = True
        elif operator == Operator.STD:
            self.deviation[group] = number
        elif operator in _MOMENTS:
            if not self.has_avg[group]:
                self.average[group] = number
        else:
            self.percentiles.setdefault(operator, [-1] * self.groups)[group] = number

    def take(self, values: _Values) -> MeasuredUse:
        return MeasuredUse(
            valid=values.where(self.any),
            average=values.pick(self.average, 0.0),
            deviation=values.pick(self.deviation, 0.0),
            averaged=values.where(self.last),
            first=values.pick(self.first, 0.0),
            last=values.pick(self.last, 0.0),
            percentiles={name: values.pick(numbers, np.nan) for name, numbers in self.percentiles.items()},
        )


def _use(columns: NodeColumns, values: _Values) -> dict[str, MeasuredUse]:
    choices: dict[str, _Choice] = {}
    for group in values.groups:
        for number, series in enumerate(columns.groups[group].series):
            choice = choices.get(series.type)
            if choice is None:
                choice = choices[series.type] = _Choice(len(columns.groups))
            choice.put(group, series.operator, number)
    return {metric_type: choice.take(values) for metric_type, choice in choices.items()}


def _refuse_infinite(columns: NodeColumns, names: Iterable[str]) -> None:
    for name in names:
        for metric in columns[name].metrics if name in columns else ():
            if not isfinite(metric.value):
                label = f"metric {metric.name} ({metric.type} {metric.operator})"
                raise ValueError(f"node {name}: {label} is {metric.value}")


def _joined(first: NDArray[Number], second: NDArray[Number]) -> NDArray[Number]:
    return _frozen(np.concatenate([first, second]))


def _frozen(array: NDArray[Number]) -> NDArray[Number]:
    array.flags.writeable = False
    return array
