"""Go's arithmetic where numpy's differs: rounding and integer division.

Scores are compared with kube-scheduler's, so a half must round the same way.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def round_half_away(values: ArrayLike) -> NDArray[np.float64]:
    """Round to the nearest integer, halves away from zero, as Go's ``math.Round``.

    numpy rounds halves to even, and ``floor(x + 0.5)`` is wrong just below one half and for negative halves.

    Args:
        values: numbers, any shape.

    Returns:
        Whole numbers as float64, the same shape. NaN and infinities stay what they are.
    """
    x = np.asarray(values, dtype=np.float64)
    whole = np.trunc(x)
    with np.errstate(invalid="ignore"):  # infinity - infinity: not >= 0.5, so the infinity stays
        return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def rounded_score(values: ArrayLike) -> NDArray[np.int64]:
    """Return ``int64(math.Round(x))``, the last step of most score plugins."""
    return round_half_away(values).astype(np.int64)


def truncating_divide(numerator: ArrayLike, denominator: ArrayLike) -> NDArray[np.int64]:
    """Divide integers and round toward zero, as Go does; numpy's ``//`` rounds down.

    Args:
        numerator: int64, any shape.
        denominator: int64, not zero, a shape that broadcasts with the numerator's.
    """
    a = np.asarray(numerator, dtype=np.int64)
    b = np.asarray(denominator, dtype=np.int64)
    down: NDArray[np.int64] = a // b
    up: NDArray[np.int64] = down + ((down < 0) & (down * b != a))
    return up
