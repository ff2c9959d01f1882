"""Gangs: pods that run all together or not at all. Reads every form in which gangs are named and described.

Three generations are in use. Kubernetes itself has ``PodGroup`` of ``scheduling.k8s.io`` (v1alpha2 in 1.36, v1beta1 in
1.37), which pods name in ``spec.schedulingGroup``. The coscheduling plugin of kubernetes-sigs/scheduler-plugins has
``PodGroup`` of ``scheduling.x-k8s.io/v1alpha1``, which pods name by a label. Its first version had only labels of pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from runtime.errors import quoted
from runtime.kubernetes.k8s_fields import decoder, get, get_whole, int64, unix_seconds
from runtime.kubernetes.objects import Pod, ResourceList

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""Label that names a PodGroup of ``scheduling.x-k8s.io``."""
NAME_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
"""Label that names a gang without an object."""
MIN_AVAILABLE_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Label with the least number of pods of a gang without an object."""
_OLD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
_COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/"


class GangForm(StrEnum):
    """Generation of the API that names a gang."""

    IN_TREE = "scheduling.k8s.io"
    COSCHEDULING = "scheduling.x-k8s.io"
    LABELS = "labels"


POD_GROUP_KINDS: Final[Mapping[str, GangForm]] = {
    "PodGroup": GangForm.IN_TREE,
    "PodGroup.scheduling.x-k8s.io": GangForm.COSCHEDULING,
}
"""API generation by kind of PodGroup; the name of the second kind ends with its API group."""


@dataclass(frozen=True, slots=True, order=True)
class GangRef:
    """Identity of a gang.

    Attributes:
        form: generation of the API; gangs of different generations are never the same gang.
        namespace: namespace of the gang and its pods.
        name: name of the gang.
    """

    form: GangForm
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"


def gang_of(pod: Pod) -> GangRef | None:
    """Return the gang of a pod; None without a gang. If the pod names several, the newest API generation counts."""
    if pod.scheduling.pod_group:
        return GangRef(GangForm.IN_TREE, pod.namespace, pod.scheduling.pod_group)
    labels = pod.labels
    if not labels:
        return None
    name = labels.get(POD_GROUP_LABEL) or labels.get(_OLD_GROUP_LABEL)
    if name:
        return GangRef(GangForm.COSCHEDULING, pod.namespace, name)
    name = labels.get(NAME_LABEL)
    return GangRef(GangForm.LABELS, pod.namespace, name) if name else None


@dataclass(frozen=True)
class PodGroup:
    """Description of a gang.

    Attributes:
        ref: identity of the gang.
        min_members: least number of pods that run together; 0 if the pods are placed one by one (policy ``basic``).
        min_resources: resources that the cluster must have free before a pod is placed; empty for no check.
        timeout_seconds: longest time for which a placed pod waits for the gang's others; None for the plugin's default.
        created_at: time of the creation, Unix seconds; None if unknown.
        uid: uid of the object; empty without an object.
    """

    ref: GangRef
    min_members: int
    min_resources: ResourceList = field(default_factory=ResourceList)
    timeout_seconds: int | None = None
    created_at: float | None = None
    uid: str = ""

    @classmethod
    @decoder("pod group")
    def from_k8s(cls, document: Mapping[str, Any]) -> "PodGroup":
        """Read a PodGroup of either API group, which follows from ``apiVersion`` or else from the form of the spec.

        Raises:
            ValueError: a field has no valid value; the message names the object and the field.
        """
        metadata, spec = get(document, "metadata"), get(document, "spec")
        namespace, name = _names(document)
        where = f"pod group {namespace}/{name}: spec"
        policy, version = get(spec, "schedulingPolicy"), str(get(document, "apiVersion") or "")
        created_at = unix_seconds(get(metadata, "creationTimestamp"), f"pod group {namespace}/{name}: metadata")
        uid = str(get(metadata, "uid") or "")
        if policy is not None and not version.startswith(_COSCHEDULING_GROUP):
            gang = get(policy, "gang")
            path = f"{where}.schedulingPolicy.gang"
            least = 0 if gang is None else get_whole(gang, "minCount", path)
            if gang is not None and least < 1:
                raise ValueError(f"{path}.minCount: must be a whole number of at least 1, got {least}")
            ref = GangRef(GangForm.IN_TREE, namespace, name)
            return cls(ref, least, created_at=created_at, uid=uid)
        timeout = get(spec, "scheduleTimeoutSeconds")
        return cls(
            GangRef(GangForm.COSCHEDULING, namespace, name),
            # The custom resource's schema also allows 0 and less, with which no pod waits, and numbers above 32 bits.
            max(1, get_whole(spec, "minMember", where, bits=64)),
            ResourceList.from_k8s(get(spec, "minResources"), f"{where}.minResources", may_be_negative=True),
            None if timeout is None else max(0, get_whole(spec, "scheduleTimeoutSeconds", where, bits=64)),
            created_at,
            uid,
        )


def group_ref(kind: str, document: Mapping[str, Any]) -> GangRef:
    """Return the gang that a PodGroup describes, without reading its spec; ``kind`` is in :data:`POD_GROUP_KINDS`."""
    return GangRef(POD_GROUP_KINDS[kind], *_names(document))


def _names(document: Mapping[str, Any]) -> tuple[str, str]:
    metadata = get(document, "metadata")
    return str(get(metadata, "namespace") or "default"), str(get(metadata, "name") or "")


def labelled_group(pod: Pod) -> PodGroup | None:
    """Return the description of a gang from the labels of one of its pods; None if the pod's gang is an object.

    Raises:
        ValueError: the label with the least number of pods has no valid value.
    """
    ref = gang_of(pod)
    if ref is None or ref.form is not GangForm.LABELS:
        return None
    text = pod.labels.get(MIN_AVAILABLE_LABEL, "")
    least = int64(text)
    if least is None or least < 1:
        label = f"label {MIN_AVAILABLE_LABEL}"
        raise ValueError(f"pod {pod.namespace}/{pod.name}: {label}: must be a number of at least 1, got {quoted(text)}")
    return PodGroup(ref, least, created_at=pod.created_at)
