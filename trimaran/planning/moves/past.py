"""Expected use of pods in each past step, from the known part of their past.

The level between bursts changes more slowly than bursts recur, so a share of each past hour's level is replaced by the
level of the last hour:

    use in a past step  +  share * (level of the last hour - level of the hour of that step)

The level of an hour is its mean without the steps of a burst, which are the highest ones.

The steps before a new pod's first one get the hourly profile of its workload. Other unknown steps of a service get the
pod's mean. Unknown steps of a job count as no use, because the job will soon end.
"""

import numpy as np

from scoring.arrays import Bools, Float64s
from trimaran.planning.moves.gains import HOUR_STEPS, PERIOD_STEPS, GainRule
from trimaran.planning.moves.problem import Use

_CHUNK = 8192  # pods at once, so that float64 takes 19 MB


def expected_cpu(
    known: Use, ends_soon: Bools, steps_per_hour: int, last_hour_share: float, burst_steps: int = GainRule().burst_steps
) -> Use:
    """Return the CPU use in each past step, adjusted to the level of the last hour.

    Args:
        known: use of each pod in each step, shape (pods, steps), NaN where unknown; steps are whole hours, or less than
            one hour.
        ends_soon: pods of jobs, shape (pods,).
        steps_per_hour: number of steps in an hour.
        last_hour_share: share of each hour's level that is replaced by the last hour's level.
        burst_steps: number of steps of an hour that its level leaves out, the highest ones.

    Returns:
        The unit and type of ``known``, at least 0, shape (pods, steps).
    """
    expected = np.empty_like(known)
    for start in range(0, len(known), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        use = _filled(known[chunk], ends_soon[chunk])
        hours = use.reshape(len(use), -1, min(steps_per_hour, use.shape[1]))
        lower = max(hours.shape[2] - burst_steps, 1)
        levels = np.partition(hours, lower - 1, axis=2)[:, :, :lower].mean(axis=2)
        shifted = hours + (last_hour_share * (levels[:, -1:] - levels))[:, :, None]
        expected[chunk] = np.maximum(shifted, 0).reshape(use.shape)
    return expected


def begin_with_course(cpu: Use, memory: Use, courses: Use, newest_step: int) -> None:
    """Fill the steps before each pod's first known one, in place, with the hourly profile of its workload.

    The profile is scaled by the ratio of the pod's known use to the profile in the same steps. Both sums include one
    more hour of the profile, which dampens the scale of a short past. Steps without a known profile stay unknown.

    Args:
        cpu: use of each pod in each step of five minutes, the newest last, shape (pods, steps), NaN where unknown.
        memory: highest use of each pod in each quarter of an hour, shape (pods, steps / 3), NaN where unknown.
        courses: mean use of a pod of the same workload in each hour of the day, shape (2, pods, 24).
        newest_step: the newest step, counted since 1970 (UTC).
    """
    steps = newest_step - np.arange(cpu.shape[1])[::-1]
    hours = steps // HOUR_STEPS % 24
    for known, course, per_hour, at in (
        (cpu, courses[0], HOUR_STEPS, hours),
        (memory, courses[1], HOUR_STEPS // PERIOD_STEPS, hours[PERIOD_STEPS - 1 :: PERIOD_STEPS]),
    ):
        young = np.flatnonzero(np.isnan(known[:, 0]))
        for start in range(0, young.size, _CHUNK):
            rows = young[start : start + _CHUNK]
            use, expected = known[rows].astype(np.float64), course[rows][:, at[-known.shape[1] :]]
            is_known = ~np.isnan(use)
            compared = is_known & ~np.isnan(expected)
            hour = per_hour * _mean(expected, ~np.isnan(expected))
            above, below = (np.where(compared, values, 0.0).sum(axis=1) + hour for values in (use, expected))
            scale = np.divide(above, below, out=np.ones(len(rows)), where=below > 0)
            is_before = np.cumsum(is_known, axis=1) == 0
            known[rows] = np.where(is_before, expected * scale[:, None], use)


def _mean(values: Float64s, counted: Bools) -> Float64s:
    return np.asarray(np.where(counted, values, 0.0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1))


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
