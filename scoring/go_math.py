"""Rounding and integer division as in Go, which numpy does differently.

The scores must be equal to kube-scheduler's, so halves must be rounded in the same direction.
"""

import numpy as np
from numpy.typing import ArrayLike

from scoring.arrays import Float64s, Int64s

_BELOW_HALF = np.nextafter(0.5, 0.0)


def round_half_away(values: ArrayLike) -> Float64s:
    """Round to the nearest integer, halves away from zero, like Go's ``math.Round``.

    numpy rounds halves to even. ``floor(x + 0.5)`` is wrong just below one half and for negative halves.

    Args:
        values: numbers, any shape.

    Returns:
        Whole numbers as float64, the same shape. NaN and infinities are unchanged.
    """
    return np.trunc(_toward_next(values))


def rounded_score(values: ArrayLike) -> Int64s:
    """Round to the nearest integer, halves away from zero, as int64: Go's ``int64(math.Round(x))``."""
    return _toward_next(values).astype(np.int64)


def truncating_divide(numerator: ArrayLike, denominator: ArrayLike) -> Int64s:
    """Divide integers and round toward zero, as Go does; numpy's ``//`` rounds down.

    Args:
        numerator: int64, any shape.
        denominator: int64, not zero, a shape that broadcasts with the numerator's.
    """
    a = np.asarray(numerator, dtype=np.int64)
    b = np.asarray(denominator, dtype=np.int64)
    down: Int64s = a // b
    return np.asarray(down + ((down < 0) & (down * b != a)))


def _toward_next(values: ArrayLike) -> Float64s:
    """Move values away from zero by the largest number below one half.

    Truncating the result rounds the values to the nearest integer, halves away from zero. A fraction of exactly one
    half works because the sum is then so close to the next integer that floating-point addition rounds it up.
    """
    x = np.asarray(values, dtype=np.float64)
    return x + np.copysign(_BELOW_HALF, x)
