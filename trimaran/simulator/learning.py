"""What pods were seen to use: by owner, from the past of a replay alone, as a metrics server and a history show it.

What was asked for above a node's capacity counts as used: a replay throttles nobody.
"""

from itertools import compress

import numpy as np

from scoring.arrays import Float64s, Int64s
from scoring.load.use_levels import OwnerIndex, UseLevels
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.trace import RESOURCES

_MARGIN = 1.15  # what VerticalPodAutoscaler adds
_QUANTILE = 0.9  # of the CPU samples that VerticalPodAutoscaler targets; memory goes by the highest
_BINS = 200
_LEAST_MINUTES = 10
_RENEWED_MINUTES = 5
_LOWEST_LEVEL = 0.05
_HIGHEST_LEVEL = 4.0
_PRIOR_MINUTES = 60
_MEMORY_MINUTES = 1440
# Owners' CPU levels stray by some 60 to 80 percent of their mean in published traces: so little is known of a new one.
# Their memory levels are much more alike.
_UNKNOWN = (0.8, 0.3)
_UNKNOWN_MINUTES = 120


class UseHistory:
    """Levels, that is, use in parts of the request as its user wrote it, by owner; renewed every five minutes.

    Args:
        cluster: whose pods are watched.
        watcher: which says up to when their use is known.

    Attributes:
        minutes: for how many minutes of pods each owner was seen, shape (owners,).
        watched: for how many minutes any of its pods was, shape (owners,).
        weights: the same, where a minute counts less the longer ago it was, shape (owners,).
        sums: its levels, CPU and memory, the means over its pods, added up with these weights, shape (2, owners).
        squares: the squares of its levels, added up likewise, shape (2, owners).
        histogram: how often its CPU level was how high, shape (owners, bins).
        highest_memory: its highest memory level, shape (owners,).
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
        self._seen: list[PodRun] = []  # the stays that were not over the last time
        self._known: Int64s = np.zeros((3, 0), np.int64)  # of these: the pod, the start, where its use is counted from
        self._begun = 0
        self._until = 0
        self._places = OwnerIndex(cluster.owner(kind, name) for kind, name in number)
        self._levels: UseLevels | None = None
        self._levels_until = -1

    def right_sized(self, number: int) -> tuple[int, int]:
        """Return requests as VerticalPodAutoscaler recommends them: millicores and bytes; the usual ones while unknown.

        The 90th percentile of the owner's CPU samples and its highest memory sample, and 15 percent more.
        """
        self.update()
        owner = self.owner_of[number]
        if self.minutes[owner] < _LEAST_MINUTES:
            return self._cluster.requests(number)
        counts = np.cumsum(self.histogram[owner])
        cpu = (np.searchsorted(counts, _QUANTILE * counts[-1]) + 1) * _HIGHEST_LEVEL / _BINS
        trace = self._cluster.trace
        asked = (trace.cpu_request_milli[number] * cpu, trace.memory_request_bytes[number] * self.highest_memory[owner])
        cpu_milli, memory_bytes = (max(round(float(amount) * _MARGIN), 1) for amount in asked)
        return cpu_milli, memory_bytes

    def update(self) -> None:
        """Take in what was used since the last time, if that was long enough ago."""
        cluster, since, now = self._cluster, self._until, self._watcher.known_until()
        if now - since < _RENEWED_MINUTES:
            return
        self._until = now
        if not self._follow_runs():
            return
        numbers, begin, began = self._known
        start = np.maximum(begin, since)
        end = np.array([run.end for run in self._seen])  # a pod that is moved or evicted ends earlier
        length = np.maximum(np.minimum(end, now) - start, 0)
        use = cluster.trace.use
        first = use.offsets[numbers] + start - began
        at = np.repeat(first - np.cumsum(length) + length, length) + np.arange(length.sum())
        owner = np.repeat(self.owner_of[numbers], length)
        lasts = end > now
        self._seen, self._known = list(compress(self._seen, lasts.tolist())), self._known[:, lasts]
        cpu, memory = use.cpu[at].astype(np.float64), use.memory[at].astype(np.float64)
        count = len(self.minutes)
        minutes = np.bincount(owner, minlength=count)
        self.minutes += minutes
        self._weigh(minutes, np.stack([np.bincount(owner, level, count) for level in (cpu, memory)]), now - since)
        bins = np.minimum(cpu * (_BINS / _HIGHEST_LEVEL), _BINS - 1).astype(np.int64)
        self.histogram += np.bincount(owner * _BINS + bins, minlength=count * _BINS).reshape(count, _BINS)
        np.maximum.at(self.highest_memory, owner, memory)

    def _follow_runs(self) -> bool:
        """Take in the stays that began since the last time; say whether there are any at all."""
        cluster = self._cluster
        new = cluster.pod_runs[self._begun :]
        self._begun = len(cluster.pod_runs)
        self._seen += new
        known = np.array([(run.pod, run.start, cluster.use_origin(run)) for run in new], np.int64)
        self._known = np.hstack([self._known, known.reshape(-1, 3).T])
        return bool(self._seen)

    def _weigh(self, minutes: Int64s, sums: Float64s, length: int) -> None:
        """Add what was seen of owners in some minutes to what was seen before, which counts a little less by then."""
        seen = np.flatnonzero(minutes)
        level = sums[:, seen] / minutes[seen]
        keep = np.exp(-length / _MEMORY_MINUTES)
        self.watched[seen] += length
        self.weights[seen] = keep * self.weights[seen] + length
        self.sums[:, seen] = keep * self.sums[:, seen] + length * level
        self.squares[:, seen] = keep * self.squares[:, seen] + length * level**2

    def levels(self) -> UseLevels:
        """Return what pods are known to use, in parts of their requests after overcommit.

        An owner's level is the mean of what was seen, drawn to that of the whole cluster as if it had been seen for an
        hour more; everybody else's is the cluster's. How far its use strays from it is

            deviation ^ 2 = variance over time + (unknown * level) ^ 2 / (1 + minutes watched / 120)

        for what nobody knows of a new owner is soon known: 0.8 of its CPU level, and 0.3 of its memory level. Memory
        that runs out for a minute has run out, so its deviation over time is at least how far the highest level that
        was seen is above the mean.
        """
        self.update()
        if self._levels is None or self._levels_until != self._until:
            cluster, self._levels_until = self._cluster, self._until
            factors = np.array(cluster.overcommit)[:, None]
            usual = self._usual()
            means = (self.sums + _PRIOR_MINUTES * usual) / (self.weights + _PRIOR_MINUTES) * factors
            default = usual * factors
            levels = np.hstack([means, default])
            strays = np.hstack([self._deviations(means, factors), default * np.array(_UNKNOWN)[:, None]])
            self._levels = UseLevels(
                self._places, dict(zip(RESOURCES, levels, strict=True)), dict(zip(RESOURCES, strays, strict=True))
            )
        return self._levels

    def _deviations(self, levels: Float64s, factors: Float64s) -> Float64s:
        """Return how far each owner's use strays from its levels, in parts of requests after overcommit, as levels."""
        weights = np.maximum(self.weights, 1)
        means = self.sums / weights
        over_time = np.maximum(self.squares / weights - means**2, 0)
        over_time[1] = np.maximum(over_time[1], (self.highest_memory - means[1]) ** 2)
        unknown = (np.array(_UNKNOWN)[:, None] * levels) ** 2 / (1 + self.watched / _UNKNOWN_MINUTES)
        deviations: Float64s = np.sqrt(over_time * factors**2 + unknown)
        return deviations

    def _usual(self) -> Float64s:
        """Return the level of all that runs, as the nodes' use shows it, shape (2, 1)."""
        cluster = self._cluster
        end = self._until
        start = max(end - 4 * _RENEWED_MINUTES, 0)
        trace, running = cluster.trace, list(cluster.running)
        asked = np.array(
            [trace.cpu_request_milli[running].sum(), trace.memory_request_bytes[running].sum()], np.float64
        )
        if end - start < 2 * _RENEWED_MINUTES or not asked.all():
            return 1 / np.array(cluster.overcommit)[:, None]  # they use what they request
        used = cluster.ledger.use[:, :, start:end].mean(axis=2).sum(axis=1)
        usual: Float64s = np.clip(used / asked, _LOWEST_LEVEL, _HIGHEST_LEVEL)[:, None]
        return usual
