"""Rounding and division as in Go."""

import numpy as np
import pytest

from scoring.go_math import round_half_away, truncating_divide


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.5, 1),
        (-0.5, -1),
        (1.5, 2),
        (2.5, 3),
        (-2.5, -3),
        (0.49999999999999994, 0),
        (2**52 + 1.0, 2**52 + 1),
        (-0.2, 0),
    ],
)
def test_halves_are_rounded_away_from_zero(value, rounded):
    """Halves round away from zero, and the number just below one half to zero."""
    assert round_half_away(value) == rounded


def test_rounding_keeps_nan_and_infinities():
    """NaN and infinities are unchanged and cause no warning."""
    assert np.array_equal(round_half_away([np.nan, np.inf, -np.inf]), [np.nan, np.inf, -np.inf], equal_nan=True)


def test_division_truncates_toward_zero():
    """Negative quotients round up to zero, unlike numpy's floor division."""
    numerators = [7, -7, 7, -7, -6, 0]
    denominators = [2, 2, -2, -2, 2, 5]
    assert truncating_divide(numerators, denominators).tolist() == [3, -3, -3, 3, -3, 0]
