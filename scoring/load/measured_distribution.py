"""Probability distribution of a node's CPU or memory use, from measured percentiles.

The distribution function is piecewise linear through (0, 0), the average (taken as the median) and those of P90, P95
and P99 that the node has, up to 1 at MAX. Without MAX, the tail is exponential through the last two points. Unlike a
beta distribution fitted to mean and deviation, this needs no assumption on the distribution's shape. But it only
interpolates between the percentiles, and an average far from the median distorts the lower half.
"""

from collections.abc import Mapping

import numpy as np

from scoring.arrays import Bools, Float64s
from scoring.load.metrics_table import MeasuredUse
from watcher.model import QUANTILES, Operator

_MEDIAN = 0.5


def percentiles(use: MeasuredUse) -> dict[str, Float64s]:
    """Return P90, P95, P99 and MAX by name, in parts of capacity, shape (nodes,); NaN where a node has no value."""
    unknown = np.full(len(use.valid), np.nan)
    return {name: use.percentiles.get(name, unknown) / 100 for name in QUANTILES}


def has_percentiles(measured: Mapping[str, Float64s]) -> Bools:
    """Return a mask of the nodes with at least one of P90, P95, P99 and MAX, shape (nodes,).

    Args:
        measured: result of :func:`percentiles`.
    """
    any_known = np.zeros_like(measured[Operator.MAX], np.bool_)
    for name in QUANTILES:
        any_known |= ~np.isnan(measured[name])
    return any_known


def probability_at_most(average: Float64s, measured: Mapping[str, Float64s], threshold: Float64s) -> Float64s:
    """Return P(use of the node <= threshold); meaningful only for nodes with a percentile.

    Args:
        average: average use, in parts of capacity, shape (nodes,).
        measured: result of :func:`percentiles`.
        threshold: use in parts of capacity, not negative; broadcasts with (nodes,).
    """
    # Walk the known points from left to right and interpolate between neighbors.
    result = np.zeros(np.broadcast_shapes(average.shape, threshold.shape))
    left, left_probability = np.zeros_like(average), np.zeros_like(average)
    before, before_probability = left, left_probability
    for values, probability in ((average, _MEDIAN), *((measured[n], p) for n, p in QUANTILES.items())):
        known = ~np.isnan(values)
        right = np.fmax(values, left)  # rounding or different windows may put percentiles out of order
        with np.errstate(divide="ignore", invalid="ignore"):  # equal points; that result is not used
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
