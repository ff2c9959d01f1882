"""Input of the watcher's learner during a replay: the rounds of :mod:`trimaran.simulator.use_rounds`.

Before minute 0 the learner gets the trace's history, day by day, as from a watcher's backfill at its first start.
"""

from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from scoring.load.use_levels import UseLevels
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.past_days import CONTAINER, fill_past_days
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES, PodRound, UseRounds
from trimaran.simulator.windows import unix_seconds
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.use_round import UseRound
from watcher.usage.recommend.recommendation import RecommendationRule, recommend
from watcher.workload_table import ContainerKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.kubernetes.workloads import Workload
    from scoring.arrays import Float64s, Int64s

_RULE = RecommendationRule(min_days=10 / 1440)  # ten minutes: a replay is shorter than the week that is required live


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
        fill_past_days(self.learner, cluster.trace, cluster.workload)
        number = {workload: place for place, workload in enumerate(dict.fromkeys(workloads))}
        self._workloads: list[Workload] = list(number)
        self._keys = [ContainerKey(workload, CONTAINER) for workload in number]
        self._workload_of: Int64s = np.array([number[workload] for workload in workloads], np.int64)
        self._rounds = UseRounds(cluster)
        self._levels: UseLevels | None = None
        self._levels_until = -1
        self._right_sizes: dict[Workload, Sequence[float]] = {}
        self._right_sizes_until = -1

    def right_sized(self, number: int) -> tuple[int, int]:
        """Return a pod's requests as the watcher recommends them for its workload, millicores and bytes.

        Where the watcher recommends nothing, or keeps a request for a reason, the pod has its own request. The watcher
        lowers requests after ten minutes, not after a week, because replays are short.
        """
        self.update()
        if self._right_sizes_until != self._rounds.until:
            self._right_sizes_until = self._rounds.until
            table = self.learner.containers((_RULE.quantile,))
            advice = recommend(table, _RULE)
            amounts = np.where(advice.reasons == "", advice.requests * [[1000], [1]], np.nan).T
            self._right_sizes = {key.workload: row for key, row in zip(table.keys, amounts.tolist(), strict=True)}
        own = self._cluster.requests(number)
        advised = self._right_sizes.get(self._workloads[self._workload_of[number]], own)
        cpu_milli, memory_bytes = (
            before if isnan(amount) else round(amount) for before, amount in zip(own, advised, strict=True)
        )
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
            self.learn(measured)

    def learn(self, measured: PodRound) -> None:
        """Learn from a round of pod use."""
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

    def courses(self, pods: "Int64s") -> "Float64s":
        """Return the hourly profile of each given pod's workload: mean use in each hour of the day, cores and bytes.

        Args:
            pods: numbers of the pods.

        Returns:
            Array of the shape (2, pods, 24); NaN where unknown.
        """
        courses, unknown = self.learner.courses(), np.full((2, 24), np.nan)
        by_workload = np.array([courses.get(workload, unknown) for workload in self._workloads])
        return np.asarray(by_workload[self._workload_of[pods]].transpose(1, 0, 2))
