"""Flatlines: CPU load of exactly 0 on a live node, and loads that vary much less than they used to.

Possible causes are a CPU counter that is no longer read, and averages since boot instead of over the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_WARM_SECONDS = 3600.0  # observation time before a load of 0 can be a finding
_STILL_WARM_SECONDS = 6 * 3600.0  # observation time before a still load can be a finding
_HELD_SECONDS = 12 * 3600.0  # maximum duration of a finding; afterwards the state counts as normal
_REST_FETCHES = 30  # number of recent fetches over which the movement is measured
_STILL_SHARE = 0.2  # a load is still below this share of its smallest movement in the past
_MIN_MOVE_PERCENT = 1.0  # nodes that move less may be idle
_MIN_LEVEL, _MAX_LEVEL = 10.0, 95.0  # percent; idle and full machines may be still
_MIN_USUAL_PERCENT = 2.0  # an idle machine may be at 0, which does no harm
_HABIT = 1 / 60  # weight of a fetch in the usual load
_RARE = 0.02  # maximum share of nodes that were ever at 0, if no other metric shows that the node is alive
_FORGET = 0.5 ** (1 / 10080)  # decay of the smallest movement in a fetch: half in a week of minutes

_BLANK = blank(
    [
        ("seconds", "f8"),  # observation time
        ("was_zero", "?"),  # whether the node was at 0 in its first hour, or for longer than a finding lasts
        ("zero_since", "f8"),
        ("usual", "f8"),  # average load while it is not 0, percent
        ("least", "f8"),  # smallest movement of the load, percent; NaN until one is known
        ("still_since", "f8"),
    ],
    zero_since=np.nan,
    least=np.nan,
    still_since=np.nan,
)


@dataclass(frozen=True, slots=True)
class FlatNodes:
    """Start of each node's flatline, Unix seconds, shape (nodes,); NaN for nodes without a flatline.

    Attributes:
        zero: starts of loads of exactly 0.
        still: starts of loads that hardly vary.
    """

    zero: Floats
    still: Floats


class Flatlines:
    """Detector of flatlines in one metric of all nodes."""

    def __init__(self) -> None:
        self._nodes = NodeStates(_BLANK)
        self._now = float("nan")

    def judge(self, now: float, names: Sequence[str], values: Floats, recent: Floats, alive: Flags) -> FlatNodes:
        """Return the flatlines in a fetch, and update each node's usual load.

        Args:
            now: time of the fetch, Unix seconds, later than in the last call.
            names: the nodes' names.
            values: percent, shape (nodes,); NaN where there is no value.
            recent: values of earlier fetches, oldest first, shape (nodes, times).
            alive: mask of the nodes with another metric that is not 0, which shows that the node runs, shape (nodes,).
        """
        state = self._nodes.align(now, names)
        elapsed = 0.0 if np.isnan(self._now) else max(0.0, now - self._now)
        self._now = now
        present = ~np.isnan(values)
        state["seconds"][present] += elapsed
        zero = self._zero(now, values, alive)
        return FlatNodes(zero, self._still(now, values, recent))

    def _zero(self, now: float, values: Floats, alive: Flags) -> Floats:
        state = self._nodes.rows
        zero = values == 0
        moved = np.where(values > 0, values - state["usual"], 0.0)
        state["usual"] += np.where(state["usual"] > 0, _HABIT, 1.0) * moved
        cold = zero & (state["seconds"] < _WARM_SECONDS)
        state["was_zero"] |= cold | (now - state["zero_since"] > _HELD_SECONDS)
        state["zero_since"] = np.where(zero, np.fmin(state["zero_since"], now), np.nan)
        # Report a node that was busy and never at 0, if other metrics or nearly all other nodes are not at 0.
        busy = state["usual"] >= _MIN_USUAL_PERCENT
        unexpected = zero & busy & ~state["was_zero"] & (alive | (state["was_zero"].mean() < _RARE))
        result: Floats = np.where(unexpected, state["zero_since"], np.nan)
        return result

    def _still(self, now: float, values: Floats, recent: Floats) -> Floats:
        state = self._nodes.rows
        if recent.shape[1] < _REST_FETCHES:
            return np.full(len(values), np.nan)
        span = np.concatenate([recent[:, -_REST_FETCHES:], values[:, None]], axis=1)
        moved = span.max(axis=1) - span.min(axis=1)  # NaN where a value is missing
        # A finding begins below a share of the smallest movement in the past, and ends above that movement.
        warm = (state["seconds"] >= _STILL_WARM_SECONDS) & (state["least"] >= _MIN_MOVE_PERCENT)
        with np.errstate(invalid="ignore"):
            still = warm & (moved < _STILL_SHARE * state["least"]) & (values > _MIN_LEVEL) & (values < _MAX_LEVEL)
            held = ~np.isnan(state["still_since"]) & (moved < state["least"])
        state["still_since"] = np.where(still | held, np.fmin(state["still_since"], now), np.nan)
        state["still_since"][now - state["still_since"] > _HELD_SECONDS] = np.nan
        # Only normal nodes update the smallest movement, which slowly grows so that old values are forgotten.
        normal = np.isnan(state["still_since"])
        state["least"][normal] = np.fmin(state["least"] / _FORGET, moved)[normal]
        return state["still_since"].copy()
