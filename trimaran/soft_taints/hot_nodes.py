"""Hot or warm nodes, remembered between cycles, and the reasons for their taints, for logs and Events."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trimaran.soft_taints.annotations import timestamp
from trimaran.soft_taints.hysteresis import HotNodeRule, node_loads
from trimaran.soft_taints.node_state import NodeState
from watcher.model import WatcherMetrics


@dataclass(frozen=True, slots=True)
class TaintReason:
    """Reason why a taint is set or removed.

    Attributes:
        hot: whether the taint is set.
        load: load of the node, percent; None if it is not measured.
        threshold: the limit that the load has reached or fallen below, percent.
        since: Unix time from which the load has been at the limit, or at which the node became hot; None if unknown.
        level: ``hot`` or ``warm``.
    """

    hot: bool
    load: float | None
    threshold: float
    since: float | None
    level: str = "hot"

    @property
    def event(self) -> str:
        """Reason of the Event about the taint."""
        return f"Node{'' if self.hot else 'Not'}{self.level.title()}"

    def __str__(self) -> str:
        since = "" if self.since is None else timestamp(self.since)
        if self.hot:
            limit = f"nodes.{self.level}_percent ({self.threshold:g} %)"
            return f"load {self.load or 0:.0f} %, at or above {limit} since {since}"
        load = "no load is measured" if self.load is None else f"load {self.load:.0f} %"
        setting = "nodes.cool_percent" if self.level == "hot" else "nodes.warm_percent less its gap"
        below = "" if self.load is None else f", below {setting} ({self.threshold:g} %)"
        return f"{load}{below}; {self.level} since {since or 'before this replica wrote'}"


@dataclass(slots=True)
class HotNodes:
    """Nodes that are hot, or warm, decided once a cycle by the rule.

    Attributes:
        rule: limits that decide when a node is hot.
        taint_key: key of the taint.
        level: ``hot`` or ``warm``.
        off: reason why no node gets the taint, whatever its load; "" if the level is on.
    """

    rule: HotNodeRule
    taint_key: str
    level: str = "hot"
    off: str = ""
    _hot: dict[str, float] | None = None  # None: unknown, at the start and after another replica wrote
    _became_hot: dict[str, float] = field(default_factory=dict)  # Unix time; unknown for nodes found tainted
    _above: dict[str, float] = field(default_factory=dict)  # Unix time since which the load has been at the limit
    _loads: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._hot or ())

    def __contains__(self, name: str) -> bool:
        return name in (self._hot or ())

    def forget(self) -> None:
        """Forget which nodes are hot, because another replica may have changed their taints."""
        self._hot, self._became_hot, self._above = None, {}, {}

    def decide(
        self, states: Mapping[str, NodeState], snapshot: WatcherMetrics | None, waiting: Collection[str], now: float
    ) -> Collection[str]:
        """Return the names of the nodes that are hot.

        Args:
            states: all nodes.
            snapshot: fresh metrics of all nodes; None in an outage, when no node becomes hot.
            waiting: nodes that cannot be written yet.
            now: current time in seconds, always of the same clock.
        """
        if self.off:
            return ()
        tainted = {name for name, state in states.items() if state.is_tainted(self.taint_key)}
        if self._hot is None:  # the age of found taints is unknown: treat it as long enough, so that nodes may cool
            self._hot = dict.fromkeys(tainted, now - self.rule.min_hot_seconds)
        loads = {} if snapshot is None else node_loads(snapshot)
        measured_at = 0 if snapshot is None else snapshot.timestamp
        self._loads = loads
        self._above = {
            name: self._above.get(name, measured_at) for name, load in loads.items() if load >= self.rule.hot_percent
        }
        # A node that cannot be tainted now must not take the place of one that can.
        unable = set(waiting) - tainted
        usable = {name: load for name, load in loads.items() if name not in unable}
        # The minimum time begins when the taint is written: until then the budget may have deferred it.
        before = {name: since if name in tainted else now for name, since in self._hot.items() if name not in unable}
        self._hot = self.rule.hot_nodes(states, usable, before, now)  # without loads no node becomes hot
        return self._hot

    def record_write(self, name: str, wall_clock: float, *, hot: bool) -> TaintReason:
        """Record that a node's taint was set or removed; return the reason.

        Args:
            name: name of the node.
            wall_clock: Unix time of the write.
            hot: whether the taint was set.
        """
        load = self._loads.get(name)
        if hot:
            self._became_hot[name] = wall_clock
            return TaintReason(hot, load, self.rule.hot_percent, self._above.get(name, wall_clock), self.level)
        return TaintReason(hot, load, self.rule.cool_percent, self._became_hot.pop(name, None), self.level)
