"""Capacity, requests and use of all pods together over the last day: one row for each round of pod use.

The rows are stored with the learner's state, in the same transaction.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np

from watcher.usage.array_bytes import UNREADABLE, pack, unpack
from watcher.usage.sources.pods import requested
from watcher.workload_table import ClusterTotals, Float64s

if TYPE_CHECKING:
    from watcher.usage.sources.pods import Capacity, PodTemplate, RunningPods
    from watcher.windows.container_use import ContainerUse

PART = "totals"
_KEPT_SECONDS = 86400.0
_MAX_ROWS = 1500
_COLUMNS = 7  # time, then CPU and memory of capacity, requests and use


class TotalsHistory:
    """Totals of the rounds of the last day, at most 1,500. Not thread-safe.

    Attributes:
        rows: the rows, oldest first: Unix seconds, then capacity, requests and use, each in cores and bytes; NaN where
            unknown, shape (rounds, 7).
    """

    def __init__(self, rows: Float64s | None = None) -> None:
        """Start from stored rows, or without any."""
        self.rows: Float64s = np.zeros((0, _COLUMNS)) if rows is None else rows

    def add(self, use: "ContainerUse", pods: "RunningPods", capacity: "Capacity | None") -> None:
        """Add a round of pod use. Drop later rounds, which are from before the clock was set back."""
        measured = np.nansum([use.cpu_cores, use.memory_bytes], axis=1)
        row = [use.timestamp, *(capacity or (np.nan, np.nan)), *_requested(pods), *measured]
        times = self.rows[:, 0]
        kept = self.rows[(times < use.timestamp) & (times > use.timestamp - _KEPT_SECONDS)]
        self.rows = np.vstack([kept, row])[-_MAX_ROWS:]

    def totals(self) -> ClusterTotals:
        """Return the rows as a table."""
        columns = self.rows.T
        return ClusterTotals(columns[0], columns[1:3], columns[3:5], columns[5:7])

    def part(self) -> bytes:
        """Return the rows as a part of the learner's state."""
        return pack(rows=self.rows)

    @classmethod
    def of_parts(cls, parts: Mapping[str, bytes]) -> Self:
        """Return the history that is stored with a learner's state; an empty one if its part is missing or damaged."""
        try:
            rows = np.asarray(unpack(parts[PART])["rows"], np.float64)
        except UNREADABLE:
            return cls()
        return cls(rows) if rows.ndim == 2 and rows.shape[1] == _COLUMNS else cls()


def _requested(pods: "RunningPods") -> tuple[float, float]:
    """Return the cores and bytes that all running pods request."""
    counts: Counter[int] = Counter()
    templates: dict[int, PodTemplate] = {}
    for pod in pods.values():
        counts[id(pod.template)] += 1
        templates[id(pod.template)] = pod.template
    amounts = np.array([(count, *requested(templates[key])) for key, count in counts.items()], np.float64)
    milli, memory = (amounts[:, :1] * amounts[:, 1:]).sum(axis=0) if len(amounts) else (0.0, 0.0)
    return float(milli) / 1000, float(memory)
