"""Policies that move running pods, with triggers (:mod:`trimaran.planning.move_triggers`) and a budget of moves.

The budget is a token bucket. From the first allowed minute it fills with a percentage of the running pods per hour. It
holds at most an hour's share, or one pod. Moves by cost have the caps of the rebalancer instead.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trimaran.planning.move_triggers import ClusterSigns, Trigger, TriggerWatch
from trimaran.planning.moves.correction import RecentMove, corrected_loads
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import unix_seconds


class Mover(Protocol):
    """State of a move policy during one replay; it decides every minute which pods move."""

    def due(self) -> Sequence[tuple[int, int | None]]:
        """Return the moves to make now, in order. Called once a minute.

        Each move is the number of a pod, and the row of its new node in the cluster's node table. With None instead of
        a row the pod is evicted, and the placement policy places it like any other pod.
        """
        ...


@dataclass(frozen=True)
class MovePolicy(ABC):
    """Base of move policies: schedule and budget of the moves.

    Attributes:
        percent_per_hour: percentage of the running pods that may be moved per hour.
        every_minutes: minimum time between two searches.
        after_minutes: first minute in which a move is allowed, and from which the budget fills.
        triggers: triggers, any of which starts a search.
        hot_percent: load of a node at which the trigger ``load`` fires, percent.
    """

    percent_per_hour: float = 0.1
    every_minutes: int = 5
    after_minutes: int = 360
    triggers: tuple[Trigger, ...] = (Trigger.TIME,)
    hot_percent: float = 80.0

    @abstractmethod
    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> Mover:
        """Return a mover for one replay."""


class MoveSchedule:
    """Schedule of the searches for moves, and the budget of moves. Call :meth:`budget` once a minute.

    Args:
        policy: triggers and limits.
        cluster: the simulated cluster.
        watcher: the nodes' metrics.
    """

    def __init__(self, policy: MovePolicy, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._policy, self._cluster, self._watcher = policy, cluster, watcher
        self._budget = 0.0
        self._last_search = -policy.every_minutes
        self._triggers = TriggerWatch(policy.triggers, policy.hot_percent, cluster.nodes.names)
        self._recent: list[RecentMove] = []

    def is_due(self, *, goes_on: bool = False) -> bool:
        """Return whether to search for moves now; call it once a minute.

        Args:
            goes_on: search even without a trigger, because further searches must confirm the last one.
        """
        policy, cluster = self._policy, self._cluster
        if cluster.minute < max(policy.after_minutes, self._last_search + policy.every_minutes):
            return False
        signs = self._signs()
        if self._triggers.fired(signs) is None and not goes_on:
            return False
        self._last_search = cluster.minute
        self._triggers.searched(signs)
        return True

    def budget(self) -> int:
        """Add a minute's share to the budget and return the number of moves allowed now.

        The result is 0 in most minutes, because no trigger starts a search.
        """
        policy, cluster = self._policy, self._cluster
        if cluster.minute < policy.after_minutes:
            return 0
        hourly = policy.percent_per_hour / 100 * len(cluster.running)
        self._budget = min(self._budget + hourly / 60, max(hourly, 1.0))
        return int(self._budget) if self._budget >= 1 and self.is_due() else 0

    def charge(self, moves: int) -> None:
        """Subtract a number of moves from the budget."""
        self._budget -= moves

    def note(self, moves: Iterable[RecentMove]) -> None:
        """Set the recent moves, with Unix times, for which measured loads are corrected."""
        self._recent = list(moves)

    def _signs(self) -> ClusterSigns:
        """Return the state of the cluster for the triggers; a failed node counts as not measured."""
        cluster = self._cluster
        return ClusterSigns(
            interval_passed=not cluster.minute % self._policy.every_minutes,
            names=cluster.nodes.names,
            running=len(cluster.running),
            loads=self._loads,
            is_fragmented=cluster.is_fragmented,
        )

    def _loads(self) -> list[float]:
        """Return the measured loads of the present nodes, corrected for recent moves, percent."""
        windows = self._watcher.windows
        end = windows.window_end(self._cluster.minute)
        window = (float(unix_seconds(max(end - windows.window_minutes, 0))), float(unix_seconds(end)))
        loads = corrected_loads(self._watcher.loads(), window, self._recent)
        return [loads[name] for name in self._cluster.nodes.names if name in loads]
