"""A snapshot's metrics as arrays, row by row beside a NodeTable.

Aligning costs one pass over the snapshot. Do it once per snapshot and score any number of pods with the result: it is
frozen, so threads may share it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scoring.node_table import NodeTable
from scoring.objects import Node
from scoring.pod_sums import Int64s
from watcher.model import AVERAGES, Operator, WatcherMetrics

Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
Number = TypeVar("Number", np.bool_, np.int64, np.float64)

_MOMENTS = frozenset({*AVERAGES, Operator.STD.value, ""})


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """What a snapshot says of one resource. All arrays have the shape (nodes,); values are percents of capacity.

    Attributes:
        valid: the node has any metric of this type.
        average: AVG; where there is none, the last of "" and Latest; else 0. Upstream's ``GetResourceData``.
        deviation: STD, else 0.
        averaged: the node has an AVG or Latest value.
        first: the first AVG or Latest value, else 0. Peaks reads this one.
        last: the last AVG or Latest value, else 0. TargetLoadPacking reads this one.
        percentiles: by operator (P90, MAX, ...) the value, NaN where the node has none.
    """

    valid: Bools
    average: Float64s
    deviation: Float64s
    averaged: Bools
    first: Float64s
    last: Float64s
    percentiles: Mapping[str, Float64s]

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return some rows, in that order."""
        return type(self)(
            self.valid[rows], self.average[rows], self.deviation[rows], self.averaged[rows], self.first[rows],
            self.last[rows], {name: values[rows] for name, values in self.percentiles.items()},
        )  # fmt: skip

    def extended(self, more: Self) -> Self:
        """Return these rows and then those."""
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

    def predicted(self, rows: NDArray[np.int64], percents: Float64s) -> Self:
        """Return this with averages of some rows where nothing was measured. See :meth:`MetricsTable.predicted`."""
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
    """The metrics of every node of a table.

    Attributes:
        names: the rows' node names, those of the table it was aligned to.
        window_start: when the window of each node's values began, unix seconds, shape (nodes,).
        window_end: when it ended; pods placed later are in no measurement.
        present: the snapshot has an entry for the node, shape (nodes,).
        use: by metric type (``CPU``, ``Memory``, ...).
        source: the snapshot, for the metrics of nodes that join the table later; None if there is none.
        as_received: as it was aligned.
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
        """Put a snapshot's values beside the rows of a table.

        This is a boundary: values that are not finite are refused, and a value below zero, which rate arithmetic makes
        of an idle node, counts as zero. Nodes that the snapshot does not know have no metrics.

        Args:
            snapshot: from a client, or built by hand.
            nodes: the table; only its names are read.
            as_received: let values below zero into the formulas, as the Go plugins do.

        Raises:
            ValueError: a value is NaN or infinite; the message names node, metric and operator.
        """
        names = nodes.names
        present = np.zeros(len(names), np.bool_)
        start = np.full(len(names), snapshot.window.start, np.int64)
        end = np.full(len(names), snapshot.window.end, np.int64)
        columns: dict[str, _Column] = {}
        for row, name in enumerate(names):
            entry = snapshot.data.get(name)
            if entry is None:
                continue
            present[row] = True
            if "window_end" in entry.metadata:
                start[row], end[row] = _own_window(name, entry.metadata)
            for metric in entry.metrics:
                value = float(metric.value)
                if not isfinite(value):
                    raise ValueError(f"node {name}: metric {metric.name} ({metric.type} {metric.operator}) is {value}")
                column = columns.get(metric.type)
                if column is None:
                    column = columns[metric.type] = _Column(len(names))
                column.put(row, metric.operator, value if as_received else max(value, 0.0))
        use = {metric_type: column.freeze() for metric_type, column in columns.items()}
        return cls(names, _frozen(start), _frozen(end), _frozen(present), use, snapshot, as_received)

    @classmethod
    def empty(cls, nodes: NodeTable) -> Self:
        """Return a table without any metric, for profiles whose scores read none."""
        never = _frozen(np.zeros(len(nodes), np.int64))
        return cls(nodes.names, never, never, _frozen(np.zeros(len(nodes), np.bool_)), {})

    def of(self, metric_type: str) -> MeasuredUse:
        """Return one resource's values; nothing is valid when the snapshot has no metric of the type."""
        use = self.use.get(metric_type)
        return _Column(len(self.names)).freeze() if use is None else use

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return some rows, in that order."""
        use = {metric_type: values.take(rows) for metric_type, values in self.use.items()}
        names = tuple(self.names[row] for row in rows.tolist())
        return type(self)(
            names, self.window_start[rows], self.window_end[rows], self.present[rows], use, self.source,
            self.as_received,
        )  # fmt: skip

    def follow(self, nodes: NodeTable) -> Self:
        """Return the same metrics of other nodes: those that joined get what the snapshot has of them."""
        names = nodes.names
        if self.names is names or self.names == names:
            return self
        known = {name: row for row, name in enumerate(self.names)}
        origin = np.array([known.get(name, -1) for name in names], np.int64)
        joined = [names[row] for row in np.flatnonzero(origin < 0).tolist()]
        kept = self.take(origin[origin >= 0])
        index = np.where(origin < 0, len(kept.names) - 1 + np.cumsum(origin < 0), np.cumsum(origin >= 0) - 1)
        moved = (kept.extended(self._of(joined)) if joined else kept).take(index)
        return replace(moved, names=names)

    def extended(self, more: Self) -> Self:
        """Return these rows and then those."""
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
        some = {name: self.source.data[name] for name in names if name in self.source.data}
        return type(self).align(replace(self.source, data=some), nodes, as_received=self.as_received)

    def predicted(self, rows: NDArray[np.int64], percents: Mapping[str, Float64s], until: int) -> Self:
        """Return this table with predictions where nothing was measured.

        Args:
            rows: the rows to predict for; what they have been measured at stays.
            percents: metric type to percent of capacity, shape (len(rows),), taken as an average without deviation.
            until: unix seconds; pods placed before then are in the predictions.
        """
        start, end, present = self.window_start.copy(), self.window_end.copy(), self.present.copy()
        start[rows], end[rows], present[rows] = until, until, True
        use = {**self.use, **{name: self.of(name).predicted(rows, values) for name, values in percents.items()}}
        return replace(self, window_start=_frozen(start), window_end=_frozen(end), present=_frozen(present), use=use)


def _own_window(name: str, metadata: Mapping[str, str | float]) -> tuple[int, int]:
    try:
        return int(metadata["window_start"]), int(metadata["window_end"])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"node {name}: metadata window_start and window_end must be unix seconds") from None


class _Column:
    """One metric type while the snapshot is read. Lists, because setting array items one by one is slow."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.valid = [False] * size
        self.average = [0.0] * size
        self.has_avg = [False] * size
        self.deviation = [0.0] * size
        self.averaged = [False] * size
        self.first = [0.0] * size
        self.last = [0.0] * size
        self.percentiles: dict[str, list[float]] = {}

    def put(self, row: int, operator: str, value: float) -> None:
        self.valid[row] = True
        if operator in AVERAGES:
            if not self.averaged[row]:
                self.averaged[row] = True
                self.first[row] = value
            self.last[row] = value
        if operator == Operator.AVG:
            self.average[row] = value
            self.has_avg[row] = True
        elif operator == Operator.STD:
            self.deviation[row] = value
        elif operator in _MOMENTS:
            if not self.has_avg[row]:
                self.average[row] = value
        else:
            self.percentiles.setdefault(operator, [float("nan")] * self.size)[row] = value

    def freeze(self) -> MeasuredUse:
        return MeasuredUse(
            valid=_frozen(np.array(self.valid, np.bool_)),
            average=_frozen_floats(self.average),
            deviation=_frozen_floats(self.deviation),
            averaged=_frozen(np.array(self.averaged, np.bool_)),
            first=_frozen_floats(self.first),
            last=_frozen_floats(self.last),
            percentiles={name: _frozen_floats(values) for name, values in self.percentiles.items()},
        )


def _frozen_floats(values: Sequence[float]) -> Float64s:
    array = np.array(values, np.float64)
    array.flags.writeable = False
    return array


def _joined(first: NDArray[Number], second: NDArray[Number]) -> NDArray[Number]:
    return _frozen(np.concatenate([first, second]))


def _frozen(array: NDArray[Number]) -> NDArray[Number]:
    array.flags.writeable = False
    return array
