"""Expected use of pods in each past step, from the known part of their past.

The level between bursts changes more slowly than bursts recur, so a share of each past hour's mean is replaced by the
mean of the last hour:

    use in a past step  +  share * (mean of the last hour - mean of the hour of that step)

Unknown steps of a service, such as those before its pod started, have the pod's mean. Unknown steps of a job count as
no use, because the job will soon end.
"""

import numpy as np

from scoring.arrays import Bools, Float64s
from trimaran.planning.moves.problem import Use

_CHUNK = 8192  # pods at once, so that float64 takes 19 MB


def expected_cpu(known: Use, ends_soon: Bools, steps_per_hour: int, last_hour_share: float) -> Use:
    """Return the CPU use in each past step, adjusted to the level of the last hour.

    Args:
        known: use of each pod in each step, shape (pods, steps), NaN where unknown; steps are whole hours, or less than
            one hour.
        ends_soon: pods of jobs, shape (pods,).
        steps_per_hour: number of steps in an hour.
        last_hour_share: share of each hour's mean that is replaced by the last hour's mean.

    Returns:
        The unit and type of ``known``, at least 0, shape (pods, steps).
    """
    expected = np.empty_like(known)
    for start in range(0, len(known), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        use = _filled(known[chunk], ends_soon[chunk])
        hours = use.reshape(len(use), -1, min(steps_per_hour, use.shape[1]))
        means = hours.mean(axis=2)
        shifted = hours + (last_hour_share * (means[:, -1:] - means))[:, :, None]
        expected[chunk] = np.maximum(shifted, 0).reshape(use.shape)
    return expected


def expected_memory(known: Use, ends_soon: Bools) -> Use:
    """Return the highest memory use in each past period: the known one, else the pod's mean over known periods.

    Args:
        known: highest use of each pod in each period, shape (pods, periods), NaN where unknown.
        ends_soon: pods of jobs, shape (pods,).
    """
    return _filled(known, ends_soon).astype(known.dtype)


def _filled(known: Use, ends_soon: Bools) -> Float64s:
    use = known.astype(np.float64)
    unknown = np.isnan(use)
    counts = (~unknown).sum(axis=1)
    use[unknown] = 0.0
    mean = np.where(ends_soon, 0.0, use.sum(axis=1) / np.maximum(counts, 1))
    return np.where(unknown, mean[:, None], use)
