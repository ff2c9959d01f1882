"""What is known of each node beyond its recent values: one row a node, kept while other nodes come and go."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_PARKED_SECONDS = 24 * 3600.0  # a node that is gone for longer comes back as a new one
_MOST_PARKED = 2  # times the nodes that there are, but a thousand at least: names may change all the time
_FEW = 1000


class NodeStates:
    """A structured array of one row a node.

    Attributes:
        rows: of the nodes that were named last; change it in place.
    """

    def __init__(self, blank: npt.NDArray[Any]) -> None:
        """Begin without nodes.

        Args:
            blank: what is known of a new node, an array of one row.
        """
        self._blank = blank
        self._names: list[str] = []
        self._parked: dict[str, tuple[float, npt.NDArray[Any]]] = {}  # since when gone, and its row
        self.rows = blank[:0]

    def align(self, now: float, names: Sequence[str]) -> npt.NDArray[Any]:
        """Return one row for each name; those of nodes that are not named are kept for a day, should they come back.

        Args:
            now: unix seconds.
            names: of the nodes.
        """
        if names != self._names:
            for name, row in zip(self._names, self.rows, strict=True):
                self._parked[name] = (now, row)
            rows = np.repeat(self._blank, len(names))
            for place, name in enumerate(names):
                if name in self._parked:
                    rows[place] = self._parked.pop(name)[1]
            self._names, self.rows = list(names), rows
            most = max(_FEW, _MOST_PARKED * len(names))
            for name, (since, _) in list(self._parked.items()):  # those gone for longest come first
                if len(self._parked) <= most and now - since <= _PARKED_SECONDS:
                    break
                del self._parked[name]
        return self.rows


def blank(fields: Sequence[tuple[Any, ...]], **values: float) -> npt.NDArray[Any]:
    """Return one row of 0 in every field but those that are given."""
    row = np.zeros(1, np.dtype(list(fields)))
    for name, value in values.items():
        row[name] = value
    return row
