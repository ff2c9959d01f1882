"""Service around the learner of workloads: passes it each round of pod use, and stores the learner's state.

The state is written in one transaction per round. After a kill, the learner continues from the last complete round.
"""

import logging
import threading
from typing import TYPE_CHECKING

from watcher.settings.workloads import RuleName
from watcher.store import Store
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.usage.store import UsageTables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runtime.kubernetes.workloads import Workload
    from watcher.usage.learn.cluster_totals import TotalsHistory
    from watcher.usage.learn.learner import WorkloadLearner
    from watcher.usage.learn.past_days import FilledDay
    from watcher.usage.learn.unmeasured import UnmeasuredContainer
    from watcher.usage.sources.pods import Capacity, RunningPod, RunningPods
    from watcher.windows.container_use import ContainerUse
    from watcher.workload_table import ClusterTotals, ContainerTable, DailyUse, Float64s, WorkloadTable

_NO_ROUND = ("throttling, restarts and autoscalers (no round is complete since the start)",)
_NO_RESTARTS = "restarts and OOM kills (the pods come from kube-state-metrics)"
_log = logging.getLogger(__name__)


class LearnerService:
    """Learner of a watcher, loaded from the store and saved to it. Threads may share it.

    Args:
        store: the watcher's store.
        source: name of the source of the measurements in the store.
        max_workloads: number of workloads above which the least recently seen are forgotten.
        rule: name of the rule of recommended requests.
        backfill_days: number of days, today included, that are backfilled at the first start.

    Attributes:
        rule: name of the rule of recommended requests.
    """

    def __init__(
        self,
        store: Store,
        source: str,
        max_workloads: int = 50_000,
        rule: RuleName = "vpa",
        backfill_days: int = 0,
    ) -> None:
        self._tables, self._max_workloads = UsageTables(store, source), max_workloads
        self.rule, self._backfill_days = rule, backfill_days
        self._autoscaling, self._unchecked = KnownAutoscalers(), _NO_ROUND
        self._killed: Sequence[RunningPod] = ()
        self._lock = threading.Lock()
        self._loaded: WorkloadLearner | None = None
        self._totals: TotalsHistory | None = None
        self._table: WorkloadTable | None = None
        self._courses: Mapping[Workload, Float64s] | None = None
        self._unmeasured: tuple[UnmeasuredContainer, ...] = ()

    def note(self, autoscaling: KnownAutoscalers, killed: "Sequence[RunningPod]" = ()) -> None:
        """Replace the known autoscalers, and the pods that were killed and have not started again.

        The next round and its recommendations use them.
        """
        with self._lock:
            self._autoscaling, self._killed = autoscaling, killed

    def observe(self, use: "ContainerUse", pods: "RunningPods", capacity: "Capacity | None" = None) -> None:
        """Learn from a round of pod use, and store the learner's state."""
        from watcher.usage.learn.unmeasured import unmeasured  # imports numpy, which is slow
        from watcher.usage.learn.use_round import use_round

        with self._lock:
            learner = self._learner()
            measured = use_round(use, pods, learner.time, self._killed)
            if measured is None:
                return
            is_first = not learner.time
            has_use = learner.observe(measured)
            if learner.refused_rounds == 1:
                _log.warning(
                    "the use of pods is not learned: the clock of its source was set back again",
                    extra={"seconds": round(learner.time - measured.time)},
                )
            if is_first and learner.time and self._backfill_days:
                learner.live_since = measured.time - measured.seconds
                learner.unfilled = [learner.day - age for age in range(self._backfill_days)]
            knows_restarts = all(pod.restarts is not None for pod in pods.values())
            unknown_restarts = () if knows_restarts else (_NO_RESTARTS,)
            self._unchecked = (*use.unchecked, *unknown_restarts, *self._autoscaling.unchecked)
            self._unmeasured = unmeasured(pods, learner.knows, measured.time)
            self._table = self._courses = None
            totals = self._day()
            if has_use:
                totals.add(use, pods, capacity)
            self._save()

    def unfilled(self) -> tuple[list[int], float]:
        """Return the numbers of the days to be filled from the past, newest first, and the start of the first round."""
        with self._lock:
            learner = self._learner()
            return list(learner.unfilled), learner.live_since

    def fill(self, filled: "FilledDay") -> None:
        """Add a past day, mark it as filled, and store both in one transaction."""
        with self._lock:
            self._learner().fill(filled)
            self._table = self._courses = None
            self._save()

    def table(self) -> "WorkloadTable":
        """Return the expected use of a pod of each workload; the same object until the next round."""
        with self._lock:
            if self._table is None:
                self._table = self._learner().table()
            return self._table

    def containers(self, quantiles: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99)) -> "ContainerTable":
        """Return the learned use and state of each container, with these quantiles of CPU use."""
        with self._lock:
            return self._learner().containers(quantiles)

    def daily(self, workload: "Workload") -> "DailyUse":
        """Return the use of a workload's containers by day; empty for an unknown workload."""
        from watcher.usage.learn.daily_use import daily_use  # imports numpy, which is slow

        with self._lock:
            return daily_use(self._learner(), workload)

    def courses(self) -> "Mapping[Workload, Float64s]":
        """Return the mean use of a pod of each workload in each hour of the day; the same object until the next round.

        Values are in cores and bytes, shape (2, 24); NaN where unknown.
        """
        with self._lock:
            if self._courses is None:
                self._courses = self._learner().courses()
            return self._courses

    @property
    def autoscaling(self) -> KnownAutoscalers:
        """Autoscalers in the newest round."""
        return self._autoscaling

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Reasons against a lower request that could not be checked in the newest round."""
        return self._unchecked

    @property
    def unmeasured(self) -> "tuple[UnmeasuredContainer, ...]":
        """Containers of the pods of the newest round that were never measured, sorted."""
        return self._unmeasured

    def totals(self) -> "ClusterTotals":
        """Return capacity, requests and use of all pods together in the rounds of the last day."""
        with self._lock:
            return self._day().totals()

    def _save(self) -> None:
        """Store the state in one transaction."""
        from watcher.usage.learn.cluster_totals import PART  # imports numpy, which is slow
        from watcher.usage.learn.learner_state import save_state

        learner, totals = self._learner(), self._day()
        self._tables.save_state(lambda stored: {**save_state(learner, stored), PART: totals.part()})

    def _day(self) -> "TotalsHistory":
        """Return the totals; the first call loads them from the store."""
        self._learner()
        assert self._totals is not None  # noqa: S101  loaded with the learner
        return self._totals

    def _learner(self) -> "WorkloadLearner":
        """Return the learner; the first call loads its state from the store."""
        from watcher.usage.learn.cluster_totals import TotalsHistory  # imports numpy, which is slow
        from watcher.usage.learn.learner import WorkloadLearner
        from watcher.usage.learn.learner_state import UnreadableStateError, load_state

        if self._loaded is None:
            self._loaded = WorkloadLearner(self._max_workloads)
            parts = self._tables.load_state()
            self._totals = TotalsHistory.of_parts(parts)
            if parts:
                try:
                    self._loaded = load_state(parts, self._max_workloads)
                except UnreadableStateError as error:
                    _log.warning(
                        "the stored use of workloads is unreadable: learning starts again", extra={"error": str(error)}
                    )
        return self._loaded
