"""Rank correlations and the load at which latency turns, with intervals by a bootstrap of whole groups of rows."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from open_loop import Floats
from scipy.stats import rankdata

Rows = NDArray[np.intp]


def resampled(groups: NDArray[np.generic], count: int, seed: int = 0) -> list[Rows]:
    """Draw rows with replacement, by whole groups: the rows of a group depend on each other.

    Args:
        groups: group of each row, shape (rows,) or (rows, keys).
        count: number of samples.
        seed: seed of the draws.
    """
    _, of_row = np.unique(groups, axis=0, return_inverse=True)
    parts = [np.flatnonzero(of_row == number) for number in range(of_row.max() + 1)]
    random = np.random.default_rng(seed)
    return [np.concatenate([parts[n] for n in random.integers(len(parts), size=len(parts))]) for _ in range(count)]


def rank_correlations(table: Floats) -> Floats:
    """Return Spearman's rank correlation of each two columns, ties by their mean rank; NaN for constant columns.

    Args:
        table: values, shape (rows, columns).
    """
    ranks: Floats = rankdata(table, axis=0)
    centered = ranks - ranks.mean(axis=0)
    products = centered.T @ centered
    deviations = np.sqrt(np.diag(products))
    scale = np.outer(deviations, deviations)
    found: Floats = np.divide(products, scale, out=np.full_like(scale, np.nan), where=scale > 0)
    return found


def with_interval(statistic: Callable[[Rows], Floats], samples: Sequence[Rows], count: int) -> tuple[Floats, Floats]:
    """Return a statistic of all rows, and its 95 percent intervals by percentiles, shape (2, ...).

    Args:
        statistic: computes it from rows; NaN where these have none.
        samples: samples of rows, see :func:`resampled`.
        count: number of rows.
    """
    drawn = np.array([statistic(rows) for rows in samples])
    return statistic(np.arange(count)), np.nanquantile(drawn, [0.025, 0.975], axis=0)


def turning_point(load: Floats, latency: Floats) -> float:
    """Return the load from which latency rises: the knee of the best fit that is constant below, and a line above.

    The fit is by least squares to the logarithm of latency, so that a few minutes of overload do not decide alone.

    Args:
        load: load, percent, shape (rows,).
        latency: latency, greater than 0, shape (rows,).
    """
    knees = np.arange(np.ceil(load.min()), np.floor(np.quantile(load, 0.95)) + 1)
    above = np.maximum(load - knees[:, None], 0)
    above -= above.mean(axis=1, keepdims=True)
    outcome = np.log(latency) - np.log(latency).mean()
    spread = (above**2).sum(axis=1)
    explained = np.divide(np.maximum(above @ outcome, 0) ** 2, spread, out=np.zeros_like(spread), where=spread > 0)
    return float(knees[np.argmax(explained)])
