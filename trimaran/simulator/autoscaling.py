"""A simulated cluster autoscaler: adds nodes for pods that do not fit, and removes underused nodes.

Each minute, after pods were placed:

    scale up      Pack the pending pods, largest first, on the ordered nodes that have not arrived yet. For each pod
                  that does not fit, order a node of the trace's most frequent shape that the pod fits. Also order
                  nodes while there are fewer spare nodes (nodes without pods) than wanted.
    scale down    Remove a node once less than a share of its CPU and memory was requested for some minutes, its pods
                  fit on other nodes, and enough spare nodes remain. Empty nodes go all at once, other nodes one a
                  minute. No node goes while ordered nodes have not arrived, soon after nodes were ordered, or while
                  pods that lost their node are not ready for another one. A pending pod that fits no node shape does
                  not prevent scale-down. A node with jobs stays, because a moved job would start over.

The defaults are those of cluster-autoscaler of kubernetes/autoscaler (scale-down-utilization-threshold 0.5,
scale-down-unneeded-time and scale-down-delay-after-add 10 minutes). Spare nodes correspond to balloon pods.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from trimaran.simulator.cluster import Cluster, requested
from trimaran.traces.events import Amounts, EventKind, NodeEvent


@dataclass(frozen=True)
class Autoscaling:
    """Settings of the simulated autoscaler.

    Attributes:
        lead_minutes: minutes from the order of a node until it accepts pods.
        spare_nodes: number of nodes without pods to keep.
        max_nodes: largest number of nodes; 0 means twice as many as the trace has.
        min_nodes: smallest number of nodes.
        unneeded_percent: share of CPU and memory requests, in percent, below which a node is unneeded.
        unneeded_minutes: minutes that a node must be unneeded before it is removed.
        rest_minutes: minutes after an order during which no node is removed.

    Raises:
        ValueError: a field is negative.
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


class Autoscaler:
    """Autoscaler of one replay.

    Args:
        scaling: the settings.
        cluster: the simulated cluster.
    """

    def __init__(self, scaling: Autoscaling, cluster: Cluster) -> None:
        self._scaling, self._cluster = scaling, cluster
        trace = cluster.trace
        self._max_nodes = scaling.max_nodes or 2 * len(trace.nodes)
        self._shapes = [shape for shape, _ in Counter(trace.amounts().values()).most_common()]
        self._ordered: list[NodeEvent] = []  # joins of nodes that have not arrived yet
        self._order_count = 0
        self._rest_until = -1
        self._unneeded_since: dict[str, int] = {}

    def pop_arrived(self) -> list[NodeEvent]:
        """Remove and return the events of ordered nodes that join the cluster now."""
        now = self._cluster.minute
        arrived = [node for node in self._ordered if node.minute <= now]
        self._ordered = [node for node in self._ordered if node.minute > now]
        return arrived

    def order_nodes(self) -> None:
        """Order nodes for pending pods, and spare nodes that are missing."""
        before = len(self._ordered)
        used = self._pack()
        empty = int(np.count_nonzero(self._cluster.nodes.pod_counts == 0))
        while empty + len(self._ordered) - used < self._scaling.spare_nodes and self._order(self._shapes[0]):
            pass
        if len(self._ordered) > before:
            self._rest_until = self._cluster.minute + self._scaling.rest_minutes

    def nodes_to_remove(self) -> list[str]:
        """Return the names of the nodes to remove now."""
        scaling, cluster = self._scaling, self._cluster
        now = cluster.minute
        underused = self._underused()
        self._unneeded_since = {name: self._unneeded_since.get(name, now) for name in underused}

        # Displaced pods, ordered nodes and the rest period all forbid a scale-down.
        displaced = any(queued.ready > now for queued in cluster.queue.values())
        if displaced or self._ordered or now < self._rest_until:
            return []
        unneeded = [name for name in underused if now - self._unneeded_since[name] >= scaling.unneeded_minutes]

        # Empty nodes are removed together, which disrupts no pod, down to the spare nodes and the smallest cluster.
        names, counts = cluster.nodes.names, cluster.nodes.pod_counts
        removable = len(names) - scaling.min_nodes
        empty = [name for name in unneeded if not counts[cluster.nodes.row(name)]]
        spare = int(np.count_nonzero(counts == 0)) - scaling.spare_nodes
        if empty and min(spare, removable) > 0:
            return empty[: min(spare, removable)]

        # Otherwise one node is drained, the one with the smallest share of requests first.
        with_pods = (name for name in unneeded if counts[cluster.nodes.row(name)])
        return next(([name] for name in with_pods if self._can_drain(name)), [])[:removable]

    def _pack(self) -> int:
        """Pack pending pods, first-fit decreasing, on ordered nodes, ordering more as needed.

        Returns:
            Number of ordered nodes that the pods take.
        """
        pods = [queued.pod for queued in self._cluster.queue.values() if queued.ready <= self._cluster.minute]
        free: list[list[int]] = []
        for cpu, memory in sorted(map(requested, pods), reverse=True):
            left = next((left for left in free if left[0] >= cpu and left[1] >= memory), None)
            if left is None:
                if len(free) == len(self._ordered) and not self._order_for(cpu, memory):
                    continue
                left = list(self._ordered[len(free)].capacity or (0, 0))
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
        """Order a node unless the cluster has its largest size; return whether a node was ordered."""
        if len(self._cluster.nodes) + len(self._ordered) >= self._max_nodes:
            return False
        self._order_count += 1
        minute = self._cluster.minute + self._scaling.lead_minutes
        self._ordered.append(NodeEvent(minute, EventKind.JOIN, f"scaled-{self._order_count}", amounts))
        return True

    def _underused(self) -> list[str]:
        """Return the nodes whose requested share is below ``unneeded_percent``, smallest share first."""
        cluster = self._cluster
        requested = 100 * (1 - cluster.free / cluster.capacity).max(axis=0)
        rows = np.argsort(requested, kind="stable")
        return [cluster.nodes.names[row] for row in rows.tolist() if requested[row] < self._scaling.unneeded_percent]

    def _can_drain(self, name: str) -> bool:
        """Return whether a node runs no job and its pods fit on other nodes that have pods.

        Empty nodes do not count as targets: filling one to empty another saves nothing.
        """
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
