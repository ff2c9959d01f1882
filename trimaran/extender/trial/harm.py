"""Harm of a trial: the reasons to return to shadow before its end.

Two rules are applied after every pair:

Gross harm      the active block of the last pair exceeds its shadow block by a margin. One pair is enough. The share of
                pods on hot nodes shows harm first, because a block's own pods cause it; it needs many pods.
Lasting harm    the active blocks are worse in more pairs, or by more, than random order explains.

The second rule is a test martingale. Given its size, the difference d of a pair is positive or negative with equal
probability if acting has no effect, because the order of the two blocks is random. So for any l and any scale s that
depends on the sizes so far only,

    M = product over pairs of exp(l d / s) / cosh(l d / s)

has the expectation 1, and exceeds 1 / a at any time with a probability of at most a (Ville's inequality): M may be
used after every pair. M is averaged over several l. Source: Ramdas et al., Game-theoretic statistics and safe anytime-
valid inference, Statistical Science (2023).
"""

from collections.abc import Sequence

import numpy as np

from scoring.arrays import Float64s
from trimaran.extender.trial.effects import differences, paired
from trimaran.extender.trial.outcomes import CPU_LIMIT, HOT, MEMORY_LIMIT, OUTCOMES, PENDING, PLACED_HOT, BlockRecord

#: Largest probability with which lasting harm is found for any outcome although there is none.
FALSE_STOPS = 0.05
_GROSS_PERCENT = (PLACED_HOT, HOT, CPU_LIMIT, MEMORY_LIMIT)
_MANY_PODS = 100  # in each block of a pair
_GROSS_PENDING_SECONDS = 30.0
_RATES = np.array([0.5, 1.0, 2.0])


def harm(records: Sequence[BlockRecord], margin: float) -> str:
    """Return the reason to stop a trial; "" if there is none.

    Args:
        records: blocks of the trial.
        margin: percentage points by which a share of node-minutes or of pods may be larger in an active block.
    """
    return _gross(records, margin) or _lasting(records)


def evidence_of_harm(observed: Float64s) -> float:
    """Return the test martingale of the differences, active minus shadow: 1 without evidence, large if acting harms."""
    if not len(observed):
        return 1.0
    scale = np.maximum.accumulate(np.abs(observed))
    steps = np.divide(observed, scale, out=np.zeros_like(observed), where=scale > 0)
    exponents = _RATES[:, None] * steps
    return float(np.exp((exponents - np.log(np.cosh(exponents))).sum(axis=1)).mean())


def _gross(records: Sequence[BlockRecord], margin: float) -> str:
    pairs = paired(records)
    if not pairs:
        return ""
    shadow, active = (record.outcomes for record in pairs[-1])
    has_many_pods = all(record.pods >= _MANY_PODS for record in pairs[-1])
    for name in _GROSS_PERCENT if has_many_pods else _GROSS_PERCENT[1:]:
        before, now = shadow.get(name, 0.0), active.get(name, 0.0)
        if now > before + margin:
            return f"{name} was {now:.1f} in the last active block and {before:.1f} in the shadow block of its pair"
    before, now = shadow.get(PENDING, 0.0), active.get(PENDING, 0.0)
    if PENDING in shadow and now > 2 * before + _GROSS_PENDING_SECONDS:
        return f"{PENDING} was {now:.0f} in the last active block and {before:.0f} in the shadow block of its pair"
    return ""


def _lasting(records: Sequence[BlockRecord]) -> str:
    for name in OUTCOMES:
        raw = differences(records, name, adjusted=False)
        if evidence_of_harm(raw) >= len(OUTCOMES) / FALSE_STOPS:
            return f"{name} is higher by {raw.mean():.1f} in active blocks, mean of {len(raw)} pairs"
    return ""
