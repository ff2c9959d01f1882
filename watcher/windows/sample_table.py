"""A window's metrics from samples, and how much of the window they cover. Pure."""

from collections.abc import Sequence

import numpy as np

from runtime import duration
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.windows.operators import Floats, statistics
from watcher.windows.samples import MIN_SAMPLES, SampleRound

_GAP_FACTOR = 1.5  # a distance of more than so many of a node's usual steps is a gap


def aggregate(
    rounds: Sequence[SampleRound], window: Window, interval_seconds: float, operators: Sequence[Operator]
) -> dict[str, NodeMetrics]:
    """Return every operator over the samples of every node that has at least two, and their coverage.

    Args:
        rounds: the samples in the window, oldest first.
        window: the window they lie in.
        interval_seconds: how often the source is asked.
        operators: what to compute.
    """
    nodes = sorted({node for taken in rounds for node in taken.timestamps})
    row_of = {node: row for row, node in enumerate(nodes)}
    metrics: dict[str, list[Metric]] = {node: [] for node in nodes}
    series = dict.fromkeys(key for taken in rounds for key in taken.values)
    for name, type_ in series:
        values = np.full((len(nodes), len(rounds)), np.nan)
        for column, taken in enumerate(rounds):
            for node, value in taken.values.get((name, type_), {}).items():
                values[row_of[node], column] = value
        counts, computed = statistics(values, operators)
        for row in np.flatnonzero(counts >= MIN_SAMPLES):
            for operator, found in computed.items():
                metrics[nodes[row]].append(Metric(name, type_, operator, window.duration, float(found[row])))
    timestamps = np.full((len(nodes), len(rounds)), np.nan)
    for column, taken in enumerate(rounds):
        for node, timestamp in taken.timestamps.items():
            timestamps[row_of[node], column] = timestamp
    taken_at = np.array([taken.taken_at for taken in rounds])
    coverage = dict(zip(nodes, _coverage(taken_at, timestamps, window, interval_seconds).tolist(), strict=True))
    return {
        node: NodeMetrics(
            tuple(metrics[node]),
            metadata={} if coverage[node] >= 1 else {"coverage": round(coverage[node], 4)},
        )
        for node in nodes
        if metrics[node]
    }


def _coverage(taken_at: Floats, timestamps: Floats, window: Window, interval_seconds: float) -> Floats:
    """Return the share of the window that samples stand for, 0 to 1, for each node.

    A node's usual step is the median distance of its samples, so that a source which renews its values more slowly than
    we ask leaves no gaps. Distances are taken between the source's own times, which are not rounded to our rounds;
    only where the samples lie in the window is told by our clock, as the source's may be another.

    Args:
        taken_at: when each round was taken, ascending, unix seconds by our clock.
        timestamps: (nodes, rounds) unix seconds by the source's clock; NaN where a round has no sample of the node.
        window: the window that all rounds lie in.
        interval_seconds: how often we ask.
    """
    start = np.full((len(timestamps), 1), -np.inf)
    latest_before = np.fmax.accumulate(np.hstack([start, timestamps[:, :-1]]), axis=1)
    distances = timestamps - latest_before
    distances[~(np.isfinite(distances) & (distances > 0))] = np.nan
    counts = np.maximum((~np.isnan(distances)).sum(axis=1), 1)
    usual = np.sort(distances, axis=1)[np.arange(len(distances)), (counts - 1) // 2]  # NaN come last
    steps = np.fmax(usual, interval_seconds)
    between = np.where(distances > _GAP_FACTOR * steps[:, None], distances - steps[:, None], 0.0).sum(axis=1)
    ours = np.where(np.isnan(timestamps), np.nan, taken_at)
    edges = np.stack([np.fmin.reduce(ours, axis=1) - window.start, window.end - np.fmax.reduce(ours, axis=1)])
    outside = np.where(edges > _GAP_FACTOR * steps + interval_seconds, edges - steps, 0.0).sum(axis=0)
    covered: Floats = np.clip(1 - (between + outside) / duration.seconds(window.duration), 0.0, 1.0)
    return covered
