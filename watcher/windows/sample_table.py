"""Computation of a window's metrics, and of the share of the window that has samples. Pure functions."""

from collections.abc import Sequence

import numpy as np

from runtime import duration
from watcher.findings import Finding
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.windows.operators import Floats, statistics
from watcher.windows.sample_range import leave_out, left_out
from watcher.windows.samples import MIN_SAMPLES, SampleRound

_GAP_FACTOR = 1.5  # a distance above this multiple of a node's usual step is a gap


def aggregate(
    rounds: Sequence[SampleRound],
    window: Window,
    interval_seconds: float,
    operators: Sequence[Operator],
) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Compute the metrics of every node over a window, without impossible samples.

    Metrics need at least two samples. The metadata of a node whose samples do not cover the whole window contains
    ``coverage``, the share that they cover, 0 to 1.

    Args:
        rounds: the rounds of samples in the window, oldest first.
        window: the window.
        interval_seconds: the sampling interval.
        operators: the operators to compute.

    Returns:
        Node name to its metrics, without nodes that have none, and a finding for each metric of a node with samples
        that were left out.
    """
    nodes = sorted({node for round_ in rounds for node in round_.timestamps})
    row_of = {node: row for row, node in enumerate(nodes)}
    metrics: dict[str, list[Metric]] = {node: [] for node in nodes}
    findings: list[Finding] = []
    series = dict.fromkeys(key for round_ in rounds for key in round_.values)
    for name, type_ in series:
        values = np.full((len(nodes), len(rounds)), np.nan)
        for column, round_ in enumerate(rounds):
            for node, value in round_.values.get((name, type_), {}).items():
                values[row_of[node], column] = value
        values, dropped, examples = leave_out(values)
        counts, computed = statistics(values, operators)
        for row in np.flatnonzero(dropped):
            numbers = int(dropped[row]), int(dropped[row] + counts[row]), float(examples[row])
            findings.append(left_out(nodes[row], name, window.duration, *numbers))
        for row in np.flatnonzero(counts >= MIN_SAMPLES):
            for operator, results in computed.items():
                metrics[nodes[row]].append(Metric(name, type_, operator, window.duration, float(results[row])))
    timestamps = np.full((len(nodes), len(rounds)), np.nan)
    for column, round_ in enumerate(rounds):
        for node, timestamp in round_.timestamps.items():
            timestamps[row_of[node], column] = timestamp
    taken_at = np.array([round_.taken_at for round_ in rounds])
    coverage = dict(zip(nodes, _coverage(taken_at, timestamps, window, interval_seconds).tolist(), strict=True))
    computed_nodes = {
        node: NodeMetrics(
            tuple(metrics[node]), metadata={} if coverage[node] >= 1 else {"coverage": round(coverage[node], 4)}
        )
        for node in nodes
        if metrics[node]
    }
    return computed_nodes, findings


def _coverage(taken_at: Floats, timestamps: Floats, window: Window, interval_seconds: float) -> Floats:
    """Return the share of the window that each node's samples cover, 0 to 1, shape (nodes,).

    A gap is a distance between samples above 1.5 times the node's usual step. The usual step is the median distance of
    the node's samples, but at least the sampling interval. So a source that updates its values less often than it is
    sampled has no gaps. Distances are differences of the source's own timestamps, which are more exact than the times
    of the sampling rounds. The position of the samples in the window is taken from the local clock, as the source's
    clock may differ.

    Args:
        taken_at: time of each round by the local clock, Unix seconds, ascending, shape (rounds,).
        timestamps: Unix seconds by the source's clock, shape (nodes, rounds); NaN where a round has no sample of the
            node.
        window: the window that contains all rounds.
        interval_seconds: the sampling interval.
    """
    start = np.full((len(timestamps), 1), -np.inf)
    latest_before = np.fmax.accumulate(np.hstack([start, timestamps[:, :-1]]), axis=1)
    distances = timestamps - latest_before
    distances[~(np.isfinite(distances) & (distances > 0))] = np.nan
    counts = np.maximum((~np.isnan(distances)).sum(axis=1), 1)
    median_distances = np.sort(distances, axis=1)[np.arange(len(distances)), (counts - 1) // 2]  # NaN come last
    steps = np.fmax(median_distances, interval_seconds)
    gap_seconds = np.where(distances > _GAP_FACTOR * steps[:, None], distances - steps[:, None], 0.0).sum(axis=1)
    local_times = np.where(np.isnan(timestamps), np.nan, taken_at)
    edges = np.stack(
        [np.fmin.reduce(local_times, axis=1) - window.start, window.end - np.fmax.reduce(local_times, axis=1)]
    )
    edge_seconds = np.where(edges > _GAP_FACTOR * steps + interval_seconds, edges - steps, 0.0).sum(axis=0)
    covered: Floats = np.clip(1 - (gap_seconds + edge_seconds) / duration.seconds(window.duration), 0.0, 1.0)
    return covered
