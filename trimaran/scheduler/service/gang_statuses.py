"""Status of PodGroups of ``scheduling.x-k8s.io``, as the controller of scheduler-plugins writes it.

The phase follows from the phases of the gang's pods: Pending, Scheduling once enough pods exist, Running, and at last
Finished or Failed. Pods count only in the namespace of their PodGroup; upstream lists them in all namespaces.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/controllers/podgroup_controller.go.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from runtime.kubernetes.gangs import POD_GROUP_LABEL
from runtime.kubernetes.k8s_fields import get
from runtime.kubernetes.paths import OPTIONAL_LISTS
from runtime.kubernetes.reflector import Object
from trimaran.scheduler.service.status_controller import Key, StatusRule

_MOST_STEPS = 4  # phases to pass through: none, Pending, Scheduling, and one by the counts


def next_status(least: int, status: Mapping[str, Any], pods: Iterable[Object]) -> Mapping[str, Any]:
    """Return the next status of a PodGroup.

    Args:
        least: ``spec.minMember``.
        status: present status.
        pods: v1 Pods of the gang, also those that have ended.
    """
    listed = list(pods)
    for _ in range(_MOST_STEPS):
        following = _step(least, status, listed)
        if following == status:
            break
        status = following
    return status


def _step(least: int, status: Mapping[str, Any], pods: list[Object]) -> Mapping[str, Any]:
    phase = status.get("phase") or ""
    if phase in {"Finished", "Failed"}:
        return status
    if not phase:
        return {**status, "phase": "Pending"}
    if phase == "Pending":
        if len(pods) < least:
            return status
        return {**status, "phase": "Scheduling", **_occupied_by(pods[0])}
    phases = Counter(get(get(pod, "status"), "phase") for pod in pods)
    running, succeeded, failed = (phases[each] for each in ("Running", "Succeeded", "Failed"))
    counts = {"running": running, "succeeded": succeeded, "failed": failed}
    if len(pods) < least:
        phase = "Pending"
    elif succeeded >= least:
        phase = "Finished"
    elif failed and failed + running + succeeded >= least:
        phase = "Failed"
    else:
        phase = "Running" if succeeded + running >= least else "Scheduling"
    return {**status, **counts, "phase": phase}


def _occupied_by(pod: Object) -> Mapping[str, str]:
    metadata = get(pod, "metadata")
    namespace = get(metadata, "namespace")
    owners = sorted(f"{namespace}/{get(each, 'name')}" for each in get(metadata, "ownerReferences") or ())
    return {"occupiedBy": ",".join(owners)} if owners else {}


def _status_of(group: Object, pods: list[Object]) -> Mapping[str, Any]:
    least, before = get(get(group, "spec"), "minMember"), get(group, "status") or {}
    if isinstance(least, bool) or not isinstance(least, int):
        return before  # its pods are held, with the reason
    return next_status(least, before, pods)


def _group_key(group: Object) -> Key:
    metadata = get(group, "metadata")
    return str(get(metadata, "namespace")), str(get(metadata, "name"))


def _pod_key(pod: Object) -> Key | None:
    metadata = get(pod, "metadata")
    name = get(get(metadata, "labels"), POD_GROUP_LABEL)
    return (str(get(metadata, "namespace")), str(name)) if name else None


POD_GROUP_STATUS: Final = StatusRule(
    OPTIONAL_LISTS["PodGroup.scheduling.x-k8s.io"][0],
    _group_key,
    _pod_key,
    _status_of,
    {"labelSelector": POD_GROUP_LABEL},
)
"""Status of PodGroups by their pods, in any phase."""
