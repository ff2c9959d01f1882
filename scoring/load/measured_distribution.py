"""Distribution of a node's use, built from measured percentiles instead of fitted moments.

The distribution function is piecewise linear through (0, 0), the average (taken as the median) and the percentiles that
the node has (P90, P95, P99), up to 1 at MAX. Without MAX, the tail is exponential through the last two points. No
assumption on the distribution's shape is needed, but nothing is known between the percentiles, and an average far from
the median distorts the lower half.
"""

from collections.abc import Mapping

import numpy as np

from scoring.arrays import Bools, Float64s
from scoring.load.metrics_table import MeasuredUse
from watcher.model import QUANTILES, Operator

_MEDIAN = 0.5


def percentiles(use: MeasuredUse) -> dict[str, Float64s]:
    """Return P90, P95, P99 and MAX in parts of capacity, each of shape (nodes,); NaN where a node has none."""
    unknown = np.full(len(use.valid), np.nan)
    return {name: use.percentiles.get(name, unknown) / 100 for name in QUANTILES}


def has_percentiles(measured: Mapping[str, Float64s]) -> Bools:
    """Return a mask of the nodes that have any percentile, shape (nodes,)."""
    any_known = np.zeros_like(measured[Operator.MAX], np.bool_)
    for name in QUANTILES:
        any_known |= ~np.isnan(measured[name])
    return any_known


def probability_at_most(average: Float64s, measured: Mapping[str, Float64s], threshold: Float64s) -> Float64s:
    """Return P(use <= threshold); meaningful only for nodes that have a percentile.

    Args:
        average: average use, in parts of capacity, shape (nodes,).
        measured: the result of :func:`percentiles`.
        threshold: use in parts of capacity, not negative; broadcasts with (nodes,).
    """
    # Walk the known points from left to right and interpolate between neighbors.
    result = np.zeros(np.broadcast_shapes(average.shape, threshold.shape))
    left, left_probability = np.zeros_like(average), np.zeros_like(average)
    before, before_probability = left, left_probability
    for values, probability in ((average, _MEDIAN), *((measured[n], p) for n, p in QUANTILES.items())):
        known = ~np.isnan(values)
        right = np.fmax(values, left)  # rounding or different windows may put percentiles out of order
        with np.errstate(divide="ignore", invalid="ignore"):  # equal points; the quotient is not used
            between = left_probability + (probability - left_probability) * (threshold - left) / (right - left)
        result = np.where(known & (threshold >= left) & (threshold < right), between, result)
        before = np.where(known, left, before)
        before_probability = np.where(known, left_probability, before_probability)
        left, left_probability = np.where(known, right, left), np.where(known, probability, left_probability)
    # Beyond the last point, continue exponentially through the last two; a distribution with MAX has ended.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        decay = np.log((1 - before_probability) / (1 - left_probability)) / (left - before)
        tail = 1 - (1 - left_probability) * np.exp(-decay * (threshold - left))
    tail = np.where((left_probability >= 1) | (left == before), 1.0, tail)
    return np.where(threshold >= left, tail, result)
