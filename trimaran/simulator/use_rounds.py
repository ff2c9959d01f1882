"""Rounds of measurements of every running pod in a replay, every five minutes, as a live watcher makes them.

The pods' use is known with the same delay and the same outages as the watcher's node metrics. CPU use is what the
pods got of their node, not their demand. A round leaves out pods that ended before its end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.simulator.cluster import Cluster, PodRun

ROUND_MINUTES = 5


@dataclass(frozen=True, eq=False)
class PodRound:
    """Measurements of one round.

    Attributes:
        until: minute in which the round ends.
        runs: the measured runs of pods.
        pods: number of each run's pod, shape (runs,).
        minutes: minutes of each run in the round, shape (runs,).
        cores: mean CPU use in these minutes, shape (runs,).
        memory_bytes: highest memory use in these minutes, shape (runs,).
    """

    until: int
    runs: list[PodRun]
    pods: Int64s
    minutes: Int64s
    cores: Float64s
    memory_bytes: Float64s


class UseRounds:
    """Measurement of all running pods, one round after the other.

    Args:
        cluster: the simulated cluster.
        since: minute before which nothing is measured.

    Attributes:
        until: minute in which the last round ended.
    """

    def __init__(self, cluster: Cluster, since: int = 0) -> None:
        self.until = since - since % ROUND_MINUTES
        self._cluster = cluster
        self._active: list[PodRun] = []  # runs that had not ended at the last round
        self._columns: Int64s = np.zeros((3, 0), np.int64)  # of these runs: pods, first working minutes and use origins
        self._followed = 0

    def known(self, minute: int) -> Iterator[PodRound]:
        """Yield the rounds since the last call that are complete in a minute; rounds without pods are left out."""
        if minute < self.until + ROUND_MINUTES:
            return
        self._follow_runs()
        while minute >= self.until + ROUND_MINUTES:
            self.until += ROUND_MINUTES
            if self._active:
                measured = self._measure(self.until - ROUND_MINUTES, self.until)
                if measured.runs:
                    yield measured

    def _measure(self, since: int, until: int) -> PodRound:
        pods, starts, origins = self._columns
        start = np.maximum(starts, since)
        end = np.array([run.end for run in self._active])  # read again: a moved or evicted pod ends earlier
        minutes, continues = until - start, end > until
        ran = np.flatnonzero((minutes > 0) & continues)
        runs = [self._active[place] for place in ran.tolist()]

        trace = self._cluster.trace
        first, minutes, pods = (trace.use.offsets[pods] + start - origins)[ran], minutes[ran], pods[ran]
        cpu, highest = trace.use.in_spans(first, minutes)
        cores, memory = cpu * trace.cpu_request_milli[pods] / 1000, highest * trace.memory_request_bytes[pods]
        for place, run in enumerate(runs):
            if run.use is not None:
                used = run.use[:, until - minutes[place] - run.start : until - run.start]
                cores[place], memory[place] = used[0].mean() / 1000, used[1].max()

        # Runs that ended are not measured again.
        self._active = list(compress(self._active, continues.tolist()))
        self._columns = self._columns[:, continues]
        return PodRound(until, runs, pods, minutes, cores, memory)

    def _follow_runs(self) -> None:
        """Add the runs that started since the last call."""
        cluster = self._cluster
        new = cluster.pod_runs[self._followed :]
        self._followed = len(cluster.pod_runs)
        self._active += new
        columns = np.array([(run.pod, run.works, cluster.use_origin(run)) for run in new], np.int64)
        self._columns = np.hstack([self._columns, columns.reshape(-1, 3).T])
