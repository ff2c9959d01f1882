"""What pods were seen to use: by owner, from the past of a replay alone, as a metrics server and a history show it."""

import numpy as np

from scoring.arrays import Float64s, Int64s
from simulator.cluster import Cluster, Stay

_MARGIN = 1.15  # what VerticalPodAutoscaler adds
_QUANTILE = 0.9  # of the CPU samples that VerticalPodAutoscaler targets; memory goes by the highest
_BINS = 200
_LEAST_MINUTES = 10
_RENEWED_MINUTES = 10
_HIGHEST_LEVEL = 4.0


class UseHistory:
    """Levels, that is, use in parts of the request as its user wrote it, by owner; renewed every ten minutes.

    Args:
        cluster: whose pods are watched.

    Attributes:
        minutes: for how many minutes of pods each owner was seen, shape (owners,).
        sums: its levels, CPU and memory, added up over these, shape (2, owners).
        histogram: how often its CPU level was how high, shape (owners, bins).
        highest_memory: its highest memory level, shape (owners,).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        pairs = list(zip(cluster.trace.owner_kinds, cluster.trace.owners, strict=True))
        number = {owner: place for place, owner in enumerate(dict.fromkeys(pairs))}
        self.owner_of: Int64s = np.array([number[pair] for pair in pairs], np.int64)
        self.minutes = np.zeros(len(number))
        self.sums = np.zeros((2, len(number)))
        self.histogram = np.zeros((len(number), _BINS))
        self.highest_memory = np.zeros(len(number))
        self._seen: list[Stay] = []
        self._begun = 0
        self._until = 0

    def right_sized(self, number: int) -> tuple[int, int]:
        """Return requests as VerticalPodAutoscaler recommends them: millicores and bytes; the usual ones while unknown.

        The 90th percentile of the owner's CPU samples and its highest memory sample, and 15 percent more.
        """
        self.learn()
        owner = self.owner_of[number]
        if self.minutes[owner] < _LEAST_MINUTES:
            return self._cluster.requests(number)
        counts = np.cumsum(self.histogram[owner])
        cpu = (np.searchsorted(counts, _QUANTILE * counts[-1]) + 1) * _HIGHEST_LEVEL / _BINS
        trace = self._cluster.trace
        asked = (trace.cpu_request_milli[number] * cpu, trace.memory_request_bytes[number] * self.highest_memory[owner])
        cpu_milli, memory_bytes = (max(round(float(amount) * _MARGIN), 1) for amount in asked)
        return cpu_milli, memory_bytes

    def learn(self) -> None:
        """Take in what was used since the last time, if that was long enough ago."""
        cluster, since, now = self._cluster, self._until, self._cluster.minute
        if now - since < _RENEWED_MINUTES:
            return
        self._until = now
        stays = self._seen + cluster.stays[self._begun :]
        self._begun = len(cluster.stays)
        self._seen = [stay for stay in stays if stay.end > now]
        if not stays:
            return
        use, numbers = cluster.trace.use, np.array([stay.pod for stay in stays])
        start = np.maximum([stay.start for stay in stays], since)
        length = np.maximum(np.minimum([stay.end for stay in stays], now) - start, 0)
        first = use.offsets[numbers] + start - [cluster.began(stay) for stay in stays]
        at = np.repeat(first - np.cumsum(length) + length, length) + np.arange(length.sum())
        owner = np.repeat(self.owner_of[numbers], length)
        cpu, memory = use.cpu[at].astype(np.float64), use.memory[at].astype(np.float64)
        count = len(self.minutes)
        self.minutes += np.bincount(owner, minlength=count)
        self.sums += [np.bincount(owner, weights, count) for weights in (cpu, memory)]
        bins = np.minimum(cpu * (_BINS / _HIGHEST_LEVEL), _BINS - 1).astype(np.int64)
        self.histogram += np.bincount(owner * _BINS + bins, minlength=count * _BINS).reshape(count, _BINS)
        np.maximum.at(self.highest_memory, owner, memory)

    def mean_levels(self) -> Float64s:
        """Return each owner's mean level of CPU and memory, NaN while it is unknown, shape (2, owners)."""
        known = self.minutes >= _LEAST_MINUTES
        return np.where(known, self.sums / np.maximum(self.minutes, 1), np.nan)
