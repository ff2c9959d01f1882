"""What moves pods beside a policy: when it looks for moves, and how many it may make.

    time            every so often
    load            a node's CPU or memory, as the watcher serves it, is at or above the hot percent
    nodes           a node failed, left or joined
    pods            a tenth more or fewer pods run than when moves were looked for last
    fragmentation   a pod waits that all nodes together have room for, and no node alone

The budget grows with time, from when the first move may be made, so many percent of the pods that run an hour. What is
left is kept, up to what an hour gives, or one pod.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.simulated_watcher import SimulatedWatcher

_CHANGED_PODS = 0.1


class Trigger(StrEnum):
    """What moves are looked for at; see above."""

    TIME = "time"
    LOAD = "load"
    NODES = "nodes"
    PODS = "pods"
    FRAGMENTATION = "fragmentation"


class Mover(Protocol):
    """Moves at work in one replay."""

    def due(self) -> Sequence[tuple[int, int | None]]:
        """Return the moves to make now, in order: the pod's number and the row that it goes to.

        Without a row the pod is evicted, and placed by the policy like any other. Asked once a minute.
        """
        ...


@dataclass(frozen=True)
class MovePolicy(ABC):
    """A way to move pods: when moves are looked for, and how many may be made.

    Attributes:
        percent_per_hour: how many of the pods that run may be moved in an hour, on average.
        every_minutes: the least time between two looks.
        after_minutes: when the first move may be, and the budget begins to grow.
        triggers: one of which has to be there.
        hot_percent: for the trigger ``load``.
    """

    percent_per_hour: float = 0.1
    every_minutes: int = 5
    after_minutes: int = 360
    triggers: tuple[Trigger, ...] = (Trigger.TIME,)
    hot_percent: float = 80.0

    @abstractmethod
    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> Mover:
        """Begin a replay."""


class MoveSchedule:
    """Says in which minutes moves are looked for, and how many may be made; asked once a minute.

    Args:
        moving: what is asked for.
        cluster: what is replayed.
        watcher: what is known of the nodes' use.
    """

    def __init__(self, moving: MovePolicy, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._moving, self._cluster, self._watcher = moving, cluster, watcher
        self._budget = 0.0
        self._last_search = -moving.every_minutes
        self._nodes: tuple[str, ...] = cluster.nodes.names
        self._pods = 0

    def budget(self) -> int:
        """Return how many moves may be made now; usually 0."""
        moving, cluster = self._moving, self._cluster
        if cluster.minute < moving.after_minutes:
            return 0
        hourly = moving.percent_per_hour / 100 * len(cluster.running)
        self._budget = min(self._budget + hourly / 60, max(hourly, 1.0))
        too_soon = cluster.minute < self._last_search + moving.every_minutes
        if self._budget < 1 or too_soon or not any(self._has_fired(trigger) for trigger in moving.triggers):
            return 0
        self._last_search, self._nodes, self._pods = cluster.minute, cluster.nodes.names, len(cluster.running)
        return int(self._budget)

    def charge(self, moves: int) -> None:
        """Take moves that are made off the budget."""
        self._budget -= moves

    def _has_fired(self, trigger: Trigger) -> bool:
        cluster = self._cluster
        match trigger:
            case Trigger.TIME:
                return not cluster.minute % self._moving.every_minutes
            case Trigger.LOAD:
                loads = self._watcher.loads()
                return any(loads.get(name, 0.0) >= self._moving.hot_percent for name in cluster.nodes.names)
            case Trigger.NODES:
                return cluster.nodes.names != self._nodes
            case Trigger.PODS:
                return abs(len(cluster.running) - self._pods) > _CHANGED_PODS * self._pods
            case Trigger.FRAGMENTATION:
                return cluster.is_fragmented()
