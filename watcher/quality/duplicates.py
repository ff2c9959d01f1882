"""Two nodes that report the same series: equal to the last bit, again and again, while both change."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watcher.quality.history import Floats
from watcher.quality.node_states import NodeStates, blank

_EVIDENCE = 6  # times that two nodes changed to the same values; chance does it once or twice
_MIN_STEP = 1.0  # percent; smaller changes of idle nodes agree by chance
_NOBODY = -1

_BLANK = blank([("twin", "i8"), ("evidence", "i4"), ("value", "f8"), ("since", "f8")], twin=_NOBODY, value=np.nan)


class Duplicates:
    """One metric of all nodes, and which two have been equal for how long."""

    def __init__(self) -> None:
        self._nodes = NodeStates(_BLANK)

    def judge(self, now: float, names: Sequence[str], values: Floats) -> list[tuple[int, int, float]]:
        """Return the rows of both nodes, and since when they are equal, unix seconds.

        Args:
            now: unix seconds.
            names: of the nodes.
            values: (nodes, 2) average and deviation, percent; a deviation that is missing is 0.
        """
        state = self._nodes.align(now, names)
        ids = np.array([hash(name) for name in names], dtype=np.int64)
        twins, average = _twins(values), values[:, 0]
        with np.errstate(invalid="ignore"):
            moved = np.abs(average - state["value"]) >= _MIN_STEP
        state["value"] = np.where(moved | np.isnan(state["value"]), average, state["value"])
        known = _rows_of(state["twin"], ids)
        equal = (known != _NOBODY) & (values == values[known]).all(axis=1)
        # What a third node has by chance is no evidence, nor is it any against it.
        state["evidence"] = np.where(equal, state["evidence"] + (moved & (twins == known)), 0)
        state["since"] = np.where(equal, state["since"], now)
        met = np.where(twins == _NOBODY, _NOBODY, ids[twins])
        state["twin"] = np.where(equal, state["twin"], met)
        rows = np.flatnonzero(state["evidence"] >= _EVIDENCE)
        return [(int(row), int(known[row]), float(state["since"][row])) for row in rows if row < known[row]]


def _rows_of(wanted: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the row of each id, -1 for one that is not there."""
    if not len(ids):
        return np.zeros(0, dtype=np.intp)
    order = np.argsort(ids)
    at = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return np.where(ids[at] == wanted, at, _NOBODY)


def _twins(values: Floats) -> npt.NDArray[np.intp]:
    """Return for each row the one other row that is equal and not 0, or -1 where there is none or are several."""
    result = np.full(len(values), _NOBODY, dtype=np.intp)
    known = np.flatnonzero(values[:, 0] > 0)
    if len(known) < 2:
        return result
    order = known[np.lexsort(values[known].T)]
    equal = (values[order[1:]] == values[order[:-1]]).all(axis=1)
    before, after = np.concatenate([[False], equal]), np.concatenate([equal, [False]])
    pair = np.flatnonzero(after & ~before & ~np.concatenate([after[1:], [False]]))
    result[order[pair]], result[order[pair + 1]] = order[pair + 1], order[pair]
    return result
