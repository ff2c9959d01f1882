"""Checks of metrics of the past: the rules of :mod:`watcher.quality.analyzer`, over arrays and without findings."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from watcher.model import AVERAGES, LOWEST_PERCENT, SLACK_PERCENT, Operator
from watcher.quality.analyzer import is_node_name
from watcher.windows.past_metrics import PastMetrics


def clean_past(past: PastMetrics, max_nodes: int) -> PastMetrics:
    """Return the values that a fetch would have published: valid nodes, at most ``max_nodes``, and percentages.

    Args:
        past: the metrics as read.
        max_nodes: maximum number of nodes; the first in alphabetical order are kept.
    """
    names = sorted(name for name in past.nodes if is_node_name(name))[:max_nodes]
    row_of = {name: row for row, name in enumerate(past.nodes)}
    rows = [row_of[name] for name in names]
    series = {key: _percentages(values[rows]) for key, values in past.series.items()}
    for (type_, operator, name), values in series.items():
        if operator == Operator.STD:
            averages = [series[type_, each, name] for each in AVERAGES if (type_, each, name) in series]
            known = np.any([np.isfinite(each) for each in averages], axis=0) if averages else False
            np.copyto(values, np.nan, where=np.logical_not(known))
    return replace(past, nodes=tuple(names), series=series)


def _percentages(values: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        possible = (values >= LOWEST_PERCENT) & (values <= 100 + SLACK_PERCENT)
        return np.where(possible, np.clip(values, 0, 100), np.nan)
