"""Type aliases of numpy arrays, and the sum of numbers by row."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Texts = NDArray[np.object_]


def by_row(rows: Int64s, amounts: Float64s, size: int) -> Float64s:
    """Return the sum of the amounts that belong to each row, shape (size,).

    Args:
        rows: number of the row that each amount belongs to, shape (k,).
        amounts: amounts to add up, shape (k,).
        size: number of rows.
    """
    # bincount returns integers when there are no amounts.
    return np.bincount(rows, amounts, size).astype(np.float64, copy=False)
