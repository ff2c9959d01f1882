"""Outcomes of a trial's block, from the metrics and the bindings that were seen during the block.

A snapshot counts for a block if its whole window lies in the block. So the first window of each block is a washout: it
still contains the block before.

hot_percent             node-minutes with a CPU load at or above the hot threshold, percent
placed_hot_percent      pods bound in the block to a node that was hot in the first window after the binding, percent
cpu_limit_percent       node-minutes with a CPU load at or above the limit, percent
memory_limit_percent    node-minutes with a memory load at or above the limit, percent
pending_seconds         time from the creation of a pod to its binding, mean of the pods bound in the block
query                   value of the user's PromQL query at the end of the block

The mean CPU load of all nodes is recorded with them. It hardly depends on the placement of pods, and explains a part of
the differences between blocks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self

from trimaran.extender.trial.schedule import Block
from watcher.model import MetricType, WatcherMetrics, averages

HOT, PLACED_HOT, PENDING, QUERY = "hot_percent", "placed_hot_percent", "pending_seconds", "query"
CPU_LIMIT, MEMORY_LIMIT = "cpu_limit_percent", "memory_limit_percent"
#: All outcomes; less is better.
OUTCOMES = (HOT, PLACED_HOT, CPU_LIMIT, MEMORY_LIMIT, PENDING, QUERY)
_SUMMED = ("nodes", "load", HOT, CPU_LIMIT, MEMORY_LIMIT)
_LONGEST_GAP = 0.25  # without a sample, as a share of a block's counted time; a longer gap voids the block


class BoundPod(NamedTuple):
    """Pod that was bound to a node; times in Unix seconds."""

    node: str
    created_at: float
    bound_at: float


@dataclass(frozen=True, slots=True)
class LoadThresholds:
    """Loads in percent from which a node counts as hot, and as near its limit."""

    hot: float = 80.0
    limit: float = 95.0


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """Measured outcomes of a block.

    Attributes:
        number: number of the block.
        active: whether the extender acted.
        nodes: mean number of measured nodes.
        pods: number of pods bound in the block.
        load: mean CPU load of all nodes, percent.
        outcomes: outcomes by name; an outcome without any observation is missing.
    """

    number: int
    active: bool
    nodes: float
    pods: int
    load: float
    outcomes: Mapping[str, float]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read a record from its JSON object; raise KeyError, TypeError or ValueError if the object is not a record."""
        outcomes = {str(name): float(value) for name, value in document["outcomes"].items()}
        number, pods = int(document["number"]), int(document["pods"])
        nodes, load = float(document["nodes"]), float(document["load"])
        return cls(number, bool(document["active"]), nodes, pods, load, outcomes)


@dataclass(slots=True)
class BlockSampler:
    """Observer of one block, in the live extender and in replays.

    Attributes:
        block: the block.
        thresholds: loads from which a node counts as hot and as near its limit.
        spoiled: whether the extender deviated from the schedule, so that the block does not count.
    """

    block: Block
    thresholds: LoadThresholds
    spoiled: bool = False
    _ends: list[int] = field(default_factory=list)  # ends of the counted windows, Unix seconds
    _window_seconds: int = 0
    _sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SUMMED, 0.0))
    _placed: list[BoundPod] = field(default_factory=list)  # pods whose first window is not complete
    _placed_hot: list[bool] = field(default_factory=list)
    _pending: list[float] = field(default_factory=list)

    def add_bound(self, pod: BoundPod) -> None:
        """Add a pod; pods that were bound outside the block are ignored."""
        if self.block.start <= pod.bound_at < self.block.end:
            self._placed.append(pod)
            self._pending.append(max(pod.bound_at - pod.created_at, 0.0))

    def add_snapshot(self, snapshot: WatcherMetrics) -> None:
        """Add metrics; snapshots whose window is not within the block, or was added before, are ignored."""
        window = snapshot.window
        if window.start < self.block.start or window.end > self.block.end or window.end in self._ends[-1:]:
            return
        self._ends.append(window.end)
        self._window_seconds = window.end - window.start
        loads = {name: averages(node) for name, node in snapshot.data.items()}
        cpu = {name: load[MetricType.CPU] for name, load in loads.items() if MetricType.CPU in load}
        if not cpu:
            return
        memory = [load[MetricType.MEMORY] for load in loads.values() if MetricType.MEMORY in load]
        hot, limit, sums = self.thresholds.hot, self.thresholds.limit, self._sums
        sums["nodes"] += len(cpu)
        sums["load"] += sum(cpu.values())
        sums[HOT] += sum(value >= hot for value in cpu.values())
        sums[CPU_LIMIT] += sum(value >= limit for value in cpu.values())
        sums[MEMORY_LIMIT] += sum(value >= limit for value in memory)
        ripe = [pod for pod in self._placed if pod.bound_at <= window.start]
        if ripe:
            self._placed = [pod for pod in self._placed if pod.bound_at > window.start]
            self._placed_hot += [cpu[pod.node] >= hot for pod in ripe if pod.node in cpu]

    @property
    def counted_seconds(self) -> float:
        """Time of the block that counts: all but the first window."""
        return self.block.end - self.block.start - self._window_seconds

    def record(self, query: float | None = None) -> BlockRecord | None:
        """Return the outcomes; None if the block cannot be counted: it is spoiled, or lacks metrics for a long time.

        Args:
            query: value of the user's query; None without a query or value.
        """
        if self.spoiled or not self._ends or not self._sums["nodes"] or not self._is_covered():
            return None
        node_samples = self._sums["nodes"]
        outcomes = {name: 100 * self._sums[name] / node_samples for name in (HOT, CPU_LIMIT, MEMORY_LIMIT)}
        if self._placed_hot:
            outcomes[PLACED_HOT] = 100 * sum(self._placed_hot) / len(self._placed_hot)
        if self._pending:
            outcomes[PENDING] = sum(self._pending) / len(self._pending)
        if query is not None and math.isfinite(query):
            outcomes[QUERY] = query
        rounded = {name: round(outcomes[name], 6) for name in OUTCOMES if name in outcomes}
        nodes = round(node_samples / len(self._ends), 3)
        load = round(self._sums["load"] / node_samples, 6)
        return BlockRecord(self.block.number, self.block.active, nodes, len(self._pending), load, rounded)

    def _is_covered(self) -> bool:
        moments = [self.block.start + self._window_seconds, *self._ends, self.block.end]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        return max(gaps) <= _LONGEST_GAP * self.counted_seconds
