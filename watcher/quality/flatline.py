"""Values that live no more: CPU at exactly 0 while the node lives, and levels that hardly move as they used to.

Counters that are not read any more, and averages since the boot instead of over the window, look like that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_WARM_SECONDS = 3600.0  # how long a node is watched before anything is said of it
_STILL_WARM_SECONDS = 6 * 3600.0
_HELD_SECONDS = 12 * 3600.0  # after so long it is how the node is
_REST_FETCHES = 30  # over so many recent fetches a level moves
_STILL_SHARE = 0.2  # of the least that a level ever moved
_MIN_MOVE_PERCENT = 1.0  # what moves less may be idle
_MIN_LEVEL, _MAX_LEVEL = 10.0, 95.0  # idle and full machines may rest
_MIN_USUAL_PERCENT = 2.0  # an idle machine may be at 0, and misleads nobody
_HABIT = 1 / 60  # what a fetch counts for in the usual level
_RARE = 0.02  # share of nodes that may have been at 0, where nothing else tells that a node lives
_FORGET = 0.5 ** (1 / 10080)  # a fetch, of the least that a level moved: half in a week of minutes

_BLANK = blank(
    [
        ("seconds", "f8"),  # watched
        ("was_zero", "?"),  # ever, for longer than a finding is held
        ("zero_since", "f8"),
        ("usual", "f8"),  # level while it is not at 0, percent
        ("least", "f8"),  # that the level moved, percent
        ("still_since", "f8"),
    ],
    zero_since=np.nan,
    least=np.inf,
    still_since=np.nan,
)


@dataclass(frozen=True, slots=True)
class Flat:
    """Which nodes' values live no more, and since when: unix seconds, NaN for the others."""

    zero: Floats
    still: Floats


class Flatlines:
    """The levels of one metric at all nodes, and which have been at 0, or still, before."""

    def __init__(self) -> None:
        self._nodes = NodeStates(_BLANK)
        self._now = float("nan")

    def judge(self, now: float, names: Sequence[str], values: Floats, recent: Floats, alive: Flags) -> Flat:
        """Judge the levels of a fetch, which become part of the past.

        Args:
            now: unix seconds, later than the last.
            names: of the nodes.
            values: (nodes,) percent; NaN where there is none.
            recent: (nodes, times) those of earlier fetches, oldest first.
            alive: (nodes,) whether other metrics show that the node lives.
        """
        state = self._nodes.align(now, names)
        elapsed = 0.0 if np.isnan(self._now) else max(0.0, now - self._now)
        self._now = now
        present = ~np.isnan(values)
        state["seconds"][present] += elapsed
        zero = self._zero(now, values, alive)
        return Flat(zero, self._still(now, values, recent))

    def _zero(self, now: float, values: Floats, alive: Flags) -> Floats:
        state = self._nodes.rows
        zero = values == 0
        moved = np.where(values > 0, values - state["usual"], 0.0)
        state["usual"] += np.where(state["usual"] > 0, _HABIT, 1.0) * moved
        cold = zero & (state["seconds"] < _WARM_SECONDS)
        state["was_zero"] |= cold | (now - state["zero_since"] > _HELD_SECONDS)
        state["zero_since"] = np.where(zero, np.fmin(state["zero_since"], now), np.nan)
        busy = state["usual"] >= _MIN_USUAL_PERCENT
        strange = zero & busy & ~state["was_zero"] & (alive | (state["was_zero"].mean() < _RARE))
        found: Floats = np.where(strange, state["zero_since"], np.nan)
        return found

    def _still(self, now: float, values: Floats, recent: Floats) -> Floats:
        state = self._nodes.rows
        if recent.shape[1] < _REST_FETCHES:
            return np.full(len(values), np.nan)
        span = np.concatenate([recent[:, -_REST_FETCHES:], values[:, None]], axis=1)
        moved = span.max(axis=1) - span.min(axis=1)  # NaN where a value is missing
        warm = (state["seconds"] >= _STILL_WARM_SECONDS) & (state["least"] >= _MIN_MOVE_PERCENT)
        with np.errstate(invalid="ignore"):
            still = warm & (moved < _STILL_SHARE * state["least"]) & (values > _MIN_LEVEL) & (values < _MAX_LEVEL)
            held = ~np.isnan(state["still_since"]) & (moved < state["least"])
        state["still_since"] = np.where(still | held, np.fmin(state["still_since"], now), np.nan)
        state["still_since"][now - state["still_since"] > _HELD_SECONDS] = np.nan
        free = np.isnan(state["still_since"])
        state["least"][free] = np.fmin(state["least"] / _FORGET, moved)[free]
        return state["still_since"].copy()
