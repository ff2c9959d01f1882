"""The kinds of arrays that scoring works with, under their names."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Texts = NDArray[np.object_]


def by_row(rows: Int64s, amounts: Float64s, size: int) -> Float64s:
    """Return amounts added up by the rows that they belong to, both of shape (k,); the sums are of shape (size,)."""
    return np.bincount(rows, amounts, size).astype(np.float64, copy=False)  # of nothing it counts integers
