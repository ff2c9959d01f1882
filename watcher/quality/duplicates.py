"""Pairs of nodes that report the same series: their values change, and are exactly equal after each change."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watcher.quality.history import Floats
from watcher.quality.node_states import NodeStates, blank

_EVIDENCE = 6  # required number of changes to equal values; one or two may be chance
_MIN_STEP = 1.0  # percent; smaller changes of idle nodes may be equal by chance
_NONE = -1

_BLANK = blank([("twin", "i8"), ("evidence", "i4"), ("value", "f8"), ("since", "f8")], twin=_NONE, value=np.nan)


class Duplicates:
    """Pairs of nodes with equal values of one metric, with the evidence for each pair."""

    def __init__(self) -> None:
        self._nodes = NodeStates(_BLANK)

    def judge(self, now: float, names: Sequence[str], values: Floats) -> list[tuple[int, int, float]]:
        """Update the evidence with a fetch, and return the pairs of nodes that report the same series.

        Args:
            now: time of the fetch, Unix seconds.
            names: the nodes' names.
            values: average and deviation in percent, shape (nodes, 2); 0 for a missing deviation.

        Returns:
            For each pair: the indices of both nodes, and the time since which they are equal, Unix seconds.
        """
        state = self._nodes.align(now, names)
        ids = np.array([hash(name) for name in names], dtype=np.int64)
        twins, average = _twins(values), values[:, 0]
        with np.errstate(invalid="ignore"):
            moved = np.abs(average - state["value"]) >= _MIN_STEP
        state["value"] = np.where(moved | np.isnan(state["value"]), average, state["value"])
        twin_rows = _rows_of(state["twin"], ids)
        equal = (twin_rows != _NONE) & (values == values[twin_rows]).all(axis=1)
        # While a third node is equal by chance, evidence is neither added nor removed.
        state["evidence"] = np.where(equal, state["evidence"] + (moved & (twins == twin_rows)), 0)
        state["since"] = np.where(equal, state["since"], now)
        current_twins = np.where(twins == _NONE, _NONE, ids[twins])
        state["twin"] = np.where(equal, state["twin"], current_twins)
        rows = np.flatnonzero(state["evidence"] >= _EVIDENCE)
        return [(int(row), int(twin_rows[row]), float(state["since"][row])) for row in rows if row < twin_rows[row]]


def _rows_of(requested: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the index in ``ids`` of each requested id; -1 for an id that is not there."""
    if not len(ids):
        return np.zeros(0, dtype=np.intp)
    order = np.argsort(ids)
    rows = order[np.minimum(np.searchsorted(ids[order], requested), len(ids) - 1)]
    return np.where(ids[rows] == requested, rows, _NONE)


def _twins(values: Floats) -> npt.NDArray[np.intp]:
    """Return for each row the index of its only equal row; -1 without one, with several, or for an average of 0.

    Args:
        values: average and deviation in percent, shape (nodes, 2).
    """
    result = np.full(len(values), _NONE, dtype=np.intp)
    candidates = np.flatnonzero(values[:, 0] > 0)
    if len(candidates) < 2:
        return result
    order = candidates[np.lexsort(values[candidates].T)]
    equal = (values[order[1:]] == values[order[:-1]]).all(axis=1)
    equals_previous, equals_next = np.concatenate([[False], equal]), np.concatenate([equal, [False]])
    pair = np.flatnonzero(equals_next & ~equals_previous & ~np.concatenate([equals_next[1:], [False]]))
    result[order[pair]], result[order[pair + 1]] = order[pair + 1], order[pair]
    return result
