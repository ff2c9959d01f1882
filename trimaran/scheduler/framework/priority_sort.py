"""PrioritySort of kube-scheduler: the default order of the queue, also used after another QueueSort plugin fails."""

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.extension_points import QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    """Order of the queue: highest priority first, then the pod that waits longest."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """Return the sort key; the pod with the least key is scheduled first."""
        return -pod.priority, queued_at
