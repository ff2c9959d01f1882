"""Daily histograms of the CPU use of containers, over 14 days.

The bins are those of VerticalPodAutoscaler: the first one is 0.01 cores wide, and each is 5 percent wider than the one
before it, so bin ``i`` begins at ``0.2 * (1.05 ^ i - 1)`` cores. The last of the 176 bins begins above 1,000 cores.

The counts of the present day are a dense array of the learner. A past day is packed: only its bins that are not empty,
about 5 bytes each.
"""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from watcher.workload_table import Float64s, Int64s

BINS = 176
_FIRST, _RATIO = 0.01, 1.05
_SCALE = _FIRST / (_RATIO - 1)
_ROWS_AT_ONCE = 4096

Float32s = npt.NDArray[np.float32]

#: Start of each bin, cores. The last bin has no end, so its start counts as its end.
_EDGES = _SCALE * (_RATIO ** np.arange(BINS) - 1)
BIN_ENDS: Float64s = np.append(_EDGES[1:], _EDGES[-1])


def bins_of(cores: Float64s) -> Int64s:
    """Return the bin of each amount of CPU, in cores of at least 0."""
    bins = np.log1p(cores / _SCALE) / np.log(_RATIO)
    return np.asarray(np.minimum(bins, BINS - 1).astype(np.int64))


class PackedDay(NamedTuple):
    """Histograms of all containers on one day.

    Attributes:
        offsets: start of each container's bins, followed by the end of the last container's, shape (containers + 1,).
        bins: bins that are not empty, of all containers one after the other.
        counts: pod-minutes in each of these bins.
    """

    offsets: npt.NDArray[np.uint32]
    bins: npt.NDArray[np.uint8]
    counts: Float32s

    @classmethod
    def pack(cls, counts: Float32s) -> Self:
        """Pack the counts of a day, shape (containers, bins)."""
        rows, bins = counts.nonzero()
        offsets = np.append(0, np.cumsum(np.bincount(rows, minlength=len(counts))))
        return cls(offsets.astype(np.uint32), bins.astype(np.uint8), counts[rows, bins])

    def merged(self, rows: Int64s, counts: Float32s) -> Self:
        """Return the day with counts added.

        Args:
            rows: row of each container, shape (n,), without duplicates.
            counts: counts to add, shape (n, bins).
        """
        lengths = np.asarray(np.diff(self.offsets.astype(np.int64)), np.int64)
        own = np.repeat(np.arange(len(lengths)), lengths) * BINS + self.bins
        more, bins = counts.nonzero()
        places = np.append(own, rows[more] * BINS + bins)
        place, group = np.unique(places, return_inverse=True)
        summed = np.bincount(group, np.append(self.counts, counts[more, bins]))
        size = max(len(lengths), int(rows.max(initial=-1)) + 1)
        offsets = np.append(0, np.cumsum(np.bincount(place // BINS, minlength=size)))
        return type(self)(offsets.astype(np.uint32), (place % BINS).astype(np.uint8), summed.astype(np.float32))

    @classmethod
    def empty(cls) -> Self:
        """Return a day without containers."""
        return cls.pack(np.zeros((0, 1), np.float32))

    def is_valid(self, size: int) -> bool:
        """Return whether the arrays are consistent, with at most this number of containers."""
        offsets = self.offsets.astype(np.int64)
        return (
            1 <= len(offsets) <= size + 1
            and len(self.bins) == len(self.counts) == offsets[-1]
            and offsets[0] == 0
            and bool((np.diff(offsets) >= 0).all())
            and int(self.bins.max(initial=0)) < BINS
        )

    def add_to(self, sums: Float64s, first: int, weight: float) -> None:
        """Add the counts, times a weight, of the containers from ``first`` on to sums of shape (containers, bins)."""
        last = min(first + len(sums), len(self.offsets) - 1)
        if first >= last:
            return
        offsets = self.offsets[first : last + 1].astype(np.int64)
        rows = np.repeat(np.arange(last - first), np.diff(offsets))
        begin, end = offsets[0], offsets[-1]
        sums[rows, self.bins[begin:end]] += weight * self.counts[begin:end]  # a row has no bin twice

    def take(self, rows: Int64s) -> Self:
        """Return the histograms of the given containers, in this order; empty ones for containers beyond the last."""
        offsets = np.append(
            self.offsets, np.full(max(rows.max(initial=-1) + 2 - len(self.offsets), 0), self.offsets[-1])
        )
        starts, lengths = offsets[rows].astype(np.int64), np.diff(offsets)[rows].astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())
        return type(self)(np.append(0, ends).astype(np.uint32), self.bins[at], self.counts[at])


def percentiles(today: Float32s, past: list[tuple[PackedDay, float]], quantiles: tuple[float, ...]) -> Float64s:
    """Return quantiles of the CPU use of each container, cores, shape (quantiles, containers).

    As in VerticalPodAutoscaler, a quantile is the end of the bin in which it lies. Containers without counts have 0.

    Args:
        today: counts of the present day, shape (containers, bins).
        past: past days, each with the weight of its counts.
        quantiles: the quantiles, 0 to 1.
    """
    result = np.zeros((len(quantiles), len(today)))
    for first in range(0, len(today), _ROWS_AT_ONCE):  # to bound the memory of the dense sums
        sums = today[first : first + _ROWS_AT_ONCE].astype(np.float64)
        for day, weight in past:
            day.add_to(sums, first, weight)
        cumulated = np.cumsum(sums, axis=1)
        total = cumulated[:, -1]
        for order, quantile in enumerate(quantiles):
            bins = (cumulated < quantile * total[:, None]).sum(axis=1)
            result[order, first : first + len(sums)] = np.where(total > 0, BIN_ENDS[np.minimum(bins, BINS - 1)], 0.0)
    return result
