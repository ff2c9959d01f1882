"""Use by recently placed pods that the metrics do not show yet.

A node's average covers a window of time. A pod that arrived during the window is only partly in the average, or not at
all; a pod that left is still in it. There are two rules:

- ``unmeasured``, upstream's rule, used by TargetLoadPacking: a pod placed after the window's end, or less than one
  minute (the reporting interval of agents) before it, counts fully; any other pod does not count.
- ``unreported``, an option of every plugin: a pod that ran for a part of the window, with its expected use all that
  time, has raised the average by that part of its expected use:

      reported   = expected use * (min(end, left) - max(start, placed)) / (end - start)   within 0 and expected use
      unreported = sum over the pods on the node of (expected use - reported)
                   - sum over the pods that left of reported

  For AVG of pods that use exactly the expected amount, average + unreported is the present use of the pods on the node.
  unreported is negative where more left than arrived; it never lowers a use below 0 (:func:`clip_to_measured`). For a
  value that is not an average over the window (Latest), unreported is too high for pods that arrived and too low for
  pods that left, for at most the window's length.

A pod with an unknown placement time is treated as old: it counts as reported. Departures are known only if the caller
passed their time to :meth:`scoring.NodeTable.remove`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Float64s, Int64s, by_row
from scoring.load.metrics_table import MetricsTable
from scoring.table.node_table import NodeTable

# Metrics agents report once a minute: a pod placed less than this before the window's end may be in no measurement.
REPORTING_INTERVAL_SECONDS = 60


def unmeasured(
    nodes: NodeTable, metrics: MetricsTable, expected_use: Callable[[Pod], float], rows: Int64s | None = None
) -> Float64s:
    """Return the expected use of pods that no measurement includes, by upstream's rule, shape (nodes,).

    Args:
        nodes: the nodes with their pods.
        metrics: metrics aligned to the nodes; each row has its own window.
        expected_use: function that returns a pod's expected use, in the unit of the result.
        rows: the only rows to compute, shape (k,), which is then the shape of the result; all by default.
    """
    # In whole seconds, as upstream.
    oldest = metrics.window_end - REPORTING_INTERVAL_SECONDS + 1
    placed_since = nodes.placed_since(oldest, rows)
    return UnreportedUse.of(((row, placed.pod, 1.0) for row, placed in placed_since), nodes, rows).by(expected_use)


def unreported(
    nodes: NodeTable, metrics: MetricsTable, expected_use: Callable[[Pod], float], rows: Int64s | None = None
) -> Float64s:
    """Return the correction that makes averages describe the pods now on the nodes, shape (nodes,).

    The correction is negative where the metrics still include pods that left. Arguments as for :func:`unmeasured`.
    """
    return unreported_use(nodes, metrics, rows).by(expected_use)


@dataclass(frozen=True, slots=True)
class UnreportedUse:
    """Pods whose use the metrics show only in part, or still show after the pods left.

    Attributes:
        pods: the pods.
        parts: share of each pod's expected use to add to its node, shape (pods,); negative for a pod that left.
        places: position of each pod's row among the requested rows, shape (pods,).
        size: number of requested rows.
    """

    pods: tuple[Pod, ...]
    parts: Float64s
    places: Int64s
    size: int

    @classmethod
    def of(cls, triples: Iterable[tuple[int, Pod, float]], nodes: NodeTable, rows: Int64s | None) -> Self:
        """Collect triples of row, pod and share of the pod's use to add; ``rows`` as for :func:`unmeasured`."""
        place = range(len(nodes)) if rows is None else {row: place for place, row in enumerate(rows.tolist())}
        triples = tuple(triples)
        parts = np.array([part for _, _, part in triples], np.float64)
        places = np.array([place[row] for row, _, _ in triples], np.int64)
        return cls(tuple([pod for _, pod, _ in triples]), parts, places, len(place))

    def by(self, expected_use: Callable[[Pod], float]) -> Float64s:
        """Return the use to add to each row's metrics, in the unit of ``expected_use``, shape (rows,)."""
        return self.use(np.array([expected_use(pod) for pod in self.pods], np.float64))

    def use(self, expected: Float64s) -> Float64s:
        """Return the use to add to each row's metrics, shape (rows,), given the pods' expected uses, shape (pods,)."""
        return by_row(self.places, self.parts * expected, self.size)


def unreported_use(nodes: NodeTable, metrics: MetricsTable, rows: Int64s | None = None) -> UnreportedUse:
    """Return the pods behind :func:`unreported` with the share of each to add; arguments as for :func:`unmeasured`."""
    start, end = metrics.window_start, metrics.window_end

    def triples() -> Iterator[tuple[int, Pod, float]]:
        for row, placed in nodes.placed_since(start, rows):
            yield row, placed.pod, 1 - reported_share(placed.placed_at, start.item(row), end.item(row))
        for row, departed in nodes.left_since(start, rows):
            window = start.item(row), end.item(row)
            since_placed, since_left = (reported_share(at, *window) for at in (departed.placed_at, departed.left_at))
            yield row, departed.pod, since_left - since_placed

    return UnreportedUse.of(triples(), nodes, rows)


def clip_to_measured(correction: Float64s, measured: Float64s) -> Float64s:
    """Raise negative corrections so that no measured use becomes negative; both in the same unit, shape (nodes,)."""
    return np.where(correction < 0, np.maximum(correction, -np.maximum(measured, 0.0)), correction)


def reported_share(placed_at: float, window_start: float, window_end: float) -> float:
    """Return the share of a window that a pod was running in, 0 to 1; all times in Unix seconds."""
    if placed_at >= window_end:
        return 0.0
    if placed_at <= window_start:
        return 1.0
    return (window_end - placed_at) / (window_end - window_start)
