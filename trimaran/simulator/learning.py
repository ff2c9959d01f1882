"""Learning of each owner's CPU and memory use during a replay, from the minutes that were already measured.

A real cluster has the same knowledge where a monitoring system stores the metrics of its pods.

CPU demand above a node's capacity counts as use, because a replay does not throttle pods.
"""

from itertools import compress

import numpy as np

from scoring.arrays import Float64s, Int64s
from scoring.load.use_levels import OwnerIndex, UseLevels
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.trace import RESOURCES

_MARGIN = 1.15  # safety margin of VerticalPodAutoscaler
_QUANTILE = 0.9  # of the CPU samples, as VerticalPodAutoscaler recommends; memory goes by the highest sample
_BINS = 200
_MIN_MINUTES = 10
_UPDATE_MINUTES = 5
_LOWEST_LEVEL = 0.05
_HIGHEST_LEVEL = 4.0
_PRIOR_MINUTES = 60
_MEMORY_MINUTES = 1440
# Relative uncertainty of a new owner's CPU and memory level. In published traces CPU levels deviate between owners by
# 60 to 80 percent of their mean, memory levels by much less.
_UNKNOWN = (0.8, 0.3)
_UNKNOWN_MINUTES = 120


class UseHistory:
    """Observed use of each owner's pods, updated every five minutes.

    An owner is a Deployment, Job or other workload. A level is CPU or memory use as a share of the pod's request before
    overcommit.

    Args:
        cluster: the simulated cluster.
        watcher: the watcher, which limits how recent the known use is.

    Attributes:
        owner_of: each pod's owner number, shape (pods,).
        minutes: pod-minutes observed of each owner, shape (owners,).
        watched: minutes in which any pod of the owner was observed, shape (owners,).
        weights: watched minutes with exponential decay, shape (owners,).
        sums: weighted sums of the owner's mean CPU and memory level, shape (2, owners).
        squares: weighted sums of the squared levels, shape (2, owners).
        histogram: counts of the owner's CPU level by bin, shape (owners, bins).
        highest_memory: highest memory level of the owner, shape (owners,).
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._cluster, self._watcher = cluster, watcher
        pairs = list(zip(cluster.trace.owner_kinds, cluster.trace.owners, strict=True))
        number = {owner: place for place, owner in enumerate(dict.fromkeys(pairs))}
        self.owner_of: Int64s = np.array([number[pair] for pair in pairs], np.int64)
        self.minutes = np.zeros(len(number))
        self.watched, self.weights = np.zeros((2, len(number)))
        self.sums, self.squares = np.zeros((2, 2, len(number)))
        self.histogram = np.zeros((len(number), _BINS))
        self.highest_memory = np.zeros(len(number))
        self._active: list[PodRun] = []  # runs that had not ended at the last update
        self._active_columns: Int64s = np.zeros((3, 0), np.int64)  # their pods, starts and use origins
        self._followed = 0
        self._until = 0
        self._owners = OwnerIndex(cluster.owner(kind, name) for kind, name in number)
        self._levels: UseLevels | None = None
        self._levels_until = -1

    def right_sized(self, number: int) -> tuple[int, int]:
        """Return a pod's requests as VerticalPodAutoscaler recommends them, millicores and bytes.

        The recommendation is the 90th percentile of the owner's CPU samples and its highest memory sample, plus 15
        percent. Without enough samples of the owner the pod keeps its requests.
        """
        self.update()
        owner = self.owner_of[number]
        if self.minutes[owner] < _MIN_MINUTES:
            return self._cluster.requests(number)
        counts = np.cumsum(self.histogram[owner])
        cpu = (np.searchsorted(counts, _QUANTILE * counts[-1]) + 1) * _HIGHEST_LEVEL / _BINS
        trace = self._cluster.trace
        used = (trace.cpu_request_milli[number] * cpu, trace.memory_request_bytes[number] * self.highest_memory[owner])
        cpu_milli, memory_bytes = (max(round(float(amount) * _MARGIN), 1) for amount in used)
        return cpu_milli, memory_bytes

    def update(self) -> None:
        """Learn from the use since the last update, if at least five minutes have passed."""
        cluster, since, now = self._cluster, self._until, self._watcher.known_until()
        if now - since < _UPDATE_MINUTES:
            return
        self._until = now
        if not self._follow_runs():
            return

        # Places of the new minutes of all runs in the trace's arrays of use, and the owner of each.
        pods, starts, origins = self._active_columns
        start = np.maximum(starts, since)
        end = np.array([run.end for run in self._active])  # read again: a moved or evicted pod ends earlier
        length = np.maximum(np.minimum(end, now) - start, 0)
        use = cluster.trace.use
        first = use.offsets[pods] + start - origins
        at = np.repeat(first - np.cumsum(length) + length, length) + np.arange(length.sum())
        owner = np.repeat(self.owner_of[pods], length)

        # Runs that ended need no further look.
        continues = end > now
        self._active = list(compress(self._active, continues.tolist()))
        self._active_columns = self._active_columns[:, continues]

        # Add the levels of these minutes to each owner's statistics.
        cpu, memory = use.cpu[at].astype(np.float64), use.memory[at].astype(np.float64)
        count = len(self.minutes)
        minutes = np.bincount(owner, minlength=count)
        self.minutes += minutes
        self._add_weighted(minutes, np.stack([np.bincount(owner, part, count) for part in (cpu, memory)]), now - since)
        bins = np.minimum(cpu * (_BINS / _HIGHEST_LEVEL), _BINS - 1).astype(np.int64)
        self.histogram += np.bincount(owner * _BINS + bins, minlength=count * _BINS).reshape(count, _BINS)
        np.maximum.at(self.highest_memory, owner, memory)

    def _follow_runs(self) -> bool:
        """Add the runs that started since the last update; return whether any run is active."""
        cluster = self._cluster
        new = cluster.pod_runs[self._followed :]
        self._followed = len(cluster.pod_runs)
        self._active += new
        columns = np.array([(run.pod, run.start, cluster.use_origin(run)) for run in new], np.int64)
        self._active_columns = np.hstack([self._active_columns, columns.reshape(-1, 3).T])
        return bool(self._active)

    def _add_weighted(self, minutes: Int64s, sums: Float64s, length: int) -> None:
        """Add the levels of one update to the weighted sums, after decaying the sums.

        Args:
            minutes: pod-minutes observed of each owner, shape (owners,).
            sums: sums of the CPU and memory levels over these pod-minutes, shape (2, owners).
            length: minutes since the last update.
        """
        observed = np.flatnonzero(minutes)
        level = sums[:, observed] / minutes[observed]
        decay = np.exp(-length / _MEMORY_MINUTES)
        self.watched[observed] += length
        self.weights[observed] = decay * self.weights[observed] + length
        self.sums[:, observed] = decay * self.sums[:, observed] + length * level
        self.squares[:, observed] = decay * self.squares[:, observed] + length * level**2

    def levels(self) -> UseLevels:
        """Return levels and deviations by owner, as shares of the requests after overcommit.

        An owner's level is the mean of the observed levels, shrunk towards the cluster's level as if the owner had also
        been observed at that level for an hour. Owners without observations have the cluster's level. The deviation is

            deviation ^ 2 = variance over time + (unknown * level) ^ 2 / (1 + minutes watched / 120)

        with unknown = 0.8 for CPU and 0.3 for memory: the uncertainty about a new owner, which falls as the owner is
        observed. A short peak is enough to run out of memory, so the deviation of memory over time is at least the
        distance from the mean to the highest observed level.
        """
        self.update()
        if self._levels is None or self._levels_until != self._until:
            cluster, self._levels_until = self._cluster, self._until
            factors = np.array(cluster.overcommit)[:, None]
            cluster_level = self._cluster_level()
            means = (self.sums + _PRIOR_MINUTES * cluster_level) / (self.weights + _PRIOR_MINUTES) * factors
            default = cluster_level * factors
            levels = np.hstack([means, default])
            deviations = np.hstack([self._deviations(means, factors), default * np.array(_UNKNOWN)[:, None]])
            self._levels = UseLevels(
                self._owners, dict(zip(RESOURCES, levels, strict=True)), dict(zip(RESOURCES, deviations, strict=True))
            )
        return self._levels

    def _deviations(self, levels: Float64s, factors: Float64s) -> Float64s:
        """Return the deviation that :meth:`levels` defines, of each owner's CPU and memory use, shape (2, owners).

        Args:
            levels: each owner's level as a share of the requests after overcommit, shape (2, owners).
            factors: factors that convert shares of original requests to shares of requests after overcommit.
        """
        weights = np.maximum(self.weights, 1)
        means = self.sums / weights
        over_time = np.maximum(self.squares / weights - means**2, 0)
        over_time[1] = np.maximum(over_time[1], (self.highest_memory - means[1]) ** 2)
        unknown = (np.array(_UNKNOWN)[:, None] * levels) ** 2 / (1 + self.watched / _UNKNOWN_MINUTES)
        return np.asarray(np.sqrt(over_time * factors**2 + unknown))

    def _cluster_level(self) -> Float64s:
        """Return the use of all nodes in about the last 20 known minutes, as a share of the running pods' requests.

        The requests are those before overcommit. The result has the shape (2, 1): CPU and memory.
        """
        cluster = self._cluster
        end = self._until
        start = max(end - 4 * _UPDATE_MINUTES, 0)
        trace, running = cluster.trace, list(cluster.running)
        requests = np.array(
            [trace.cpu_request_milli[running].sum(), trace.memory_request_bytes[running].sum()], np.float64
        )
        if end - start < 2 * _UPDATE_MINUTES or not requests.all():
            return 1 / np.array(cluster.overcommit)[:, None]  # assume that use equals the request after overcommit
        used = cluster.ledger.use[:, :, start:end].mean(axis=2).sum(axis=1)
        return np.asarray(np.clip(used / requests, _LOWEST_LEVEL, _HIGHEST_LEVEL)[:, None])
