"""Recent values of every node and series, and the time at which each value last changed.

The data are arrays with a row per node and a column per series; :meth:`FetchHistory.append` adds a fetch.
"""

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from watcher.model import NodeMetrics

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

_HABIT = 1 / 20  # weight of one fetch in the average frequency of changes
_MIN_FETCHES = 10  # minimum number of fetches before the average frequency is used
_SERIES, _VALUE = attrgetter("name", "operator", "type"), attrgetter("value")
_GAP = 20  # a longer time between fetches, in spacings, is a gap: an outage, or a jump of the clock
_SAME = 1e-9  # maximum difference of equal values: snapshots are stored with 10 decimals


class FetchHistory:
    """Recent values of all nodes over one window. A series is identified by a metric's name and operator.

    Memory is bounded: ``depth`` values and six numbers for each node and series that was present within
    ``forget_seconds``; 12 MB for 5,000 nodes with 8 series and 60 fetches.

    Attributes:
        nodes: node name to row.
        series: (metric name, operator) to column.
        types: each column's resource, such as ``CPU``.
        times: fetch time of each of the recent values, Unix seconds, shape (depth,), not in order (a ring buffer); NaN
            in unused places.
    """

    def __init__(self, depth: int, spacing_seconds: float, forget_seconds: float) -> None:
        """Start with an empty history.

        Args:
            depth: the number of fetches whose values are kept.
            spacing_seconds: a fetch that follows the previous one sooner overwrites the previous one's values.
            forget_seconds: nodes and series that are absent for longer are deleted.
        """
        self._spacing = spacing_seconds
        self._forget = forget_seconds
        self._depth = depth
        self.clear()

    def clear(self) -> None:
        """Delete the whole history."""
        self.nodes: dict[str, int] = {}
        self.series: dict[tuple[str, str], int] = {}
        self.types: list[str] = []
        self.times = np.full(self._depth, np.nan)
        self.now = -np.inf
        self._slot = self._fetches = 0
        self._state, self._recent = self._blank(0, 0)

    def append(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Add a fetch. A fetch that is not later than the last one starts a new history, as the clock was set back.

        The time of a long gap between two fetches does not count as time in which a value stayed constant.
        """
        if now <= self.now:
            self.clear()
        elapsed = now - self.now
        gap = elapsed if _GAP * self._spacing < elapsed < np.inf else 0.0
        values = self._read(nodes, now)
        self._fetches += 1
        state = self._state
        present = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            same = np.abs(values - state["value"]) <= _SAME
        # Record for how long values that change now stayed constant. A value after a gap has no predecessor.
        changed = present & ~same
        state["longest"][changed] = np.fmax(state["longest"], self.now - state["since"])[changed]
        has_predecessor = present & ~np.isnan(state["value"])
        weight = max(_HABIT, 1 / max(1, self._fetches - 1))
        state["moving"][has_predecessor] += weight * (changed[has_predecessor] - state["moving"][has_predecessor])
        state["moved"][changed] = state["moving"][changed]
        state["since"] = np.where(same, state["since"] + gap, np.where(present, now, np.nan))
        state["seen"][present] = now
        state["value"] = values
        # Fetches that follow too soon, such as retries, overwrite the newest place, so old values stay.
        if now - self.times[self._slot] >= self._spacing:
            self._slot = (self._slot + 1) % self._depth
        self.times[self._slot] = now
        self._recent[:, self._slot] = values.T
        self.now = now

    @property
    def size_bytes(self) -> int:
        """The memory used by the history."""
        return self._recent.nbytes + sum(array.nbytes for array in self._state.values())

    def __getitem__(self, name: str) -> Floats:
        """Return one property of every node and series, shape (nodes, series).

        Args:
            name: ``value`` (NaN if absent from the last fetch); ``since``, the time of the last change of the value;
                ``longest``, the longest time in seconds that an earlier value stayed constant; ``moving``, the share of
                fetches that changed the value, with the highest weight on recent ones, 0 at first; ``moved``, that
                share at the last change; ``seen``, the time of the last value, NaN for never.
        """
        return self._state[name]

    def before(self, column: int) -> tuple[Floats, Floats]:
        """Return the recent values of one series without those of the last fetch, and the times of these values.

        Args:
            column: the series' column.

        Returns:
            The values, oldest first, shape (nodes, times); and the fetch times, Unix seconds, shape (times,).
        """
        order = np.argsort(self.times)  # NaN come last
        order = order[: int((~np.isnan(self.times)).sum()) - 1]
        return self._recent[column, order].T, self.times[order]

    def moving(self) -> Floats:
        """Return, for each node, the share of fetches in which its values changed, counted up to the last change.

        Of a node's series the one that changes most often counts. Nodes whose values never changed are left out. The
        result, of shape (remaining nodes,), is empty until there were 10 fetches.
        """
        share: Floats = np.fmax.reduce(self._state["moved"], axis=1, initial=0)
        return share[share > 0] if self._fetches >= _MIN_FETCHES else share[:0]

    def _read(self, nodes: Mapping[str, NodeMetrics], now: float) -> Floats:
        """Return the values of a fetch, shape (nodes, series); NaN for a missing value.

        First add rows and columns for new nodes and series, and delete those that were absent for too long.
        """
        groups = group_by_series(nodes)
        self._place(nodes, {(name, operator): type_ for series in groups for name, operator, type_ in series}, now)
        values = np.full((len(self.nodes), len(self.series)), np.nan)
        for series, (names, numbers) in groups.items():
            rows = [self.nodes[name] for name in names]
            columns = [self.series[name, operator] for name, operator, _ in series]
            values[np.ix_(rows, columns)] = np.array(numbers, float).reshape(len(rows), len(columns))
        return values

    def _place(self, nodes: Collection[str], series_types: Mapping[tuple[str, str], str], now: float) -> None:
        """Add rows and columns for new nodes and series, and delete those that were absent for too long.

        Args:
            nodes: names of the nodes in the fetch.
            series_types: (metric name, operator) of each series in the fetch, to the series' resource.
            now: time of the fetch, Unix seconds.
        """
        recent_enough = self._state["seen"] >= now - self._forget
        kept_rows: Flags = np.logical_or.reduce(recent_enough, axis=1)
        kept_columns: Flags = np.logical_or.reduce(recent_enough, axis=0)
        rows = [name for name, row in self.nodes.items() if kept_rows[row] or name in nodes]
        columns = [key for key, column in self.series.items() if kept_columns[column] or key in series_types]
        new_rows = [name for name in nodes if name not in self.nodes]
        new_columns = [key for key in series_types if key not in self.series]
        # In nearly all fetches nothing changes, and the arrays are not copied.
        if not (new_rows or new_columns or len(rows) < len(self.nodes) or len(columns) < len(self.series)):
            return
        old_rows = [self.nodes[name] for name in rows]
        old_columns = [self.series[key] for key in columns]
        state, recent = self._blank(len(rows) + len(new_rows), len(columns) + len(new_columns))
        for name, values in state.items():
            values[: len(rows), : len(columns)] = self._state[name][np.ix_(old_rows, old_columns)]
        recent[: len(columns), :, : len(rows)] = self._recent[np.ix_(old_columns, range(self._depth), old_rows)]
        self._state, self._recent = state, recent
        self.types = [*(self.types[old] for old in old_columns), *(series_types[key] for key in new_columns)]
        self.nodes = {name: row for row, name in enumerate([*rows, *new_rows])}
        self.series = {key: column for column, key in enumerate([*columns, *new_columns])}

    def _blank(self, rows: int, columns: int) -> tuple[dict[str, Floats], Floats]:
        """Return empty arrays for the given numbers of nodes and series.

        Returns:
            The properties that :meth:`__getitem__` lists, by name, each of shape (nodes, series); and the recent
            values, shape (series, times, nodes).
        """
        state: dict[str, Floats] = {name: np.zeros((rows, columns)) for name in ("longest", "moving", "moved")}
        state |= {name: np.full((rows, columns), np.nan) for name in ("value", "since", "seen")}
        return state, np.full((columns, self._depth, rows), np.nan, np.float32)


def group_by_series(
    nodes: Mapping[str, NodeMetrics],
) -> dict[tuple[tuple[str, str, str], ...], tuple[list[str], list[float]]]:
    """Group the nodes that have the same series.

    Returns:
        From each group's series, as (metric name, operator, resource), to the names of the group's nodes and their
        values. The values are in one list: all series of the first node, then all series of the second, and so on.
    """
    groups: dict[tuple[tuple[str, str, str], ...], tuple[list[str], list[float]]] = {}
    last: tuple[tuple[str, str, str], ...] | None = None
    for name, node in nodes.items():
        series = tuple(map(_SERIES, node.metrics))
        if series != last:  # comparing is faster than hashing, and neighbors mostly have the same series
            last, (names, numbers) = series, groups.setdefault(series, ([], []))
        names.append(name)
        numbers += map(_VALUE, node.metrics)
    return groups
