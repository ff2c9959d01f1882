"""CPU or memory use of recently placed pods that the metrics do not include yet.

A node's average covers a window of time. The average includes a pod that arrived during the window only in part or not
at all, and it still includes a pod that left. There are two rules for a correction:

- ``unmeasured``, upstream's rule, used by TargetLoadPacking: a pod placed after the window's end, or less than one
  minute (the reporting interval of agents) before it, counts fully; any other pod does not count.
- ``unreported``, an option of every plugin: a pod is assumed to have its expected use while it runs. A pod that ran for
  a part of the window has then raised the average by that part of its expected use:

      reported   = expected use * (min(end, left) - max(start, placed)) / (end - start)   within 0 and expected use
      unreported = sum over the pods on the node of (expected use - reported)
                   - sum over the pods that left of reported

  If pods use exactly the expected amount, then AVG + unreported is the present use of the pods on the node. unreported
  is negative if more use left the node than arrived, but it never lowers the corrected use below 0
  (:func:`clip_to_measured`). A Latest value is not an average over the window: for such a value, unreported is too high
  after pods arrived and too low after pods left, for at most the window's length.

A pod with an unknown placement time counts as old, so the metrics include it. A pod that left is considered only if the
caller passed the time to :meth:`scoring.NodeTable.remove`.
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
    """Return the expected use of each node's pods that the metrics do not include, by upstream's rule, shape (nodes,).

    A pod counts fully if it was placed less than a minute before the end of its node's window, or later.

    Args:
        nodes: nodes with their pods.
        metrics: metrics aligned to the nodes; each row has its own window.
        expected_use: function that returns a pod's expected use, in the unit of the result.
        rows: rows to compute, shape (k,), which is then the shape of the result; None computes all rows.
    """
    # In whole seconds, as upstream.
    oldest = metrics.window_end - REPORTING_INTERVAL_SECONDS + 1
    placed_since = nodes.placed_since(oldest, rows)
    return UnreportedUse.of(((row, placed.pod, 1.0) for row, placed in placed_since), nodes, rows).by(expected_use)


def unreported(
    nodes: NodeTable, metrics: MetricsTable, expected_use: Callable[[Pod], float], rows: Int64s | None = None
) -> Float64s:
    """Return the use to add to each node's average so that it describes the pods now on the node, shape (nodes,).

    The correction is negative where the average still includes more use of pods that left.

    Args:
        nodes: nodes with their pods.
        metrics: metrics aligned to the nodes; each row has its own window.
        expected_use: function that returns a pod's expected use, in the unit of the result.
        rows: rows to compute, shape (k,), which is then the shape of the result; None computes all rows.
    """
    return unreported_use(nodes, metrics, rows).by(expected_use)


@dataclass(frozen=True, slots=True)
class UnreportedUse:
    """Recently placed pods, which the metrics include only in part, and pods that left, which they still include.

    Attributes:
        pods: the pods.
        parts: share of each pod's expected use to add to its node's metrics, shape (pods,); negative for a pod that
            left.
        places: index of each pod's row in the rows to compute, shape (pods,).
        size: number of rows to compute.
    """

    pods: tuple[Pod, ...]
    parts: Float64s
    places: Int64s
    size: int

    @classmethod
    def of(cls, triples: Iterable[tuple[int, Pod, float]], nodes: NodeTable, rows: Int64s | None) -> Self:
        """Collect triples of row, pod and share in arrays.

        Args:
            triples: row of each pod, the pod, and the share of the pod's expected use to add.
            nodes: nodes with their pods.
            rows: rows to compute, shape (k,); None computes all rows.
        """
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
    """Return the pods that arrived or left during their node's window, with the share of each pod's use to add.

    Args:
        nodes: nodes with their pods.
        metrics: metrics aligned to the nodes; each row has its own window.
        rows: rows to compute, shape (k,); None computes all rows.
    """
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
    """Return the corrections, raised where necessary so that measured use + correction is at least 0, shape (nodes,).

    Args:
        correction: use to add to each node's measured use.
        measured: measured use of each node, in the same unit.
    """
    return np.where(correction < 0, np.maximum(correction, -np.maximum(measured, 0.0)), correction)


def reported_share(placed_at: float, window_start: float, window_end: float) -> float:
    """Return the share of a window, 0 to 1, that lies after a pod's placement; all times are Unix seconds."""
    if placed_at >= window_end:
        return 0.0
    if placed_at <= window_start:
        return 1.0
    return (window_end - placed_at) / (window_end - window_start)
