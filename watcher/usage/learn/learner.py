"""Learner of the use of each workload's pods: pure, without input, output and clock.

The input is rounds of measurements, one every few minutes. Each container of each workload has a row of statistics, in
cores and bytes, never in shares of a request: so they stay true when a request changes. A round counts as one value of
the container: the mean over its pods. With ``l`` the minutes that a round covers, ``x`` that value, and ``w``, ``s``
and ``q`` the decayed sums of ``l``, ``l x`` and ``l x ^ 2`` over the rounds, the expected use is shrunk towards a prior
``p`` as if the container had also been observed at ``p`` for an hour:

    use = (s + 60 p) / (w + 60),    decay by e^(-l / 1440) a round

``p`` is the use of all pods in the last 20 minutes as a share of their requests, times the request that the container
had at first. A new revision (changed template) starts with the use and the variance of the one before, weighted as an
hour at most, and this use is its prior. A revision is new when most of a container's pods have it. The deviation is

    deviation ^ 2 = variance over time + (unknown * use) ^ 2 / (1 + minutes / 120)

with unknown = 0.8 for CPU and 0.3 for memory, and ``minutes`` the time for which the revision was observed. In
published traces levels of CPU deviate between owners by 60 to 80 percent of their mean, levels of memory by much less.
A short peak is enough to run out of memory, so the variance of memory is at least the squared distance from the mean to
the highest use of the last 14 days.

The containers of a pod are assumed to rise and fall together: a pod's use and deviation are the sums over its
containers. A container that was not measured in the last 15 minutes of its workload is no longer part of the pod.

A value that is not finite, negative, or larger than any machine has is left out. Larger requests count as missing.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from runtime.kubernetes.workloads import Workload
from watcher.usage.learn.container_state import KILLED_SECONDS, add_strain, common_requests, count_runs, note_facts
from watcher.usage.learn.cpu_histograms import BINS, PackedDay, bins_of, percentiles
from watcher.usage.learn.past_days import MEMORY_MINUTES, FilledDay, add_day
from watcher.usage.learn.use_round import UseRound
from watcher.usage.sources.pods import DAYS, RECENT_SECONDS
from watcher.workload_table import Bools, ContainerKey, ContainerTable, Float64s, Int64s, WorkloadTable

_PRIOR_MINUTES = 60.0
_HOUR_MEMORY_MINUTES = 7 * 60.0  # memory of the mean of each hour of the day: seven days
_UNKNOWN = np.array([0.8, 0.3])[:, None]
_UNKNOWN_MINUTES = 120.0
_LOWEST_LEVEL, _HIGHEST_LEVEL = 0.05, 4.0
_LEVEL_SECONDS, _LEAST_LEVEL_SECONDS = 1200.0, 600.0
_PAST_DAY_WEIGHT = 0.5  # a day counts half of the next one: VerticalPodAutoscaler's half-life of 24 hours
_SURVIVING = 0.95  # share of the limit that an eviction leaves, so that evictions are rare
_CLOCK_JITTER_SECONDS = 3600.0
_ROUNDS_A_DAY = 288  # of five minutes
_DAY, _HOUR = 86400, 3600

Rows = npt.NDArray[np.void]

#: Statistics of a container; two values are CPU and memory. About 1.4 kB, of which 0.7 are the present day's histogram.
ROW = np.dtype(
    [
        ("workload", "i4"),
        ("first_seen", "f8"),
        ("last_seen", "f8"),
        ("revision", "i8"),  # 0 if unknown
        ("revision_since", "f8"),
        ("requests", "f8", 2),  # that most pods of the newest revision had in the newest round
        ("first_requests", "f8", 2),
        ("prior", "f8", 2),  # expected use of the previous revision; NaN for the first one
        ("minutes", "f8", 2),  # for which this revision was observed
        ("weights", "f8", 2),
        ("sums", "f8", 2),
        ("squares", "f8", 2),
        ("pods", "f8"),
        ("pod_minutes", "f8"),
        ("runs", "f8"),  # pods that started while the container was known
        ("newest_start", "f8"),  # start of the youngest pod
        ("limits", "f8", 2),  # in the newest template; 0 without a limit
        ("role", "u1"),
        ("is_guaranteed", "u1"),
        ("has_pod_requests", "u1", 2),
        ("restarted_at", "f8"),
        ("killed_at", "f8"),
        ("killed_memory", "f8"),  # memory that the container needs after its kills for lack of memory
        ("strain_weights", "f8", 2),  # like weights and sums: throttling, and waiting for CPU
        ("strain_sums", "f8", 2),
        ("memory_peaks", "f8", DAYS),  # by day, the present day first
        ("hour_weights", "f4", (24, 2)),
        ("hour_sums", "f4", (24, 2)),
        ("counts", "f4", BINS),  # of the present day
    ]
)


class WorkloadLearner:
    """Statistics of every container of every workload; not thread-safe.

    Args:
        max_workloads: number of workloads above which the least recently seen are forgotten.

    Attributes:
        rows: statistics of each container, of type :data:`ROW`.
        keys: the containers, in the order of the rows.
        workloads: the workloads, in the order of their numbers.
        past: histograms of past days, the newest first, with a number that identifies each.
        recent: time, seconds and sums of the last rounds, for the level of all pods.
        day: number of the present day since 1970.
        time: end of the newest round, Unix seconds; 0 before the first.
        next_number: number of the next packed day.
        unfilled: numbers of the days that are still to be filled from a source that knows the past, newest first.
        live_since: start of the first round, Unix seconds; earlier use is filled from a source that knows the past.
        calm_rounds: rounds since the clock was set back to an earlier day; at first the number of rounds in 14 days.
        refused_rounds: rounds that were refused since the last accepted one, because their clock was set back.
    """

    def __init__(self, max_workloads: int = 50_000) -> None:
        self.max_workloads = max_workloads
        self._rows = np.zeros(64, ROW)
        self.keys: list[ContainerKey] = []
        self.workloads: dict[Workload, int] = {}
        self.past: list[tuple[int, PackedDay]] = []
        self.recent: deque[Float64s] = deque()
        self.day = 0
        self.time = 0.0
        self.next_number = 1
        self.unfilled: list[int] = []
        self.live_since = 0.0
        self.calm_rounds, self.refused_rounds = DAYS * _ROUNDS_A_DAY, 0
        self._row_of: dict[ContainerKey, int] = {}

    @property
    def rows(self) -> Rows:
        """Statistics of each container."""
        return self._rows[: len(self.keys)]

    def observe(self, measured: UseRound) -> bool:
        """Learn from a round of pod use; return whether the round has any known use."""
        known = measured.known()
        weight = measured.pods * measured.measured_seconds / 60
        counted = (measured.container >= 0) & np.isfinite(weight) & (weight > 0) & known.any(axis=0)
        has_use, facts = bool(counted.any()), measured.facts
        killed = () if facts is None else np.flatnonzero(facts.killed_at > measured.time - KILLED_SECONDS).tolist()
        # If all containers are killed at their start, only the kills are known.
        if measured.seconds <= 0 or not (has_use or killed) or self._is_set_back(measured.time):
            return False
        self._begin(measured.time)
        if has_use:
            self._learn(measured, counted, known, weight)
        if facts is not None:
            self._rows_of([measured.keys[place] for place in killed], measured.time)
            # Containers that were killed before their first measurement have rows now.
            note_facts(self.rows, [self._row_of.get(key) for key in measured.keys], facts, measured.time)
        if len(self.workloads) > self.max_workloads:
            self._evict()
        return has_use

    def _learn(self, measured: UseRound, counted: Bools, known: Bools, weight: Float64s) -> None:
        """Learn from the counted measurements of a round.

        Args:
            measured: the round.
            counted: whether each measurement counts, shape (n,); at least one does.
            known: whether each amount of use is known, shape (2, n).
            weight: pod-minutes of each measurement, shape (n,).
        """
        at = np.flatnonzero(counted)
        present, group = np.unique(measured.container[at], return_inverse=True)
        rows = self._rows_of([measured.keys[index] for index in present.tolist()], measured.time)

        # Each round is one value of each container: the mean over the minutes of all its pods.
        known, weight, pods = known[:, at], weight[at], measured.pods[at]
        use = np.where(known, measured.use[:, at], 0.0)
        requests = measured.valid_requests()[:, at]
        count = len(rows)
        minutes = np.stack([np.bincount(group, weight * row, count) for row in known])
        total = np.stack([np.bincount(group, weight * row, count) for row in use])
        pods_of = np.bincount(group, pods, count)
        mean_requests = np.stack([np.bincount(group, pods * row, count) for row in requests]) / pods_of

        table = self.rows
        is_new = table["pods"][rows] == 0  # never measured by a round
        table["first_requests"][rows[is_new]] = mean_requests.T[is_new]
        self._follow_revisions(rows, group, weight, measured.revision[at], measured.time)
        table["last_seen"][rows] = measured.time
        started_at = np.full(len(at), np.nan) if measured.started_at is None else measured.started_at[at]
        table["requests"][rows] = common_requests(group, pods, measured.revision[at], started_at, requests).T
        table["pods"][rows] = pods_of
        table["pod_minutes"][rows] += np.bincount(group, weight, count)
        self._add_to_recent(measured, use, requests, table["first_requests"][rows[group]].T, known, weight)
        for resource in range(2):
            seen = minutes[resource] > 0
            self._add(rows[seen], resource, total[resource, seen] / minutes[resource, seen], measured)
        self._add_samples(rows, group, use, weight, known)
        if measured.strain is not None:
            add_strain(table, rows, group, weight, measured.strain[:, at], measured.seconds / 60, MEMORY_MINUTES)
        if measured.started_at is not None:
            count_runs(table, rows, group, started_at)

    def knows(self, key: ContainerKey) -> bool:
        """Return whether a container was measured, or killed before its first measurement."""
        return key in self._row_of

    def fill(self, filled: FilledDay) -> None:
        """Add a past day if it is unfilled, and mark it as filled."""
        if filled.day not in self.unfilled:
            return
        self.unfilled.remove(filled.day)
        age = max(self.day - filled.day, 0)
        if age >= DAYS or not filled.keys:
            return
        rows, table = self._rows_of(filled.keys, self.time), self._rows
        decay = float(np.exp(((filled.day + 1) * _DAY - self.time) / 60 / MEMORY_MINUTES))
        add_day(table, rows, filled, age, decay, _PRIOR_MINUTES)
        if age == 0:
            table["counts"][rows] += filled.counts
        else:
            while len(self.past) < age:
                self.past.append((self.next_number, PackedDay.empty()))
                self.next_number += 1
            self.past[age - 1] = (self.next_number, self.past[age - 1][1].merged(rows, filled.counts))
            self.next_number += 1
        if len(self.workloads) > self.max_workloads:
            self._evict()

    def cluster_level(self) -> Float64s:
        """Return the use of all pods in the last 20 minutes as a share of their requests, shape (2,)."""
        return np.asarray(self._levels()[1])

    def table(self) -> WorkloadTable:
        """Return the expected use of a pod of each workload."""
        rows, count = self.rows, len(self.workloads)
        workload = rows["workload"]
        use, deviations = self._expected(rows), self._deviations(rows)
        last_seen = np.zeros(count)
        np.maximum.at(last_seen, workload, rows["last_seen"])
        first_seen = np.full(count, np.inf)
        np.minimum.at(first_seen, workload, rows["first_seen"])
        largest = np.zeros((2, count))
        is_part = rows["last_seen"] >= last_seen[workload] - RECENT_SECONDS
        for values, name in zip(largest, ("pods", "pod_minutes"), strict=True):
            np.maximum.at(values, workload[is_part], rows[name][is_part])
        level = self.cluster_level()
        return WorkloadTable(
            self.time,
            tuple(self.workloads),
            np.stack([np.bincount(workload, row * is_part, count) for row in use]),
            np.stack([np.bincount(workload, row * is_part, count) for row in deviations]),
            level,
            level * _UNKNOWN[:, 0],
            first_seen,
            last_seen,
            *largest,
        )

    def containers(self, quantiles: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99)) -> ContainerTable:
        """Return the learned use and state of each container, with these quantiles of CPU use."""
        rows = self.rows.copy()
        past = [(day, _PAST_DAY_WEIGHT**age) for age, (_, day) in enumerate(self.past, start=1)]
        with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 gives NaN: no value
            by_hour = rows["hour_sums"].astype(np.float64) / rows["hour_weights"]
            strain = rows["strain_sums"] / rows["strain_weights"]
        return ContainerTable(
            tuple(self.keys), rows["requests"].T, self._expected(rows), self._deviations(rows),
            quantiles, percentiles(rows["counts"], past, quantiles), rows["memory_peaks"].max(axis=1),
            by_hour.transpose(2, 0, 1), rows["first_seen"], rows["last_seen"], rows["revision_since"],
            rows["pods"], rows["pod_minutes"],
            rows["runs"], rows["limits"].T, rows["role"], rows["is_guaranteed"].astype(np.bool_),
            rows["restarted_at"], rows["killed_at"], rows["killed_memory"], strain.T,
            rows["has_pod_requests"].T.astype(np.bool_),
        )  # fmt: skip

    def courses(self) -> dict[Workload, Float64s]:
        """Return the mean use of a pod of each workload in each hour of the day (UTC), cores and bytes.

        Each value has the shape (2, 24); NaN where unknown.
        """
        rows = self.rows
        last_seen = np.zeros(len(self.workloads))
        np.maximum.at(last_seen, rows["workload"], rows["last_seen"])
        with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 gives NaN: no value
            by_hour = rows["hour_sums"].astype(np.float64) / rows["hour_weights"]
        is_part = rows["last_seen"] >= last_seen[rows["workload"]] - RECENT_SECONDS
        known = np.isfinite(by_hour) & is_part[:, None, None]
        sums, counts = np.zeros((2, len(self.workloads), 24, 2))
        np.add.at(sums, rows["workload"], np.where(known, by_hour, 0.0))
        np.add.at(counts, rows["workload"], known)
        courses = np.where(counts > 0, sums, np.nan).transpose(0, 2, 1)
        return dict(zip(self.workloads, courses, strict=True))

    def restore(self, rows: Rows, keys: list[ContainerKey], workloads: list[Workload]) -> None:
        """Replace the statistics by saved statistics, of type :data:`ROW`."""
        self._rows = np.concatenate([rows, np.zeros(64, ROW)])
        self.keys, self._row_of = keys, {key: row for row, key in enumerate(keys)}
        self.workloads = {workload: number for number, workload in enumerate(workloads)}

    def _is_set_back(self, time: float) -> bool:
        """Return whether a round is refused, because it is on an earlier day by more than the jitter of clocks.

        A corrected clock counts at once. But if sources with different clocks alternate, each change ends a day, and 14
        push out all past days. So within 14 days of a change, the next one counts after a day of its rounds.
        """
        is_back = int(time // _DAY) < self.day and time <= self.time - _CLOCK_JITTER_SECONDS
        if is_back and self.calm_rounds < DAYS * _ROUNDS_A_DAY and self.refused_rounds < _ROUNDS_A_DAY:
            self.refused_rounds += 1
            return True
        self.calm_rounds, self.refused_rounds = 0 if is_back else self.calm_rounds + 1, 0
        return False

    def _begin(self, time: float) -> None:
        """Begin a new day if the time is on another day than the previous round.

        The age of a day is a count, not a difference of dates, so a wrong clock only ends one day too early.
        """
        before, self.time = self.time, time
        day = int(time // _DAY)
        if not before:
            self.day = day
        if day == self.day or before - _CLOCK_JITTER_SECONDS < time < before:
            return
        self.day = day
        rows = self.rows
        self.past = [(self.next_number, PackedDay.pack(rows["counts"])), *self.past][: DAYS - 1]
        self.next_number += 1
        rows["counts"] = 0
        rows["memory_peaks"][:, 1:] = rows["memory_peaks"][:, :-1].copy()
        rows["memory_peaks"][:, 0] = 0

    def _rows_of(self, keys: Sequence[ContainerKey], time: float) -> Int64s:
        """Return the row of each container; add rows for new containers."""
        rows = []
        for key in keys:
            row = self._row_of.get(key)
            if row is None:
                row = self._row_of[key] = len(self.keys)
                self.keys.append(key)
                if row == len(self._rows):
                    self._rows = np.concatenate([self._rows, np.zeros(max(len(self._rows), 64), ROW)])
                self._rows[row]["workload"] = self.workloads.setdefault(key.workload, len(self.workloads))
                self._rows[row]["prior"] = np.nan
                self._rows[row]["first_seen"] = self._rows[row]["revision_since"] = time
            rows.append(row)
        return np.array(rows, np.int64)

    def _follow_revisions(self, rows: Int64s, group: Int64s, weight: Float64s, revision: Int64s, time: float) -> None:
        """Begin a new revision of each container if most of its pods have another revision than before.

        Args:
            rows: row of each container of the round.
            group: container of each measurement, as an index of ``rows``.
            weight: pod-minutes of each measurement.
            revision: revision of each measurement.
            time: end of the round, Unix seconds.
        """
        table = self.rows
        differs = (revision != 0) & (revision != table["revision"][rows][group])
        if not differs.any():
            return
        other = np.bincount(group[differs], weight[differs], len(rows))
        latest = np.full(len(rows), np.iinfo(np.int64).min)
        np.maximum.at(latest, group[differs], revision[differs])  # of several, a fixed one
        changed = other > np.bincount(group, weight, len(rows)) / 2
        begun = rows[changed & (table["revision"][rows] != 0)]
        if len(begun):
            before = table[begun]
            use = self._expected(before)
            kept = np.minimum(before["weights"], _PRIOR_MINUTES)
            table["squares"][begun] = kept * (_variance(before) + use**2).T
            table["sums"][begun] = kept * use.T
            table["weights"][begun], table["prior"][begun] = kept, use.T
            table["minutes"][begun] = np.minimum(before["minutes"], _PRIOR_MINUTES)
            table["revision_since"][begun] = time
        table["revision"][rows[changed]] = latest[changed]

    def _add(self, rows: Int64s, resource: int, value: Float64s, measured: UseRound) -> None:
        """Add one round's value of each container to the decayed sums, and to the sums of the hour of the day."""
        table, minutes = self.rows, measured.seconds / 60
        decay = np.exp(-minutes / MEMORY_MINUTES)
        table["minutes"][rows, resource] += minutes
        for name, amount in (("weights", minutes), ("sums", minutes * value), ("squares", minutes * value**2)):
            table[name][rows, resource] = decay * table[name][rows, resource] + amount
        hour = int((measured.time - measured.seconds / 2) // _HOUR) % 24
        decay = np.exp(-minutes / _HOUR_MEMORY_MINUTES)
        for name, amount in (("hour_weights", minutes), ("hour_sums", minutes * value)):
            table[name][rows, hour, resource] = decay * table[name][rows, hour, resource] + amount

    def _add_samples(self, rows: Int64s, group: Int64s, use: Float64s, weight: Float64s, known: Bools) -> None:
        """Add the single measurements to the histograms of CPU and to the peaks of memory."""
        table, count = self.rows, len(rows)
        place = group * BINS + bins_of(use[0])
        counts = np.bincount(place, weight * known[0], count * BINS).reshape(count, BINS)
        table["counts"][rows] += counts.astype(np.float32)
        peaks = np.zeros(count)
        np.maximum.at(peaks, group, use[1])
        table["memory_peaks"][rows, 0] = np.maximum(table["memory_peaks"][rows, 0], peaks)

    def _add_to_recent(
        self, measured: UseRound, use: Float64s, requests: Float64s, first: Float64s, known: Bools, weight: Float64s
    ) -> None:
        """Add a round's sums of use and of first and present requests, from which levels are computed."""
        sums = [
            [(row * weight * (known & (base > 0))).sum(axis=1) for row in (use, base)] for base in (first, requests)
        ]
        self.recent.append(np.array([measured.time, measured.seconds, *np.ravel(sums)]))
        while abs(measured.time - self.recent[0][0]) >= _LEVEL_SECONDS:
            self.recent.popleft()

    def _levels(self) -> Float64s:
        """Return the use of all pods as a share of their first and present requests, shape (2, 2).

        Until ten minutes are known, it is the level of the running containers whose past is known; without any, use is
        assumed to equal the requests.
        """
        sums = np.sum(self.recent, axis=0) if self.recent else np.zeros(10)
        if sums[1] < _LEAST_LEVEL_SECONDS:
            rows = self.rows
            base = np.stack([rows["first_requests"], rows["requests"]])
            pods = rows["pods"][:, None] * (rows["minutes"] >= _PRIOR_MINUTES) * (base > 0)
            means = rows["sums"] / np.maximum(rows["weights"], 1e-9)
            used, requested = (pods * means).sum(axis=1), (pods * base).sum(axis=1)
        else:
            used, requested = sums[2:].reshape(2, 2, 2).transpose(1, 0, 2)
        levels = np.divide(used, requested, out=np.ones((2, 2)), where=requested > 0)
        return np.asarray(np.clip(levels, _LOWEST_LEVEL, _HIGHEST_LEVEL))

    def _expected(self, rows: Rows) -> Float64s:
        """Return the expected use of containers, shape (2, containers)."""
        first = rows["first_requests"]
        is_first = np.isnan(rows["prior"])
        prior = np.where(is_first, self._levels()[0] * first, rows["prior"])
        shrunk = _PRIOR_MINUTES * (~is_first | (first > 0))  # without a request there is no prior
        weights = np.maximum(rows["weights"] + shrunk, 1e-9)
        expected: Float64s = ((rows["sums"] + shrunk * prior) / weights).T
        return expected

    def _deviations(self, rows: Rows) -> Float64s:
        """Return the standard deviations of the use of containers, shape (2, containers)."""
        over_time = _variance(rows)
        mean = (rows["sums"] / np.maximum(rows["weights"], 1))[:, 1]
        peaks = rows["memory_peaks"].max(axis=1)
        over_time[1] = np.maximum(over_time[1], (peaks - mean) ** 2)
        unknown = (_UNKNOWN * self._expected(rows)) ** 2 / (1 + rows["minutes"].T / _UNKNOWN_MINUTES)
        return np.asarray(np.sqrt(over_time + unknown))

    def _evict(self) -> None:
        """Forget the least recently seen workloads."""
        rows = self.rows
        last_seen = np.zeros(len(self.workloads))
        np.maximum.at(last_seen, rows["workload"], rows["last_seen"])
        kept = np.zeros(len(self.workloads), np.bool_)
        kept[np.argsort(-last_seen, kind="stable")[: max(int(self.max_workloads * _SURVIVING), 1)]] = True
        number = np.cumsum(kept) - 1
        surviving = np.flatnonzero(kept[rows["workload"]])
        self._rows = rows[surviving]
        self._rows["workload"] = number[self._rows["workload"]]
        self.keys = [self.keys[row] for row in surviving.tolist()]
        self._row_of = {key: row for row, key in enumerate(self.keys)}
        names = [name for name, is_kept in zip(self.workloads, kept.tolist(), strict=True) if is_kept]
        self.workloads = {name: place for place, name in enumerate(names)}
        self.past = [(number, day.take(surviving)) for number, (_, day) in enumerate(self.past, start=self.next_number)]
        self.next_number += len(self.past)


def _variance(rows: Rows) -> Float64s:
    """Return the variance over time of the use of containers, shape (2, containers)."""
    weights = np.maximum(rows["weights"], 1)
    means = rows["sums"] / weights
    return np.asarray(np.maximum(rows["squares"] / weights - means**2, 0).T)
