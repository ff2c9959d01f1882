"""Rule that decides which predicted gains are worth a move.

The gain of a move is the reduction of the nodes' cost (:class:`~trimaran.planning.moves.costs.MoveCosts`; a hot node
costs 1 a minute), if the pod had been on its new node in the past. The past is divided into blocks of an hour, or of a
quarter of an hour while less than four hours are known. As many consecutive blocks as one burst can reach, those with
the highest gain, are left out. Let m be the mean of the other blocks' gains, s their standard deviation, n their
number, and z the quantile of the normal distribution. The gain that is predicted for the next H minutes has the
interval

    (m -+ z * s / sqrt(n)) * (H - startup) - startup * share

The pod gains nothing while it starts. It does no work in this time either, so the time counts as that of a hot node,
times the share of the node's CPU that the pod uses.

A move is worth making if the lower end of this interval is above 0, both for the gain and for the relief of the former
node alone. So a single burst, however high, moves nothing if it is not longer than the window of the metrics and
a start-up. Such a burst does not change the level of an hour either, by which the past is adjusted
(:mod:`trimaran.planning.moves.past`).
"""

from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import numpy as np

from scoring.arrays import Float64s

HOUR_STEPS = 12
PERIOD_STEPS = 3
STEP_SECONDS = 300.0
_FEWEST_HOURS = 4
_FEWEST_BLOCKS = 2


@dataclass(frozen=True)
class GainRule:
    """Rule that decides which predicted gains are worth a move.

    Attributes:
        minutes: time for which the gain is predicted.
        startup_seconds: time from a pod's eviction until its replacement works.
        window_seconds: length of the window that node metrics are averaged over.
        confidence: probability that the predicted gain is in its interval.
    """

    minutes: float = 120.0
    startup_seconds: float = 30.0
    window_seconds: float = 900.0
    confidence: float = 0.8

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: a field is out of its range.
        """
        if not 0 <= self.startup_seconds < 60 * self.minutes:
            raise ValueError(
                f"startup_seconds = {self.startup_seconds:g}: must be from 0 to below {60 * self.minutes:g}"
            )
        if not 0 <= self.confidence < 1:
            raise ValueError(f"confidence = {self.confidence:g}: must be from 0 to below 1")

    @property
    def burst_steps(self) -> int:
        """Number of the highest steps of an hour that the hour's level leaves out."""
        return min(ceil((self.window_seconds + self.startup_seconds) / STEP_SECONDS), HOUR_STEPS - 1)

    def lower_end(self, gains: Float64s, share: Float64s | float, block_steps: int = HOUR_STEPS) -> Float64s:
        """Return the lower end of the predicted gains, in minutes of a hot node; -infinity for too few blocks.

        Args:
            gains: mean gain in each block, shape (..., blocks).
            block_steps: number of steps of a block.
            share: share of the source's CPU use that the pod has, shape (...).
        """
        startup, blocks = self.startup_seconds / 60, gains.shape[-1]
        left_out = ceil((self.burst_steps - 1) / block_steps) + 1
        count = blocks - left_out
        if count < _FEWEST_BLOCKS:
            return np.full(gains.shape[:-1], -np.inf)
        sums = np.cumsum(gains, axis=-1)
        runs = sums[..., left_out - 1 :].copy()
        runs[..., 1:] -= sums[..., :-left_out]
        first = runs.argmax(axis=-1)[..., None]
        at = np.arange(blocks)
        kept = np.where((at >= first) & (at < first + left_out), np.nan, gains)
        error = np.nanstd(kept, axis=-1, ddof=1) / np.sqrt(count)
        low = np.nanmean(kept, axis=-1) - NormalDist().inv_cdf((1 + self.confidence) / 2) * error
        return np.asarray(low * (self.minutes - startup) - startup * share)


def block_count(steps: int) -> int:
    """Return the number of blocks of a past: hours, or quarters of an hour while less than four hours are known.

    Args:
        steps: number of steps of five minutes.
    """
    if steps >= _FEWEST_HOURS * HOUR_STEPS and not steps % HOUR_STEPS:
        return steps // HOUR_STEPS
    return max(steps // PERIOD_STEPS, 1) if not steps % PERIOD_STEPS else 1
