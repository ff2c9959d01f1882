"""Feeding of the watcher's learner during a replay, with the rounds of :mod:`trimaran.simulator.use_rounds`."""

from typing import TYPE_CHECKING

import numpy as np

from scoring.load.use_levels import UseLevels
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES, UseRounds
from trimaran.simulator.windows import unix_seconds
from watcher.workload_table import ContainerKey
from watcher.workloads.learner import WorkloadLearner
from watcher.workloads.use_round import UseRound

if TYPE_CHECKING:
    from runtime.kubernetes.workloads import Workload
    from scoring.arrays import Int64s

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
        self._rounds = UseRounds(cluster)
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
        if self._right_sizes_until != self._rounds.until:
            self._right_sizes_until = self._rounds.until
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
        if self._levels is None or self._levels_until != self._rounds.until:
            self._levels_until = self._rounds.until
            self._levels = UseLevels.of_workloads(self.learner.table(), self._levels)
        return self._levels

    def update(self) -> None:
        """Learn from each full round of five minutes that is known by now."""
        for measured in self._rounds.known(self._watcher.known_until()):
            requests = np.array([run.requests for run in measured.runs], np.float64).T
            self.learner.observe(
                UseRound(
                    time=float(unix_seconds(measured.until)),
                    seconds=60.0 * ROUND_MINUTES,
                    keys=self._keys,
                    container=self._workload_of[measured.pods],
                    revision=np.zeros(len(measured.runs), np.int64),
                    pods=np.ones(len(measured.runs)),
                    measured_seconds=np.float64(60) * measured.minutes,
                    use=np.stack([measured.cores, measured.memory_bytes]),
                    requests=requests / [[1000], [1]],
                )
            )
