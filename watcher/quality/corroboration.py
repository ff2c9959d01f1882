"""What a second source says of the same nodes, and which nodes it contradicts for long.

Two sources never agree to the point: they look at other moments, over other spans, and count other things. So what the
second source says is held against what it usually makes of the first one's last fetches, in this cluster, and over
several fetches. While that is not known, or where it is not enough, there is room for one that is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watcher.quality.history import Flags, Floats
from watcher.quality.node_states import NodeStates, blank

_FETCHES = 3  # in a row that contradict; fewer is chance
_CALM_FETCHES = 60  # in a row that agree, for it to be over: what is wrong hardly shows while a node idles
_LATE_FETCHES = 8  # the second source may be so late: the values of so many fetches count
_DEVIATIONS = 6.0  # robust ones, from what is usual
_MOST = 0.9  # share of the nodes that a deviation is told by: it is 0 at most of them,
_MOST_DEVIATIONS = 1.645  # and of a normal so many contain them
_MEMORY_SECONDS = 24 * 3600.0  # half-life of what is usual
_PRIOR_SECONDS = 1800.0  # what sources are trusted to agree at first counts for as long
_PRIOR_SQUARE = 1000.0  # percent squared: as if loads around 30 percent had been seen that stay and agree
_PRIOR_MOVES = 0.1  # percent squared: and loads that move by so little, and show at once
_MOVES = 200  # fetches of nodes that moved, before less than all the room may be enough
_RARELY = 1e-3  # share of those that may contradict,
_MOST_OF_FETCH = 0.01  # and share of a fetch's that counts
_MIN_NODES = 5
_MIN_LEVEL = 5.0  # percent; ratios of less are noise

_BLANK = blank(
    [
        ("ours", "f8", (_LATE_FETCHES,)),  # the newest first
        ("usual", "f8", (_LATE_FETCHES,)),  # what the second source usually says where ours are like that
        ("theirs", "f8", (_LATE_FETCHES,)),
        ("at", "f8"),  # when it was among the nodes last
        ("seen", "?"),  # at ours, ever
        ("streak", "i4"),
        ("calm", "i4"),
        ("since", "f8"),
    ],
    ours=np.nan,
    usual=np.nan,
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
        self._filter = _Filter(_LATE_FETCHES)
        self._spread = bound_percent / _DEVIATIONS
        self._scale_spread = bound_percent / 100 / _DEVIATIONS
        self._moves = 0.0  # fetches of nodes that moved by more than the limit,
        self._beyond = np.zeros(_LATE_FETCHES)  # and those that would have been contradictions, by room
        self._seconds = 0.0
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
        back = state["seen"] & (state["at"] < self._now)
        for field in ("ours", "usual", "theirs"):  # what it did while it was gone is not known
            state[field][back] = np.nan
        state["at"] = self._now = now
        _push(state["ours"], ours)
        _push(state["theirs"], theirs)
        new = ~state["seen"] & ~np.isnan(ours)
        state["ours"][new] = ours[new, None]  # nobody knows better; what was missing once is not guessed
        state["seen"] |= new
        _push(state["usual"], self._filter(state["ours"]))
        known = ~np.isnan(state["usual"][:, 0]) & ~np.isnan(theirs)
        apart = np.where(known, self._apart(), 0.0)
        room, limit = self._room(), max(self._bound, _DEVIATIONS * self._spread)
        scale = self._scale(known) if self._seconds >= 2 * _PRIOR_SECONDS else 1.0
        all_ = abs(scale - 1) > max(self._bound / 100, _DEVIATIONS * self._scale_spread)
        beyond = known & ((np.abs(apart[room]) > limit) | all_)
        # What could not be seen is neither for nor against it.
        found = state["streak"] >= _FETCHES
        state["calm"] = np.where(known, np.where(beyond, 0, state["calm"] + 1), state["calm"])
        over = ~beyond & (~found | (state["calm"] >= _CALM_FETCHES)) & known
        state["streak"] = np.where(over, 0, state["streak"] + beyond)
        state["since"] = np.where(state["streak"] > 0, np.fmin(state["since"], now), np.nan)
        found = state["streak"] >= _FETCHES
        if not all_ and (known & ~found).sum() >= _MIN_NODES:
            self._learn(elapsed, known & ~found, apart, limit, room, scale)
        return Contradictions(found, self._filter.inverse(theirs), state["since"].copy())

    def _apart(self) -> Floats:
        """Return how far theirs are from what is usual, or were within the last fetches, or the other way round.

        Returns:
            (rooms, nodes) percent, leaving room for a source that is 0 fetches late, 1, ...: the nearer of both ways.
        """
        state = self._nodes.rows
        usual, theirs = np.ascontiguousarray(state["usual"].T), np.ascontiguousarray(state["theirs"].T)
        ahead, behind = _outside(usual[0], theirs), -_outside(theirs[0], usual)
        nearer: Floats = np.where(np.abs(ahead) <= np.abs(behind), ahead, behind)
        return nearer

    def _room(self) -> int:
        """Return the least room that was enough for nodes that moved; all there is while few have."""
        enough = np.flatnonzero(self._beyond <= _RARELY * self._moves)
        return int(enough[0]) if len(enough) and self._moves >= _MOVES else _LATE_FETCHES - 1

    def _scale(self, known: Flags) -> float:
        """Return theirs as a multiple of what is usual, of the median node: 1 but where all of a source is wrong."""
        state = self._nodes.rows
        usual, theirs = state["usual"][known, 0], state["theirs"][known, 0]
        telling = (usual >= _MIN_LEVEL) & (theirs >= _MIN_LEVEL)
        return float(np.median(theirs[telling] / usual[telling])) if telling.sum() >= _MIN_NODES else 1.0

    def _learn(self, elapsed: float, agreeing: Flags, apart: Floats, limit: float, room: int, scale: float) -> None:
        """Make a fetch part of what is usual, of the nodes that nothing is found of."""
        state = self._nodes.rows
        self._seconds += elapsed
        forgets = 1 - float(0.5 ** (elapsed / _MEMORY_SECONDS))
        gain = max(forgets, elapsed / (self._seconds + _PRIOR_SECONDS))
        self._filter.learn(gain, state["ours"][agreeing], state["theirs"][agreeing, 0])
        moved = agreeing & (np.ptp(state["usual"], axis=1) > limit)
        self._moves += int(moved.sum()) - forgets * self._moves
        # All that a fetch may count for: a fault of many nodes shows at once, a source that is late all the time.
        most_of_fetch = _MOST_OF_FETCH * moved.sum()
        beyond = np.minimum((np.abs(apart[:, moved]) > limit).sum(axis=1), most_of_fetch)
        self._beyond += beyond - forgets * self._beyond
        most = float(np.quantile(np.abs(apart[room, agreeing]), _MOST)) / _MOST_DEVIATIONS
        self._spread += gain * (most - self._spread)
        self._scale_spread += gain * (abs(scale - 1) - self._scale_spread)


class _Filter:
    """What a second source usually makes of the first one's last values: a weight for each, and an offset.

    The weights are those of least squares, over what is remembered; so they tell how late the second source is, and
    over how long it averages.
    """

    def __init__(self, length: int) -> None:
        self._weights = np.eye(1, length + 1)[0]  # both are the same
        self._inputs = _PRIOR_MOVES * np.eye(length + 1)
        self._inputs[:-1, :-1] += _PRIOR_SQUARE
        self._inputs[-1, -1] = 1.0
        self._outputs = self._inputs @ self._weights
        self._trust = _PRIOR_MOVES * np.eye(length + 1), _PRIOR_MOVES * self._weights

    def __call__(self, ours: Floats) -> Floats:
        """Return what is usual, (nodes,); ours are (nodes, times), the newest first, NaN where one is missing."""
        result: Floats = ours @ self._weights[:-1] + self._weights[-1]
        return result

    def inverse(self, theirs: Floats) -> Floats:
        """Return what ours would usually be, (nodes,) percent, where theirs have been the same for long."""
        result: Floats = np.clip((theirs - self._weights[-1]) / max(self._weights[:-1].sum(), 0.1), 0, 100)
        return result

    def learn(self, gain: float, ours: Floats, theirs: Floats) -> None:
        """Make a fetch part of what is usual; theirs are (nodes,)."""
        usable = ~np.isnan(ours).any(axis=1)
        if not usable.any():
            return
        inputs = np.column_stack([ours[usable], np.ones(int(usable.sum()))])
        self._inputs += gain * (inputs.T @ inputs / len(inputs) - self._inputs)
        self._outputs += gain * (inputs.T @ theirs[usable] / len(inputs) - self._outputs)
        inputs, outputs = self._trust
        self._weights = np.linalg.solve(self._inputs + inputs, self._outputs + outputs)


def _push(values: Floats, newest: Floats) -> None:
    """Put the newest first; the oldest goes."""
    values[:, 1:] = values[:, :-1].copy()
    values[:, 0] = newest


def _outside(values: Floats, others: Floats) -> Floats:
    """Return the signed distance of each value, (nodes,), from the span of ever more others, (times, nodes)."""
    with np.errstate(invalid="ignore"):
        low, high = np.fmin.accumulate(others), np.fmax.accumulate(others)
        result: Floats = np.where(values > high, values - high, np.where(values < low, values - low, 0.0))
    return result
