"""PrioritySort of kube-scheduler, to which the queue returns when the order of another plugin fails."""

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.extension_points import QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    """Order of the queue: highest priority first, then the pod that waits longest."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """Return the key; the least one is scheduled first."""
        return -pod.priority, queued_at
