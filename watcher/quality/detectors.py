"""Detectors of implausible values: pure functions over arrays of shape (nodes,) or (nodes, fetches).

Real loads also jump, stay constant and become idle, so each function documents the evidence that it requires.
``research/detectors.py`` measures the missed faults and the false alarms on traces of real machines.
"""

import numpy as np

from watcher.quality.history import Flags, Floats

_HABIT_FACTOR = 2.0  # a frozen value rests longer than this multiple of the node's longest earlier rest
_MOVES = 0.5  # minimum share of fetches that change a live value, unless it is counted in coarse steps
_MIN_PAST = 10  # minimum number of recent fetches
_OUTLIER_DEVIATIONS = 6.0
_MIN_DEVIATION_PERCENT = 1.0
_SPAN_OF_HUNDRED = (50.0, 200.0)  # factors that count as a hundred, as loads change at the same time
_EMPTY_BAND = (3.0, 30.0)  # multiples of the new value: a load that really falls passes through this range
_MIN_VALUE = 1e-3  # percent; excludes 0, which is not a hundredth of the old value
_MIN_FALL = 5.0  # percent; falls from lower loads do little harm
_IDLE_SPREAD = 0.2  # maximum distance of the lowest and the highest decile of idle nodes, percent
_MIN_LOG_FACTOR = 1.0  # smaller common changes are not a change of unit
_FACTOR_SPREADS = 8.0  # minimum of a common change, as a multiple of its spread over nodes
_MIN_NODES = 5  # fewer nodes do not represent a cluster


def may_rest(values: Floats, moved: Floats, longest_seconds: Floats, spans: Floats) -> Floats:
    """Return the time that each node's values may stay constant before they count as frozen.

    The short time applies to values that used to change in at least half of the fetches, and to values that never
    changed. The long time applies to all other values, which may be counted in coarse steps, as for an idle machine;
    and to whole numbers, which may be rounded. In any case twice the node's longest earlier constant time is allowed.

    Args:
        values: each node's newest average and deviation in percent, shape (nodes, operators); NaN for a missing value.
        moved: the share of fetches that changed a node's values before they became constant, shape (nodes,).
        longest_seconds: the longest time that a node's values stayed constant before, shape (nodes,).
        spans: the short and the long time, seconds.

    Returns:
        Seconds, shape (nodes,).
    """
    rounded = ((values == np.round(values)) | np.isnan(values)).all(axis=1)
    precise = ~rounded & ((moved >= _MOVES) | (moved == 0))
    allowed: Floats = np.fmax(np.where(precise, spans[0], spans[1]), _HABIT_FACTOR * longest_seconds)
    return allowed


def spikes(values: Floats, past: Floats, ages: Floats, window_seconds: float, factor: float) -> Flags:
    """Return a mask of the nodes whose average changed impossibly fast, and is an outlier among its earlier values.

    For example, an average of values between 0 and 100 over a window of 5 minutes changes by at most 20 points in a
    minute. If the window is not longer than the time between fetches, any change is possible, so no node is returned.

    Args:
        values: averages in percent, shape (nodes,).
        past: averages of earlier fetches, shape (nodes, times).
        ages: ages of the earlier fetches in seconds, shape (times,).
        window_seconds: the time span of each average.
        factor: tolerance, as a multiple of the possible change; above 1, because windows may have gaps.
    """
    possible = factor * 100.0 * ages / window_seconds
    limiting = possible < 100.0
    with np.errstate(invalid="ignore"):
        jumped = np.abs(values[:, None] - past[:, limiting]) > possible[limiting]
        result: Flags = np.logical_or.reduce(jumped, axis=1) & ((~np.isnan(past)).sum(axis=1) >= _MIN_PAST)
        # Keep the suspects that are outliers, too, measured in robust deviations from their median.
        suspects = np.flatnonzero(result)
        ordered = np.sort(past[suspects], axis=1)  # NaN come last
        counts = (~np.isnan(ordered)).sum(axis=1)
        lower, median, upper = (ordered[np.arange(len(counts)), (counts - 1) * part // 4] for part in (1, 2, 3))
        deviation = np.fmax((upper - lower) / 1.349, _MIN_DEVIATION_PERCENT)  # a normal's quartiles are this far apart
        result[suspects] = np.abs(values[suspects] - median) > _OUTLIER_DEVIATIONS * deviation
    return result


def fell_to_a_hundredth(values: Floats, past: Floats) -> Flags:
    """Return a mask of the nodes whose value fell to a hundredth, as when a source changes from percent to ratios.

    If the load itself fell, there would be intermediate values, because successive windows overlap. So only nodes
    without intermediate values are returned.

    Args:
        values: percent, shape (nodes,).
        past: values of earlier fetches, shape (nodes, times).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Flags = (values >= _MIN_VALUE) & (np.fmax.reduce(past, axis=1, initial=0) > _EMPTY_BAND[1] * values)
        suspects = np.flatnonzero(result)
        # Of the earlier values, some must be a hundred times higher, and none may lie in between.
        ratios = past[suspects] / values[suspects, None]
        before = ratios > _EMPTY_BAND[1]
        between = (ratios > _EMPTY_BAND[0]) & ~before
        level = np.where(before, ratios, 0).sum(axis=1) / np.fmax(before.sum(axis=1), 1)
        like_hundred = (level > _SPAN_OF_HUNDRED[0]) & (level < _SPAN_OF_HUNDRED[1])
        high = level * values[suspects] >= _MIN_FALL
        result[suspects] = (before.sum(axis=1) >= _MIN_PAST) & ~between.any(axis=1) & like_hundred & high
    return result


def are_ratios(values: Floats, past: Floats, *, may_idle: bool) -> bool:
    """Return whether all values of a fetch look like ratios instead of percents, because no value is above 1.

    If nodes may idle below 1 percent, two more conditions must hold: no earlier value was above 1, and the values
    differ more between nodes than those of idle nodes (by 0.2 from the lowest to the highest decile).

    Args:
        values: averages, shape (nodes,); NaN where there is no value.
        past: averages of earlier fetches, shape (nodes, times).
        may_idle: whether a node may be below 1 percent, as with CPU; memory never is.
    """
    known = values[~np.isnan(values)]
    if len(known) < _MIN_NODES or known.max() > 1.0 or known.max() <= 0:
        return False
    if not may_idle:
        return True
    low, high = np.quantile(known, (0.1, 0.9))
    return bool(past.shape[1] >= _MIN_PAST and np.fmax.reduce(past, axis=None) <= 1.0 and high - low >= _IDLE_SPREAD)


def common_factor(values: Floats, before: Floats) -> float:
    """Return the factor by which all nodes' values changed, as after a change of unit; NaN without such a factor.

    If a whole cluster's load rises or falls, the factors of the nodes differ. So a factor is only returned if the
    nodes' factors differ little compared with the change itself.

    Args:
        values: percent, shape (nodes,).
        before: values of fetches whose windows do not overlap with the current one, shape (nodes, times).
    """
    if before.shape[1] < _MIN_PAST:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = before.mean(axis=1)
        ratios = np.log(values / usual)[(values > 0) & (usual > 0)]
    if len(ratios) < _MIN_NODES:
        return float("nan")
    middle = float(np.median(ratios))
    spread = 1.4826 * float(np.median(np.abs(ratios - middle)))
    return float(np.exp(middle)) if abs(middle) > max(_MIN_LOG_FACTOR, _FACTOR_SPREADS * spread) else float("nan")


def walk_correction(samples: float) -> float:
    """Return the factor by which few samples in a window raise the :func:`smoothing_ratio` of a random walk.

    For a random walk with n samples in a window, in units of the squared step: the mean squared difference of
    successive windows' means is (2 n^2 + 1) / 3 n, and the squared deviation within a window is (n^2 - 1) / 6 n. Their
    ratio approaches 4 for many samples; the result is the ratio divided by 4. It is infinite for one sample, which has
    no deviation.

    Args:
        samples: the number of samples in a window.
    """
    squared = samples**2
    return (2 * squared + 1) / (2 * (squared - 1)) if squared > 1 else float("inf")


def smoothing_ratio(averages: Floats, deviations: Floats, lag: int) -> float:
    """Return a measure of how much samples were smoothed before they were averaged over windows.

    For each node the mean squared difference of successive windows' averages is divided by the mean squared deviation
    within a window. The result is the median over the nodes: about 0 for noise and 4 for a random walk. Loads stay
    below 4; samples that are averages over the window's length or longer are above 4. NaN if there is too little data.

    Args:
        averages: the average over each window in percent, oldest first, shape (nodes, times).
        deviations: the standard deviation within each window in percent, shape (nodes, times).
        lag: the number of fetches after which windows no longer overlap.
    """
    if lag < 1 or averages.shape[1] < lag + _MIN_PAST:
        return float("nan")
    differences = averages[:, lag:] - averages[:, :-lag]
    known = ~np.isnan(differences) & ~np.isnan(deviations[:, lag:])
    pairs = known.sum(axis=1)
    squared_deviations = np.where(known, deviations[:, lag:], 0) ** 2
    ratios = (np.where(known, differences, 0) ** 2).sum(axis=1) / np.fmax(squared_deviations.sum(axis=1), 1e-9)
    enough = (pairs >= _MIN_PAST) & (
        squared_deviations.sum(axis=1) > 0
    )  # a deviation that is always 0 is not informative
    return float(np.median(ratios[enough])) if enough.sum() >= _MIN_NODES else float("nan")
