"""A snapshot's metrics as arrays, row by row beside a NodeTable.

Aligning costs one pass over the snapshot. Do it once per snapshot and score any number of pods with the result: it is
frozen, so threads may share it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scoring.node_table import NodeTable
from watcher.model import Operator, WatcherMetrics

Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

_AVERAGES = frozenset({Operator.AVG.value, Operator.LATEST.value})
_MOMENTS = frozenset({*_AVERAGES, Operator.STD.value, ""})


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


@dataclass(frozen=True, slots=True)
class MetricsTable:
    """The metrics of every node of a table.

    Attributes:
        names: the rows' node names, those of the table it was aligned to.
        window_end: the end of the window, unix seconds; pods placed later are in no measurement.
        present: the snapshot has an entry for the node, shape (nodes,).
        use: by metric type (``CPU``, ``Memory``, ...).
    """

    names: tuple[str, ...]
    window_end: int
    present: Bools
    use: Mapping[str, MeasuredUse] = field(repr=False)

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
        columns: dict[str, _Column] = {}
        for row, name in enumerate(names):
            entry = snapshot.data.get(name)
            if entry is None:
                continue
            present[row] = True
            for metric in entry.metrics:
                value = float(metric.value)
                if not isfinite(value):
                    raise ValueError(f"node {name}: metric {metric.name} ({metric.type} {metric.operator}) is {value}")
                column = columns.get(metric.type)
                if column is None:
                    column = columns[metric.type] = _Column(len(names))
                column.put(row, metric.operator, value if as_received else max(value, 0.0))
        use = {metric_type: column.freeze() for metric_type, column in columns.items()}
        return cls(names, snapshot.window.end, _frozen(present), use)

    @classmethod
    def empty(cls, nodes: NodeTable) -> Self:
        """Return a table without any metric, for profiles whose scores read none."""
        return cls(nodes.names, 0, _frozen(np.zeros(len(nodes), np.bool_)), {})

    def of(self, metric_type: str) -> MeasuredUse:
        """Return one resource's values; nothing is valid when the snapshot has no metric of the type."""
        use = self.use.get(metric_type)
        return _Column(len(self.names)).freeze() if use is None else use

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return some rows, in that order."""
        use = {metric_type: values.take(rows) for metric_type, values in self.use.items()}
        return type(self)(tuple(self.names[row] for row in rows), self.window_end, self.present[rows], use)


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
        if operator in _AVERAGES:
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


def _frozen(array: Bools) -> Bools:
    array.flags.writeable = False
    return array
