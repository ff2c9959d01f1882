"""Nodes that are hot or may become hot, from the newest snapshot and the history of a day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimaran.dashboard.components import HOT_PERCENT
from trimaran.dashboard.data import DashboardData, aligned_values
from watcher.history import History
from watcher.model import MetricType, WatcherMetrics

#: Metric types whose load makes a node hot.
HOT_TYPES = (MetricType.CPU, MetricType.MEMORY)
_DEVIATIONS = 2.0  # standard deviations; a normally distributed load is higher in one of 44 measurements

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RankedNodes:
    """All nodes by load: first the hot nodes, then nodes that may become hot, then the other nodes.

    Loads are in percent of capacity, NaN if unknown; arrays are in the order of the names.

    Attributes:
        names: node names, the hottest first.
        loads: CPU and memory load, shape (2, nodes).
        high: the higher of CPU and memory plus two standard deviations, shape (nodes,).
        hot: number of nodes with a load of at least ``HOT_PERCENT``.
        warm: number of other nodes whose ``high`` is at least ``HOT_PERCENT``.
    """

    names: Sequence[str]
    loads: Values
    high: Values
    hot: int
    warm: int


def ranked_nodes(data: DashboardData) -> RankedNodes:
    """Return the nodes of the newest snapshot by heat; memoized until new data arrives.

    Raises:
        ClientError: no snapshot is available.
    """
    snapshot = data.snapshot()
    return data.memoize("ranked", (snapshot,), lambda: _ranked(snapshot))


def _ranked(snapshot: WatcherMetrics) -> RankedNodes:
    names = np.array(list(snapshot.data), object)
    values = np.full((2, 2, len(names)), np.nan)  # load and deviation, of CPU and memory
    for row, node in enumerate(snapshot.data.values()):
        for number, type_ in enumerate(HOT_TYPES):
            load = node.load(type_)
            values[:, number, row] = [np.nan if value is None else value for value in (load.avg, load.std)]
    loads, deviations = values
    highest = np.fmax(*loads)
    high = np.fmax(*(loads + _DEVIATIONS * np.nan_to_num(deviations)))
    is_hot, is_warm = highest >= HOT_PERCENT, high >= HOT_PERCENT
    # Unknown loads come last.
    order = np.lexsort((-np.nan_to_num(np.where(is_hot, highest, high), nan=-1.0), ~is_hot))
    return RankedNodes(
        names[order].tolist(), loads[:, order], high[order], int(is_hot.sum()), int((is_warm & ~is_hot).sum())
    )


def hot_since(data: DashboardData, names: Sequence[str]) -> Mapping[str, float]:
    """Return since when each hot node's CPU or memory load has been at ``HOT_PERCENT`` or above, Unix seconds.

    Nodes that are not hot at the end of the history are left out. A node that was hot all day has its first step.
    """
    since: dict[str, float] = {}
    for type_ in HOT_TYPES:
        history = data.history(type_, "AVG")
        for name, start in zip(names, _run_starts(history, names, type_), strict=True):
            if not np.isnan(start):
                since[name] = min(since.get(name, np.inf), float(start))
    return since


def _run_starts(history: History, names: Sequence[str], type_: str) -> Values:
    """Return the start of the last run of hot steps, Unix seconds, shape (names,); NaN if the last known step is cool.

    Steps without a value do not end a run.
    """
    values = aligned_values(tuple(names), history, type_, "AVG")
    known, cool = ~np.isnan(values), values < HOT_PERCENT
    if not values.shape[1]:
        return np.full(len(names), np.nan)
    steps = np.arange(values.shape[1])
    last_cool = np.where(cool, steps, -1).max(axis=1)
    is_later = known & (steps > last_cool[:, None])
    first = is_later.argmax(axis=1)
    return np.where(
        is_later.any(axis=1), history.steps.start + history.steps.seconds * first.astype(np.float64), np.nan
    )
