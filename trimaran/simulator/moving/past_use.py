"""Past CPU and memory use of the running pods, as if each had always run; move policies decide by it.

The use is known with the same delay and the same outages as the watcher's node metrics. For the time before a pod first
ran, its mean use is assumed for a pod of a service, and no use for a job, because the job will soon end. CPU demand
above a node's capacity counts as use.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Float64s, Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.simulated_watcher import SimulatedWatcher

HOUR = 60
QUARTER = 15


class PastUse:
    """Past use of the pods of one replay, prepared once from the trace to make every query fast.

    Args:
        cluster: the simulated cluster.
        watcher: the watcher, which limits how recent the known use is.
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._cluster, self._watcher, self._use = cluster, watcher, cluster.trace.use
        # Cumulative sums, so that the sum over any span of minutes is a difference.
        self._cpu_before, self._memory_before = (
            np.concatenate([[0.0], np.cumsum(series, dtype=np.float64)]) for series in (self._use.cpu, self._use.memory)
        )
        self._highest_memory = _highest(self._use.memory, self._use.offsets, QUARTER)

    def known_minutes(self, maximum: int) -> int:
        """Return the number of past minutes with known use, in whole hours (whole quarters in the first hour).

        The number is 0 without a fresh snapshot, so that nothing is moved in an outage.

        Args:
            maximum: largest number of minutes.
        """
        if self._watcher.snapshot() is None:
            return 0
        minutes = min(maximum, self._watcher.known_until())
        return minutes - minutes % (HOUR if minutes >= HOUR else QUARTER)

    def cpu(self, pods: Int64s, minutes: int, every: int, last_hour_share: float) -> Float64s:
        """Return the CPU use in sampled past minutes, adjusted to the level of the last hour.

        Args:
            pods: numbers of running pods.
            minutes: length of the past, as :meth:`known_minutes` returns it.
            every: interval of the samples in minutes; the last minute is always sampled.
            last_hour_share: share of each hour's mean that is replaced by the last hour's mean.

        Returns:
            Millicores, at least 0, shape (pods, minutes / every).
        """
        first, now, mean = self._known_spans(pods, self._cpu_before, minutes)

        # Use in each sampled minute; the pod's mean before its first minute.
        back = np.arange(minutes - 1 - (minutes - 1) % every, -1, -every)
        at = now[:, None] - 1 - back
        use = np.where(at >= first[:, None], self._use.cpu[np.maximum(at, first[:, None])], mean[:, None])

        # Mean of each past hour, and its distance to the last hour's mean.
        hour = min(HOUR, minutes)
        edges = np.maximum(now[:, None] - np.arange(minutes, -1, -hour), first[:, None])
        unseen = hour - np.diff(edges)
        hourly = (np.diff(self._cpu_before[edges]) + unseen * mean[:, None]) / hour
        shift = last_hour_share * (hourly[:, -1:] - hourly)

        expected = use + shift[:, (minutes - 1 - back) // hour]
        return np.asarray(np.maximum(expected, 0) * self._cluster.trace.cpu_request_milli[pods][:, None])

    def highest_memory(self, pods: Int64s, minutes: int) -> Float64s:
        """Return the highest memory use in each past quarter of an hour.

        Args:
            pods: numbers of running pods.
            minutes: length of the past, as :meth:`known_minutes` returns it.

        Returns:
            Bytes, shape (pods, minutes / 15).
        """
        first, now, mean = self._known_spans(pods, self._memory_before, minutes)
        last = now[:, None] - 1 - np.arange(minutes - QUARTER, -1, -QUARTER)
        peak = np.where(last >= first[:, None], self._highest_memory[np.maximum(last, first[:, None])], 0.0)

        # The trace also has use for minutes in which a pod waited; the quarter in which the pod starts must exclude it.
        starts_within = last - QUARTER + 1 < first[:, None]
        waited = first > self._use.offsets[pods]
        for pod, quarter in np.argwhere(starts_within & (last >= first[:, None]) & waited[:, None]).tolist():
            peak[pod, quarter] = self._use.memory[first[pod] : last[pod, quarter] + 1].max()

        # Minutes before the first one count with the mean.
        before = np.where(starts_within, mean[:, None], 0.0)
        return np.asarray(np.maximum(peak, before) * self._cluster.trace.memory_request_bytes[pods][:, None])

    def _known_spans(self, pods: Int64s, before: Float64s, minutes: int) -> tuple[Int64s, Int64s, Float64s]:
        """Return the known span of each pod's use and its mean.

        Args:
            pods: numbers of running pods.
            before: cumulative sums of the use, shape (minutes of all pods + 1,).
            minutes: length of the past.

        Returns:
            Start and end of the span in the trace's arrays, and the mean use, 0 for jobs; each of shape (pods,).
        """
        cluster, offsets = self._cluster, self._use.offsets[pods]
        jobs, arrival = cluster.jobs[pods], cluster.trace.arrival_minute[pods]
        run_start = np.array([cluster.running[number].start for number in pods.tolist()], np.int64)
        first_start = np.where(jobs, run_start, cluster.first_start[pods])
        origin = np.where(jobs, run_start, arrival)  # minute to which the first recorded use belongs
        first = offsets + first_start - origin
        now = np.maximum(offsets + self._watcher.known_until() - origin, first)
        since = np.maximum(first, now - minutes)
        mean = (before[now] - before[since]) / np.maximum(now - since, 1)
        return first, now, np.where(jobs, 0.0, mean)


def _highest(use: NDArray[np.floating[Any]], offsets: Int64s, minutes: int) -> NDArray[np.floating[Any]]:
    """Return for each minute the highest use of the same pod in the window that ends in this minute.

    Args:
        use: use of all pods, one after another.
        offsets: start of each pod in ``use``, shape (pods + 1,).
        minutes: length of the window.

    Returns:
        The same shape as ``use``.
    """
    age = np.zeros(len(use), np.int64)
    age[offsets[0] : offsets[-1]] = np.arange(offsets[0], offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    highest, length = use, 1
    while length < minutes:
        step = min(length, minutes - length)
        longer = highest.copy()
        np.maximum(highest[step:], highest[:-step], out=longer[step:], where=age[step:] >= step)
        highest, length = longer, length + step
    return highest
