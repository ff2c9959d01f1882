"""Lifetimes of pods, and their use in every minute, from series with gaps."""

from collections.abc import Iterator, KeysView
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.traces.recording.history import Span
from watcher.providers.own_labels import own_label
from watcher.usage.sources.pods import PodKey

Float32s = NDArray[np.float32]

_GONE_MINUTES = 10
_NAMES = ("namespace", "pod")


@dataclass(frozen=True, eq=False)
class Lifetime:
    """Time in which a pod ran, with its use.

    Attributes:
        key: namespace and name of the pod.
        number: 0 for the first pod of this name, 1 for the second, and so on.
        start: first minute.
        end: minute after the last one.
        use: cores and bytes, shape (2, end - start).
    """

    key: PodKey
    number: int
    start: int
    end: int
    use: Float64s


class UsageCollector:
    """Collector of CPU and memory use by pod; it keeps eight bytes for each minute with values of a pod.

    Args:
        minutes: length of the recording.
    """

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes
        self._pieces: dict[PodKey, list[tuple[int, int, Float32s]]] = {}
        self._covered: Bools = np.zeros(minutes, np.bool_)

    @property
    def keys(self) -> KeysView[PodKey]:
        """Pods with at least one value."""
        return self._pieces.keys()

    @property
    def covered(self) -> Bools:
        """Minutes in which any pod has a value, shape (minutes,)."""
        return self._covered

    def add(self, resource: int, span: Span) -> int:
        """Add the series of a span. Several series of one pod, for example from two scrapers, count as their mean.

        Args:
            resource: 0 for CPU, 1 for memory.
            span: series with the labels ``namespace`` and ``pod``, or ``exported_namespace`` and so on.

        Returns:
            Number of series that are left out because they lack one of these labels.
        """
        keyed = [(PodKey(*(own_label(labels, name) for name in _NAMES)), values) for labels, values in span.series]
        named = [(key, values) for key, values in keyed if all(key)]
        for key, values in named:
            present = np.flatnonzero(~np.isnan(values))
            if present.size:
                first, last = int(present[0]), int(present[-1]) + 1
                piece = (resource, span.start + first, values[first:last].astype(np.float32))
                self._pieces.setdefault(key, []).append(piece)
                self._covered[span.start + present] = True
        return len(span.series) - len(named)

    def lifetimes(self) -> Iterator[Lifetime]:
        """Yield the lifetimes of every pod.

        A pod runs while it has memory values; CPU values are rates, which begin late and end late. A gap in the memory
        values ends a lifetime if other pods have values in more than ten minutes of the gap, so that the gap is not an
        outage of the metrics. Other gaps are interpolated linearly.
        """
        # Minutes without a value of any pod, in which Prometheus was down, do not count into the rank.
        rank = np.cumsum(self._covered)
        for key in self._pieces:
            use = self._rows(key)
            known = ~np.isnan(use)
            present = np.flatnonzero(known[1] if known[1].any() else known[0])
            cuts = np.flatnonzero(np.diff(rank[present]) > _GONE_MINUTES) + 1
            for number, minutes in enumerate(np.split(present, cuts)):
                yield self._lifetime(key, number, use, minutes)

    def _lifetime(self, key: PodKey, number: int, use: Float64s, present: Int64s) -> Lifetime:
        # A pod that is present in the first or last covered minute extends to the edge of the recording.
        covered = np.flatnonzero(self._covered)
        start = 0 if present[0] == covered[0] else int(present[0])
        end = self._minutes if present[-1] == covered[-1] else int(present[-1]) + 1
        minutes = np.arange(start, end)
        rows = []
        for row in use[:, start:end]:
            known = np.flatnonzero(~np.isnan(row))
            rows.append(np.interp(minutes, start + known, row[known]) if known.size else np.zeros(len(minutes)))
        return Lifetime(key, number, start, end, np.maximum(rows, 0.0))

    def _rows(self, key: PodKey) -> Float64s:
        """Return a pod's CPU use in cores and memory use in bytes, shape (2, minutes); NaN if unknown."""
        total, count = np.zeros((2, self._minutes)), np.zeros((2, self._minutes), np.int64)
        for resource, start, values in self._pieces[key]:
            target = np.s_[resource, start : start + len(values)]
            known = ~np.isnan(values)
            total[target] += np.where(known, values, 0.0)
            count[target] += known
        return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))
