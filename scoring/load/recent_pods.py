"""What pods use now beyond what the metrics show: one home for the idea.

A node's average covers a window of time; a pod that came late is in it in part or not at all, and one that left still
is. Two rules:

- ``unmeasured``, upstream's, in TargetLoadPacking: a pod placed after the window's end, or less than the minute before
  it in which agents report, counts whole; any other not at all.
- ``unreported``, for every plugin by option: a pod that ran for a part of the window, and used what is expected of it
  all that time, has raised the average by that part of its expected use:

      reported   = expected use * (min(end, left) - max(start, placed)) / (end - start)   within 0 and expected use
      unreported = sum over the pods that are there of (expected use - reported)
                   - sum over the pods that left of reported

  It is exact for AVG of pods that use what is expected, and then average + unreported is what the pods that are there
  use now. It is below 0 where more left than came; a use is never taken below 0 by it
  (:func:`at_most_shown`). Of a value that is no average over the window (Latest) it counts too much of who came and
  takes off too much of who left, for at most the window's length.

A pod whose time of placement is unknown is an old one: it counts as reported. A pod that left is known where the table
was told when (:meth:`scoring.NodeTable.remove`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Float64s, Int64s, by_row
from scoring.load.metrics_table import MetricsTable
from scoring.table.node_table import NodeTable

# Metrics agents report once a minute: a pod placed later than this before the window's end may be in no measurement.
REPORTING_INTERVAL_SECONDS = 60


def unmeasured(
    nodes: NodeTable, metrics: MetricsTable, expected_use: Callable[[Pod], float], rows: Int64s | None = None
) -> Float64s:
    """Return the expected use of pods that no measurement shows, by upstream's rule, shape (nodes,).

    Args:
        nodes: the nodes with their pods.
        metrics: aligned to them; each row has its own window.
        expected_use: of a pod, in the unit wanted.
        rows: the only rows to look at, shape (k,), which the result then has; all by default.
    """
    # In whole seconds, as upstream: placed after the window's end, or less than a reporting interval before it.
    oldest = metrics.window_end - REPORTING_INTERVAL_SECONDS + 1
    placed_since = nodes.placed_since(oldest, rows)
    return UnreportedUse.of(((row, placed.pod, 1.0) for row, placed in placed_since), nodes, rows).by(expected_use)


def unreported(
    nodes: NodeTable, metrics: MetricsTable, expected_use: Callable[[Pod], float], rows: Int64s | None = None
) -> Float64s:
    """Return what to add to averages so that they are of the pods that are there now, shape (nodes,).

    Below 0 where they show pods that left. Arguments as for :func:`unmeasured`.
    """
    return unreported_use(nodes, metrics, rows).by(expected_use)


@dataclass(frozen=True, slots=True)
class UnreportedUse:
    """The pods of which metrics do not show all that they use, or show it though they left.

    Attributes:
        pods: these.
        parts: what to add of the use of each, shape (pods,); below 0 of one that left.
        places: the place of each pod's row among those that were asked for, shape (pods,).
        size: how many rows were asked for.
    """

    pods: tuple[Pod, ...]
    parts: Float64s
    places: Int64s
    size: int

    @classmethod
    def of(cls, found: Iterable[tuple[int, Pod, float]], nodes: NodeTable, rows: Int64s | None) -> Self:
        """Put together rows, their pods and what to add of the use of each; ``rows`` as for :func:`unmeasured`."""
        place = range(len(nodes)) if rows is None else {row: place for place, row in enumerate(rows.tolist())}
        each = tuple(found)
        parts = np.array([part for _, _, part in each], np.float64)
        places = np.array([place[row] for row, _, _ in each], np.int64)
        return cls(tuple([pod for _, pod, _ in each]), parts, places, len(place))

    def by(self, expected_use: Callable[[Pod], float]) -> Float64s:
        """Return what to add to what metrics show of each row, shape (rows,); the use is in the unit wanted."""
        return self.use(np.array([expected_use(pod) for pod in self.pods], np.float64))

    def use(self, expected: Float64s) -> Float64s:
        """Return the same where each pod's use is known, shape (pods,)."""
        return by_row(self.places, self.parts * expected, self.size)


def unreported_use(nodes: NodeTable, metrics: MetricsTable, rows: Int64s | None = None) -> UnreportedUse:
    """Return of which pods how much is to be added to averages; arguments as for :func:`unmeasured`."""
    start, end = metrics.window_start, metrics.window_end

    def found() -> Iterator[tuple[int, Pod, float]]:
        for row, placed in nodes.placed_since(start, rows):
            yield row, placed.pod, 1 - reported_share(placed.placed_at, start.item(row), end.item(row))
        for row, departed in nodes.left_since(start, rows):
            window = start.item(row), end.item(row)
            came, left = (reported_share(at, *window) for at in (departed.placed_at, departed.left_at))
            yield row, departed.pod, left - came

    return UnreportedUse.of(found(), nodes, rows)


def clip_to_measured(missing: Float64s, shown: Float64s) -> Float64s:
    """Return what is missing in metrics, where no more is taken off than they show; all in one unit, shape (nodes,)."""
    return np.where(missing < 0, np.maximum(missing, -np.maximum(shown, 0.0)), missing)


def reported_share(placed_at: float, window_start: float, window_end: float) -> float:
    """Return for which part of a window a pod that stayed was there, 0 to 1; all times in unix seconds."""
    if placed_at >= window_end:
        return 0.0
    if placed_at <= window_start:
        return 1.0
    return (window_end - placed_at) / (window_end - window_start)
