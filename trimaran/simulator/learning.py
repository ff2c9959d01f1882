"""Feeding of the watcher's learner during a replay: a round of every running pod's use every five minutes, as live.

CPU demand above a node's capacity counts as use, because a replay does not throttle pods.
"""

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from scoring.arrays import Float64s, Int64s
from scoring.load.use_levels import UseLevels
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import unix_seconds
from watcher.workload_table import ContainerKey
from watcher.workloads.learner import WorkloadLearner
from watcher.workloads.use_round import UseRound

if TYPE_CHECKING:
    from runtime.kubernetes.workloads import Workload

ROUND_MINUTES = 5
_CONTAINER = "main"  # simulated pods have one container
_MARGIN = 1.15  # safety margin of VerticalPodAutoscaler
_QUANTILE = 0.9  # of the CPU samples, as VerticalPodAutoscaler recommends; memory goes by the highest sample
_MIN_MINUTES = 10


class UseHistory:
    """Use of each workload's pods, learned as the replay goes on.

    Args:
        cluster: the simulated cluster.
        watcher: the watcher, which limits how recent the known use is.

    Attributes:
        learner: the learner.
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._cluster, self._watcher = cluster, watcher
        self.learner = WorkloadLearner()
        pods = zip(cluster.trace.owner_kinds, cluster.trace.owners, strict=True)
        workloads = [cluster.workload(kind, name) for kind, name in pods]
        number = {workload: place for place, workload in enumerate(dict.fromkeys(workloads))}
        self._workloads: list[Workload] = list(number)
        self._keys = [ContainerKey(workload, _CONTAINER) for workload in number]
        self._workload_of: Int64s = np.array([number[workload] for workload in workloads], np.int64)
        self._active: list[PodRun] = []  # runs that had not ended at the last update
        self._active_columns: Int64s = np.zeros((5, 0), np.int64)  # pods, starts, use origins, requests
        self._followed = 0
        self._until = 0
        self._levels: UseLevels | None = None
        self._levels_until = -1
        self._right_sizes: dict[Workload, tuple[float, float, float]] = {}
        self._right_sizes_until = -1

    def right_sized(self, number: int) -> tuple[int, int]:
        """Return a pod's requests as VerticalPodAutoscaler recommends them, millicores and bytes.

        The recommendation is the 90th percentile of the workload's CPU samples and its highest memory sample, plus 15
        percent. Without enough samples of the workload the pod keeps its requests.
        """
        self.update()
        if self._right_sizes_until != self._until:
            self._right_sizes_until = self._until
            table = self.learner.containers((_QUANTILE,))
            columns = (table.pod_minutes, 1000 * table.cpu_percentiles[0], table.highest_memory)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            self._right_sizes = {key.workload: row for key, row in zip(table.keys, rows, strict=True)}
        workload = self._workloads[self._workload_of[number]]
        minutes, *used = self._right_sizes.get(workload, (0.0, 0.0, 0.0))
        if minutes < _MIN_MINUTES:
            return self._cluster.requests(number)
        cpu_milli, memory_bytes = (max(round(amount * _MARGIN), 1) for amount in used)
        return cpu_milli, memory_bytes

    def levels(self) -> UseLevels:
        """Return the expected use of pods by workload."""
        self.update()
        if self._levels is None or self._levels_until != self._until:
            self._levels_until = self._until
            self._levels = UseLevels.of_workloads(self.learner.table(), self._levels)
        return self._levels

    def update(self) -> None:
        """Learn from each full round of five minutes that is known by now."""
        known_until = self._watcher.known_until()
        if known_until < self._until + ROUND_MINUTES:
            return
        self._follow_runs()
        while known_until >= self._until + ROUND_MINUTES:
            self._until += ROUND_MINUTES
            self._learn(self._until - ROUND_MINUTES, self._until)

    def _learn(self, since: int, until: int) -> None:
        """Give the learner the round between two minutes."""
        if not self._active:
            return

        # Places of the minutes of each run in the trace's arrays of use.
        pods, starts, origins = self._active_columns[:3]
        start = np.maximum(starts, since)
        end = np.array([run.end for run in self._active])  # read again: a moved or evicted pod ends earlier
        length, continues = until - start, end > until
        ran = np.flatnonzero((length > 0) & continues)  # a pod that has ended is not measured, as live
        use = self._cluster.trace.use
        first, length = (use.offsets[pods] + start - origins)[ran], length[ran]
        begin = np.cumsum(length) - length
        at = np.repeat(first - begin, length) + np.arange(length.sum())

        # Mean CPU and highest memory use of each run, as the watcher measures a container.
        if len(ran):
            trace, numbers = self._cluster.trace, pods[ran]
            cpu, memory = use.cpu[at].astype(np.float64), use.memory[at].astype(np.float64)
            cores = np.add.reduceat(cpu, begin) / length * trace.cpu_request_milli[numbers] / 1000
            highest = np.maximum.reduceat(memory, begin) * trace.memory_request_bytes[numbers]
            self.learner.observe(
                UseRound(
                    time=float(unix_seconds(until)),
                    seconds=60.0 * (until - since),
                    keys=self._keys,
                    container=self._workload_of[numbers],
                    revision=np.zeros(len(ran), np.int64),
                    pods=np.ones(len(ran)),
                    measured_seconds=60.0 * length,
                    use=np.stack([cores, highest]),
                    requests=self._requests(ran),
                )
            )

        # Runs that ended need no further look.
        self._active = list(compress(self._active, continues.tolist()))
        self._active_columns = self._active_columns[:, continues]

    def _requests(self, runs: Int64s) -> Float64s:
        """Return the requests of some active runs on admission, cores and bytes, shape (2, runs)."""
        return np.asarray(self._active_columns[3:, runs] / np.array([[1000.0], [1.0]]))

    def _follow_runs(self) -> None:
        """Add the runs that started since the last update."""
        cluster = self._cluster
        new = cluster.pod_runs[self._followed :]
        self._followed = len(cluster.pod_runs)
        self._active += new
        columns = np.array([(run.pod, run.start, cluster.use_origin(run), *run.requests) for run in new], np.int64)
        self._active_columns = np.hstack([self._active_columns, columns.reshape(-1, 5).T])
