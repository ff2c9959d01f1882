"""What values give away about themselves. Pure functions over arrays: nodes, or nodes by recent fetches.

Each says what it takes for proof, since a real load jumps, rests and falls asleep too. What they miss and what they
wrongly see on traces of real machines is measured by ``research/detectors.py``.
"""

import numpy as np

from watcher.quality.history import Flags, Floats

_HABIT_FACTOR = 2.0  # a value that is frozen outlasts by so much the longest rest that the node had before
_MOVES = 0.5  # share of fetches that change a live value, in all but coarse steps
_MIN_PAST = 10  # recent fetches without which nothing can be said
_OUTLIER_DEVIATIONS = 6.0
_MIN_DEVIATION_PERCENT = 1.0
_SPAN_OF_HUNDRED = (50.0, 200.0)  # loads change a little while their scale does
_EMPTY_BAND = (3.0, 30.0)  # times the new value: a load that really falls passes through
_MIN_VALUE = 1e-3  # zero is not a hundredth of anything
_MIN_FALL = 5.0  # percent; what falls from less misleads nobody
_IDLE_SPREAD = 0.2  # percent, from the lowest to the highest tenth of idle nodes
_MIN_LOG_FACTOR = 1.0  # smaller changes of all nodes are no other unit
_FACTOR_SPREADS = 8.0  # times the nodes' spread that a change of them all has to be
_MIN_NODES = 5  # fewer say nothing about a whole cluster


def may_rest(values: Floats, moved: Floats, longest_seconds: Floats, spans: Floats) -> Floats:
    """Return for how many seconds each node's values may stand still before they are frozen.

    The short span is for those that used to move from fetch to fetch, and for those that never moved at all. Others are
    counted in coarse steps, as an idle machine's load may be; so may be whole numbers, and then say little.

    Args:
        values: (nodes, operators) average and deviation, percent, as last fetched; NaN where there is none.
        moved: (nodes,) the share of fetches that changed any of them before they stood still.
        longest_seconds: (nodes,) the longest time that they stood still before.
        spans: the short and the long one, seconds.
    """
    whole = ((values == np.round(values)) | np.isnan(values)).all(axis=1)
    telling = ~whole & ((moved >= _MOVES) | (moved == 0))
    allowed: Floats = np.fmax(np.where(telling, spans[0], spans[1]), _HABIT_FACTOR * longest_seconds)
    return allowed


def spikes(values: Floats, past: Floats, ages: Floats, window_seconds: float, factor: float) -> Flags:
    """Return which nodes' averages moved faster than an average over this window can, away from where they use to be.

    The average over a window of 5 minutes of what is between 0 and 100 moves by at most 20 points in a minute. Where
    the window is not longer than the time between fetches, anything is possible and nothing is found.

    Args:
        values: (nodes,) averages, percent.
        past: (nodes, times) those of earlier fetches.
        ages: (times,) how long ago those were fetched, seconds.
        window_seconds: the span that each value averages over.
        factor: how many times faster than possible; above 1, as windows are not always full of samples.
    """
    possible = factor * 100.0 * ages / window_seconds
    near = possible < 100.0
    with np.errstate(invalid="ignore"):
        jumped = np.abs(values[:, None] - past[:, near]) > possible[near]
        found: Flags = np.logical_or.reduce(jumped, axis=1) & ((~np.isnan(past)).sum(axis=1) >= _MIN_PAST)
        suspects = np.flatnonzero(found)
        ordered = np.sort(past[suspects], axis=1)  # NaN come last
        counts = (~np.isnan(ordered)).sum(axis=1)
        lower, median, upper = (ordered[np.arange(len(counts)), (counts - 1) * part // 4] for part in (1, 2, 3))
        deviation = np.fmax((upper - lower) / 1.349, _MIN_DEVIATION_PERCENT)  # the quartiles' distance, as of a normal
        found[suspects] = np.abs(values[suspects] - median) > _OUTLIER_DEVIATIONS * deviation
    return found


def fell_to_a_hundredth(values: Floats, past: Floats) -> Flags:
    """Return which nodes' values became a hundredth of what they were, as percents do that turn into ratios.

    A load that really falls leaves values between, as windows overlap; so nothing may lie there.

    Args:
        values: (nodes,) percent.
        past: (nodes, times) those of earlier fetches.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Flags = (values >= _MIN_VALUE) & (np.fmax.reduce(past, axis=1, initial=0) > _EMPTY_BAND[1] * values)
        suspects = np.flatnonzero(found)
        ratios = past[suspects] / values[suspects, None]
        before = ratios > _EMPTY_BAND[1]
        between = (ratios > _EMPTY_BAND[0]) & ~before
        level = np.where(before, ratios, 0).sum(axis=1) / np.fmax(before.sum(axis=1), 1)
        like_hundred = (level > _SPAN_OF_HUNDRED[0]) & (level < _SPAN_OF_HUNDRED[1])
        high = level * values[suspects] >= _MIN_FALL
        found[suspects] = (before.sum(axis=1) >= _MIN_PAST) & ~between.any(axis=1) & like_hundred & high
    return found


def are_ratios(values: Floats, past: Floats, *, may_idle: bool) -> bool:
    """Return whether the levels of a whole fetch are ratios and not percents: none is above 1.

    Where nodes may idle below 1 percent, none may have been above 1 in the past either, and they must not be as alike
    as idle nodes are.

    Args:
        values: (nodes,) levels; NaN where there is none.
        past: (nodes, times) those of earlier fetches.
        may_idle: whether a node may be at less than 1 percent, as with CPU; memory never is.
    """
    known = values[~np.isnan(values)]
    if len(known) < _MIN_NODES or known.max() > 1.0 or known.max() <= 0:
        return False
    if not may_idle:
        return True
    low, high = np.quantile(known, (0.1, 0.9))
    return bool(past.shape[1] >= _MIN_PAST and np.fmax.reduce(past, axis=None) <= 1.0 and high - low >= _IDLE_SPREAD)


def common_factor(values: Floats, before: Floats) -> float:
    """Return the factor by which all nodes' values changed alike, as with another unit; NaN when they did not.

    Loads of a whole cluster that rise or fall do so by different factors; so the spread of the factors must be small
    against the change itself.

    Args:
        values: (nodes,) percent.
        before: (nodes, times) those of fetches whose windows do not overlap with this one's.
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
    """Return how much higher :func:`smoothing_ratio` is for a random walk of so few samples a window than of many.

    Means of n steps of a walk differ by (2 n^2 + 1) / 3 n squares of a step from window to window, and the square of
    the deviation within is (n^2 - 1) / 6 n of them. Infinite where a window has one sample, and no deviation.
    """
    squared = max(1.0, samples) ** 2
    return (2 * squared + 1) / (2 * (squared - 1)) if squared > 1 else float("inf")


def smoothing_ratio(averages: Floats, deviations: Floats, lag: int) -> float:
    """Return by how much averages of successive windows differ, against what the deviations within them allow.

    It is the mean square of the difference over the mean square of the deviation, of the median node: about 0 for
    noise, 4 for a random walk, which loads stay below, and more for samples that are averages themselves over a window
    or longer. NaN when too little is known.

    Args:
        averages: (nodes, times) averages of one window each, oldest first.
        deviations: (nodes, times) those within each window.
        lag: how many times apart windows do not overlap any more.
    """
    if lag < 1 or averages.shape[1] < lag + _MIN_PAST:
        return float("nan")
    moved = averages[:, lag:] - averages[:, :-lag]
    known = ~np.isnan(moved) & ~np.isnan(deviations[:, lag:])
    pairs = known.sum(axis=1)
    within = np.where(known, deviations[:, lag:], 0) ** 2
    ratios = (np.where(known, moved, 0) ** 2).sum(axis=1) / np.fmax(within.sum(axis=1), 1e-9)
    enough = (pairs >= _MIN_PAST) & (within.sum(axis=1) > 0)  # a deviation that is always 0 is none
    return float(np.median(ratios[enough])) if enough.sum() >= _MIN_NODES else float("nan")
