"""Kubernetes objects that scores are computed from: pods, containers, nodes and their resources.

All are frozen. ``from_k8s`` reads the API server's JSON (dicts with camelCase keys), the ``to_dict()`` of the
kubernetes client (snake_case keys), and the client's objects. All validation happens here, so that the formulas need
none. Everything that the API server accepts can be read; what it refuses, such as an invalid or negative quantity, is
rejected with the name of the field. Amounts saturate at 64 bits and never wrap.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from runtime.errors import quoted
from runtime.kubernetes import quantity
from runtime.kubernetes.constraints import (
    NodeSelectorTerm,
    Taint,
    Toleration,
    read_required_affinity,
    read_taints,
    read_tolerations,
)
from runtime.kubernetes.k8s_fields import (
    check_spelling,
    decoder,
    get,
    get_list,
    get_text,
    get_texts,
    get_whole,
    unix_seconds,
)
from runtime.kubernetes.kinds import check_kind, kind_of, pod_of
from runtime.kubernetes.quantity import MAX_INT64
from runtime.kubernetes.scheduling_rules import NO_RULES, SchedulingRules, read_scheduling_rules
from runtime.kubernetes.workloads import Owner, Workload, workload_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
GPU = "nvidia.com/gpu"
# Kubernetes has no resource for these two. A pod's demand and a node's capacity, in bytes per second, are read from an
# extended resource with this name or, if there is none, from an annotation with this name.
NETWORK = "trimaran.io/network"
DISK = "trimaran.io/disk"
_ANNOTATED = (NETWORK, DISK)
_LIMIT_PREFIX = "trimaran.io/limit-"

MAX_AMOUNT: Final = 2**53
"""Largest amount that scores count for a pod or a node: 8 PiB of memory, or nine trillion cores."""

_NANO = 10**9
_WHOLE_POD = frozenset({CPU, MEMORY})
_NATIVE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_HUGE_PAGES = "hugepages-"
# Fields that are read. A misspelled field in a file is an error: its request would not be counted, and overfill a node.
# Objects from an API server are not checked: a newer version may have a field with a similar name.
_AFFINITY = frozenset({"nodeAffinity", "podAffinity", "podAntiAffinity"})
_OBJECT = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_POD_SPEC = frozenset({
    "affinity", "containers", "hostNetwork", "initContainers", "nodeName", "nodeSelector", "overhead", "priority",
    "priorityClassName", "resourceClaims", "resources", "schedulerName", "schedulingGates", "tolerations",
    "topologySpreadConstraints", "volumes",
})  # fmt: skip
_CONTAINER = frozenset({"image", "name", "ports", "resources", "restartPolicy"})
_RESOURCES = frozenset({"claims", "limits", "requests"})
_NODE_SPEC = frozenset({"taints", "unschedulable"})
_NODE_STATUS = frozenset({"allocatable", "capacity", "declaredFeatures", "images"})
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class ResourceList(Mapping[str, int]):
    """Amounts by resource, rounded up to whole units: millicores for ``cpu``, bytes or pieces for the rest.

    Kubernetes rounds each container for some scores and only the sum for others. Amounts that rounding changed are
    therefore also kept exactly; see :meth:`nano`.

    Args:
        amounts: amounts by resource, in millicores (``cpu``), bytes or pieces.
    """

    __slots__ = ("_amounts", "_nano")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts: Mapping[str, int] = dict(amounts or {})
        if any(isinstance(each, str) for each in self._amounts.values()):
            raise TypeError(f"amounts must be numbers, got {quoted(amounts)}; ResourceList.from_k8s reads quantities")
        self._nano: Mapping[str, int] = {}

    @classmethod
    def from_k8s(cls, quantities: Mapping[str, Any] | None, where: str, *, may_be_negative: bool = False) -> Self:
        """Read Kubernetes quantities (``500m``, ``1.5Gi``). Amounts saturate at the largest 64-bit integer.

        Args:
            quantities: quantities by resource; None for an empty list.
            where: path of the field, for error messages.
            may_be_negative: whether negative amounts are valid, as the API server checks none in custom resources.

        Raises:
            ValueError: a quantity is invalid or negative, or the field is not a mapping.
        """
        if quantities is not None and not isinstance(quantities, Mapping):
            raise ValueError(f"{where}: must be a mapping, got {str(quantities)[:80]!r}")
        resources = cls()
        if not quantities:
            return resources
        amounts: dict[str, int] = {}
        nano: dict[str, int] = {}
        for name, written in quantities.items():
            if written is None:
                raise ValueError(f"{where}.{name}: is null; write a quantity, or leave the name out")
            try:
                exact = quantity.nano_value(written)  # needed for exact sums
            except ValueError as error:
                raise ValueError(f"{where}.{name}: {error}") from None
            if exact < 0 and not may_be_negative:
                raise ValueError(f"{where}.{name}: must not be negative, got {quoted(written)}")
            unit = _nano_per_unit(name)
            amount = amounts[name] = min(-(-exact // unit), MAX_INT64)  # rounded up
            if exact != amount * unit and amount < MAX_INT64:
                nano[name] = exact
        resources._amounts, resources._nano = amounts, nano
        return resources

    @classmethod
    def highest(cls, *lists: "ResourceList") -> "ResourceList":
        """Return the largest amount of each resource in several lists."""
        resources = cls()
        amounts: dict[str, int] = {}
        nano: dict[str, int] = {}
        for name in dict.fromkeys(name for each in lists for name in each):
            most = max((each for each in lists if name in each), key=lambda each: each.nano(name))
            amounts[name] = most[name]
            exact = most.nano(name)
            if exact != most[name] * _nano_per_unit(name):
                nano[name] = exact
        resources._amounts, resources._nano = amounts, nano
        return resources

    def nano(self, name: str) -> int:
        """Return the exact amount in billionths (of a core, a byte, a piece); 0 if the resource is missing."""
        exact = self._nano.get(name)
        return self._amounts.get(name, 0) * _nano_per_unit(name) if exact is None else exact

    def whole(self, name: str) -> int:
        """Return the amount rounded down, as for free resources; 0 if the resource is missing."""
        return self.nano(name) // _nano_per_unit(name)

    def amount(self, name: str) -> int:
        """Return the amount; 0 if the resource is missing."""
        return self._amounts.get(name, 0)

    @property
    def exact_key(self) -> Hashable:
        """Hashable value that two lists share if they have the same exact amounts in the same order."""
        return tuple(self._amounts.items()), tuple(self._nano.items())

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._amounts  # faster than the inherited method, which catches a KeyError

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __eq__(self, other: object) -> bool:
        if type(other) is ResourceList:  # compares exact amounts, a hundred times as fast as the inherited method
            return self._amounts == other._amounts and self._nano == other._nano
        return self._amounts == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))

    def __repr__(self) -> str:
        return f"ResourceList({dict(self._amounts)!r})"


NOTHING_CLAIMED: Final = ResourceList()
"""Empty list that most pods share for resource claims, overhead, annotations and pod-level resources."""
NO_ANNOTATIONS: Final[Mapping[str, str]] = {}
"""Annotations of most pods."""
SECCOMP_ANNOTATIONS: Final = "seccomp.security.alpha.kubernetes.io"
"""Beginning of the old annotations of pods that name seccomp profiles."""


@dataclass(frozen=True)
class Container:
    """A container or an init container.

    Attributes:
        requests: resources that the scheduler reserves.
        limits: resources that the kubelet allows.
        image: name of the image as written in the pod.
        restartable: True for a sidecar: an init container with ``restartPolicy: Always``.
        resized: requests that kube-scheduler counts during and after an in-place resize; None if they are
            ``requests``. The Trimaran plugins ignore them.
    """

    requests: ResourceList = field(default_factory=ResourceList)
    limits: ResourceList = field(default_factory=ResourceList)
    image: str = ""
    restartable: bool = False
    resized: ResourceList | None = None


Kin = Workload | Owner
"""Identity that is common to pods with similar expected use."""


@dataclass(slots=True, eq=False)
class CachedRequests:
    """Cache of amounts for all pods with equal requests. Each value is None or missing until it is first computed.

    Attributes:
        amounts: amounts by resource and name of the function, see :mod:`runtime.kubernetes.pod_demand`.
        requested: amounts by resource, as the Trimaran plugins count them.
        filter_requests: resources and amounts, as kube-scheduler's filter counts them.
        node_change: column of each sum in the node table, and the amount that such a pod adds to each column.
    """

    amounts: dict[tuple[str, str], int] = field(default_factory=dict)
    requested: Mapping[str, int] | None = None
    filter_requests: tuple[tuple[str, int], ...] | None = None
    node_change: "tuple[Mapping[str, int], NDArray[np.int64]] | None" = None


RequestKey = tuple[
    tuple[Container, ...],
    tuple[Container, ...],
    tuple[str, ...],
    ResourceList,
    ResourceList,
    ResourceList,
    ResourceList | None,
]
"""Everything that determines a pod's requests and images: containers, init containers, image volumes, overhead,
annotations, pod requests, amounts held by resource claims.
"""


@dataclass(frozen=True)
class Pod:
    """A pod, with the fields that scores and filters use.

    Attributes:
        name: name of the pod.
        namespace: namespace of the pod.
        uid: identity of the pod. Without a UID from the API server it is ``namespace/name``, or random if the pod has
            no name, for example with a generateName.
        containers: containers in order.
        init_containers: init containers in order, including sidecars.
        image_volumes: names of the images that are volumes of the pod, as written in the pod.
        overhead: overhead of the pod's runtime class.
        annotated: demand from annotations, for resources that no container requests.
        node_name: node that the pod is bound to; empty while it is pending.
        nominated_node_name: node on which preemption made room for the pod; empty if there is none.
        terminating: True if the pod has a deletion timestamp.
        finished: True if the phase is Succeeded or Failed, so that the pod uses nothing.
        created_at: time of the creation, Unix seconds; None if unknown.
        scheduled_at: time of the binding, Unix seconds; None if unknown.
        started_at: time at which the kubelet accepted the pod, ``status.startTime``, Unix seconds; None before it.
        preempted: True if a scheduler marked the pod as a victim of preemption, by the condition DisruptionTarget.
        requests: pod-level requests (``spec.resources``), after resizing. kube-scheduler counts them
            instead of the containers' requests; the Trimaran plugins ignore them.
        claimed: CPU, memory and so on that the pod's resource claims hold of the node (DRA), which kube-scheduler adds
            to the containers' requests; None if the amounts cannot be read. The Trimaran plugins ignore them.
        limits: pod-level limits (``spec.resources``), which bound all containers together. The Trimaran plugins ignore
            them.
        labels: labels of the pod.
        owner: controller of the pod; None if it has none.
        workload: workload of the pod, over all its revisions and runs; None if it is not known.
        priority: pods with a higher priority are scheduled first.
        priority_class: name of the PriorityClass; empty if there is none.
        qos: quality of service as the API server reports it; empty if unknown, see :mod:`runtime.kubernetes.qos`.
        seccomp_profiles: ``namespace/name`` of the SeccompProfiles that the pod and its containers use; empty unless
            ``kept_annotations`` of :meth:`from_k8s` has :data:`SECCOMP_ANNOTATIONS`.
        annotations: the annotations that ``kept_annotations`` of :meth:`from_k8s` names.
        tolerations: tolerations of the pod.
        node_selector: labels that the pod's node must have.
        required_affinity: terms of the required node affinity, at least one of which must match; None without terms.
        scheduling: rules about other pods, ports, volumes and so on, which few pods have.
        scheduler_name: name of the scheduler that places the pod.
        cached_requests: cache of computed amounts, which pods with equal requests may share; None for no cache, which
            is better for pods whose amounts are read only a few times.
    """

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    image_volumes: tuple[str, ...] = ()
    overhead: ResourceList = NOTHING_CLAIMED
    annotated: ResourceList = NOTHING_CLAIMED
    node_name: str = ""
    nominated_node_name: str = ""
    terminating: bool = False
    finished: bool = False
    created_at: float | None = None
    scheduled_at: float | None = None
    started_at: float | None = None
    preempted: bool = False
    requests: ResourceList = NOTHING_CLAIMED
    claimed: ResourceList | None = NOTHING_CLAIMED
    limits: ResourceList = NOTHING_CLAIMED
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: Owner | None = None
    workload: Workload | None = None
    priority: int = 0
    priority_class: str = ""
    qos: str = ""
    seccomp_profiles: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    required_affinity: tuple[NodeSelectorTerm, ...] | None = None
    scheduling: SchedulingRules = NO_RULES
    scheduler_name: str = "default-scheduler"
    cached_requests: CachedRequests | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.uid:
            object.__setattr__(self, "uid", f"{self.namespace}/{self.name or uuid4().hex}")

    @property
    def kin(self) -> Kin | None:
        """Identity of the pods that behave alike: the workload, or the owner if the workload is not known."""
        return self.workload or self.owner

    @classmethod
    @decoder("pod")
    def from_k8s(
        cls,
        pod: Any,
        known: Callable[[RequestKey], CachedRequests] | None = None,
        name_workload: Callable[..., Workload] = workload_of,
        kept_annotations: Collection[str] = (),
    ) -> Self:
        """Read a v1 Pod, or a pod from the template of a workload, such as a Deployment.

        Args:
            pod: the object.
            known: returns the cache for pods with these requests; None for no cache.
            name_workload: :func:`~runtime.kubernetes.workloads.workload_of`, possibly with its options.
            kept_annotations: names of the annotations to keep.

        Raises:
            ValueError: the object is neither a pod nor a workload, it has neither a name nor containers, a quantity is
                invalid or negative, a constraint is invalid, or, without a UID, a field is misspelled. The message
                names the pod and the field.
        """
        given, pod = pod, pod_of(pod)
        metadata, spec, status = get(pod, "metadata"), get(pod, "spec"), get(pod, "status")
        namespace, name, uid, prefix = (
            get_text(metadata, key, "pod: metadata") for key in ("namespace", "name", "uid", "generateName")
        )
        namespace = namespace or "default"
        title = f"pod {namespace}/{name or prefix}"
        where = f"{title}: spec"
        if not uid:
            _check_pod_spelling(pod, spec, where)
        containers = _containers(spec, "containers", status, where)
        if not (name or prefix) and get(spec, "containers") is None:
            raise ValueError("pod: has neither a name nor containers; is it a v1 Pod?")
        init_containers = _containers(spec, "initContainers", status, where)
        image_volumes = _image_volumes(spec, where)
        stated = get(spec, "overhead")
        overhead = NOTHING_CLAIMED if stated is None else ResourceList.from_k8s(stated, f"{where}.overhead")
        annotated = _annotated(metadata)
        requests, limits = _whole_pod(spec, status, containers + init_containers, where)
        try:
            claimed = _claimed(status, f"{title}: status")
        except ValueError:  # the API server does not check this status
            claimed = None
        labels, owner = get_texts(metadata, "labels", f"{title}: metadata"), _owner(metadata, title)
        template_owner = owner if pod is given else Owner(kind_of(given), name)
        return cls(
            name=name or prefix,
            namespace=namespace,
            uid=uid or ("" if name else f"{namespace}/{prefix}{uuid4().hex}"),
            containers=containers,
            init_containers=init_containers,
            image_volumes=image_volumes,
            overhead=overhead,
            annotated=annotated,
            node_name=get(spec, "nodeName") or "",
            nominated_node_name=get(status, "nominatedNodeName") or "",
            terminating=get(metadata, "deletionTimestamp") is not None,
            finished=get(status, "phase") in _TERMINAL_PHASES,
            created_at=unix_seconds(get(metadata, "creationTimestamp"), f"{title}: metadata"),
            scheduled_at=_scheduled_at(status, title),
            started_at=unix_seconds(get(status, "startTime"), f"{title}: status"),
            preempted=_is_preempted(status),
            requests=requests,
            claimed=claimed,
            limits=limits,
            labels=labels,
            owner=owner,
            workload=name_workload(namespace, name, labels, template_owner, generate_name=prefix),
            priority=get_whole(spec, "priority", where),
            priority_class=get(spec, "priorityClassName") or "",
            qos=get(status, "qosClass") or "",
            seccomp_profiles=_seccomp_profiles(metadata, spec) if SECCOMP_ANNOTATIONS in kept_annotations else (),
            annotations=_kept_annotations(metadata, kept_annotations) if kept_annotations else NO_ANNOTATIONS,
            tolerations=read_tolerations(spec, where),
            node_selector=get_texts(spec, "nodeSelector", where),
            required_affinity=read_required_affinity(spec, where),
            scheduling=read_scheduling_rules(spec, namespace, labels, where),
            scheduler_name=get(spec, "schedulerName") or cls.scheduler_name,
            cached_requests=known
            and known((containers, init_containers, image_volumes, overhead, annotated, requests, claimed)),
        )


@dataclass(frozen=True)
class Node:
    """A node, with the fields that scores and filters use.

    Attributes:
        name: name of the node, which is also the key of its metrics.
        capacity: ``status.capacity``, the base of TargetLoadPacking and Peaks.
        allocatable: ``status.allocatable``, the base of the other scores.
        images: size in bytes of each container image on the node, by name of the image.
        created_at: creation time of the node, Unix seconds; None if unknown.
        labels: labels of the node.
        taints: taints of the node.
        unschedulable: True if the node is cordoned.
        declared_features: features that the node declares in ``status.declaredFeatures``.
        use_limits: values of the annotations ``trimaran.io/limit-<resource>-percent`` by resource, not parsed.
        annotations: the annotations that ``kept_annotations`` of :meth:`from_k8s` names; others often change unused.
    """

    name: str
    capacity: ResourceList = field(default_factory=ResourceList)
    allocatable: ResourceList = field(default_factory=ResourceList)
    images: Mapping[str, int] = field(default_factory=dict)
    created_at: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    declared_features: frozenset[str] = frozenset()
    use_limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @decoder("node")
    def from_k8s(cls, node: Any, kept_annotations: Iterable[str] = ()) -> Self:
        """Read a v1 Node.

        Args:
            node: the object.
            kept_annotations: names of the annotations to keep.

        Raises:
            ValueError: the object is not a node, the name is missing, or a quantity is invalid or negative.
        """
        node = check_kind(node, "Node")
        metadata, spec, status = get(node, "metadata"), get(node, "spec"), get(node, "status")
        name = get_text(metadata, "name", "node: metadata")
        if not get(metadata, "uid"):
            check_spelling(node, _OBJECT, "node")
            check_spelling(spec, _NODE_SPEC, f"node {name}: spec")
            check_spelling(status, _NODE_STATUS, f"node {name}: status")
        if not name:
            raise ValueError("node: metadata.name is missing")
        annotated = _annotated(metadata)
        capacity = ResourceList.from_k8s(get(status, "capacity"), f"node {name}: status.capacity")
        allocatable = ResourceList.from_k8s(get(status, "allocatable"), f"node {name}: status.allocatable")
        images: dict[str, int] = {}
        for index, image in enumerate(get(status, "images") or ()):
            size = get_whole(image, "sizeBytes", f"node {name}: status.images[{index}]", bits=64)
            images.update(dict.fromkeys(get(image, "names") or (), min(max(size, 0), MAX_AMOUNT)))
        if annotated:
            capacity = ResourceList({**annotated, **capacity})
            allocatable = ResourceList({**annotated, **allocatable})
        return cls(
            name=name,
            capacity=capacity,
            allocatable=allocatable,
            images=images,
            created_at=unix_seconds(get(metadata, "creationTimestamp"), f"node {name}: metadata"),
            labels=get_texts(metadata, "labels", f"node {name}: metadata"),
            taints=read_taints(spec, f"node {name}: spec"),
            unschedulable=bool(get(spec, "unschedulable")),
            declared_features=frozenset(get_list(status, "declaredFeatures", f"node {name}: status")),
            use_limits=_use_limits(metadata),
            annotations=_kept_annotations(metadata, kept_annotations),
        )


def _nano_per_unit(name: str) -> int:
    return _NANO // 1000 if name == CPU else _NANO


def _check_pod_spelling(pod: Any, spec: Any, where: str) -> None:
    check_spelling(pod, _OBJECT, "pod")
    check_spelling(spec, _POD_SPEC, where)
    check_spelling(get(spec, "resources"), _RESOURCES, f"{where}.resources")
    check_spelling(get(spec, "affinity"), _AFFINITY, f"{where}.affinity")
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(get_list(spec, kind, where)):
            check_spelling(container, _CONTAINER, f"{where}.{kind}[{index}]")
            check_spelling(get(container, "resources"), _RESOURCES, f"{where}.{kind}[{index}].resources")
            _check_resource_names(container, f"{where}.{kind}[{index}].resources")


def _check_resource_names(container: Any, path: str) -> None:
    """Refuse a misspelled resource, such as ``memroy``: the API server admits no other name without a domain."""
    for kind, amounts in zip(("requests", "limits"), _written(container, path), strict=True):
        for name in amounts:
            if "/" not in name and name not in _NATIVE and not name.startswith(_HUGE_PAGES):
                raise ValueError(f"{path}.{kind}.{name}: is not a resource; devices are named as example.com/gpu")


def _containers(spec: Any, kind: str, status: Any, where: str) -> tuple[Container, ...]:
    containers = []
    initial = kind == "initContainers"
    listed = get_list(spec, kind, where)
    if not listed:
        return ()
    statuses = {
        get(each, "name"): each
        for each in get(status, "initContainerStatuses" if initial else "containerStatuses") or ()
        if get(each, "resources") is not None
    }
    for index, container in enumerate(listed):
        path = f"{where}.{kind}[{index}].resources"
        written, limits = _written(container, path)
        read_limits = ResourceList.from_k8s(limits, f"{path}.limits")
        # The API server sets a missing request to the limit; a manifest that was not applied yet needs the same.
        requests = ResourceList.from_k8s({**limits, **written} if limits else written, f"{path}.requests")
        restartable = get(container, "restartPolicy") == "Always"
        reported = statuses.get(get(container, "name")) if restartable or not initial else None
        containers.append(
            Container(
                limits=read_limits,
                requests=requests,
                image=get(container, "image") or "",
                restartable=restartable,
                resized=None if reported is None else _resized(requests, reported, status, path),
            )
        )
    return tuple(containers)


def _image_volumes(spec: Any, where: str) -> tuple[str, ...]:
    images = [get(volume, "image") for volume in get_list(spec, "volumes", where)]
    return tuple([str(get(image, "reference") or "") for image in images if image is not None])


def _written(owner: Any, path: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the requests and limits of a pod or container as written, not parsed."""
    resources = get(owner, "resources")
    written = get(resources, "requests") or {}, get(resources, "limits") or {}
    for kind, amounts in zip(("requests", "limits"), written, strict=True):
        if not isinstance(amounts, Mapping):
            raise ValueError(f"{path}.{kind}: must be a mapping, got {str(amounts)[:80]!r}")  # noqa: TRY004  a user's mistake
    return written


def _resized(wanted: ResourceList, reported: Any, status: Any, path: str) -> ResourceList | None:
    """Return the requests that kube-scheduler counts for a container or pod that can be resized in place.

    The result is the maximum of the desired, actual and allocated requests, without the desired ones if the resize is
    infeasible; None if it equals the desired ones.
    Source: ``determineEffectiveRequests`` of k8s.io/component-helpers/resource.
    """
    actual, _ = _written(reported, f"{path} (status)")
    lists = [
        # The API server does not check amounts in a status: negative ones do not count.
        ResourceList.from_k8s(
            {name: each for name, each in amounts.items() if name in wanted and not str(each).startswith("-")},
            f"{path} (status)",
        )
        for amounts in (actual, get(reported, "allocatedResources") or {})
    ]
    infeasible = any(
        get(condition, "type") == "PodResizePending" and get(condition, "reason") == "Infeasible"
        for condition in get(status, "conditions") or ()
    )
    counted = ResourceList.highest(*lists) if infeasible else ResourceList.highest(wanted, *lists)
    return None if counted == wanted else counted


def _claimed(status: Any, where: str) -> ResourceList | None:
    """Return the CPU, memory and so on of the node that the pod's resource claims hold; None if unreadable.

    Kubernetes 1.36 reports ``resources`` of each claim, 1.37 ``mapping`` and ``overhead``. Devices that hold no CPU or
    memory of the node, such as most GPUs, are not listed.
    Source: ``addDRANodeAllocatableClaimResources`` of k8s.io/component-helpers/resource 0.37, ``PodRequests`` of 0.36.
    """
    key = "nodeAllocatableResourceClaimStatuses"
    held = get_list(status, key, where)
    if not held:
        return NOTHING_CLAIMED
    sums: dict[str, int] = {}

    def add(name: str, written: Any, times: int = 1) -> None:
        amounts = ResourceList.from_k8s({name: written}, f"{where}.{key}")
        sums[name] = sums.get(name, 0) + times * amounts[name]

    for claim in held:
        forms = [get(claim, form) for form in ("resources", "mapping", "overhead")]
        if all(form is None for form in forms):
            return None
        containers = len(get_list(claim, "containers", f"{where}.{key}"))
        for name, written in (forms[0] or {}).items():
            add(name, written)
        for mapped in forms[1] or ():
            add(get(mapped, "name"), get(mapped, "quantity"))
        for overhead in forms[2] or ():
            add(get(overhead, "name"), get(overhead, "perPod") or 0)
            add(get(overhead, "name"), get(overhead, "perContainer") or 0, containers)
    return ResourceList(sums)


def _whole_pod(
    spec: Any, status: Any, containers: tuple[Container, ...], where: str
) -> tuple[ResourceList, ResourceList]:
    """Return the pod-level requests, including those that the API server derives from pod-level limits, and the limits.

    Source: ``PodRequests`` of k8s.io/component-helpers/resource, ``defaultPodRequests`` of k8s.io/kubernetes.
    """
    path = f"{where}.resources"
    written, limits = _written(spec, path)
    if not written and not limits:
        return NOTHING_CLAIMED, NOTHING_CLAIMED
    inside = {name for container in containers for name in container.requests}
    derived = {name: amount for name, amount in limits.items() if name not in inside}
    wanted = ResourceList.from_k8s(_of_whole_pod({**derived, **written}), f"{path}.requests")
    bounds = ResourceList.from_k8s(_of_whole_pod(limits), f"{path}.limits") if limits else NOTHING_CLAIMED
    if get(status, "resources") is None:
        return wanted, bounds
    resized = _resized(wanted, status, status, path)
    return wanted if resized is None else resized, bounds


def _of_whole_pod(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amount for name, amount in amounts.items() if name in _WHOLE_POD or name.startswith(_HUGE_PAGES)}


def _owner(metadata: Any, title: str) -> Owner | None:
    for owner in get_list(metadata, "ownerReferences", f"{title}: metadata"):
        if get(owner, "controller"):
            return Owner(get(owner, "kind") or "", get(owner, "name") or "", get(owner, "uid") or "")
    return None


def _annotated(metadata: Any) -> ResourceList:
    """Return the amounts in annotations. Anyone may write these, so a text that is not an amount counts as missing."""
    annotations = get(metadata, "annotations") or {}
    if not isinstance(annotations, Mapping):
        raise ValueError(f"annotations of {get(metadata, 'name')}: must be a mapping, got {quoted(annotations)}")  # noqa: TRY004  a user's mistake
    stated: dict[str, Any] = {}
    for name in _ANNOTATED if annotations else ():
        with suppress(ValueError):
            stated |= ResourceList.from_k8s({name: annotations[name]} if name in annotations else None, "annotations")
    return ResourceList(stated) if stated else NOTHING_CLAIMED


def _use_limits(metadata: Any) -> Mapping[str, str]:
    annotations = get(metadata, "annotations") or {}
    stated = {name: annotations.get(f"{_LIMIT_PREFIX}{name}-percent") for name in (CPU, MEMORY)}
    return {name: str(text) for name, text in stated.items() if text is not None}


def _seccomp_profiles(metadata: Any, spec: Any) -> tuple[str, ...]:
    """Return the SeccompProfiles, whose files the Security Profiles Operator names ``.../NAMESPACE/NAME.json``."""
    paths = [
        get(profile, "localhostProfile") or ""
        for owner in (spec, *(get(spec, "containers") or ()))
        if (context := get(owner, "securityContext"))
        and (profile := get(context, "seccompProfile"))
        and get(profile, "type") == "Localhost"
    ]
    annotations = get(metadata, "annotations") or {}
    paths += [str(path) for name, path in annotations.items() if SECCOMP_ANNOTATIONS in name]
    if not paths:
        return ()
    parts = (path.removesuffix(".json").split("/") for path in paths)
    return tuple(dict.fromkeys("/".join(part[-2:]) for part in parts if len(part) > 1))


def _kept_annotations(metadata: Any, names: Iterable[str]) -> Mapping[str, str]:
    annotations = get(metadata, "annotations") or {}
    return {name: str(annotations[name]) for name in names if name in annotations}


def _scheduled_at(status: Any, where: str) -> float | None:
    """Return the time at which the PodScheduled condition became true, or the start time, in Unix seconds."""
    moment = get(status, "startTime")
    for condition in get(status, "conditions") or ():
        if get(condition, "type") == "PodScheduled" and get(condition, "status") == "True":
            moment = get(condition, "lastTransitionTime") or moment
    return unix_seconds(moment, f"{where}: status")


def _is_preempted(status: Any) -> bool:
    """Return whether a scheduler deletes the pod to make room. Source: ``PodTerminatingByPreemption``."""
    return any(
        get(condition, "type") == "DisruptionTarget"
        and get(condition, "status") == "True"
        and get(condition, "reason") == "PreemptionByScheduler"
        for condition in get(status, "conditions") or ()
    )
