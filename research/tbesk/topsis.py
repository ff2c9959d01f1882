"""CWT, the rival of the TBESK paper that scores nodes by TOPSIS with entropy weights."""

import numpy as np

from scoring.arrays import Float64s


def cwt_topsis(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """Return the CWT score of each node: TOPSIS over the free share of each resource, with entropy weights.

    With d- the distance of a node's weighted shares from the worst share of each resource, and d+ from the best, the
    score is d- / (d- + d+). The TBESK paper multiplies the entropy weights by subjective weights, which it does not
    print; here all subjective weights are equal.
    """
    del demand
    free = np.clip((capacity - used) / capacity, 0.0, None)
    weighted = entropy_weights(free) * free / np.maximum(np.linalg.norm(free, axis=0), np.finfo(np.float64).tiny)
    to_best = np.linalg.norm(weighted - weighted.max(axis=0), axis=1)
    to_worst = np.linalg.norm(weighted - weighted.min(axis=0), axis=1)
    total = to_best + to_worst
    return np.where(total > 0, to_worst / np.where(total > 0, total, 1.0), 1.0)


def entropy_weights(values: Float64s) -> Float64s:
    """Return the entropy weight of each column, shape (R,): higher if the column's values differ more; the sum is 1."""
    nodes, columns = values.shape
    sums = values.sum(axis=0)
    share = values / np.where(sums > 0, sums, 1.0)
    terms = np.where(share > 0, share * np.log(np.where(share > 0, share, 1.0)), 0.0)
    information = 1 + terms.sum(axis=0) / np.log(max(nodes, 2))
    information = np.clip(information, 0.0, None)
    total = information.sum()
    return np.asarray(information / total if total > 0 else np.full(columns, 1 / columns))
