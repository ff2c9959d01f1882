"""Per-node state of a detector, one row for each node; rows survive when other nodes join or leave the cluster."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_PARKED_SECONDS = 24 * 3600.0  # a node that returns after a longer absence counts as new
_MOST_PARKED = 2  # absent nodes whose rows are kept, per present node: names may change all the time
_FEW = 1000  # absent nodes whose rows are kept in any case


class NodeStates:
    """Structured array with one row for each node.

    Attributes:
        rows: the rows of the nodes in the last call of :meth:`align`, in the same order; modify the array in place.
    """

    def __init__(self, blank: npt.NDArray[Any]) -> None:
        """Start without nodes.

        Args:
            blank: the initial row of a new node, a structured array of length 1.
        """
        self._blank = blank
        self._names: list[str] = []
        self._parked: dict[str, tuple[float, npt.NDArray[Any]]] = {}  # absent node to start of absence, and row
        self.rows = blank[:0]

    def align(self, now: float, names: Sequence[str]) -> npt.NDArray[Any]:
        """Return one row for each name, in order. Rows of absent nodes are kept for a day, in case the nodes return.

        Args:
            now: Unix seconds.
            names: the nodes' names.
        """
        if names != self._names:
            for name, row in zip(self._names, self.rows, strict=True):
                self._parked[name] = (now, row)
            rows = np.repeat(self._blank, len(names))
            for index, name in enumerate(names):
                if name in self._parked:
                    rows[index] = self._parked.pop(name)[1]
            self._names, self.rows = list(names), rows
            max_parked = max(_FEW, _MOST_PARKED * len(names))
            for name, (since, _) in list(self._parked.items()):  # in order of their absence, the longest first
                if len(self._parked) <= max_parked and now - since <= _PARKED_SECONDS:
                    break
                del self._parked[name]
        return self.rows


def blank(fields: Sequence[tuple[Any, ...]], **values: float) -> npt.NDArray[Any]:
    """Return a structured array of length 1, for :class:`NodeStates`.

    Args:
        fields: the array's fields, as numpy.dtype expects them.
        values: initial values by field; other fields are 0.
    """
    row = np.zeros(1, np.dtype(list(fields)))
    for name, value in values.items():
        row[name] = value
    return row
