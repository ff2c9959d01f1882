"""What a window of samples amounts to: mean, population deviation and percentiles, of all nodes at once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watcher.model import QUANTILES, Operator

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def statistics(values: Floats, operators: Sequence[Operator]) -> tuple[Counts, dict[Operator, Floats]]:
    """Return how many values each row has, and every operator over them; NaN are no values.

    The mean and the population deviation are computed in two passes, for precision; percentiles are interpolated
    between neighbors, as Prometheus' ``quantile_over_time`` does. Infinite values, and what overflows, give results
    that are not finite: whoever publishes them drops them and says so.

    Args:
        values: shape (nodes, times).
        operators: what to compute.
    """
    present = ~np.isnan(values)
    counts = present.sum(axis=1)
    some: Counts = np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.where(present, values, 0.0).sum(axis=1) / some
        squares = np.where(present, values - means[:, None], 0.0) ** 2
        found = {Operator.AVG: means, Operator.STD: np.sqrt(squares.sum(axis=1) / some)}
        wanted = {operator: QUANTILES[operator] for operator in operators if operator in QUANTILES}
        if wanted:
            ordered = np.sort(values, axis=1)  # NaN come last
            rows = np.arange(len(values))
            for operator, quantile in wanted.items():
                place = quantile * (some - 1)
                lower: Counts = np.floor(place).astype(np.int64)
                low, high = ordered[rows, lower], ordered[rows, np.minimum(lower + 1, some - 1)]
                found[operator] = low + (high - low) * (place - lower)
    return counts, {operator: found[operator] for operator in operators}
