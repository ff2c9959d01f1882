"""Gangs: pods that run all together or not at all. One function reads all ways to name a gang."""

from typing import Any, Final

from runtime.kubernetes.k8s_fields import get
from runtime.kubernetes.objects import Pod

GANG_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io",
)  # fmt: skip
"""Labels by which the coscheduling plugins of Kubernetes identify the pods of a gang."""


def gang_of(manifest: Any, pod: Pod) -> str:
    """Return the namespace and name of a pod's gang; "" without one.

    Args:
        manifest: the v1 Pod, for the PodGroup of ``scheduling.k8s.io`` in its spec.
        pod: the same pod, for the labels.
    """
    group = get(get(get(manifest, "spec"), "schedulingGroup"), "podGroupName")
    names = (group, *(pod.labels.get(label) for label in GANG_LABELS))
    return next((f"{pod.namespace}/{name}" for name in names if name), "")
