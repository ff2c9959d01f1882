"""Statistics of a window of samples for all nodes at once: mean, population deviation and percentiles."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watcher.model import QUANTILES, Operator

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def statistics(values: Floats, operators: Sequence[Operator]) -> tuple[Counts, dict[Operator, Floats]]:
    """Compute the operators for each node.

    The mean and the population standard deviation are computed in two passes, for precision. Percentiles are
    interpolated between neighbors, as Prometheus' ``quantile_over_time`` does. Infinite values and overflows give
    results that are not finite, which the analyzer later drops with a finding.

    Args:
        values: values, shape (nodes, times); NaN where there is no value.
        operators: the operators to compute.

    Returns:
        The number of values of each node, shape (nodes,), and operator to its results, shape (nodes,).
    """
    present = ~np.isnan(values)
    counts = present.sum(axis=1)
    divisors: Counts = np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.where(present, values, 0.0).sum(axis=1) / divisors
        squares = np.where(present, values - means[:, None], 0.0) ** 2
        results = {Operator.AVG: means, Operator.STD: np.sqrt(squares.sum(axis=1) / divisors)}
        quantiles = {operator: QUANTILES[operator] for operator in operators if operator in QUANTILES}
        if quantiles:
            sorted_values = np.sort(values, axis=1)  # NaN come last
            rows = np.arange(len(values))
            for operator, quantile in quantiles.items():
                position = quantile * (divisors - 1)
                lower: Counts = np.floor(position).astype(np.int64)
                low, high = sorted_values[rows, lower], sorted_values[rows, np.minimum(lower + 1, divisors - 1)]
                results[operator] = low + (high - low) * (position - lower)
    return counts, {operator: results[operator] for operator in operators}
