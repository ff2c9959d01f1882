"""One round of measurements of containers: the input of the learner, live and in a replay."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.workload_table import Bools, ContainerKey, Float64s, Int64s

MAX_USE = np.array([[10_000.0], [2.0**53]])
"""Largest plausible use and request of a container, cores and bytes; no machine has more."""


@dataclass(frozen=True, slots=True, eq=False)
class UseRound:
    """One round of measurements. Each measurement is of one container, or the mean over several pods' equal ones.

    Attributes:
        time: end of the round, Unix seconds.
        seconds: time that the round covers; rounds do not overlap.
        keys: containers that ``container`` refers to.
        container: index of each measurement's container in ``keys``, shape (n,); -1 leaves the measurement out.
        revision: number of the pod's revision, shape (n,); 0 if unknown.
        pods: number of pods that each measurement stands for, shape (n,).
        measured_seconds: time that each pod ran in the round, shape (n,).
        use: mean CPU use and highest memory use of one pod in the round, cores and bytes, shape (2, n); NaN if unknown.
        requests: requests of one pod, cores and bytes, shape (2, n); NaN or 0 without a request.
    """

    time: float
    seconds: float
    keys: Sequence[ContainerKey]
    container: Int64s
    revision: Int64s
    pods: Float64s
    measured_seconds: Float64s
    use: Float64s
    requests: Float64s

    def known(self) -> Bools:
        """Return whether each amount of use can be right: finite, not negative, not too large; shape (2, n)."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.use >= 0) & (self.use <= MAX_USE))

    def valid_requests(self) -> Float64s:
        """Return the requests, with 0 for those that are not known or not plausible."""
        with np.errstate(invalid="ignore"):
            valid = (self.requests > 0) & (self.requests <= MAX_USE)
        return np.where(valid, self.requests, 0.0)
