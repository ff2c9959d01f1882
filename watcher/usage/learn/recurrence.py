"""Share of the running pods whose workload recurs, so that use learned from other pods applies to them."""

from collections import OrderedDict

from runtime.kubernetes.workloads import LASTING_KINDS, Workload
from watcher.usage.sources.pods import PodKey, RunningPods

LOW_SHARE = 0.8
"""Below this share, most learned use serves no other pod: names of workloads probably have a random part."""
_MOST_WORKLOADS = 50_000


class Recurrence:
    """Memory of which workloads had only one pod; forgets the least recently seen workloads first."""

    def __init__(self) -> None:
        self._only_pod: OrderedDict[Workload, PodKey | None] = OrderedDict()  # None after a second pod

    def update(self, pods: RunningPods) -> float:
        """Update the running pods; return the share of them whose workload recurs, 0 to 1; 1 without pods.

        A workload recurs if its controller replaces its pods, or if more than one pod or run of it was seen.
        """
        for key, pod in pods.items():
            workload = pod.template.workload
            if self._only_pod.setdefault(workload, key) != key:
                self._only_pod[workload] = None
            self._only_pod.move_to_end(workload)
        recurring = sum(map(self._recurs, (pod.template.workload for pod in pods.values())))
        while len(self._only_pod) > _MOST_WORKLOADS:
            self._only_pod.popitem(last=False)
        return recurring / len(pods) if pods else 1.0

    def lone(self, most: int) -> list[str]:
        """Return namespace, kind and name of some workloads of which only one pod was seen."""
        lone = (workload for workload in reversed(self._only_pod) if not self._recurs(workload))
        return ["/".join(workload) for workload, _ in zip(lone, range(most), strict=False)]

    def _recurs(self, workload: Workload) -> bool:
        return workload.kind in LASTING_KINDS or self._only_pod[workload] is None
