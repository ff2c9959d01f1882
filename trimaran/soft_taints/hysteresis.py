"""Which nodes are called hot. Pure: the time is passed in, and what was decided before.

    becomes hot   load >= hot_percent, and there is room: no more than most_share of all nodes are hot at once, the most
                  loaded ones first; who is hot already stays
    stays hot     for hold_seconds at least, then until load < cool_percent
    not measured  stays what it is; a hot one for hold_seconds, then it is no longer

Load is the higher of a node's average CPU and memory. The gap between the two limits and the time are the hysteresis: a
node at the limit does not flap. The most share keeps a busy cluster from calling all of itself hot, which says nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watcher.model import WatcherMetrics, averages


@dataclass(frozen=True, slots=True)
class HeatRule:
    """When a node is hot.

    Attributes:
        hot_percent: from this load on a node becomes hot.
        cool_percent: below this load it is no longer.
        hold_seconds: how long it is at least.
        most_share: of all nodes that may be hot at once, 0 to 1.

    Raises:
        ValueError: the limits are in the wrong order.
    """

    hot_percent: float = 80.0
    cool_percent: float = 70.0
    hold_seconds: float = 300.0
    most_share: float = 0.25

    def __post_init__(self) -> None:
        if self.cool_percent > self.hot_percent:
            raise ValueError(f"cool_percent {self.cool_percent:g} is above hot_percent {self.hot_percent:g}")

    def hot(
        self, names: Iterable[str], loads: Mapping[str, float], before: Mapping[str, float], now: float
    ) -> dict[str, float]:
        """Return the nodes that are hot, each with the time since when.

        Args:
            names: all nodes.
            loads: of those that were measured, percent.
            before: what this returned last; of a node that is there no more it says nothing.
            now: seconds, of any clock.
        """
        names = list(names)
        stay = {name: before[name] for name in names if name in before and self._stays(name, loads, before, now)}
        room = int(self.most_share * len(names)) - len(stay)
        new = [name for name in names if name not in stay and loads.get(name, 0.0) >= self.hot_percent]
        new.sort(key=lambda name: (-loads[name], name))
        return {**stay, **dict.fromkeys(new[: max(room, 0)], now)}

    def _stays(self, name: str, loads: Mapping[str, float], before: Mapping[str, float], now: float) -> bool:
        if now - before[name] < self.hold_seconds:
            return True
        return loads.get(name, 0.0) >= self.cool_percent


def loads_of(snapshot: WatcherMetrics) -> dict[str, float]:
    """Return each node's load, the highest of its averages of CPU and memory; nodes that are suspect have none."""
    found = {}
    for name, node in snapshot.data.items():
        use = averages(node)
        if use and not node.metadata.get("suspect"):
            found[name] = max(use.values())
    return found
