"""Differences between blocks, and the smallest effect that so many pairs of blocks can find.

The interval is that of field trials (docs/trial.md): it needs no assumption about the distribution of the outcomes.
"""

from dataclasses import dataclass

import numpy as np
from open_loop import Floats

from trimaran.extender.trial.effects import MIN_PAIRS, swap_interval

_POWER, _DRAWS = 80, 400


@dataclass(frozen=True)
class Difference:
    """Mean difference between the blocks of pairs.

    Attributes:
        mean: mean of the differences.
        low, high: 95 percent interval; None with fewer than six pairs.
    """

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        between = "no interval" if self.low is None else f"{self.low:+.3g} to {self.high:+.3g}"
        return f"{self.mean:+.3g} ({between})"


def difference(first: Floats, second: Floats) -> Difference:
    """Return the mean difference of paired blocks, first minus second, shape (pairs,) each."""
    return Difference(float((first - second).mean()), *swap_interval(first - second))


def smallest_effect(pairs: int) -> float | None:
    """Return the effect that the interval of so many pairs excludes 0 for in 80 percent of all experiments.

    It is in standard deviations of the differences, and for normal ones; None if so few pairs have no interval.
    """
    if pairs < MIN_PAIRS:
        return None
    noise = np.random.default_rng(0).normal(size=(_DRAWS, pairs))
    # An effect shifts the interval: it is found where it is larger than the distance from the low end to 0.
    return float(np.percentile([-(swap_interval(each)[0] or 0.0) for each in noise], _POWER))
