"""Facts about pods, nodes and workloads that decide whether a pod may move; scoring needs none of them.

They are read when an object arrives from the API server, so that only these fields stay in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from runtime.kubernetes.gangs import gang_of
from runtime.kubernetes.k8s_fields import decoder, get_whole, unix_seconds
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Workload
from trimaran.cluster.target_note import is_noted
from trimaran.planning.cluster import unsupported_requirement

Object = Mapping[str, Any]

MOVE_ANNOTATION: Final = "rebalancer.trimaran.io/move"
"""Annotation of a pod: "false" forbids moves, "true" allows moves that need an opt-in."""
SYSTEM_PRIORITY: Final = 2_000_000_000
# Reasons in the status of a container that cannot start or was killed. Source: pkg/kubelet/images and kuberuntime.
_FAILURES = frozenset({
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "SignatureValidationFailed", "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError", "StartError", "ContainerCannotRun", "OOMKilled",
})  # fmt: skip
_MIRROR = "kubernetes.io/config.mirror"
_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
_PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_DESCHEDULER_EVICT = "descheduler.alpha.kubernetes.io/evict"
# An operator, such as KubeVirt's, evicts pods with these annotations itself, long after the API server's answer.
_SLOW_EVICTIONS = (
    "descheduler.alpha.kubernetes.io/request-evict-only",
    "descheduler.alpha.kubernetes.io/eviction-in-progress",
)
# A move is open until its pod has ended, and few moves may be open: a pod with years of grace would stop the others.
_LONGEST_GRACE = 3600.0
_LEAVING_TAINTS = frozenset({
    "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
})  # fmt: skip
_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure"})
_JOBS = frozenset({"Job", "CronJob"})
_FOLLOWED = frozenset({"Deployment", "StatefulSet"})
_LOCAL_VOLUMES = frozenset({"emptyDir", "hostPath"})


class PodBarrier(StrEnum):
    """Reason in a pod's own state why it never moves, or moves by opt-in only; of several the first is shown."""

    TERMINATING = "terminating"
    MIRROR = "mirror"
    DAEMON_SET = "daemon_set"
    BARE = "bare"
    SYSTEM_CRITICAL = "system_critical"
    CONTROLLER = "controller"
    GANG = "gang"
    OPTED_OUT = "opted_out"
    SLOW_EVICTION = "slow_eviction"
    RESIZE = "resize"
    REQUIREMENT = "requirement"
    NOT_READY = "not_ready"
    JOB = "job"
    LOCAL_STORAGE = "local_storage"
    VOLUME = "volume"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts about a pod.

    Attributes:
        created_at: Unix time of its creation; 0 if unknown.
        ready_at: Unix time since which the pod is Ready; None if it is not Ready.
        scheduled_at: Unix time at which the pod got its node; None without a node, or if unknown.
        unschedulable_at: Unix time since which the scheduler finds no node for the pod; None if it found a node, or
            has not tried.
        restarts: restarts of its containers.
        barriers: reasons in the pod itself against a move.
        opted_in: whether an annotation allows moves that need an opt-in.
        is_noted: whether it has an annotation of :mod:`trimaran.cluster.target_note`.
        grace: time that the pod may take to end when it is deleted, seconds.
        failing: reason why a container cannot start, such as ``ErrImagePull``; empty if there is none.
    """

    created_at: float = 0.0
    ready_at: float | None = None
    scheduled_at: float | None = None
    unschedulable_at: float | None = None
    restarts: int = 0
    barriers: frozenset[PodBarrier] = frozenset()
    opted_in: bool = False
    is_noted: bool = False
    grace: float = 30.0
    failing: str = ""

    @classmethod
    @decoder("pod")
    def from_k8s(cls, each: Object, pod: Pod) -> "PodFacts":
        """Read the facts of a v1 Pod that was already read as a pod.

        Raises:
            ValueError: a field has another type than in Kubernetes.
        """
        metadata, spec, status = (each.get(name) or {} for name in ("metadata", "spec", "status"))
        annotations = metadata.get("annotations") or {}
        conditions = {str(of.get("type")): of for of in status.get("conditions") or () if isinstance(of, Mapping)}
        scheduled = conditions.get("PodScheduled", {})
        return cls(
            created_at=_seconds(metadata.get("creationTimestamp")) or 0.0,
            ready_at=_since(conditions.get("Ready"), "True"),
            scheduled_at=_since(scheduled, "True"),
            unschedulable_at=_since(scheduled, "False") if scheduled.get("reason") == "Unschedulable" else None,
            restarts=sum(get_whole(of, "restartCount", "status") for of in status.get("containerStatuses") or ()),
            barriers=frozenset(_barriers(spec, annotations, conditions, pod)),
            opted_in=annotations.get(MOVE_ANNOTATION) == "true" or _DESCHEDULER_EVICT in annotations,
            is_noted=is_noted(annotations),
            grace=_grace(spec),
            failing=_failing(status),
        )


def _failing(status: Object) -> str:
    """Return the reason why a container of a pod waits for another start, or was killed; empty if there is none."""
    for name in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(name) or ():
            for state in (container.get("state"), container.get("lastState")):
                for phase in ("waiting", "terminated"):
                    reason = ((state or {}).get(phase) or {}).get("reason")
                    if reason in _FAILURES:
                        return str(reason)
    return ""


def _barriers(
    spec: Object, annotations: Mapping[str, str], conditions: Mapping[str, Object], pod: Pod
) -> "set[PodBarrier]":
    """Return the reasons in a pod itself against a move."""
    kind = pod.owner.kind if pod.owner is not None else ""
    workload_kind = pod.workload.kind if pod.workload is not None else ""
    found = {
        PodBarrier.TERMINATING: pod.terminating,
        PodBarrier.NOT_READY: _since(conditions.get("Ready"), "True") is None,
        PodBarrier.DAEMON_SET: kind == "DaemonSet",
        PodBarrier.MIRROR: _MIRROR in annotations or kind == "Node",
        PodBarrier.BARE: not kind,
        PodBarrier.JOB: workload_kind in _JOBS,
        PodBarrier.CONTROLLER: bool(kind) and kind not in {"DaemonSet", "Node"}
        and workload_kind not in _FOLLOWED | _JOBS,
        PodBarrier.SYSTEM_CRITICAL: pod.priority >= SYSTEM_PRIORITY,
        PodBarrier.GANG: gang_of(pod) is not None,
        PodBarrier.RESIZE: bool({"PodResizePending", "PodResizeInProgress"} & conditions.keys())
        or any(container.resized is not None for container in pod.containers),
        PodBarrier.OPTED_OUT: annotations.get(MOVE_ANNOTATION) == "false"
        or annotations.get(_SAFE_TO_EVICT) == "false"
        or annotations.get(_DO_NOT_DISRUPT, "false") != "false"
        or _PREFER_NO_EVICTION in annotations,
        PodBarrier.SLOW_EVICTION: any(name in annotations for name in _SLOW_EVICTIONS)
        or _grace(spec) > _LONGEST_GRACE,
    }  # fmt: skip
    volumes = [volume for volume in spec.get("volumes") or () if isinstance(volume, Mapping)]
    if any(_LOCAL_VOLUMES & volume.keys() for volume in volumes) and annotations.get(_SAFE_TO_EVICT) != "true":
        found[PodBarrier.LOCAL_STORAGE] = True
    if any({"persistentVolumeClaim", "ephemeral"} & volume.keys() for volume in volumes):
        found[PodBarrier.VOLUME] = True
        volumes = [volume for volume in volumes if not {"persistentVolumeClaim", "ephemeral"} & volume.keys()]
    if unsupported_requirement({"spec": {**spec, "volumes": volumes}}):
        found[PodBarrier.REQUIREMENT] = True
    return {barrier for barrier, holds in found.items() if holds}


class NodeBarrier(StrEnum):
    """Reason why a node is neither source nor target of moves."""

    TERMINATING = "terminating"
    NOT_READY = "not_ready"
    PRESSURE = "pressure"
    LEAVING = "leaving"
    CORDONED = "cordoned"
    DO_NOT_DISRUPT = "do_not_disrupt"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node.

    Attributes:
        uid: UID of the node, for Events.
        barriers: reasons why the node is neither source nor target of moves.
        soft_taints: keys of the node's PreferNoSchedule taints.
    """

    uid: str = ""
    barriers: frozenset[NodeBarrier] = frozenset()
    soft_taints: frozenset[str] = frozenset()

    @classmethod
    @decoder("node")
    def from_k8s(cls, node: Object) -> "NodeFacts":
        """Read the facts of a v1 Node.

        Raises:
            ValueError: a field has another type than in Kubernetes.
        """
        metadata, spec, status = (node.get(name) or {} for name in ("metadata", "spec", "status"))
        conditions = {str(each.get("type")): each.get("status") for each in status.get("conditions") or ()}
        taints = [each for each in spec.get("taints") or () if isinstance(each, Mapping)]
        annotations = metadata.get("annotations") or {}
        found = {
            NodeBarrier.TERMINATING: metadata.get("deletionTimestamp") is not None,
            NodeBarrier.NOT_READY: conditions.get("Ready") != "True",
            NodeBarrier.PRESSURE: any(conditions.get(name) == "True" for name in _PRESSURES),
            NodeBarrier.LEAVING: any(taint.get("key") in _LEAVING_TAINTS for taint in taints),
            NodeBarrier.CORDONED: bool(spec.get("unschedulable")),
            NodeBarrier.DO_NOT_DISRUPT: annotations.get(_DO_NOT_DISRUPT, "false") != "false",
        }
        return cls(
            str(metadata.get("uid", "")),
            frozenset(barrier for barrier, holds in found.items() if holds),
            frozenset(str(taint.get("key")) for taint in taints if taint.get("effect") == "PreferNoSchedule"),
        )


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """Facts about a Deployment or StatefulSet.

    Attributes:
        replicas: desired replicas.
        is_rolling_out: whether its controller is still changing pods, or has not seen its newest version.
    """

    replicas: int = 0
    is_rolling_out: bool = False

    @classmethod
    @decoder("workload")
    def from_k8s(cls, each: Object) -> "WorkloadFacts":
        """Read the facts of a v1 Deployment or StatefulSet.

        Raises:
            ValueError: a field has another type than in Kubernetes.
        """
        metadata, spec, status = (each.get(name) or {} for name in ("metadata", "spec", "status"))
        replicas = get_whole(spec, "replicas", "spec", 1)
        updated, present = (get_whole(status, name, "status") for name in ("updatedReplicas", "replicas"))
        revisions = status.get("currentRevision"), status.get("updateRevision")
        rolling = (
            get_whole(status, "observedGeneration", "status", bits=64)
            < get_whole(metadata, "generation", "metadata", bits=64)
            or updated < replicas
            or present > updated
            or (None not in revisions and revisions[0] != revisions[1])
        )
        return cls(replicas, rolling)


@dataclass(frozen=True, slots=True)
class ScalerFacts:
    """Facts about a HorizontalPodAutoscaler: its workload, and the Unix time of its last scaling."""

    workload: Workload
    scaled_at: float

    @classmethod
    @decoder("horizontalpodautoscaler")
    def from_k8s(cls, each: Object) -> "ScalerFacts":
        """Read the facts of an autoscaling/v2 HorizontalPodAutoscaler.

        Raises:
            ValueError: a field has another type than in Kubernetes.
        """
        metadata, spec, status = (each.get(name) or {} for name in ("metadata", "spec", "status"))
        target = spec.get("scaleTargetRef") or {}
        workload = Workload(str(metadata.get("namespace", "")), str(target.get("kind")), str(target.get("name")))
        return cls(workload, _seconds(status.get("lastScaleTime")) or 0.0)


def _since(condition: Object | None, status: str) -> float | None:
    """Return the time since which a condition has a status, 0 if unknown; None if it has another status."""
    if condition is None or condition.get("status") != status:
        return None
    return _seconds(condition.get("lastTransitionTime")) or 0.0


def _grace(spec: Object) -> float:
    return max(float(get_whole(spec, "terminationGracePeriodSeconds", "spec", 30, bits=64)), 0.0)


def _seconds(moment: object) -> float | None:
    try:
        return unix_seconds(moment, "")
    except ValueError:
        return None
