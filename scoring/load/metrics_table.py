"""Metrics of a snapshot as arrays, aligned to the rows of a NodeTable.

Aligning a snapshot takes a pass over the node names, and a pass over the metrics if the snapshot does not come from a
watcher. Align once per snapshot and score any number of pods with the result, which is immutable and may be shared by
threads.
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
    """Metrics of one resource of each node. All arrays have the shape (nodes,); values are percents of capacity.

    Attributes:
        valid: whether the node has any metric of the resource.
        average: value with the operator AVG; otherwise the last listed value with the operator Latest or an empty
            operator; otherwise 0. Upstream's ``GetResourceData`` reads the same value.
        deviation: value with the operator STD, otherwise 0.
        averaged: whether the node has a value with the operator AVG or Latest.
        first: first listed value with the operator AVG or Latest, otherwise 0. The Peaks plugin reads this value.
        last: last listed value with the operator AVG or Latest, otherwise 0. TargetLoadPacking reads this value.
        percentiles: values by operator (P90, MAX, ...), NaN for nodes without a value.
    """

    valid: Bools
    average: Float64s
    deviation: Float64s
    averaged: Bools
    first: Float64s
    last: Float64s
    percentiles: Mapping[str, Float64s]

    def take(self, rows: Int64s) -> Self:
        """Return the metrics of the given rows, in their order."""
        return type(self)(
            self.valid[rows], self.average[rows], self.deviation[rows], self.averaged[rows], self.first[rows],
            self.last[rows], {name: values[rows] for name, values in self.percentiles.items()},
        )  # fmt: skip

    def extended(self, more: Self) -> Self:
        """Return the metrics of these nodes followed by those of ``more``."""
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
        """Return a copy in which some nodes without any metric of the resource have predicted averages.

        Args:
            rows: rows to predict; rows with a metric of the resource are unchanged.
            percents: predicted average of each of these rows, percent of capacity.
        """
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
    """Metrics of every node of a node table.

    Attributes:
        names: node names by row, equal to the names of the node table.
        window_start: start of the time window that each node's values cover, Unix seconds, shape (nodes,).
        window_end: end of the time window, Unix seconds, shape (nodes,). The values do not include pods placed later.
        present: whether the snapshot has an entry for the node, shape (nodes,).
        use: measured use by metric type (``CPU``, ``Memory``, ...).
        source: snapshot that the metrics come from, which also has metrics of nodes that join the table later; None
            without metrics.
        as_received: true to keep values below zero; false to replace them by zero.
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
        """Put the values of a snapshot into arrays in the row order of a node table.

        A value below zero, which the calculation of rates yields for some idle nodes, counts as zero. Nodes that are
        not in the snapshot have no metrics. Names are host names: they match without regard to case if no other name
        fits.

        Args:
            snapshot: snapshot from a client, or built by hand.
            nodes: node table, of which only the names are read.
            as_received: keep values below zero, as the Go plugins do.

        Raises:
            ValueError: a value is NaN or infinite; the message names node, metric and operator.
        """
        names = nodes.names
        snapshot = snapshot.as_listed(names)
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
        """Return a metrics table without any metrics, for profiles whose plugins do not read metrics."""
        never = _frozen(np.zeros(len(nodes), np.int64))
        return cls(nodes.names, never, never, _frozen(np.zeros(len(nodes), np.bool_)), {})

    def of(self, metric_type: str) -> MeasuredUse:
        """Return the metrics of one type, such as ``CPU``; if there are none, every node counts as not measured."""
        use = self.use.get(metric_type)
        return _nothing(len(self.names)) if use is None else use

    def take(self, rows: Int64s) -> Self:
        """Return the metrics of the given rows, in their order."""
        use = {metric_type: values.take(rows) for metric_type, values in self.use.items()}
        names = tuple(self.names[row] for row in rows.tolist())
        return type(self)(
            names, self.window_start[rows], self.window_end[rows], self.present[rows], use, self.source,
            self.as_received,
        )  # fmt: skip

    def follow(self, nodes: NodeTable) -> Self:
        """Return the metrics in the row order of a node table whose nodes have changed.

        The metrics of nodes that joined the table come from the snapshot (``source``).

        Args:
            nodes: node table with the new nodes.

        Raises:
            ValueError: a value of a node that joined is NaN or infinite.
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
        """Return the metrics of these nodes followed by those of ``more``."""
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
        data = self.source.as_listed(names).data
        metrics_by_node = {name: data[name] for name in names if name in data}
        return type(self).align(replace(self.source, data=metrics_by_node), nodes, as_received=self.as_received)

    def predicted(self, rows: Int64s, percents: Mapping[str, Float64s], until: int) -> Self:
        """Return a copy with predicted averages for some nodes.

        Args:
            rows: rows to predict. Where a row has a metric of a type, that metric is unchanged.
            percents: predicted average of each of these rows, percent of capacity, by metric type; the deviation is 0.
            until: time up to which the predictions include placed pods, Unix seconds; it becomes both start and end of
                the window of these rows.
        """
        start, end, present = self.window_start.copy(), self.window_end.copy(), self.present.copy()
        start[rows], end[rows], present[rows] = until, until, True
        use = {**self.use, **{name: self.of(name).predicted(rows, values) for name, values in percents.items()}}
        return replace(self, window_start=_frozen(start), window_end=_frozen(end), present=_frozen(present), use=use)


def _nothing(size: int) -> MeasuredUse:
    """Return the metrics of ``size`` nodes without any measurement."""
    false, zero = _frozen(np.zeros(size, np.bool_)), _frozen(np.zeros(size))
    return MeasuredUse(valid=false, average=zero, deviation=zero, averaged=false, first=zero, last=zero, percentiles={})


def _node_window(name: str, metadata: Mapping[str, str | float]) -> tuple[int, int]:
    try:
        start, end = np.array([int(metadata["window_start"]), int(metadata["window_end"])], np.int64).tolist()
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"node {name}: metadata window_start and window_end must be Unix seconds") from None
    return start, end


class _Values:
    """Values of a snapshot, which can be selected by row of a node table.

    A series is a metric type with an operator, such as CPU with AVG. Nodes with the same series form a group. Each
    series of a group has a column with one value per node of the group.

    Attributes:
        present: whether the snapshot has an entry for the node, shape (nodes,).
        groups: numbers of the groups with nodes of the node table, ascending.
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
        """Return one value per row, shape (nodes,).

        Args:
            series: for each group, the number of the series to read; -1 to read none.
            otherwise: value for rows whose group reads none.
        """
        number = np.array(series, np.int64)[self._group]
        has = number >= 0
        picked = np.full(len(self.present), otherwise)
        picked[self._rows[has]] = self._values[(self._at + number * self._sizes[self._group])[has]]
        return _frozen(picked)

    def where(self, series: Sequence[int]) -> Bools:
        """Return a mask of the nodes with a series to read, shape (nodes,); ``series`` as for :meth:`pick`."""
        mask = np.zeros(len(self.present), np.bool_)
        mask[self._rows] = np.array(series, np.int64)[self._group] >= 0
        return _frozen(mask)


class _Choice:
    """Choice of the series to read for each statistic (average, deviation, ...) of one metric type.

    A choice is a list with the number of the series for each group of nodes, -1 for a group without the statistic.
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.any, self.average, self.deviation, self.first, self.last = ([-1] * groups for _ in range(5))
        self.has_avg = [False] * groups
        self.percentiles: dict[str, list[int]] = {}

    def put(self, group: int, operator: str, number: int) -> None:
        """Add the next series of a group to the choices.

        Args:
            group: number of the group.
            operator: operator of the series.
            number: number of the series within its group.
        """
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
                raise ValueError(f"node {name}: {label} must be finite, got {metric.value}")


def _joined(first: NDArray[Number], second: NDArray[Number]) -> NDArray[Number]:
    return _frozen(np.concatenate([first, second]))


def _frozen(array: NDArray[Number]) -> NDArray[Number]:
    array.flags.writeable = False
    return array
