"""A cluster autoscaler: nodes come, after a time, for pods that do not fit, and go when they are hardly requested.

Each minute, after pods were placed:

    up      the pods that wait are packed, the largest first, on the nodes that are on their way; for those that are
            left nodes are ordered, of the most frequent shape of the trace that the pod fits. Nodes are ordered too
            while there are fewer spare ones, that is, nodes without pods
    down    a node of which less than a share of CPU and of memory was requested for some minutes goes when its pods fit
            on the others, and the spare ones are more than wanted. Empty ones go all at once, others one a minute; none
            while nodes are on their way, soon after they were ordered, or while pods that lost their node may not have
            another yet. A pod that no ordered node would help keeps none. A node with jobs stays: they would begin anew

as cluster-autoscaler of kubernetes/autoscaler does by default (scale-down-utilization-threshold 0.5,
scale-down-unneeded-time and scale-down-delay-after-add 10 minutes). Spare nodes are what people have balloon pods for.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from trimaran.simulator.cluster import Cluster, requested
from trimaran.traces.events import Amounts


@dataclass(frozen=True)
class Autoscaling:
    """When nodes come and go.

    Attributes:
        lead_minutes: from when a node is ordered until it takes pods.
        spare_nodes: how many nodes without pods to have.
        most_nodes: how many nodes there are at most; 0 is twice as many as the trace has.
        least_nodes: how many at least.
        unneeded_percent: of CPU and memory, below which nodes go.
        unneeded_minutes: for how long.
        rest_minutes: after nodes were ordered, how long none goes.

    Raises:
        ValueError: a field is out of its range.
    """

    lead_minutes: int = 3
    spare_nodes: int = 0
    max_nodes: int = 0
    min_nodes: int = 1
    unneeded_percent: float = 50.0
    unneeded_minutes: int = 10
    rest_minutes: int = 10

    def __post_init__(self) -> None:
        for name in ("lead_minutes", "spare_nodes", "max_nodes", "min_nodes", "unneeded_minutes", "rest_minutes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0")


@dataclass(frozen=True, slots=True)
class OrderedNode:
    """A node on its way: when it is there."""

    minute: int
    name: str
    amounts: Amounts


class Autoscaler:
    """An autoscaler at work in one replay.

    Args:
        scaling: what is asked for.
        cluster: what is replayed.
    """

    def __init__(self, scaling: Autoscaling, cluster: Cluster) -> None:
        self._scaling, self._cluster = scaling, cluster
        trace = cluster.trace
        self._most = scaling.max_nodes or 2 * len(trace.nodes)
        self._shapes = [shape for shape, _ in Counter(trace.amounts().values()).most_common()]
        self._ordered: list[OrderedNode] = []
        self._made = 0
        self._rested = -1
        self._unneeded: dict[str, int] = {}

    def arrived(self) -> list[OrderedNode]:
        """Return the nodes that are there from now on, once."""
        there = [each for each in self._ordered if each.minute <= self._cluster.minute]
        self._ordered = [each for each in self._ordered if each.minute > self._cluster.minute]
        return there

    def order(self) -> None:
        """Order what is missing."""
        before = len(self._ordered)
        used = self._pack()
        empty = int(np.count_nonzero(self._cluster.nodes.pod_counts == 0))
        while empty + len(self._ordered) - used < self._scaling.spare_nodes and self._order(self._shapes[0]):
            pass
        if len(self._ordered) > before:
            self._rested = self._cluster.minute + self._scaling.rest_minutes

    def leaving(self) -> list[str]:
        """Return the nodes that go now."""
        scaling, cluster = self._scaling, self._cluster
        low = self._low()
        now = cluster.minute
        self._unneeded = {name: self._unneeded.get(name, now) for name in low}
        displaced = any(waiting.ready > now for waiting in cluster.waiting.values())
        if displaced or self._ordered or now < self._rested:
            return []
        long = [name for name in low if now - self._unneeded[name] >= scaling.unneeded_minutes]
        names, counts = cluster.nodes.names, cluster.nodes.pod_counts
        most = len(names) - scaling.min_nodes
        empty = [name for name in long if not counts[cluster.nodes.row(name)]]
        spare = int(np.count_nonzero(counts == 0)) - scaling.spare_nodes
        if empty and min(spare, most) > 0:
            return empty[: min(spare, most)]
        return next(([name] for name in long if counts[cluster.nodes.row(name)] and self._can_go(name)), [])[:most]

    def _pack(self) -> int:
        """Pack the pods that wait on nodes that are on their way or ordered now; return how many it takes."""
        pods = [waiting.pod for waiting in self._cluster.waiting.values() if waiting.ready <= self._cluster.minute]
        free: list[list[int]] = []
        for cpu, memory in sorted(map(requested, pods), reverse=True):
            left = next((left for left in free if left[0] >= cpu and left[1] >= memory), None)
            if left is None:
                if len(free) == len(self._ordered) and not self._order_for(cpu, memory):
                    continue
                left = list(self._ordered[len(free)].amounts)
                if left[0] < cpu or left[1] < memory:
                    continue
                free.append(left)
            left[0] -= cpu
            left[1] -= memory
        return len(free)

    def _order_for(self, cpu: int, memory: int) -> bool:
        shape = next((shape for shape in self._shapes if shape[0] >= cpu and shape[1] >= memory), None)
        return shape is not None and self._order(shape)

    def _order(self, amounts: Amounts) -> bool:
        """Order a node, if there may be one more."""
        if len(self._cluster.nodes) + len(self._ordered) >= self._most:
            return False
        self._made += 1
        minute = self._cluster.minute + self._scaling.lead_minutes
        self._ordered.append(OrderedNode(minute, f"scaled-{self._made}", amounts))
        return True

    def _low(self) -> list[str]:
        """Return the nodes of which little is requested, those first of which least is."""
        cluster = self._cluster
        requested = 100 * (1 - cluster.free / cluster.capacity).max(axis=0)
        rows = np.argsort(requested, kind="stable")
        return [cluster.nodes.names[row] for row in rows.tolist() if requested[row] < self._scaling.unneeded_percent]

    def _can_go(self, name: str) -> bool:
        """Say whether no job runs on a node, and its pods fit on others that have pods: an empty one is no gain."""
        cluster = self._cluster
        pods = cluster.pods_on(name)
        if any(map(cluster.is_job, pods)):
            return False
        others = cluster.nodes.copy()
        counts = cluster.nodes.pod_counts
        others.remove_nodes([each for row, each in enumerate(cluster.nodes.names) if each == name or not counts[row]])
        for pod in (cluster.pods[number] for number in pods):
            fits = np.flatnonzero(others.feasible(pod))
            if not fits.size:
                return False
            others.add(pod, others.names[int(fits[0])])
        return True
