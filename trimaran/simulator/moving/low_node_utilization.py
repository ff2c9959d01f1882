"""The descheduler's LowNodeUtilization by measured load, set up as in docs/nodes.md, for comparison.

A node's load is the higher of average CPU and memory as the watcher serves them, in whole percent, rounded down:

    underutilized    load <= threshold            overutilized    load > target

If some but not all nodes are underutilized, pods are evicted from overutilized nodes, the most loaded node first, with
a limit per node and cycle. The scheduler places evicted pods like any others. If any node's load is unknown, the cycle
is skipped. Best-effort pods are evicted first, then burstable, then guaranteed ones. Only pods of services are evicted,
because a job would start over.

Source: kubernetes-sigs/descheduler, pkg/framework/plugins/nodeutilization, with Prometheus as the source of metrics. In
that mode the descheduler does not know the use of single pods.
"""

from dataclasses import dataclass

from runtime.kubernetes.objects import CPU, MEMORY, Pod
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy, MoveSchedule
from trimaran.simulator.simulated_watcher import SimulatedWatcher

_BEST_EFFORT, _BURSTABLE, _GUARANTEED = range(3)


@dataclass(frozen=True)
class LowNodeUtilization(MovePolicy):
    """Arguments and schedule of LowNodeUtilization.

    Attributes:
        threshold_percent: highest load of an underutilized node.
        target_percent: load above which pods are evicted.
        node_limit: largest number of evictions from a node in one cycle.
    """

    threshold_percent: int = 50
    target_percent: int = 79
    node_limit: int = 2

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> "Descheduler":
        """Return a mover for one replay."""
        return Descheduler(self, cluster, watcher)


class Descheduler:
    """Simulated descheduler of one replay."""

    def __init__(self, arguments: LowNodeUtilization, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._arguments, self._cluster, self._watcher = arguments, cluster, watcher
        self._schedule = MoveSchedule(arguments, cluster, watcher)

    def due(self) -> list[tuple[int, int | None]]:
        """Return the pods to evict now: the number of each pod, and None, because the placement policy places it."""
        budget = self._schedule.budget()
        if not budget:
            return []
        limit = self._arguments.node_limit
        evicted = [number for name in self._overutilized() for number in self._evictable(name)[:limit]][:budget]
        self._schedule.charge(len(evicted))
        return [(number, None) for number in evicted]

    def _overutilized(self) -> list[str]:
        """Return the nodes to evict from, most loaded first; empty if this cycle evicts nothing."""
        arguments, names = self._arguments, self._cluster.nodes.names
        measured = self._watcher.loads()
        if not all(name in measured for name in names):
            return []
        loads = {name: int(measured[name]) for name in names}
        low = sum(load <= arguments.threshold_percent for load in loads.values())
        over = [name for name, load in loads.items() if load > arguments.target_percent]
        return sorted(over, key=lambda name: -loads[name]) if 0 < low < len(names) else []

    def _evictable(self, name: str) -> list[int]:
        """Return the pods of services on a node, in the order of their eviction."""
        cluster = self._cluster
        pods = [number for number in cluster.pods_on(name) if not cluster.is_job(number)]
        return sorted(pods, key=lambda number: quality_of_service(cluster.pods[number]))


def quality_of_service(pod: Pod) -> int:
    """Return a pod's quality of service class: 0 best-effort, 1 burstable, 2 guaranteed."""
    requests, limits = pod.containers[0].requests, pod.containers[0].limits
    if not any((*requests.values(), *limits.values())):
        return _BEST_EFFORT
    same = all(name in limits and limits[name] == requests.amount(name) for name in (CPU, MEMORY))
    return _GUARANTEED if same else _BURSTABLE
