"""QOSSort: order of the queue by priority, then by the quality of service that a pod's requests and limits give it."""

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
        """Return the key; the least one is scheduled first."""
        return -pod.priority, _RANKS[qos_class(pod)], queued_at
