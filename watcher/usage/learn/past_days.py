"""Past days of the learner, filled from a source that knows the past: one day at a time, and each day once.

Percentiles, highest memory, times and minutes are those of a learner that ran on these days. The mean use is, too, for
pods of the present revision, and for all runs of jobs, which have no revisions. Pods of earlier revisions count as the
learner counts a revision that has ended: as an hour.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.kubernetes.workloads import ENDING_KINDS, Workload
from watcher.usage.learn.cpu_histograms import BINS, Float32s, bins_of
from watcher.windows.past_container_use import PastContainerUse
from watcher.workload_table import Bools, ContainerKey, Float64s, Int64s

MEMORY_MINUTES = 1440.0
"""Minutes after which the weight of a measurement is 1 / e."""
_FIRST_ROWS = 256
_DAY = 86400

Rows = npt.NDArray[np.void]


class FilledDay(NamedTuple):
    """Use of containers on a past day, or on the part of the present day before the learner started.

    Attributes:
        day: number of the day since 1970.
        keys: the containers.
        counts: pod-minutes in each bin of CPU use, shape (containers, bins).
        pod_minutes: pod-minutes with known CPU, shape (containers,).
        sums: pod-minutes with known CPU and with known memory, the sums of CPU and memory use over these minutes, and
            of squared CPU use, each with the weight that is left of it at the end of the day; shape (containers, 5).
        present: these sums over the pods of the present revision only, shape (containers, 5).
        minutes: minutes in which CPU is known of any pod of the present revision, and the weight that is left of them
            at the end of the day; shape (2, containers).
        highest_memory: highest working set, bytes, shape (containers,).
        seen: first and last time with a use of CPU, Unix seconds, shape (2, containers).
        runs: number of pods that started on this day, shape (containers,).
    """

    day: int
    keys: list[ContainerKey]
    counts: Float32s
    pod_minutes: Float64s
    sums: Float64s
    present: Float64s
    minutes: Float64s
    highest_memory: Float64s
    seen: Float64s
    runs: Float64s


class DayCollector:
    """Collector of a day from the parts that a source returns; pods are added up by workload.

    Args:
        day: number of the day since 1970.
        step_seconds: length of the steps of the use.
    """

    def __init__(self, day: int, step_seconds: int) -> None:
        self._day, self._begin, self._step_seconds = day, day * _DAY, step_seconds
        self._rows: dict[ContainerKey, int] = {}
        self._counts = np.zeros((_FIRST_ROWS, BINS), np.float32)
        self._sums, self._present = np.zeros((_FIRST_ROWS, 5)), np.zeros((_FIRST_ROWS, 5))
        self._highest, self._runs, self._pod_minutes = np.zeros((3, _FIRST_ROWS))
        self._is_known = np.zeros((_FIRST_ROWS, _DAY // step_seconds), np.bool_)  # of any pod of the present revision
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
        rows, at, present = self._places(use, workload_of, present_pods)
        cores = use.cpu_cores[at].astype(np.float64)
        known = np.isfinite(cores)
        minutes, count, times = self._step_seconds / 60, len(self._rows), np.array(use.ends, np.float64)
        self._grow(count)
        places, steps = known.nonzero()
        row, of_day = rows[places], ((times - self._begin) // self._step_seconds).astype(np.int64) - 1
        place = row * BINS + bins_of(cores[known])
        self._counts[:count] += (minutes * np.bincount(place, minlength=count * BINS)).reshape(count, BINS)
        self._is_known[row[present[places]], of_day[steps[present[places]]]] = True
        # A day's use is not weighed as one value, so that the weights do not depend on the time of day of the fill.
        weights, cores = minutes * self._left(times), np.where(known, cores, 0)
        length, (mean, highest) = known @ weights, use.memory_bytes[:, at]
        measured = np.isfinite(mean)
        columns = (
            length, length * measured, cores @ weights, length * np.where(measured, mean, 0), cores**2 @ weights,
        )  # fmt: skip
        for column, values in enumerate(columns):
            self._sums[:count, column] += np.bincount(rows, values, count)
            self._present[:count, column] += np.bincount(rows, values * present, count)
        self._pod_minutes[:count] += np.bincount(rows, minutes * known.sum(axis=1), count)
        np.maximum.at(self._highest, rows, np.nan_to_num(highest))
        np.minimum.at(self._seen[0], rows, np.where(known, times, np.inf).min(axis=1, initial=np.inf))
        np.maximum.at(self._seen[1], rows, np.where(known, times, 0).max(axis=1, initial=0))
        self._runs[:count] += np.bincount(rows, ~known[:, 0], count)

    def result(self) -> FilledDay:
        """Return the filled day."""
        size, is_known = len(self._rows), self._is_known[: len(self._rows)]
        minutes, ends = self._step_seconds / 60, np.arange(1, is_known.shape[1] + 1) * float(self._step_seconds)
        left = np.einsum("rs,s", is_known, self._left(self._begin + ends))  # without a copy of the array as numbers
        return FilledDay(
            self._day, list(self._rows), self._counts[:size], self._pod_minutes[:size], self._sums[:size],
            self._present[:size], minutes * np.stack([is_known.sum(axis=1), left]), self._highest[:size],
            self._seen[:, :size], self._runs[:size],
        )  # fmt: skip

    def _left(self, times: Float64s) -> Float64s:
        """Return the weight that is left at the end of the day of measurements at some times."""
        return np.asarray(np.exp((times - self._begin - _DAY) / 60 / MEMORY_MINUTES))

    def _places(
        self,
        use: PastContainerUse,
        workload_of: Callable[[str, str], Workload | None],
        present_pods: Container[tuple[str, str]],
    ) -> tuple[Int64s, Int64s, Bools]:
        """Return the containers that have a workload and a known use.

        Returns:
            The row of each container, its place in the part, and whether its pod is one of the present revision.
        """
        rows, at, present = [], [], []
        has_use: list[bool] = np.asarray(np.isfinite(use.cpu_cores).any(axis=1)).tolist()
        names = zip(use.namespaces, use.pods, use.containers, strict=True)
        for place, (namespace, pod, container) in enumerate(names):
            workload = workload_of(namespace, pod) if has_use[place] else None
            if workload is not None:
                rows.append(self._rows.setdefault(ContainerKey(workload, container), len(self._rows)))
                at.append(place)
                present.append(workload.kind in ENDING_KINDS or (namespace, pod) in present_pods)
        return np.array(rows, np.int64), np.array(at, np.int64), np.array(present, np.bool_)

    def _grow(self, count: int) -> None:
        missing = count - len(self._counts)
        if missing > 0:
            added = max(missing, len(self._counts) // 2)
            self._counts = np.concatenate([self._counts, np.zeros((added, BINS), np.float32)])
            self._sums, self._present = (
                np.concatenate([each, np.zeros((added, 5))]) for each in (self._sums, self._present)
            )
            self._highest, self._runs, self._pod_minutes = (
                np.append(each, np.zeros(added)) for each in (self._highest, self._runs, self._pod_minutes)
            )
            self._is_known = np.concatenate([self._is_known, np.zeros((added, self._is_known.shape[1]), np.bool_)])
            self._seen = np.concatenate([self._seen, np.array([[np.inf], [0.0]]) * np.ones(added)], axis=1)


def add_day(table: Rows, rows: Int64s, filled: FilledDay, age: int, decay: float, prior_minutes: float) -> None:
    """Add a past day to the learner's rows, except for its histograms.

    Args:
        table: the learner's rows.
        rows: row of each container of the day.
        filled: the day.
        age: days from the day to the present one.
        decay: weight that is left to a measurement at the end of this day.
        prior_minutes: highest weight of the mean use of pods of earlier revisions, which only counts for containers
            that were measured for less.
    """
    first_seen, last_seen = filled.seen
    table["first_seen"][rows] = np.minimum(table["first_seen"][rows], first_seen)
    table["pod_minutes"][rows] += filled.pod_minutes
    table["runs"][rows] += filled.runs
    table["memory_peaks"][rows, age] = np.maximum(table["memory_peaks"][rows, age], filled.highest_memory)

    is_unseen = table["pods"][rows] == 0
    unseen = rows[is_unseen]
    table["last_seen"][unseen] = np.maximum(table["last_seen"][unseen], last_seen[is_unseen])
    table["revision_since"][unseen] = table["first_seen"][unseen]

    (present_minutes, present_weights), earlier = filled.minutes, np.minimum(filled.pod_minutes, prior_minutes)
    is_present = present_minutes > 0
    counted = is_present | (table["minutes"][rows] < prior_minutes).all(axis=1)
    sums = np.where(is_present[:, None], filled.present, filled.sums)[counted]
    is_measured = sums[:, :2] > 0
    means = sums[:, 2:4] / np.maximum(sums[:, :2], 1e-9)
    squares = np.stack([sums[:, 4] / np.maximum(sums[:, 0], 1e-9), means[:, 1] ** 2], axis=1)
    minutes = np.where(is_present, present_minutes, earlier)[counted, None] * is_measured
    weights = np.where(is_present, present_weights * decay, earlier)[counted, None] * is_measured
    for name, amounts in (
        ("minutes", minutes), ("weights", weights), ("sums", weights * means), ("squares", weights * squares)
    ):  # fmt: skip
        table[name][rows[counted]] += amounts
