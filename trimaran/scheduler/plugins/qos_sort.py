"""QOSSort: order of the queue by priority, then by the quality of service class of a pod."""

from typing import Final

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from trimaran.scheduler.framework.extension_points import QueueSortPlugin

_RANKS: Final = {GUARANTEED: 0, BURSTABLE: 1, BEST_EFFORT: 2}


class QOSSort(QueueSortPlugin):
    """Highest priority first; then Guaranteed, Burstable and BestEffort pods; then the pod that waits longest.

    Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/qos.
    """

    name = "QOSSort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """Return the sort key; the pod with the least key is scheduled first."""
        return -pod.priority, _RANKS[qos_class(pod)], queued_at
