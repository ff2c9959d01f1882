"""Triggers of a search for moves.

time            an interval has passed
load            a node's CPU or memory load, as the watcher serves it, is at or above the hot percentage
nodes           a node failed, left, joined or is Ready again
pods            the number of running pods changed by more than a tenth since the last search
fragmentation   a queued pod would fit the free capacity of all nodes together, but fits no single node
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

_CHANGED_PODS = 0.1


class Trigger(StrEnum):
    """Trigger of a search for moves; see the module's docstring."""

    TIME = "time"
    LOAD = "load"
    NODES = "nodes"
    PODS = "pods"
    FRAGMENTATION = "fragmentation"


class ClusterSigns(NamedTuple):
    """State of a cluster that decides whether a trigger fires.

    Attributes:
        interval_passed: whether the interval between two searches has passed.
        names: names of the Ready nodes.
        running: number of running pods.
        loads: returns the loads of the measured nodes, percent.
        is_fragmented: returns whether a queued pod fits all nodes together, but no single node.
    """

    interval_passed: bool
    names: tuple[str, ...]
    running: int
    loads: Callable[[], Iterable[float]]
    is_fragmented: Callable[[], bool]


class TriggerWatch:
    """Triggers, and the state of the cluster at the last search.

    Args:
        triggers: triggers, any of which starts a search.
        hot_percent: load of a node at which the trigger ``load`` fires, percent.
        names: names of the nodes at the start.
    """

    def __init__(self, triggers: Sequence[Trigger], hot_percent: float, names: tuple[str, ...] = ()) -> None:
        self._triggers, self._hot_percent = triggers, hot_percent
        self._names, self._running = names, 0

    def fired(self, signs: ClusterSigns) -> Trigger | None:
        """Return the first trigger that starts a search now; None if none does."""
        return next((trigger for trigger in self._triggers if self._has_fired(trigger, signs)), None)

    def searched(self, signs: ClusterSigns) -> None:
        """Remember the state of the cluster at a search."""
        self._names, self._running = signs.names, signs.running

    def _has_fired(self, trigger: Trigger, signs: ClusterSigns) -> bool:
        match trigger:
            case Trigger.TIME:
                return signs.interval_passed
            case Trigger.LOAD:
                return any(load >= self._hot_percent for load in signs.loads())
            case Trigger.NODES:
                return signs.names != self._names
            case Trigger.PODS:
                return abs(signs.running - self._running) > _CHANGED_PODS * self._running
            case Trigger.FRAGMENTATION:
                return signs.is_fragmented()
