"""Past days of the learner, filled from a source that knows the past: one day at a time, and each day once.

Percentiles, highest memory, times and minutes are those of a learner that ran on these days. The mean use is, too, for
pods of the present revision. Those of earlier ones count as the learner counts a revision that has ended: as an hour.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.kubernetes.workloads import Workload
from watcher.usage.learn.cpu_histograms import BINS, Float32s, bins_of
from watcher.windows.past_container_use import PastContainerUse
from watcher.workload_table import ContainerKey, Float64s, Int64s

_FIRST_ROWS = 256

Rows = npt.NDArray[np.void]


class FilledDay(NamedTuple):
    """Use of containers on a past day, or on the part of the present day before the learner started.

    Attributes:
        day: number of the day since 1970.
        keys: the containers.
        counts: pod-minutes in each bin of CPU use, shape (containers, bins).
        sums: pod-minutes with known CPU and with known memory, the sums of CPU and memory use over these minutes, and
            of squared CPU use; shape (containers, 5).
        present: these sums over the pods of the present revision only, shape (containers, 5).
        longest: most minutes in which CPU is known of one pod of the present revision, shape (containers,).
        highest_memory: highest working set, bytes, shape (containers,).
        seen: first and last time with a use of CPU, Unix seconds, shape (2, containers).
        runs: number of pods that started on this day, shape (containers,).
    """

    day: int
    keys: list[ContainerKey]
    counts: Float32s
    sums: Float64s
    present: Float64s
    longest: Float64s
    highest_memory: Float64s
    seen: Float64s
    runs: Float64s


class DayCollector:
    """Collector of a day from the parts that a source returns; pods are added up by workload.

    Args:
        day: number of the day since 1970.
    """

    def __init__(self, day: int) -> None:
        self._day = day
        self._rows: dict[ContainerKey, int] = {}
        self._counts = np.zeros((_FIRST_ROWS, BINS), np.float32)
        self._sums, self._present = np.zeros((_FIRST_ROWS, 5)), np.zeros((_FIRST_ROWS, 5))
        self._highest, self._runs, self._longest = np.zeros((3, _FIRST_ROWS))
        self._seen = np.array([[np.inf], [0.0]]) * np.ones(_FIRST_ROWS)

    def add(
        self,
        use: PastContainerUse,
        workload_of: Callable[[str, str], Workload | None],
        present_pods: Container[tuple[str, str]],
    ) -> None:
        """Add the use of some containers; each container must be in one part only.

        Args:
            use: the use.
            workload_of: returns the workload of a pod by namespace and name; None leaves the pod out.
            present_pods: namespaces and names of the pods of the present revisions.
        """
        rows, at = self._places(use, workload_of)
        present = np.array(
            [(use.namespaces[place], use.pods[place]) in present_pods for place in at.tolist()], np.bool_
        )
        cores = use.cpu_cores[at].astype(np.float64)
        known = np.isfinite(cores)
        minutes, count = use.ends.step / 60, len(self._rows)
        self._grow(count)
        row = np.repeat(rows, known.sum(axis=1))
        place = row * BINS + bins_of(cores[known])
        self._counts[:count] += (minutes * np.bincount(place, minlength=count * BINS)).reshape(count, BINS)
        length, (mean, highest) = minutes * known.sum(axis=1), use.memory_bytes[:, at]
        measured = np.isfinite(mean)
        columns = (
            length, length * measured, minutes * np.where(known, cores, 0).sum(axis=1),
            length * np.where(measured, mean, 0), minutes * np.where(known, cores**2, 0).sum(axis=1),
        )  # fmt: skip
        for column, values in enumerate(columns):
            self._sums[:count, column] += np.bincount(rows, values, count)
            self._present[:count, column] += np.bincount(rows, values * present, count)
        np.maximum.at(self._longest, rows, length * present)
        np.maximum.at(self._highest, rows, np.nan_to_num(highest))
        times = np.array(use.ends, np.float64)
        np.minimum.at(self._seen[0], rows, np.where(known, times, np.inf).min(axis=1, initial=np.inf))
        np.maximum.at(self._seen[1], rows, np.where(known, times, 0).max(axis=1, initial=0))
        self._runs[:count] += np.bincount(rows, ~known[:, 0], count)

    def result(self) -> FilledDay:
        """Return the filled day."""
        size = len(self._rows)
        return FilledDay(
            self._day, list(self._rows), self._counts[:size], self._sums[:size], self._present[:size],
            self._longest[:size], self._highest[:size], self._seen[:, :size], self._runs[:size],
        )  # fmt: skip

    def _places(
        self, use: PastContainerUse, workload_of: Callable[[str, str], Workload | None]
    ) -> tuple[Int64s, Int64s]:
        """Return the row of each container that has a workload and a known use, and its place in the part."""
        rows, at = [], []
        has_use: list[bool] = np.asarray(np.isfinite(use.cpu_cores).any(axis=1)).tolist()
        names = zip(use.namespaces, use.pods, use.containers, strict=True)
        for place, (namespace, pod, container) in enumerate(names):
            workload = workload_of(namespace, pod) if has_use[place] else None
            if workload is not None:
                rows.append(self._rows.setdefault(ContainerKey(workload, container), len(self._rows)))
                at.append(place)
        return np.array(rows, np.int64), np.array(at, np.int64)

    def _grow(self, count: int) -> None:
        missing = count - len(self._counts)
        if missing > 0:
            added = max(missing, len(self._counts) // 2)
            self._counts = np.concatenate([self._counts, np.zeros((added, BINS), np.float32)])
            self._sums, self._present = (
                np.concatenate([each, np.zeros((added, 5))]) for each in (self._sums, self._present)
            )
            self._highest, self._runs, self._longest = (
                np.append(each, np.zeros(added)) for each in (self._highest, self._runs, self._longest)
            )
            self._seen = np.concatenate([self._seen, np.array([[np.inf], [0.0]]) * np.ones(added)], axis=1)


def add_day(table: Rows, rows: Int64s, filled: FilledDay, age: int, decay: Float64s, prior_minutes: float) -> None:
    """Add a past day to the learner's rows, except for its histograms.

    Args:
        table: the learner's rows.
        rows: row of each container of the day.
        filled: the day.
        age: days from the day to the present one.
        decay: weight that is left to a measurement of this day, shape (containers,).
        prior_minutes: highest weight of the mean use of pods of earlier revisions, which only counts for containers
            that were measured for less.
    """
    first_seen, last_seen = filled.seen
    table["first_seen"][rows] = np.minimum(table["first_seen"][rows], first_seen)
    table["pod_minutes"][rows] += filled.sums[:, 0]
    table["runs"][rows] += filled.runs
    table["memory_peaks"][rows, age] = np.maximum(table["memory_peaks"][rows, age], filled.highest_memory)

    is_unseen = table["pods"][rows] == 0
    unseen = rows[is_unseen]
    table["last_seen"][unseen] = np.maximum(table["last_seen"][unseen], last_seen[is_unseen])
    table["revision_since"][unseen] = table["first_seen"][unseen]

    is_present = filled.longest > 0
    counted = is_present | (table["minutes"][rows] < prior_minutes).all(axis=1)
    sums = np.where(is_present[:, None], filled.present, filled.sums)[counted]
    longest = np.where(is_present, filled.longest, prior_minutes)[counted]
    left = np.where(is_present, decay, 1.0)[counted]
    means = sums[:, 2:4] / np.maximum(sums[:, :2], 1e-9)
    squares = np.stack([sums[:, 4] / np.maximum(sums[:, 0], 1e-9), means[:, 1] ** 2], axis=1)
    minutes = np.minimum(sums[:, :2], longest[:, None])
    weights = minutes * left[:, None]
    for name, amounts in (
        ("minutes", minutes), ("weights", weights), ("sums", weights * means), ("squares", weights * squares)
    ):  # fmt: skip
        table[name][rows[counted]] += amounts
