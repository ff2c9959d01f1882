"""What metrics were in the fetches before: the recent values of every node and series, and since when they stand.

Arrays throughout, nodes by series; one :meth:`History.append` a fetch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from watcher.model import NodeMetrics

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

_HABIT = 1 / 20  # what one fetch counts for in how often a value moves
_MIN_FETCHES = 10  # without which nothing is known of how often values move
_SAME = 1e-9  # values this close are the same: snapshots are kept with 10 decimals


class History:
    """The past of one window. A series is a metric's name and operator.

    The memory it takes is bounded: ``depth`` values and six numbers for each node and series that was there within
    ``forget_seconds``, 12 MB for 5,000 nodes of 8 series and 60 fetches.

    Attributes:
        nodes: node name to row.
        series: (metric name, operator) to column.
        types: each column's resource.
        times: when each of the recent values was fetched, unix seconds; NaN where there is none yet; not in order.
    """

    def __init__(self, depth: int, spacing_seconds: float, forget_seconds: float) -> None:
        """Begin without a past.

        Args:
            depth: how many fetches to keep the values of.
            spacing_seconds: fetches that follow sooner than this share a place among the recent ones.
            forget_seconds: nodes and series that were not seen for longer leave no trace.
        """
        self._spacing = spacing_seconds
        self._forget = forget_seconds
        self._dtype = np.dtype(
            [
                ("value", "f8"),  # in the last fetch
                ("since", "f8"),  # when it became what it is
                ("longest", "f8"),  # seconds that any earlier value stayed the same
                ("moving", "f8"),  # the share of fetches that changed it, recent ones counting most; 0 at first
                ("moved", "f8"),  # that share when it became what it is
                ("seen", "f8"),  # when there was a value last
                ("recent", "f4", (depth,)),
            ]
        )
        self._depth = depth
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.nodes: dict[str, int] = {}
        self.series: dict[tuple[str, str], int] = {}
        self.types: list[str] = []
        self.times = np.full(self._depth, np.nan)
        self.now = -np.inf
        self._slot = self._fetches = 0
        self._state = self._blank(0, 0)

    def append(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Add a fetch. Time runs forward: one before the last begins a new past, as the clock was set back."""
        if now <= self.now:
            self.clear()
        values = self._read(nodes, now)
        self._fetches += 1
        state = self._state
        present = ~np.isnan(values)
        same = np.abs(values - state["value"]) <= _SAME
        ended = present & ~same
        state["longest"][ended] = np.fmax(state["longest"], self.now - state["since"])[ended]
        follows = present & ~np.isnan(state["value"])
        habit = max(_HABIT, 1 / max(1, self._fetches - 1))
        state["moving"][follows] += habit * (ended - state["moving"])[follows]
        state["moved"][ended] = state["moving"][ended]
        state["since"] = np.where(same, state["since"], np.where(present, now, np.nan))
        state["seen"][present] = now
        state["value"] = values
        if now - self.times[self._slot] >= self._spacing:
            self._slot = (self._slot + 1) % self._depth
        self.times[self._slot] = now
        state["recent"][:, :, self._slot] = values
        self.now = now

    @property
    def size_bytes(self) -> int:
        """The memory that the past takes."""
        return self._state.nbytes

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return what is known of every node and series, shape (nodes, series).

        ``value``, NaN where the last fetch had none; ``since``, when the value became what it is; ``longest``, for
        how many seconds any value before it stayed the same; ``seen``, when there was a value last, NaN for never.
        """
        found: npt.NDArray[Any] = self._state[name]
        return found

    def before(self, columns: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return the recent values before the last fetch's, oldest first: shape (nodes, columns, times), and times."""
        order = np.argsort(self.times)  # NaN come last
        order = order[: int((~np.isnan(self.times)).sum()) - 1]
        return self._state["recent"][:, columns[:, None], order], self.times[order]

    def moving(self) -> Floats:
        """Return the share of fetches that changed each node's values before they came to what they are.

        Of each node the value that changes most often counts; a node that never moved is left out. Empty while little
        is known.
        """
        share: Floats = np.fmax.reduce(self._state["moved"], axis=1, initial=0)
        return share[share > 0] if self._fetches >= _MIN_FETCHES else share[:0]

    def _read(self, nodes: Mapping[str, NodeMetrics], now: float) -> Floats:
        """Return the values, after giving new nodes and series a place and taking it from those unseen for long."""
        metrics = [metric for node in nodes.values() for metric in node.metrics]
        keys = [(metric.name, metric.operator) for metric in metrics]
        found = dict(zip(keys, metrics, strict=True))
        kept = self._state["seen"] >= now - self._forget
        lasting_rows: Flags = np.logical_or.reduce(kept, axis=1)
        lasting_columns: Flags = np.logical_or.reduce(kept, axis=0)
        rows = [name for name, row in self.nodes.items() if name in nodes or lasting_rows[row]]
        columns = [key for key, column in self.series.items() if key in found or lasting_columns[column]]
        new_rows = [name for name in nodes if name not in self.nodes]
        new_columns = [key for key in found if key not in self.series]
        if new_rows or new_columns or len(rows) < len(self.nodes) or len(columns) < len(self.series):
            old_rows = [self.nodes[name] for name in rows]
            old_columns = [self.series[key] for key in columns]
            state = self._blank(len(rows) + len(new_rows), len(columns) + len(new_columns))
            state[: len(rows), : len(columns)] = self._state[np.ix_(old_rows, old_columns)]
            self._state = state
            self.types = [*(self.types[old] for old in old_columns), *(found[key].type for key in new_columns)]
            self.nodes = {name: row for row, name in enumerate([*rows, *new_rows])}
            self.series = {key: column for column, key in enumerate([*columns, *new_columns])}
        values = np.full(self._state.shape, np.nan)
        if not metrics:
            return values
        repeated = [len(node.metrics) for node in nodes.values()]
        at_rows = np.repeat([self.nodes[name] for name in nodes], repeated)
        at_columns = [self.series[key] for key in keys]
        values[at_rows, at_columns] = [metric.value for metric in metrics]
        return values

    def _blank(self, rows: int, columns: int) -> npt.NDArray[Any]:
        state = np.zeros((rows, columns), self._dtype)
        for name in ("value", "since", "seen", "recent"):
            state[name] = np.nan
        return state
