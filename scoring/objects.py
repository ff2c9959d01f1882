"""The Kubernetes objects that scores are made from: pods, containers, nodes and their resources.

All are frozen. ``from_k8s`` reads what the API server sends (dicts with camelCase keys), what ``to_dict()`` of the
kubernetes client makes (snake_case keys), or the client's objects themselves. This is a boundary: a negative or
unreadable quantity is refused here with the name of its field, so that the formulas need not check.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from watcher import quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
GPU = "nvidia.com/gpu"
# Kubernetes has no resource for these two. A pod's demand and a node's capacity, in bytes per second, are read from
# an extended resource of this name or, where there is none, from an annotation of this name.
NETWORK = "trimaran.io/network"
DISK = "trimaran.io/disk"
_ANNOTATED = (NETWORK, DISK)

_NANO = 10**9
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class ResourceList(Mapping[str, int]):
    """Resource name to amount, rounded up to whole units: millicores for ``cpu``, bytes or pieces for the rest.

    Kubernetes rounds each container for some scores and only the sum for others, so amounts that rounding changed are
    also kept exactly, see :meth:`nano`.

    Args:
        amounts: resource name to millicores (``cpu``), bytes or pieces.
    """

    __slots__ = ("_amounts", "_nano")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts: Mapping[str, int] = dict(amounts or {})
        self._nano: Mapping[str, int] = {}

    @classmethod
    def from_k8s(cls, quantities: Mapping[str, Any] | None, where: str) -> Self:
        """Read Kubernetes quantities (``500m``, ``1.5Gi``).

        Args:
            quantities: resource name to quantity; None is an empty list.
            where: the field's path, named in errors.

        Raises:
            ValueError: a quantity is unreadable or negative, or there is something else in the field.
        """
        if quantities is not None and not isinstance(quantities, Mapping):
            raise ValueError(f"{where}: must be a mapping, got {str(quantities)[:80]!r}")
        resources = cls()
        amounts: dict[str, int] = {}
        nano: dict[str, int] = {}
        for name, written in (quantities or {}).items():
            try:
                amount = quantity.milli_value(written) if name == CPU else quantity.value(written)
                exact = quantity.nano_value(written)  # exact sums need it
            except ValueError as error:
                raise ValueError(f"{where}.{name}: {error}") from None
            if amount < 0:
                raise ValueError(f"{where}.{name}: must not be negative, got {written!r}")
            amounts[name] = amount
            if exact != amount * _nano_per_unit(name):
                nano[name] = exact
        resources._amounts, resources._nano = amounts, nano
        return resources

    def nano(self, name: str) -> int:
        """Return the exact amount in billionths (of a core, a byte, a piece); 0 when the resource is not listed."""
        exact = self._nano.get(name)
        return self._amounts.get(name, 0) * _nano_per_unit(name) if exact is None else exact

    def amount(self, name: str) -> int:
        """Return the amount; 0 when the resource is not listed."""
        return self._amounts.get(name, 0)

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._amounts  # the inherited way makes an error and catches it

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))

    def __repr__(self) -> str:
        return f"ResourceList({dict(self._amounts)!r})"


@dataclass(frozen=True)
class Container:
    """A container, or an init container.

    Attributes:
        requests: what the scheduler reserves.
        limits: what the kubelet allows.
        image: the image's name as written in the pod.
        restartable: an init container with ``restartPolicy: Always``, that is, a sidecar.
    """

    requests: ResourceList = field(default_factory=ResourceList)
    limits: ResourceList = field(default_factory=ResourceList)
    image: str = ""
    restartable: bool = False


@dataclass(frozen=True)
class Pod:
    """A pod, as far as scores look at it.

    Attributes:
        name: with ``namespace`` it names the pod in explanations.
        namespace: see ``name``.
        uid: tells pods apart in a table; ``namespace/name`` when the API server gave none.
        containers: in order.
        init_containers: in order; sidecars are among them.
        overhead: of the pod's runtime class.
        annotated: demand that annotations state, for resources that no container requests.
        node_name: the node it is bound to, "" while pending.
        nominated_node_name: the node that preemption made room on, "" if none.
        terminating: it has a deletion timestamp.
        finished: its phase is Succeeded or Failed, so it uses nothing.
        scheduled_at: when it was bound, unix seconds; None if unknown.
    """

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = field(default_factory=ResourceList)
    annotated: ResourceList = field(default_factory=ResourceList)
    node_name: str = ""
    nominated_node_name: str = ""
    terminating: bool = False
    finished: bool = False
    scheduled_at: float | None = None

    def __post_init__(self) -> None:
        if not self.uid:
            object.__setattr__(self, "uid", f"{self.namespace}/{self.name}")

    @classmethod
    def from_k8s(cls, pod: Any) -> Self:
        """Read a v1 Pod.

        Raises:
            ValueError: a quantity is unreadable or negative; the message names the pod and the field.
        """
        metadata, spec, status = _get(pod, "metadata"), _get(pod, "spec"), _get(pod, "status")
        namespace, name = _get(metadata, "namespace") or "default", _get(metadata, "name") or ""
        where = f"pod {namespace}/{name}: spec"
        return cls(
            name=name,
            namespace=namespace,
            uid=_get(metadata, "uid") or "",
            containers=_containers(spec, "containers", where),
            init_containers=_containers(spec, "initContainers", where),
            overhead=ResourceList.from_k8s(_get(spec, "overhead"), f"{where}.overhead"),
            annotated=_annotated(metadata, f"pod {namespace}/{name}: metadata"),
            node_name=_get(spec, "nodeName") or "",
            nominated_node_name=_get(status, "nominatedNodeName") or "",
            terminating=_get(metadata, "deletionTimestamp") is not None,
            finished=_get(status, "phase") in _TERMINAL_PHASES,
            scheduled_at=_scheduled_at(status, f"pod {namespace}/{name}"),
        )


@dataclass(frozen=True)
class Node:
    """A node, as far as scores look at it.

    Attributes:
        name: the node's name, the key of its metrics.
        capacity: ``status.capacity``; TargetLoadPacking and Peaks measure against it.
        allocatable: ``status.allocatable``; the other scores measure against it.
        images: name of each container image on the node to its size in bytes.
        created_at: when it joined the cluster, unix seconds; None if unknown.
    """

    name: str
    capacity: ResourceList = field(default_factory=ResourceList)
    allocatable: ResourceList = field(default_factory=ResourceList)
    images: Mapping[str, int] = field(default_factory=dict)
    created_at: float | None = None

    @classmethod
    def from_k8s(cls, node: Any) -> Self:
        """Read a v1 Node.

        Raises:
            ValueError: the name is missing, or a quantity is unreadable or negative.
        """
        metadata, status = _get(node, "metadata"), _get(node, "status")
        name = _get(metadata, "name")
        if not name:
            raise ValueError("node: metadata.name is missing")
        annotated = _annotated(metadata, f"node {name}: metadata")
        capacity = ResourceList.from_k8s(_get(status, "capacity"), f"node {name}: status.capacity")
        allocatable = ResourceList.from_k8s(_get(status, "allocatable"), f"node {name}: status.allocatable")
        images: dict[str, int] = {}
        for index, image in enumerate(_get(status, "images") or ()):
            size = _get(image, "sizeBytes") or 0
            if not isinstance(size, int) or size < 0:
                raise ValueError(f"node {name}: status.images[{index}].sizeBytes: must be bytes, got {size!r}")
            images.update(dict.fromkeys(_get(image, "names") or (), size))
        if annotated:
            capacity = ResourceList({**annotated, **capacity})
            allocatable = ResourceList({**annotated, **allocatable})
        created_at = _unix_seconds(_get(metadata, "creationTimestamp"), f"node {name}: metadata")
        return cls(name=name, capacity=capacity, allocatable=allocatable, images=images, created_at=created_at)


def _nano_per_unit(name: str) -> int:
    return _NANO // 1000 if name == CPU else _NANO


def _get(owner: Any, camel_name: str) -> Any:
    """Return a field of a dict (either spelling) or of a kubernetes-client object; None when absent."""
    snake_name = "".join("_" + letter.lower() if letter.isupper() else letter for letter in camel_name)
    if isinstance(owner, Mapping):
        return owner.get(camel_name, owner.get(snake_name))
    return getattr(owner, snake_name, None)


def _containers(spec: Any, kind: str, where: str) -> tuple[Container, ...]:
    containers = []
    found = _get(spec, kind) or ()
    if not isinstance(found, list | tuple):
        raise ValueError(f"{where}.{kind}: must be a list, got {str(found)[:80]!r}")  # noqa: TRY004  a user's mistake
    for index, container in enumerate(found):
        resources = _get(container, "resources")
        path = f"{where}.{kind}[{index}].resources"
        requests, limits = _get(resources, "requests") or {}, _get(resources, "limits") or {}
        containers.append(
            Container(
                limits=ResourceList.from_k8s(limits, f"{path}.limits"),
                # The API server sets a request where there is only a limit; a manifest has not been there yet.
                requests=ResourceList.from_k8s({**limits, **requests}, f"{path}.requests"),
                image=_get(container, "image") or "",
                restartable=_get(container, "restartPolicy") == "Always",
            )
        )
    return tuple(containers)


def _annotated(metadata: Any, where: str) -> ResourceList:
    annotations = _get(metadata, "annotations") or {}
    stated = {name: annotations[name] for name in _ANNOTATED if name in annotations}
    return ResourceList.from_k8s(stated, f"{where}.annotations")


def _scheduled_at(status: Any, where: str) -> float | None:
    """Return when the PodScheduled condition became true, else the start time, in unix seconds."""
    moment = _get(status, "startTime")
    for condition in _get(status, "conditions") or ():
        if _get(condition, "type") == "PodScheduled" and _get(condition, "status") == "True":
            moment = _get(condition, "lastTransitionTime") or moment
    return _unix_seconds(moment, f"{where}: status")


def _unix_seconds(moment: Any, where: str) -> float | None:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise ValueError(f"{where} has no time in {moment!r}") from None
    return moment.timestamp() if isinstance(moment, datetime) else None
