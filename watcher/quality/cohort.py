"""Changepoints and drift: nodes whose load has fallen far below the prediction from their past and the other nodes.

The loads of a cluster's nodes change together: with day and night, and when a deployment changes. So a node's load is
predicted from its own past days and from the present loads of the other nodes. Only a load far below the prediction is
reported: a node whose reported load is too low gets pods that it has no room for. The threshold is learned in each
cluster, because loads jump in some clusters and not in others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_MIN_NODES = 5  # fewer nodes do not represent a cluster
_LEARN_SECONDS = 4 * 3600.0  # observation time before a node's deficits are recorded
_WARM_SECONDS = 8 * 3600.0  # observation time before a node can have findings
_DAY_SECONDS = 24 * 3600.0
_MEMORY_SECONDS = _DAY_SECONDS  # half-life of the regression
_HABIT_SECONDS = 7 * _DAY_SECONDS  # half-life of the largest deficits
_FAST_SECONDS, _SLOW_SECONDS = 240.0, 1800.0  # half-lives of the two smoothed deficits
_FLOORS = np.array([18.0, 14.0])  # minimum thresholds in percent: smaller deficits do little harm
_HABIT_FACTOR = 1.25  # the threshold as a multiple of the node's own largest deficit
_CROWD_FACTOR = 1.2  # the threshold as a multiple of the deficit that is exceeded at _RATE
_RATE = 0.03  # times per node and day, over all remembered days
_HELD_SECONDS = 12 * 3600.0  # maximum duration of a finding; afterwards the new load counts as normal
_SOFTENING = 1.0  # added to variances, percent squared: values may be rounded to whole percents

_BLANK = blank(
    [
        ("seconds", "f8"),  # observation time
        ("mean", "f8"),  # percent
        ("variance", "f8"),
        ("covariance", "f8"),  # with the cluster's common movement
        ("deficit", "f8", (2,)),  # distance below the prediction, smoothed fast and slow; percent
        ("peak", "f8", (2,)),  # the largest value of each deficit since it began to grow
        ("worst", "f8", (2,)),  # the largest peak in the past, slowly decaying
        ("since", "f8"),  # start of the finding; NaN without one
        ("limit", "f8", (2,)),  # the threshold that was exceeded at the start
    ],
    since=np.nan,
)


@dataclass(frozen=True, slots=True)
class Deficits:
    """Nodes whose load is far below its prediction.

    Attributes:
        sudden: mask of nodes whose load fell within minutes, shape (nodes,).
        slow: mask of nodes whose load fell over hours, shape (nodes,).
        expected: the predicted load of every node in percent, shape (nodes,).
        since: start of each node's finding, Unix seconds, shape (nodes,); NaN for nodes without a finding.
    """

    sudden: Flags
    slow: Flags
    expected: Floats
    since: Floats


class Cohort:
    """Model that predicts one metric of each node from the node's past and from the changes common to all nodes."""

    def __init__(self) -> None:
        self._nodes = NodeStates(_BLANK)
        self._common_mean, self._common_variance = 0.0, 1.0
        self._now = float("nan")

    def judge(self, now: float, names: Sequence[str], values: Floats) -> Deficits:
        """Compare the loads in a fetch with their predictions, then update the model with these loads.

        Args:
            now: time of the fetch, Unix seconds, later than in the last call.
            names: the nodes' names.
            values: percent, shape (nodes,); NaN where there is no value.
        """
        state = self._nodes.align(now, names)
        elapsed = 0.0 if np.isnan(self._now) else max(0.0, now - self._now)
        self._now = now
        present = ~np.isnan(values)
        new = present & (state["seconds"] == 0)
        state["mean"][new] = values[new]
        # Predict each load by a linear regression on the common movement of the other nodes.
        with np.errstate(invalid="ignore"):
            moved = np.where(present, values - state["mean"], 0.0)
        common = self._common_movement(moved, present)
        deviation = common - self._common_mean
        slope = state["covariance"] / (self._common_variance + 0.05)
        expected: Floats = np.clip(state["mean"] + slope * deviation, 0.0, 100.0)
        deficit = np.where(present, expected - values, 0.0)
        for column, half_life in enumerate((_FAST_SECONDS, _SLOW_SECONDS)):
            gain = np.where(present, _gain(elapsed, half_life), 0.0)
            state["deficit"][:, column] += gain * (deficit - state["deficit"][:, column])
        flags = self._find(now, present)
        self._learn(elapsed, present & np.isnan(state["since"]), moved, common)
        return Deficits(flags[:, 0], flags[:, 1], expected, state["since"].copy())

    def _common_movement(self, moved: Floats, present: Flags) -> float:
        """Return the change of load that is common to the cluster; 0 with fewer than 5 usable nodes.

        It is the median over the nodes without findings of (load - usual load) / standard deviation of the load.

        Args:
            moved: the distance of each node's load from its mean, percent, shape (nodes,).
            present: mask of the nodes with a value, shape (nodes,).
        """
        state = self._nodes.rows
        known = present & (state["seconds"] > 0) & np.isnan(state["since"])
        if known.sum() < _MIN_NODES:
            return 0.0
        return float(np.median(moved[known] / np.sqrt(state["variance"][known] + _SOFTENING)))

    def _find(self, now: float, present: Flags) -> Flags:
        """Begin and end findings; return the current ones as a mask of shape (nodes, 2): sudden falls, slow falls.

        Args:
            now: Unix seconds.
            present: mask of the nodes with a value, shape (nodes,).
        """
        state = self._nodes.rows
        warm = state["seconds"] >= _WARM_SECONDS
        if warm.sum() < _MIN_NODES:
            return np.zeros((len(state), 2), bool)
        # The threshold is the largest of: a minimum, the node's own past deficits, and those of nearly all nodes.
        days = min(_HABIT_SECONDS, float(np.median(state["seconds"][warm])) - _LEARN_SECONDS) / _DAY_SECONDS
        crowd = _CROWD_FACTOR * np.quantile(state["worst"][warm], 1 - _RATE * days, axis=0)
        limits = np.maximum(np.maximum(_FLOORS, crowd), _HABIT_FACTOR * state["worst"])
        # Begin findings. The fast deficit must exceed the threshold, too: otherwise the load has already recovered.
        held = ~np.isnan(state["since"])
        still_low = state["deficit"][:, :1] > limits
        begins = (present & warm & ~held)[:, None] & (state["deficit"] > limits) & still_low
        begun = begins.any(axis=1)
        state["since"][begun] = now
        state["limit"][begun] = np.where(begins, limits, np.inf)[begun]
        # End findings: the deficit has halved, or the finding has lasted too long (then the node is learned again).
        with np.errstate(invalid="ignore"):
            over = held & ((state["deficit"][:, 0] < np.fmin.reduce(state["limit"], axis=1) / 2)
                           | (now - state["since"] > _HELD_SECONDS))  # fmt: skip
        state["seconds"][over] = np.where(now - state["since"][over] > _HELD_SECONDS, 0, state["seconds"][over])
        state["since"][over] = np.nan
        state["worst"][over] = np.maximum(state["worst"], state["peak"])[over]
        # Record the peaks of deficits that have ended.
        known = present & (state["seconds"] >= _LEARN_SECONDS)
        state["peak"] = np.where(known[:, None], np.maximum(state["peak"], state["deficit"]), 0.0)
        ended = state["deficit"] < state["peak"] / 2  # before that it may be a growing fault
        state["worst"][ended] = np.maximum(state["worst"], state["peak"])[ended]
        state["peak"][ended] = 0.0
        result: Flags = ~np.isnan(state["since"])[:, None] & np.isfinite(state["limit"])
        result[:, 1] &= ~result[:, 0]
        return result

    def _learn(self, elapsed: float, learning: Flags, moved: Floats, common: float) -> None:
        """Update the regression with the loads of a fetch.

        Args:
            elapsed: seconds since the last fetch.
            learning: mask of the nodes to update: those with a value and without a finding, shape (nodes,).
            moved: the distance of each node's load from its mean, percent, shape (nodes,).
            common: the change of load that is common to the cluster.
        """
        state = self._nodes.rows
        state["worst"] *= 0.5 ** (elapsed / _HABIT_SECONDS)
        memory_gain = _gain(elapsed, _MEMORY_SECONDS)
        with np.errstate(divide="ignore", invalid="ignore"):
            young = np.fmin(1.0, np.nan_to_num(elapsed / (state["seconds"] + elapsed)))
        gain = np.where(learning, np.maximum(memory_gain, young), 0.0)
        deviation = common - self._common_mean
        state["covariance"] += gain * (moved * deviation - state["covariance"])
        state["variance"] += gain * (moved * moved - state["variance"])
        state["mean"] += gain * moved
        state["seconds"][learning] += max(elapsed, 1e-3)
        self._common_mean += memory_gain * deviation
        self._common_variance += memory_gain * (deviation * deviation - self._common_variance)


def _gain(elapsed: float, half_life: float) -> float:
    """Return the weight of the newest value in an exponential average with the given half-life."""
    return 1.0 - float(0.5 ** (elapsed / half_life))
