"""Comparison with a second source: nodes for which the two sources contradict each other over several fetches.

Two sources never agree exactly: they measure at different moments, over different time spans, and count differently.
So the second source's values are predicted from the first source's recent values, by a linear relation learned in this
cluster. Only a difference from the prediction in several successive fetches is a finding. Until enough is known about
the second source's lag, a lag of several fetches is tolerated.

In this module ``first`` and ``second`` are the values of the first and of the second source in percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_FETCHES = 3  # successive disagreements before a finding; fewer may be chance
_CALM_FETCHES = 60  # successive agreements that end a finding: an error hardly shows while a node idles
_LATE_FETCHES = 8  # maximum lag of the second source in fetches
_DEVIATIONS = 6.0  # threshold in robust standard deviations
# The standard deviation is estimated from the 90th percentile, as the deviations of most nodes are 0. For a normal
# distribution, 90 percent of the values are within 1.645 standard deviations.
_MOST = 0.9
_MOST_DEVIATIONS = 1.645
_MEMORY_SECONDS = 24 * 3600.0  # half-life of the regression
_PRIOR_SECONDS = 1800.0  # weight of the prior, which assumes that both sources agree
_PRIOR_SQUARE = 1000.0  # percent squared: the prior has constant loads around 30 percent
_PRIOR_MOVES = 0.1  # percent squared: the prior has small moves, which both sources show at once
_MOVES = 200  # observed moves of nodes before a smaller lag than the maximum may be assumed
_RARELY = 1e-3  # maximum share of moves that disagree at the assumed lag
_MOST_OF_FETCH = 0.01  # maximum share of a fetch's moves that is counted
_MIN_NODES = 5
_MIN_LEVEL = 5.0  # percent; ratios of lower loads are noise

_BLANK = blank(
    [
        ("first", "f8", (_LATE_FETCHES,)),  # the newest value at index 0
        ("predicted", "f8", (_LATE_FETCHES,)),  # the second source's value as predicted from the first source
        ("second", "f8", (_LATE_FETCHES,)),
        ("at", "f8"),  # time of the node's last fetch
        ("seen", "?"),  # whether the first source ever had a value
        ("streak", "i4"),  # disagreements since the last agreement
        ("calm", "i4"),  # successive agreements
        ("since", "f8"),
    ],
    first=np.nan,
    predicted=np.nan,
    second=np.nan,
    since=np.nan,
)


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Nodes for which the second source contradicts the first.

    Attributes:
        found: mask of the nodes with a finding, shape (nodes,).
        expected: the first source's value, in percent, as estimated from the second source, shape (nodes,).
        since: start of the disagreement, Unix seconds, shape (nodes,); NaN for nodes without a disagreement.
    """

    found: Flags
    expected: Floats
    since: Floats


class Corroboration:
    """Comparison of one metric of all nodes between two sources.

    Args:
        bound_percent: the smallest difference that counts as a disagreement.
    """

    def __init__(self, bound_percent: float) -> None:
        self._bound = bound_percent
        self._nodes = NodeStates(_BLANK)
        self._filter = _Filter(_LATE_FETCHES)
        self._spread = bound_percent / _DEVIATIONS
        self._scale_spread = bound_percent / 100 / _DEVIATIONS
        self._moves = 0.0  # decayed count of nodes' moves above the limit
        self._disagreements = np.zeros(_LATE_FETCHES)  # decayed count of moves that disagree, by lag
        self._seconds = 0.0
        self._now = float("nan")

    def judge(self, now: float, names: Sequence[str], first: Floats, second: Floats) -> Contradictions:
        """Compare a fetch of both sources with the usual relation of the sources, then update this relation.

        Args:
            now: time of the fetch, Unix seconds.
            names: the nodes' names.
            first: the first source's values in percent, shape (nodes,); NaN where there is no value.
            second: the second source's values in percent, shape (nodes,); NaN where there is no value.
        """
        state = self._nodes.align(now, names)
        elapsed = 0.0 if np.isnan(self._now) else max(0.0, now - self._now)
        returned = state["seen"] & (state["at"] < self._now)
        for field in ("first", "predicted", "second"):  # the values during the node's absence are unknown
            state[field][returned] = np.nan
        state["at"] = self._now = now
        _push(state["first"], first)
        _push(state["second"], second)
        new = ~state["seen"] & ~np.isnan(first)
        state["first"][new] = first[new, None]  # assume a constant past for a new node, but not for later gaps
        state["seen"] |= new
        _push(state["predicted"], self._filter(state["first"]))
        # A node disagrees if it is too far from the prediction, or if the scale of all nodes is wrong.
        known = ~np.isnan(state["predicted"][:, 0]) & ~np.isnan(second)
        differences = np.where(known, self._differences(), 0.0)
        lag, limit = self._lag(), max(self._bound, _DEVIATIONS * self._spread)
        scale = self._scale(known) if self._seconds >= 2 * _PRIOR_SECONDS else 1.0
        all_differ = abs(scale - 1) > max(self._bound / 100, _DEVIATIONS * self._scale_spread)
        disagrees = known & ((differences[lag] > limit) | all_differ)
        # Count disagreements and agreements; a fetch without a value changes neither.
        found = state["streak"] >= _FETCHES
        state["calm"] = np.where(known, np.where(disagrees, 0, state["calm"] + 1), state["calm"])
        over = ~disagrees & (~found | (state["calm"] >= _CALM_FETCHES)) & known
        state["streak"] = np.where(over, 0, state["streak"] + disagrees)
        state["since"] = np.where(state["streak"] > 0, np.fmin(state["since"], now), np.nan)
        found = state["streak"] >= _FETCHES
        if not all_differ and (known & ~found).sum() >= _MIN_NODES:
            self._learn(elapsed, known & ~found, differences, limit, lag, scale)
        return Contradictions(found, self._filter.inverse(second), state["since"].copy())

    def _differences(self) -> Floats:
        """Return the differences between the sources for each assumed lag, percent, shape (lags, nodes).

        The second source's values are compared with their predictions from the first source. With a lag of n fetches,
        the newest prediction may lie in the range of the second source's last n + 1 values, or the second source's
        newest value in the range of the last n + 1 predictions. The difference is 0 if either does; otherwise it is the
        smaller of the two distances from these ranges.
        """
        state = self._nodes.rows
        predicted, second = np.ascontiguousarray(state["predicted"].T), np.ascontiguousarray(state["second"].T)
        nearer: Floats = np.minimum(_outside(predicted[0], second), _outside(second[0], predicted))
        return nearer

    def _lag(self) -> int:
        """Return the assumed lag between the sources in fetches, an index into the result of :meth:`_differences`.

        It is the smallest lag with which at most one in 1,000 observed changes of load was a disagreement; the maximum
        without such a lag, and until 200 changes were observed.
        """
        sufficient = np.flatnonzero(self._disagreements <= _RARELY * self._moves)
        return int(sufficient[0]) if len(sufficient) and self._moves >= _MOVES else _LATE_FETCHES - 1

    def _scale(self, known: Flags) -> float:
        """Return the median ratio of the second source's values to their predictions; about 1 if both are correct.

        The result is 1 if fewer than :data:`_MIN_NODES` nodes have loads high enough for a ratio.

        Args:
            known: mask of the nodes with a prediction and a value of the second source, shape (nodes,).
        """
        state = self._nodes.rows
        predicted, second = state["predicted"][known, 0], state["second"][known, 0]
        usable = (predicted >= _MIN_LEVEL) & (second >= _MIN_LEVEL)
        return float(np.median(second[usable] / predicted[usable])) if usable.sum() >= _MIN_NODES else 1.0

    def _learn(
        self, elapsed: float, agreeing: Flags, differences: Floats, limit: float, lag: int, scale: float
    ) -> None:
        """Update the usual relation of the sources with a fetch.

        Args:
            elapsed: seconds since the last fetch.
            agreeing: mask of the nodes to learn from: those without a finding or missing values, shape (nodes,).
            differences: the differences as :meth:`_differences` returns them.
            limit: the difference in percent above which a node disagrees.
            lag: the assumed lag in fetches.
            scale: the ratio that :meth:`_scale` returns.
        """
        state = self._nodes.rows
        self._seconds += elapsed
        decay = 1 - float(0.5 ** (elapsed / _MEMORY_SECONDS))
        gain = max(decay, elapsed / (self._seconds + _PRIOR_SECONDS))
        self._filter.learn(gain, state["first"][agreeing], state["second"][agreeing, 0])
        moved = agreeing & (np.ptp(state["predicted"], axis=1) > limit)
        self._moves += int(moved.sum()) - decay * self._moves
        # Cap the weight of a fetch: a fault of many nodes shows in one fetch, but a late source shows in all of them.
        cap = _MOST_OF_FETCH * moved.sum()
        disagreements = np.minimum((differences[:, moved] > limit).sum(axis=1), cap)
        self._disagreements += disagreements - decay * self._disagreements
        deviation = float(np.quantile(differences[lag, agreeing], _MOST)) / _MOST_DEVIATIONS
        self._spread += gain * (deviation - self._spread)
        self._scale_spread += gain * (abs(scale - 1) - self._scale_spread)


class _Filter:
    """Linear prediction of the second source's value from the first source's recent values.

    The weights of the recent values and the offset are fitted by least squares with exponential forgetting. The weights
    reflect the lag of the second source, and the time span over which the second source averages.
    """

    def __init__(self, length: int) -> None:
        self._weights = np.eye(1, length + 1)[0]  # the prior: both sources are equal
        self._inputs = _PRIOR_MOVES * np.eye(length + 1)
        self._inputs[:-1, :-1] += _PRIOR_SQUARE
        self._inputs[-1, -1] = 1.0
        self._outputs = self._inputs @ self._weights
        self._trust = _PRIOR_MOVES * np.eye(length + 1), _PRIOR_MOVES * self._weights

    def __call__(self, first: Floats) -> Floats:
        """Return the second source's present value as predicted from the first source, percent, shape (nodes,).

        Args:
            first: the first source's recent values in percent, shape (nodes, times), the newest at index 0; NaN where a
                value is missing.
        """
        result: Floats = first @ self._weights[:-1] + self._weights[-1]
        return result

    def inverse(self, second: Floats) -> Floats:
        """Estimate the first source's value from the second source's, as if both were constant over time.

        Args:
            second: the second source's values in percent, shape (nodes,).

        Returns:
            Percent, clamped to 0 to 100, shape (nodes,).
        """
        result: Floats = np.clip((second - self._weights[-1]) / max(self._weights[:-1].sum(), 0.1), 0, 100)
        return result

    def learn(self, gain: float, first: Floats, second: Floats) -> None:
        """Fit the weights again, with one more fetch.

        Args:
            gain: weight of this fetch, from 0 to 1.
            first: the first source's recent values in percent, shape (nodes, times), the newest at index 0; no NaN.
            second: the second source's newest values in percent, shape (nodes,).
        """
        inputs = np.column_stack([first, np.ones(len(first))])
        self._inputs += gain * (inputs.T @ inputs / len(inputs) - self._inputs)
        self._outputs += gain * (inputs.T @ second / len(inputs) - self._outputs)
        inputs, outputs = self._trust
        self._weights = np.linalg.solve(self._inputs + inputs, self._outputs + outputs)


def _push(values: Floats, newest: Floats) -> None:
    """Shift recent values by one fetch, in place: the newest go to column 0, the oldest are dropped.

    Args:
        values: shape (nodes, times).
        newest: shape (nodes,).
    """
    values[:, 1:] = values[:, :-1].copy()
    values[:, 0] = newest


def _outside(values: Floats, others: Floats) -> Floats:
    """Return the distance of each node's value from the range of some other values of the node.

    Args:
        values: one value for each node, shape (nodes,).
        others: the other values, shape (times, nodes).

    Returns:
        Shape (times, nodes). Row n has the distance from the range of ``others[:n + 1]``, 0 inside and for NaN.
    """
    with np.errstate(invalid="ignore"):
        low, high = np.fmin.accumulate(others), np.fmax.accumulate(others)
        result: Floats = np.fmax(np.fmax(values - high, low - values), 0.0)
    return result
