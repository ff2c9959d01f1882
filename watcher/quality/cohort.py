"""How a node's level usually goes with those of the others, and which nodes have left that: changepoints and drift.

Nodes of a cluster move together: by day and night, by the same deployments. What a node shows is held against what its
own past days and the others now make likely, and only what is far below is told: a node shown cooler than it is gets
pods that it has no room for. How far is far, the cluster says itself, as some clusters' loads jump and others' do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_MIN_NODES = 5  # fewer say nothing about a whole cluster
_LEARN_SECONDS = 4 * 3600.0  # how long a node is watched before its deficits say anything
_WARM_SECONDS = 8 * 3600.0  # and before anything is said of it
_DAY_SECONDS = 24 * 3600.0
_MEMORY_SECONDS = _DAY_SECONDS  # half-life of what is usual
_HABIT_SECONDS = 7 * _DAY_SECONDS  # and of the largest deficits
_FAST_SECONDS, _SLOW_SECONDS = 240.0, 1800.0  # half-lives of the two averages that a deficit is looked for in
_FLOORS = np.array([18.0, 14.0])  # percent; what is less misleads nobody much
_HABIT_FACTOR = 1.25  # a deficit that is told exceeds by so much all that the node itself had
_CROWD_FACTOR = 1.2  # and by so much what almost all nodes had,
_RATE = 0.03  # where so many a node and day had more, over all the days that are remembered
_HELD_SECONDS = 12 * 3600.0  # after so long what is found is how the node is
_SOFTENING = 1.0  # added to variances, percent squared: values may come in whole percents

_BLANK = blank(
    [
        ("seconds", "f8"),  # watched
        ("mean", "f8"),  # percent
        ("variance", "f8"),
        ("covariance", "f8"),  # with what the cluster does
        ("deficit", "f8", (2,)),  # how far below expectation, smoothed fast and slow; percent
        ("peak", "f8", (2,)),  # the largest that each was since it began to grow
        ("worst", "f8", (2,)),  # the largest such peak that is over, slowly forgotten
        ("since", "f8"),  # when what is found began; NaN while nothing is
        ("limit", "f8", (2,)),  # what was exceeded then
    ],
    since=np.nan,
)


@dataclass(frozen=True, slots=True)
class Deficits:
    """Which nodes are far below what is to be expected of them.

    Attributes:
        sudden: (nodes,) within minutes.
        slow: (nodes,) over hours.
        expected: (nodes,) percent.
        since: (nodes,) unix seconds; NaN for the others.
    """

    sudden: Flags
    slow: Flags
    expected: Floats
    since: Floats


class Cohort:
    """The levels of one metric at all nodes, and how they go together."""

    def __init__(self) -> None:
        self._nodes = NodeStates(_BLANK)
        self._common_mean, self._common_variance = 0.0, 1.0
        self._now = float("nan")

    def judge(self, now: float, names: Sequence[str], values: Floats) -> Deficits:
        """Hold the levels of a fetch against what is to be expected; they become part of that.

        Args:
            now: unix seconds, later than the last.
            names: of the nodes.
            values: (nodes,) percent; NaN where there is none.
        """
        state = self._nodes.align(now, names)
        elapsed = 0.0 if np.isnan(self._now) else max(0.0, now - self._now)
        self._now = now
        present = ~np.isnan(values)
        new = present & (state["seconds"] == 0)
        state["mean"][new] = values[new]
        with np.errstate(invalid="ignore"):
            moved = np.where(present, values - state["mean"], 0.0)
        common = self._common_now(moved, present)
        off = common - self._common_mean
        slope = state["covariance"] / (self._common_variance + 0.05)
        expected: Floats = np.clip(state["mean"] + slope * off, 0.0, 100.0)
        deficit = np.where(present, expected - values, 0.0)
        for column, half_life in enumerate((_FAST_SECONDS, _SLOW_SECONDS)):
            gain = np.where(present, _gain(elapsed, half_life), 0.0)
            state["deficit"][:, column] += gain * (deficit - state["deficit"][:, column])
        found = self._tell(now, present)
        self._learn(elapsed, present & np.isnan(state["since"]), moved, common)
        return Deficits(found[:, 0], found[:, 1], expected, state["since"].copy())

    def _common_now(self, moved: Floats, present: Flags) -> float:
        """Return how far from usual the cluster's nodes are: the median of their moves, each by its own spread."""
        state = self._nodes.rows
        known = present & (state["seconds"] > 0) & np.isnan(state["since"])
        if known.sum() < _MIN_NODES:
            return 0.0
        return float(np.median(moved[known] / np.sqrt(state["variance"][known] + _SOFTENING)))

    def _tell(self, now: float, present: Flags) -> Flags:
        """Return which deficits are beyond what the node and the cluster know, fast and slow; found ones are held."""
        state = self._nodes.rows
        warm = state["seconds"] >= _WARM_SECONDS
        if warm.sum() < _MIN_NODES:
            return np.zeros((len(state), 2), bool)
        days = min(_HABIT_SECONDS, float(np.median(state["seconds"][warm])) - _LEARN_SECONDS) / _DAY_SECONDS
        crowd = _CROWD_FACTOR * np.quantile(state["worst"][warm], 1 - _RATE * days, axis=0)
        limits = np.maximum(np.maximum(_FLOORS, crowd), _HABIT_FACTOR * state["worst"])
        held = ~np.isnan(state["since"])
        stays = state["deficit"][:, :1] > limits  # what is over already is no news
        begins = (present & warm & ~held)[:, None] & (state["deficit"] > limits) & stays
        begun = begins.any(axis=1)
        state["since"][begun] = now
        state["limit"][begun] = np.where(begins, limits, np.inf)[begun]
        with np.errstate(invalid="ignore"):
            over = held & ((state["deficit"][:, 0] < np.fmin.reduce(state["limit"], axis=1) / 2)
                           | (now - state["since"] > _HELD_SECONDS))  # fmt: skip
        state["seconds"][over] = np.where(now - state["since"][over] > _HELD_SECONDS, 0, state["seconds"][over])
        state["since"][over] = np.nan
        state["worst"][over] = np.maximum(state["worst"], state["peak"])[over]
        known = present & (state["seconds"] >= _LEARN_SECONDS)
        state["peak"] = np.where(known[:, None], np.maximum(state["peak"], state["deficit"]), 0.0)
        ended = state["deficit"] < state["peak"] / 2  # until then it may be a fault that is growing
        state["worst"][ended] = np.maximum(state["worst"], state["peak"])[ended]
        state["peak"][ended] = 0.0
        result: Flags = ~np.isnan(state["since"])[:, None] & np.isfinite(state["limit"])
        result[:, 1] &= ~result[:, 0]
        return result

    def _learn(self, elapsed: float, free: Flags, moved: Floats, common: float) -> None:
        """Make a fetch part of what is usual, of nodes that nothing is found of."""
        state = self._nodes.rows
        state["worst"] *= 0.5 ** (elapsed / _HABIT_SECONDS)
        usual = _gain(elapsed, _MEMORY_SECONDS)
        with np.errstate(divide="ignore", invalid="ignore"):
            young = np.fmin(1.0, np.nan_to_num(elapsed / (state["seconds"] + elapsed)))
        gain = np.where(free, np.maximum(usual, young), 0.0)
        off = common - self._common_mean
        state["covariance"] += gain * (moved * off - state["covariance"])
        state["variance"] += gain * (moved * moved - state["variance"])
        state["mean"] += gain * moved
        state["seconds"][free] += max(elapsed, 1e-3)
        self._common_mean += usual * off
        self._common_variance += usual * (off * off - self._common_variance)


def _gain(elapsed: float, half_life: float) -> float:
    """Return the weight of the newest value in an average that forgets half of itself in a half-life."""
    return 1.0 - float(0.5 ** (elapsed / half_life))
