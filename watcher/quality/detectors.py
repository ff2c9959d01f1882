"""Detectors of implausible values. Pure functions over arrays of nodes, or of nodes by recent fetches.

Each function documents the evidence that it requires, since real loads jump, rest and become idle, too. Missed faults
and false alarms on traces of real machines are measured by ``research/detectors.py``.
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
    """Return the maximum time that each node's values may stay constant before they count as frozen.

    The short time is for values that used to change from fetch to fetch, and for values that never changed. Other
    values are counted in coarse steps, as an idle machine's load may be. Whole numbers get the long time, too: they may
    be rounded.

    Args:
        values: average and deviation in percent, as last fetched, shape (nodes, operators); NaN where there is no
            value.
        moved: the share of fetches that changed any of them before they became constant, shape (nodes,).
        longest_seconds: the longest time that they were constant before, shape (nodes,).
        spans: the short and the long time, seconds.

    Returns:
        seconds, shape (nodes,).
    """
    rounded = ((values == np.round(values)) | np.isnan(values)).all(axis=1)
    precise = ~rounded & ((moved >= _MOVES) | (moved == 0))
    allowed: Floats = np.fmax(np.where(precise, spans[0], spans[1]), _HABIT_FACTOR * longest_seconds)
    return allowed


def spikes(values: Floats, past: Floats, ages: Floats, window_seconds: float, factor: float) -> Flags:
    """Return the nodes whose average moved faster than an average over this window can, away from its usual range.

    The average over a window of 5 minutes of values between 0 and 100 moves by at most 20 points in a minute. If the
    window is not longer than the time between fetches, any move is possible, so nothing is found.

    Args:
        values: averages in percent, shape (nodes,).
        past: averages of earlier fetches, shape (nodes, times).
        ages: ages of those fetches in seconds, shape (times,).
        window_seconds: the time span of each average.
        factor: tolerance, as a multiple of the possible move; above 1, as windows may have gaps.
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
    """Return the nodes whose value fell to a hundredth, as when percents become ratios.

    A load that really falls leaves intermediate values, as windows overlap. So there must be no intermediate values.

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
    """Return whether the values of a whole fetch are ratios instead of percents: no value is above 1.

    If nodes may idle below 1 percent, two more conditions hold: no value in the past was above 1, and the values differ
    more than those of idle nodes do.

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
    """Return the common factor by which all nodes' values changed, as with another unit; NaN if there is none.

    When the load of a whole cluster rises or falls, the factors differ by node. So the spread of the factors must be
    small compared with the change.

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
    """Return the ratio of :func:`smoothing_ratio` for a random walk with few samples in a window to that with many.

    For a walk with n samples in a window, in units of the squared step: the mean squared difference of successive
    windows' means is (2 n^2 + 1) / 3 n, and the squared deviation within a window is (n^2 - 1) / 6 n. The result is
    infinite for one sample, which has no deviation.
    """
    squared = max(1.0, samples) ** 2
    return (2 * squared + 1) / (2 * (squared - 1)) if squared > 1 else float("inf")


def smoothing_ratio(averages: Floats, deviations: Floats, lag: int) -> float:
    """Return the variation of averages from window to window, relative to the deviations within windows.

    It is the mean squared difference over the mean squared deviation, of the median node: about 0 for noise and 4 for a
    random walk. Loads stay below 4; samples that are averages over a window or longer are above it. NaN if too little
    is known.

    Args:
        averages: averages of one window each, oldest first, shape (nodes, times).
        deviations: the deviations within these windows, shape (nodes, times).
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
