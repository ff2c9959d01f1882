"""What a second source says of the same nodes, and which nodes it contradicts for long.

Two sources never agree to the point: they look at other moments, over other spans, and count other things. So a node is
held against what is usual between the two in this cluster, over several fetches, and leaving room for one that is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_FETCHES = 3  # in a row that contradict; fewer is chance
_CALM_FETCHES = 60  # in a row that agree, for it to be over: what is wrong hardly shows while a node idles
_LATE_FETCHES = 8  # the second source may be so late: its values of so many fetches count
_DEVIATIONS = 6.0  # robust ones, from what is usual
_MOST = 0.9  # share of the nodes that a deviation is told by: it is 0 at most of them,
_MOST_DEVIATIONS = 1.645  # and of a normal so many contain them
_MEMORY_SECONDS = 24 * 3600.0  # half-life of what is usual
_PRIOR_SECONDS = 1800.0  # what sources are trusted to agree at first counts for as long
_MIN_NODES = 5

_BLANK = blank(
    [
        ("ours", "f8", (_LATE_FETCHES,)),
        ("theirs", "f8", (_LATE_FETCHES,)),
        ("streak", "i4"),
        ("calm", "i4"),
        ("since", "f8"),
    ],
    ours=np.nan,
    theirs=np.nan,
    since=np.nan,
)


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Which nodes the second source contradicts.

    Attributes:
        found: (nodes,) for several fetches, until they agree for long.
        usual: (nodes,) what would be usual here where the second source is right, percent.
        since: (nodes,) unix seconds; NaN for the others.
    """

    found: Flags
    usual: Floats
    since: Floats


class Corroboration:
    """One metric of all nodes at two sources.

    Args:
        bound_percent: what differs by no more than this is no contradiction.
    """

    def __init__(self, bound_percent: float) -> None:
        self._bound = bound_percent
        self._nodes = NodeStates(_BLANK)
        self._offset = self._slope_off = 0.0
        self._spread = bound_percent / _DEVIATIONS
        self._seconds = _PRIOR_SECONDS
        self._now = float("nan")

    def judge(self, now: float, names: Sequence[str], ours: Floats, theirs: Floats) -> Contradictions:
        """Hold a fetch of both sources against what is usual between them; it becomes part of that.

        Args:
            now: unix seconds.
            names: of the nodes.
            ours: (nodes,) percent; NaN where there is none.
            theirs: (nodes,) the second source's.
        """
        state = self._nodes.align(now, names)
        elapsed = 0.0 if np.isnan(self._now) else max(0.0, now - self._now)
        self._now = now
        for field, values in (("ours", ours), ("theirs", theirs)):
            state[field] = np.concatenate([state[field][:, 1:], values[:, None]], axis=1)
        known = ~np.isnan(ours) & ~np.isnan(theirs)
        usual = theirs * (1 + self._slope_off) + self._offset
        differs = np.where(known, self._apart(), 0.0)
        limit = max(self._bound, _DEVIATIONS * self._spread)
        with np.errstate(invalid="ignore"):
            beyond = known & (np.abs(differs) > limit)
        # What could not be seen is neither for nor against it.
        found = state["streak"] >= _FETCHES
        state["calm"] = np.where(known, np.where(beyond, 0, state["calm"] + 1), state["calm"])
        over = ~beyond & (~found | (state["calm"] >= _CALM_FETCHES)) & known
        state["streak"] = np.where(over, 0, state["streak"] + beyond)
        state["since"] = np.where(state["streak"] > 0, np.fmin(state["since"], now), np.nan)
        found = state["streak"] >= _FETCHES
        self._learn(elapsed, known & ~found, theirs, ours - usual, differs)
        return Contradictions(found, np.clip(usual, 0, 100), state["since"].copy())

    def _apart(self) -> Floats:
        """Return by how much ours lie outside of what theirs were within the last fetches, and the other way round."""
        state = self._nodes.rows
        usual = state["theirs"] * (1 + self._slope_off) + self._offset
        ahead = _outside(state["ours"][:, -1], usual)
        behind = -_outside(usual[:, -1], state["ours"])
        nearer: Floats = np.where(np.abs(ahead) <= np.abs(behind), ahead, behind)
        return nearer

    def _learn(self, elapsed: float, agreeing: Flags, theirs: Floats, off: Floats, differs: Floats) -> None:
        """Make a fetch part of what is usual, of the nodes that nothing is found of.

        Offset and slope go by all of a difference, the spread by what the room for a late source leaves of it.
        """
        if agreeing.sum() < _MIN_NODES:
            return
        self._seconds += elapsed
        gain = max(1 - 0.5 ** (elapsed / _MEMORY_SECONDS), elapsed / self._seconds)
        off = off[agreeing]
        self._offset += gain * float(np.clip(np.median(off), -self._bound, self._bound))
        level = theirs[agreeing] - np.median(theirs[agreeing])
        weight = float((level**2).sum())
        if weight > 0:
            clipped = np.clip(off - np.median(off), -self._bound, self._bound)
            self._slope_off += gain * float((clipped * level).sum()) / (weight + 100.0 * len(level))
        most = float(np.quantile(np.abs(differs[agreeing]), _MOST)) / _MOST_DEVIATIONS
        self._spread += gain * (most - self._spread)


def _outside(values: Floats, others: Floats) -> Floats:
    """Return the signed distance of each value, (nodes,) or (nodes, times), from the span of others, 0 within it."""
    with np.errstate(invalid="ignore"):
        low, high = np.fmin.reduce(others, axis=-1), np.fmax.reduce(others, axis=-1)
        result: Floats = np.where(values > high, values - high, np.where(values < low, values - low, 0.0))
    return result
