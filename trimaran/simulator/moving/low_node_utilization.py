"""The descheduler's LowNodeUtilization by measured load, as docs/nodes.md sets it up, to compare with.

With each node's load, the higher of average CPU and memory as the watcher serves them, in whole percents, rounded down:

    low    load <= threshold            over    load > target

Where there are nodes that are low, not all of them are, and some are over, pods are evicted from those that are over,
the most loaded one first, so many from each in a run; the scheduler places them like any others, wherever it likes.
When one node has no load the whole run is given up. Pods without requests go first, then those whose requests are not
their limits; services' pods alone, since a job would begin anew.

Source: kubernetes-sigs/descheduler, pkg/framework/plugins/nodeutilization, with Prometheus as the source of metrics,
where it does not know what a pod uses.
"""

from dataclasses import dataclass

from runtime.kubernetes.objects import CPU, MEMORY, Pod
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy, MoveSchedule
from trimaran.simulator.simulated_watcher import SimulatedWatcher

_BEST_EFFORT, _BURSTABLE, _GUARANTEED = range(3)


@dataclass(frozen=True)
class LowNodeUtilization(MovePolicy):
    """Arguments of LowNodeUtilization, and when it runs.

    Attributes:
        threshold_percent: up to which a node is low.
        target_percent: above which pods are evicted.
        node_limit: how many pods are evicted from a node in a run.
    """

    threshold_percent: int = 50
    target_percent: int = 79
    node_limit: int = 2

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> "Descheduler":
        """Begin a replay."""
        return Descheduler(self, cluster, watcher)


class Descheduler:
    """The descheduler at work in one replay."""

    def __init__(self, arguments: LowNodeUtilization, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._arguments, self._cluster, self._watcher = arguments, cluster, watcher
        self._schedule = MoveSchedule(arguments, cluster, watcher)

    def due(self) -> list[tuple[int, int | None]]:
        """Return the pods to evict now."""
        budget = self._schedule.budget()
        if not budget:
            return []
        evicted = [number for name in self._over() for number in self._of(name)[: self._arguments.node_limit]][:budget]
        self._schedule.charge(len(evicted))
        return [(number, None) for number in evicted]

    def _over(self) -> list[str]:
        """Return the nodes to evict from, the most loaded one first."""
        arguments, names = self._arguments, self._cluster.nodes.names
        measured = self._watcher.loads()
        if not all(name in measured for name in names):
            return []
        loads = {name: int(measured[name]) for name in names}
        low = sum(load <= arguments.threshold_percent for load in loads.values())
        over = [name for name, load in loads.items() if load > arguments.target_percent]
        return sorted(over, key=lambda name: -loads[name]) if 0 < low < len(names) else []

    def _of(self, name: str) -> list[int]:
        """Return the services' pods on a node, those that are evicted first before the others."""
        cluster = self._cluster
        pods = [number for number in cluster.pods_on(name) if not cluster.is_job(number)]
        return sorted(pods, key=lambda number: quality_of_service(cluster.pods[number]))


def quality_of_service(pod: Pod) -> int:
    """Return a pod's class: 0 best effort, 1 burstable, 2 guaranteed."""
    requests, limits = pod.containers[0].requests, pod.containers[0].limits
    if not any((*requests.values(), *limits.values())):
        return _BEST_EFFORT
    same = all(name in limits and limits[name] == requests.amount(name) for name in (CPU, MEMORY))
    return _GUARANTEED if same else _BURSTABLE
