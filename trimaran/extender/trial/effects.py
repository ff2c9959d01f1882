"""Effect of acting: differences between the blocks of each pair, with an interval by randomization.

The pair is the unit: its two blocks follow one another, and a fair coin decided which of them was active. If acting has
no effect, swapping the two blocks changes nothing, however the load of a block depends on the blocks before. The mean
difference is therefore compared with the means after random swaps. The interval contains all constant effects that this
test does not reject. It needs no assumption about the distribution or the autocorrelation of the outcomes. Bootstrap
and t intervals need such assumptions, and are too narrow for few pairs.

The differences are adjusted for the difference of the mean load of all nodes, which placement hardly changes: their
regression on it, through 0, is subtracted. A swap changes the sign of both, so the regression is the same for all
swaps, and the test stays valid.

Sources: Imbens and Rubin, Causal Inference for Statistics, Social, and Biomedical Sciences (2015), chapter 5;
Lin, Annals of Applied Statistics (2013), on the adjustment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scoring.arrays import Float64s
from trimaran.extender.trial.outcomes import BlockRecord

LEVEL = 0.05
#: Smallest number of pairs with an interval: 2 of 2 ** 6 assignments are at least as extreme as the most extreme one.
MIN_PAIRS = 6
_MOST_EXACT = 12  # pairs up to which all assignments are compared
_SWAPS = 9_999
_SEED = 20_110_501


@dataclass(frozen=True, slots=True)
class TrialEffect:
    """Effect of acting on one outcome.

    Attributes:
        pairs: number of pairs in which both blocks have the outcome.
        shadow: mean of the shadow blocks.
        difference: adjusted mean difference, active minus shadow.
        low, high: 95 percent interval of the difference, active minus shadow; None with fewer than :data:`MIN_PAIRS`.
    """

    pairs: int
    shadow: float
    difference: float
    low: float | None
    high: float | None


def paired(records: Sequence[BlockRecord]) -> list[tuple[BlockRecord, BlockRecord]]:
    """Return the complete pairs, each as its shadow block and its active block, in the order of time."""
    by_pair: dict[int, dict[bool, BlockRecord]] = {}
    for record in records:
        by_pair.setdefault(record.number // 2, {})[record.active] = record
    return [(pair[False], pair[True]) for _, pair in sorted(by_pair.items()) if len(pair) == 2]


def differences(records: Sequence[BlockRecord], outcome: str, *, adjusted: bool = True) -> Float64s:
    """Return the differences of an outcome, active minus shadow, of all pairs that have it, shape (pairs,).

    Args:
        records: blocks of the trial.
        outcome: name of the outcome.
        adjusted: whether to adjust the differences for the mean load of all nodes.
    """
    both = _with_outcome(records, outcome)
    raw = np.array([active.outcomes[outcome] - shadow.outcomes[outcome] for shadow, active in both], np.float64)
    load = np.array([active.load - shadow.load for shadow, active in both], np.float64)
    if not adjusted or len(both) < MIN_PAIRS or not load.any():
        return raw
    return np.asarray(raw - load * (load @ raw) / (load @ load), np.float64)


def effect(records: Sequence[BlockRecord], outcome: str) -> TrialEffect | None:
    """Return the effect of acting on an outcome; None if no pair has this outcome."""
    both = _with_outcome(records, outcome)
    if not both:
        return None
    observed = differences(records, outcome)
    shadow = sum(shadow.outcomes[outcome] for shadow, _ in both) / len(both)
    return TrialEffect(len(both), shadow, float(observed.mean()), *swap_interval(observed))


def _with_outcome(records: Sequence[BlockRecord], outcome: str) -> list[tuple[BlockRecord, BlockRecord]]:
    return [pair for pair in paired(records) if all(outcome in record.outcomes for record in pair)]


def swap_interval(observed: Float64s) -> tuple[float | None, float | None]:
    """Return the 95 percent interval of a constant effect, from the differences within pairs.

    A random swap of pairs does not reject an effect that lies between the mean difference of the swapped pairs and that
    of the other pairs. The ends of the interval are quantiles of the lower and of the higher one of these two means.
    """
    count = len(observed)
    if count < MIN_PAIRS:
        return None, None
    if count <= _MOST_EXACT:
        # Swapping all other pairs gives the same two means, so half of the assignments suffices; 0 swaps nothing.
        swapped = (np.arange(1, 2 ** (count - 1))[:, None] >> np.arange(count)) & 1 == 1
    else:
        swapped = np.random.default_rng(_SEED).random((_SWAPS, count)) < 0.5
        swapped = swapped[swapped.any(axis=1) & ~swapped.all(axis=1)]
    inside = swapped.sum(axis=1)
    sums = swapped @ observed
    means = np.stack([sums / inside, (observed.sum() - sums) / (count - inside)])
    # The assignment that happened counts as one that rejects: for every effect it is as extreme as itself.
    rank = int(LEVEL * (len(swapped) + 1)) - 1
    low, high = np.sort(means.min(axis=0))[rank], np.sort(means.max(axis=0))[len(swapped) - 1 - rank]
    return float(low), float(high)
