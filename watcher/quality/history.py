"""What metrics were in the fetches before: the recent values of every node and series, and since when they stand.

Arrays throughout, nodes by series; one :meth:`FetchHistory.append` a fetch.
"""

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from watcher.model import NodeMetrics

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

_HABIT = 1 / 20  # what one fetch counts for in how often a value moves
_MIN_FETCHES = 10  # without which nothing is known of how often values move
_SERIES, _VALUE = attrgetter("name", "operator", "type"), attrgetter("value")
_SAME = 1e-9  # values this close are the same: snapshots are kept with 10 decimals


class FetchHistory:
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
        self._state, self._recent = self._blank(0, 0)

    def append(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Add a fetch. Time runs forward: one before the last begins a new past, as the clock was set back."""
        if now <= self.now:
            self.clear()
        values = self._read(nodes, now)
        self._fetches += 1
        state = self._state
        present = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            same = np.abs(values - state["value"]) <= _SAME
        ended = present & ~same
        state["longest"][ended] = np.fmax(state["longest"], self.now - state["since"])[ended]
        follows = present & ~np.isnan(state["value"])
        habit = max(_HABIT, 1 / max(1, self._fetches - 1))
        state["moving"][follows] += habit * (ended[follows] - state["moving"][follows])
        state["moved"][ended] = state["moving"][ended]
        state["since"] = np.where(same, state["since"], np.where(present, now, np.nan))
        state["seen"][present] = now
        state["value"] = values
        if now - self.times[self._slot] >= self._spacing:
            self._slot = (self._slot + 1) % self._depth
        self.times[self._slot] = now
        self._recent[:, self._slot] = values.T
        self.now = now

    @property
    def size_bytes(self) -> int:
        """The memory that the past takes."""
        return self._recent.nbytes + sum(each.nbytes for each in self._state.values())

    def __getitem__(self, name: str) -> Floats:
        """Return what is known of every node and series, shape (nodes, series).

        ``value``, NaN where the last fetch had none; ``since``, when the value became what it is; ``longest``, for
        how many seconds any value before it stayed the same; ``moving``, the share of fetches that changed it, recent
        ones counting most, 0 at first; ``moved``, that share when it became what it is; ``seen``, when there was a
        value last, NaN for never.
        """
        return self._state[name]

    def before(self, column: int) -> tuple[Floats, Floats]:
        """Return a series' recent values before the last fetch's, oldest first: shape (nodes, times), and times."""
        order = np.argsort(self.times)  # NaN come last
        order = order[: int((~np.isnan(self.times)).sum()) - 1]
        return self._recent[column, order].T, self.times[order]

    def moving(self) -> Floats:
        """Return the share of fetches that changed each node's values before they came to what they are.

        Of each node the value that changes most often counts; a node that never moved is left out. Empty while little
        is known.
        """
        share: Floats = np.fmax.reduce(self._state["moved"], axis=1, initial=0)
        return share[share > 0] if self._fetches >= _MIN_FETCHES else share[:0]

    def _read(self, nodes: Mapping[str, NodeMetrics], now: float) -> Floats:
        """Return the values, after giving new nodes and series a place and taking it from those unseen for long."""
        groups = alike(nodes)
        self._place(nodes, {(name, operator): type_ for series in groups for name, operator, type_ in series}, now)
        values = np.full((len(self.nodes), len(self.series)), np.nan)
        for series, (names, numbers) in groups.items():
            rows = [self.nodes[name] for name in names]
            columns = [self.series[name, operator] for name, operator, _ in series]
            values[np.ix_(rows, columns)] = np.array(numbers, float).reshape(len(rows), len(columns))
        return values

    def _place(self, nodes: Collection[str], found: Mapping[tuple[str, str], str], now: float) -> None:
        """Give new nodes and series a place, and take it from those unseen for long.

        Args:
            nodes: that there are.
            found: series to resource, of those that there are.
            now: unix seconds.
        """
        kept = self._state["seen"] >= now - self._forget
        lasting_rows: Flags = np.logical_or.reduce(kept, axis=1)
        lasting_columns: Flags = np.logical_or.reduce(kept, axis=0)
        rows = [name for name, row in self.nodes.items() if lasting_rows[row] or name in nodes]
        columns = [key for key, column in self.series.items() if lasting_columns[column] or key in found]
        new_rows = [name for name in nodes if name not in self.nodes]
        new_columns = [key for key in found if key not in self.series]
        if not (new_rows or new_columns or len(rows) < len(self.nodes) or len(columns) < len(self.series)):
            return
        old_rows = [self.nodes[name] for name in rows]
        old_columns = [self.series[key] for key in columns]
        state, recent = self._blank(len(rows) + len(new_rows), len(columns) + len(new_columns))
        for name, values in state.items():
            values[: len(rows), : len(columns)] = self._state[name][np.ix_(old_rows, old_columns)]
        recent[: len(columns), :, : len(rows)] = self._recent[np.ix_(old_columns, range(self._depth), old_rows)]
        self._state, self._recent = state, recent
        self.types = [*(self.types[old] for old in old_columns), *(found[key] for key in new_columns)]
        self.nodes = {name: row for row, name in enumerate([*rows, *new_rows])}
        self.series = {key: column for column, key in enumerate([*columns, *new_columns])}

    def _blank(self, rows: int, columns: int) -> tuple[dict[str, Floats], Floats]:
        """Return what is known of so many nodes and series, and their recent values: (series, times, nodes)."""
        state: dict[str, Floats] = {name: np.zeros((rows, columns)) for name in ("longest", "moving", "moved")}
        state |= {name: np.full((rows, columns), np.nan) for name in ("value", "since", "seen")}
        return state, np.full((columns, self._depth, rows), np.nan, np.float32)


def alike(nodes: Mapping[str, NodeMetrics]) -> dict[tuple[tuple[str, str, str], ...], tuple[list[str], list[float]]]:
    """Return the nodes by what they have: name, operator and resource of its series, to their names and values.

    The values are those of the first node's series, then those of the second's, and so on.
    """
    groups: dict[tuple[tuple[str, str, str], ...], tuple[list[str], list[float]]] = {}
    last: tuple[tuple[str, str, str], ...] | None = None
    for name, node in nodes.items():
        series = tuple(map(_SERIES, node.metrics))
        if series != last:  # to compare is faster than to hash, and neighbours are mostly alike
            last, (names, numbers) = series, groups.setdefault(series, ([], []))
        names.append(name)
        numbers += map(_VALUE, node.metrics)
    return groups
