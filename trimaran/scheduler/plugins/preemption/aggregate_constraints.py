"""Limits of sums over the pods of all nodes, such as quotas, which the pod must not exceed after a preemption."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s


@dataclass(frozen=True)
class AggregateConstraints:
    """Bounds that a pending pod would exceed.

    Attributes:
        excess: amounts that must become free before the pod keeps to the bounds, shape (bounds,).
        freed_by: returns the amounts that each of these pods frees by leaving, shape (pods, bounds).
        reason: why the pod is refused as long as too little is free.
    """

    excess: Int64s
    freed_by: Callable[[Sequence[Pod]], Int64s]
    reason: str = ""

    def are_kept(self, freed: Int64s) -> Bools:
        """Return whether freed amounts, shape (n, bounds), are enough for the pod, shape (n,)."""
        kept: Bools = np.all(freed >= self.excess, axis=1)
        return kept


NO_BOUNDS: Final = AggregateConstraints(np.zeros(0, np.int64), lambda pods: np.zeros((len(pods), 0), np.int64))
