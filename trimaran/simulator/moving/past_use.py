"""What the pods that run used in the past, as if each had always run: what moves go by.

It is known as late as what the watcher tells of nodes, and in an outage not at all. What a service's pod used before it
first had a node is taken to be its mean; a job used nothing then, for it will soon be gone. What was asked for above a
node's capacity counts as used.
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
    """The past of the pods of one replay, prepared once from its trace, so that each look at it is short.

    Args:
        cluster: whose pods they are.
        watcher: which says up to when their use is known.
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._cluster, self._watcher, self._use = cluster, watcher, cluster.trace.use
        # What all minutes before one have together, so that the sum of any span is a difference.
        self._cpu_before, self._memory_before = (
            np.concatenate([[0.0], np.cumsum(part, dtype=np.float64)]) for part in (self._use.cpu, self._use.memory)
        )
        self._highest_memory = _highest(self._use.memory, self._use.offsets, QUARTER)

    def known_minutes(self, most: int) -> int:
        """Return how many past minutes are known, up to so many: whole hours, or whole quarters of the first one.

        None are while nodes are not measured: what nobody watches is left alone.
        """
        if self._watcher.snapshot() is None:
            return 0
        minutes = min(most, self._watcher.known_until())
        return minutes - minutes % (HOUR if minutes >= HOUR else QUARTER)

    def cpu(self, pods: Int64s, minutes: int, every: int, last_hour_share: float) -> Float64s:
        """Return millicores in each of so many past minutes, the last one among them, as they may be again.

        Args:
            pods: numbers of pods that run.
            minutes: how many to look back, as :meth:`known_minutes` returns them.
            every: one of how many minutes is returned.
            last_hour_share: how much of each hour's mean is replaced by the last hour's.

        Returns:
            Shape (pods, minutes / every), never below 0.
        """
        first, now, usual = self._lives(pods, self._cpu_before, minutes)
        back = np.arange(minutes - 1 - (minutes - 1) % every, -1, -every)
        at = now[:, None] - 1 - back
        single = np.where(at >= first[:, None], self._use.cpu[np.maximum(at, first[:, None])], usual[:, None])
        hour = min(HOUR, minutes)
        edges = np.maximum(now[:, None] - np.arange(minutes, -1, -hour), first[:, None])
        unseen = hour - np.diff(edges)
        hours = (np.diff(self._cpu_before[edges]) + unseen * usual[:, None]) / hour
        level = last_hour_share * (hours[:, -1:] - hours)
        again = single + level[:, (minutes - 1 - back) // hour]
        millicores: Float64s = np.maximum(again, 0) * self._cluster.trace.cpu_request_milli[pods][:, None]
        return millicores

    def highest_memory(self, pods: Int64s, minutes: int) -> Float64s:
        """Return the highest bytes of each past quarter of an hour, shape (pods, minutes / 15).

        Args:
            pods: numbers of pods that run.
            minutes: the same.
        """
        first, now, usual = self._lives(pods, self._memory_before, minutes)
        last = now[:, None] - 1 - np.arange(minutes - QUARTER, -1, -QUARTER)
        seen = np.where(last >= first[:, None], self._highest_memory[np.maximum(last, first[:, None])], 0.0)
        begins_within = last - QUARTER + 1 < first[:, None]
        late = first > self._use.offsets[pods]  # these minutes before it are told, too, in which it waited
        for pod, quarter in np.argwhere(begins_within & (last >= first[:, None]) & late[:, None]).tolist():
            seen[pod, quarter] = self._use.memory[first[pod] : last[pod, quarter] + 1].max()
        before = np.where(begins_within, usual[:, None], 0.0)
        highest: Float64s = np.maximum(seen, before) * self._cluster.trace.memory_request_bytes[pods][:, None]
        return highest

    def _lives(self, pods: Int64s, before: Float64s, minutes: int) -> tuple[Int64s, Int64s, Float64s]:
        """Return where each pod's minutes begin in the trace's arrays, where what is known ends, and its usual use."""
        cluster, offsets = self._cluster, self._use.offsets[pods]
        jobs, arrived = cluster.jobs[pods], cluster.trace.arrival_minute[pods]
        started = np.array([cluster.running[number].start for number in pods.tolist()], np.int64)
        begun = np.where(jobs, started, cluster.first_start[pods])
        counted = np.where(jobs, started, arrived)  # from which minute on its use is told
        first = offsets + begun - counted
        now = np.maximum(offsets + self._watcher.known_until() - counted, first)
        since = np.maximum(first, now - minutes)
        mean = (before[now] - before[since]) / np.maximum(now - since, 1)
        return first, now, np.where(jobs, 0.0, mean)


def _highest(use: NDArray[np.floating[Any]], offsets: Int64s, minutes: int) -> NDArray[np.floating[Any]]:
    """Return at each minute the highest of so many that end with it, of the same pod; the same shape."""
    age = np.zeros(len(use), np.int64)
    age[offsets[0] : offsets[-1]] = np.arange(offsets[0], offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    highest, length = use, 1
    while length < minutes:
        step = min(length, minutes - length)
        longer = highest.copy()
        np.maximum(highest[step:], highest[:-step], out=longer[step:], where=age[step:] >= step)
        highest, length = longer, length + step
    return highest
