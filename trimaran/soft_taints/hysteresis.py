"""Hysteresis that decides which nodes are hot. Pure functions: the time and the previous result are arguments.

    becomes hot    load >= hot_percent, the most loaded nodes first, while at most max_hot_fraction of all nodes are
                   hot; a node that is hot already is not displaced
    stays hot      for min_hot_seconds at least, then until load < cool_percent
    not measured   does not become hot; a hot node cools after min_hot_seconds

The load is the higher of a node's average CPU and memory use. The gap between the two limits and the minimum time keep
a node near the limit from flapping. max_hot_fraction keeps a busy cluster from marking nearly all of its nodes, which
would not help a scheduler to choose.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from watcher.model import WatcherMetrics, averages


@dataclass(frozen=True, slots=True)
class HotNodeRule:
    """Limits that decide when a node is hot.

    Attributes:
        hot_percent: load in percent at which a node becomes hot.
        cool_percent: load in percent below which a hot node counts as normal again.
        min_hot_seconds: shortest time that a node stays hot.
        max_hot_fraction: largest fraction of nodes that are hot at the same time, 0 to 1.

    Raises:
        ValueError: ``cool_percent`` is above ``hot_percent``.
    """

    hot_percent: float = 80.0
    cool_percent: float = 70.0
    min_hot_seconds: float = 300.0
    max_hot_fraction: float = 0.25

    def __post_init__(self) -> None:
        if self.cool_percent > self.hot_percent:
            raise ValueError(f"cool_percent {self.cool_percent:g} must not be above hot_percent {self.hot_percent:g}")

    def warm(self, percent: float) -> Self:
        """Return the rule for warm nodes, which include hot nodes: the same gap and time, and twice the fraction."""
        gap = self.hot_percent - self.cool_percent
        return replace(
            self, hot_percent=percent, cool_percent=max(0.0, percent - gap),
            max_hot_fraction=min(1.0, 2 * self.max_hot_fraction),
        )  # fmt: skip

    def hot_nodes(
        self, names: Iterable[str], loads: Mapping[str, float], before: Mapping[str, float], now: float
    ) -> dict[str, float]:
        """Return the time at which each hot node became hot, by node name.

        Args:
            names: all nodes.
            loads: load of each measured node, percent.
            before: previous result of this method; nodes in it that have been deleted since are ignored.
            now: current time in seconds, always of the same clock.
        """
        names = list(names)
        staying = {
            name: before[name]
            for name in names
            if name in before
            and (now - before[name] < self.min_hot_seconds or loads.get(name, 0.0) >= self.cool_percent)
        }
        room = int(self.max_hot_fraction * len(names)) - len(staying)
        new = [name for name in names if name not in staying and loads.get(name, 0.0) >= self.hot_percent]
        new.sort(key=lambda name: (-loads[name], name))
        return {**staying, **dict.fromkeys(new[: max(room, 0)], now)}


def node_loads(snapshot: WatcherMetrics) -> dict[str, float]:
    """Return the load of each node, the higher of its average CPU and memory use, percent; omit suspect nodes."""
    loads = {}
    for name, node in snapshot.data.items():
        use = averages(node)
        if use and not node.metadata.get("suspect"):
            loads[name] = max(use.values())
    return loads
