"""From series with gaps to pods' lives: when each ran, and what it used in every minute of that."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.traces.recording.history import Span
from trimaran.traces.recording.pods import Key

Float32s = NDArray[np.float32]

_GONE_MINUTES = 10


@dataclass(frozen=True, eq=False)
class Life:
    """One run of a pod.

    Attributes:
        key: its namespace and name.
        number: 0, or more of a later pod of that name.
        start: its first minute.
        end: the minute after its last.
        use: cores and bytes, shape (2, end - start).
    """

    key: Key
    number: int
    start: int
    end: int
    use: Float64s


class Uses:
    """Collects spans of CPU and of memory, pod by pod; eight bytes a minute that a pod was seen.

    Args:
        minutes: how many are recorded.
    """

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes
        self._pieces: dict[Key, list[tuple[int, int, Float32s]]] = {}
        self._covered: Bools = np.zeros(minutes, np.bool_)

    @property
    def keys(self) -> frozenset[Key]:
        """The pods that were seen."""
        return frozenset(self._pieces)

    def add(self, resource: int, span: Span) -> int:
        """Take a span: 0 is CPU, 1 memory. Several series of one pod, as of two scrapers, count as their mean.

        Returns:
            How many of its series are left out, as they have no ``namespace`` or no ``pod``.
        """
        named = [(labels, values) for labels, values in span.series if labels.keys() >= {"namespace", "pod"}]
        for labels, values in named:
            there = np.flatnonzero(~np.isnan(values))
            if there.size:
                first, last = int(there[0]), int(there[-1]) + 1
                key = labels["namespace"], labels["pod"]
                piece = (resource, span.start + first, values[first:last].astype(np.float32))
                self._pieces.setdefault(key, []).append(piece)
                self._covered[span.start + there] = True
        return len(span.series) - len(named)

    def lives(self) -> Iterator[Life]:
        """Yield the lives of every pod.

        A pod lives where its memory is known (its CPU, a rate, comes late and stays long), and is gone when it is not
        for more than ten minutes in which others are. Gaps within a life are bridged by a straight line.
        """
        rank = np.cumsum(self._covered)
        for key in self._pieces:
            use = self._rows(key)
            known = ~np.isnan(use)
            there = np.flatnonzero(known[1] if known[1].any() else known[0])
            cuts = np.flatnonzero(np.diff(rank[there]) > _GONE_MINUTES) + 1
            for number, seen in enumerate(np.split(there, cuts)):
                yield self._life(key, number, use, seen)

    def _life(self, key: Key, number: int, use: Float64s, seen: Int64s) -> Life:
        covered = np.flatnonzero(self._covered)
        start = 0 if seen[0] == covered[0] else int(seen[0])
        end = self._minutes if seen[-1] == covered[-1] else int(seen[-1]) + 1
        minutes = np.arange(start, end)
        rows = []
        for row in use[:, start:end]:
            known = np.flatnonzero(~np.isnan(row))
            rows.append(np.interp(minutes, start + known, row[known]) if known.size else np.zeros(len(minutes)))
        return Life(key, number, start, end, np.maximum(rows, 0.0))

    def _rows(self, key: Key) -> Float64s:
        """Return a pod's CPU and memory, not-a-number where unknown, shape (2, minutes)."""
        total, count = np.zeros((2, self._minutes)), np.zeros((2, self._minutes), np.int64)
        for resource, start, values in self._pieces[key]:
            here = np.s_[resource, start : start + len(values)]
            known = ~np.isnan(values)
            total[here] += np.where(known, values, 0.0)
            count[here] += known
        mean: Float64s = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return mean
