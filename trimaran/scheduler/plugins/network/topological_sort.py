"""TopologicalSort: order of the queue in which the workloads of an AppGroup follow the workloads that they need.

Highest priority first; then by the time at which the AppGroup's first pod, or a pod without AppGroup, was queued; in an
AppGroup by the workload's index in ``status.topologyOrder``. Source: kubernetes-sigs/scheduler-plugins v0.33.5,
pkg/networkaware, which compares the index before the priority.
"""

from typing import Any

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.extension_points import QueueSortPlugin
from trimaran.scheduler.plugins.network.objects import group_of, workload_of
from trimaran.scheduler.plugins.network.overhead import NetworkObjects

_UNKNOWN_PLACE = -1


class TopologicalSort(QueueSortPlugin):
    """Order of the queue by AppGroups.

    Args:
        objects: AppGroups.
        namespaces: namespaces in which AppGroups are searched, in this order.
    """

    name = "TopologicalSort"

    def __init__(self, objects: NetworkObjects, namespaces: tuple[str, ...] = ("default",)) -> None:
        self._objects, self._namespaces = objects, namespaces
        self._first_queued: dict[str, float] = {}  # by AppGroup

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[Any, ...]:
        """Return the sort key; the pod with the least key is scheduled first."""
        name = group_of(pod)
        group = self._objects.app_group(self._namespaces, name) if name else None
        if group is None:
            self._first_queued.pop(name, None)
            return -pod.priority, queued_at, "", 0, queued_at
        since = self._first_queued.setdefault(name, queued_at)
        return -pod.priority, since, name, group.order.get(workload_of(pod), _UNKNOWN_PLACE), queued_at
