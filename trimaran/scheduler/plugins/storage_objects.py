"""Objects of Kubernetes' storage, with the fields that decide where a pod with volumes may run.

Source: PersistentVolumeClaim and PersistentVolume of v1; StorageClass, CSINode, CSIDriver, CSIStorageCapacity and
VolumeAttachment of storage.k8s.io/v1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runtime.kubernetes import quantity
from runtime.kubernetes.constraints import NodeRequirement, NodeSelectorTerm, are_parsable, read_node_term
from runtime.kubernetes.k8s_fields import decoder, get, get_list, get_text, get_texts, get_whole
from runtime.kubernetes.scheduling_rules import LabelSelector, read_label_selector

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_FILESYSTEM = "Filesystem"
_NANO = 10**9


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim.

    Attributes:
        namespace: namespace of the claim.
        name: name of the claim.
        uid: uid of the claim.
        resource_version: version of the object, for writes that must not overwrite others.
        storage_class: name of its StorageClass; "" if it has none.
        volume_name: name of its volume; "" if it has none yet.
        is_bound: whether the controller has bound claim and volume to each other.
        is_lost: whether its volume is gone.
        is_terminating: whether it is being deleted.
        access_modes: wanted access modes.
        request: wanted size in bytes; None if it states none.
        volume_mode: ``Filesystem`` or ``Block``.
        selector: labels of the volume; None for any.
        attributes_class: name of its VolumeAttributesClass.
        selected_node: node for which its volume is being provisioned; "" if there is none.
        controller: uid of the object that controls it, such as the pod of an ephemeral volume; "" if there is none.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    storage_class: str = ""
    volume_name: str = ""
    is_bound: bool = False
    is_lost: bool = False
    is_terminating: bool = False
    access_modes: frozenset[str] = frozenset()
    request: int | None = None
    volume_mode: str = _FILESYSTEM
    selector: LabelSelector | None = None
    attributes_class: str = ""
    selected_node: str = ""
    controller: str = ""

    @classmethod
    @decoder("persistentvolumeclaim")
    def from_k8s(cls, each: Mapping[str, Any]) -> "Claim":
        """Read a v1 PersistentVolumeClaim.

        Raises:
            ValueError: a selector or a quantity is invalid.
        """
        metadata, spec, status = get(each, "metadata"), get(each, "spec"), get(each, "status")
        namespace, name = str(get(metadata, "namespace") or ""), str(get(metadata, "name") or "")
        where = f"persistentvolumeclaim {namespace}/{name}: spec"
        annotations = get_texts(metadata, "annotations", where)
        volume_name = get_text(spec, "volumeName", where)
        return cls(
            namespace,
            name,
            get_text(metadata, "uid", where),
            get_text(metadata, "resourceVersion", where),
            annotations.get(_OLD_CLASS) or get_text(spec, "storageClassName", where),
            volume_name,
            bool(volume_name) and _BIND_COMPLETED in annotations,
            get(status, "phase") == "Lost",
            get(metadata, "deletionTimestamp") is not None,
            frozenset(get_list(spec, "accessModes", where)),
            _size(get(get(spec, "resources"), "requests"), f"{where}.resources.requests"),
            get(spec, "volumeMode") or _FILESYSTEM,
            read_label_selector(spec, "selector", where),
            get_text(spec, "volumeAttributesClassName", where),
            annotations.get(SELECTED_NODE) or "",
            _controller(metadata, f"persistentvolumeclaim {namespace}/{name}: metadata"),
        )

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume.

    Attributes:
        name: name of the volume.
        resource_version: version of the object.
        labels: labels of the volume.
        storage_class: name of its StorageClass; "" if it has none.
        capacity: size in bytes.
        access_modes: access modes that it supports.
        volume_mode: ``Filesystem`` or ``Block``.
        attributes_class: name of its VolumeAttributesClass.
        node_terms: terms of which the labels of a node must match one; None for any node.
        claim: namespace, name and uid of the claim that it is bound to, or reserved for; the uid may be "".
        is_available: whether its phase is ``Available``.
        is_terminating: whether it is being deleted.
        driver: name of its CSI driver; "" for another kind of volume.
        handle: identity of the volume for the driver.
    """

    name: str
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = ""
    capacity: int = 0
    access_modes: frozenset[str] = frozenset()
    volume_mode: str = _FILESYSTEM
    attributes_class: str = ""
    node_terms: tuple[NodeSelectorTerm, ...] | None = None
    claim: tuple[str, str, str] | None = None
    is_available: bool = True
    is_terminating: bool = False
    driver: str = ""
    handle: str = ""

    @classmethod
    @decoder("persistentvolume")
    def from_k8s(cls, each: Mapping[str, Any]) -> "Volume":
        """Read a v1 PersistentVolume.

        Raises:
            ValueError: a term or a quantity is invalid.
        """
        metadata, spec, status = get(each, "metadata"), get(each, "spec"), get(each, "status")
        name = str(get(metadata, "name") or "")
        where = f"persistentvolume {name}: spec"
        annotations = get_texts(metadata, "annotations", where)
        required = get(get(spec, "nodeAffinity"), "required")
        claim, csi = get(spec, "claimRef"), get(spec, "csi")
        return cls(
            name,
            get_text(metadata, "resourceVersion", where),
            get_texts(metadata, "labels", f"persistentvolume {name}: metadata"),
            annotations.get(_OLD_CLASS) or get_text(spec, "storageClassName", where),
            _size(get(spec, "capacity"), f"{where}.capacity") or 0,
            frozenset(get_list(spec, "accessModes", where)),
            get(spec, "volumeMode") or _FILESYSTEM,
            get_text(spec, "volumeAttributesClassName", where),
            None if required is None else _node_terms(required, f"{where}.nodeAffinity.required"),
            None if claim is None else _reference(claim, f"{where}.claimRef"),
            get(status, "phase") == "Available",
            get(metadata, "deletionTimestamp") is not None,
            get_text(csi, "driver", where),
            get_text(csi, "volumeHandle", where),
        )

    def is_reserved_for(self, claim: Claim) -> bool:
        """Return whether the volume is bound to a claim or reserved for it."""
        return self.claim is not None and self.claim[:2] == claim.key and self.claim[2] in {"", claim.uid}

    def suits(self, claim: Claim) -> bool:
        """Return whether the volume may be bound to a claim, apart from its node affinity.

        Source: ``FindMatchingVolume`` of k8s.io/component-helpers.
        """
        if (self.claim is not None and not self.is_reserved_for(claim)) or self.is_terminating:
            return False
        if self.capacity < (claim.request or 0) or self.volume_mode != claim.volume_mode:
            return False
        if self.attributes_class != claim.attributes_class:
            return False
        return self.claim is not None or (
            self.is_available
            and (claim.selector is None or claim.selector.matches(self.labels))
            and self.storage_class == claim.storage_class
            and claim.access_modes <= self.access_modes
        )


@dataclass(frozen=True, slots=True)
class VolumeClass:
    """A StorageClass.

    Attributes:
        name: name of the class.
        provisioner: name of the program that makes its volumes.
        waits_for_pod: whether volumes are bound or provisioned only for scheduled pods (``WaitForFirstConsumer``).
        topologies: terms of which the labels of a node must match one; without terms every node is allowed.
    """

    name: str
    provisioner: str = ""
    waits_for_pod: bool = False
    topologies: tuple[NodeSelectorTerm, ...] = ()

    @classmethod
    @decoder("storageclass")
    def from_k8s(cls, each: Mapping[str, Any]) -> "VolumeClass":
        """Read a storage.k8s.io/v1 StorageClass."""
        name = str(get(get(each, "metadata"), "name") or "")
        where = f"storageclass {name}"
        topologies = tuple(
            _topology_term(
                tuple(
                    NodeRequirement(get_text(one, "key", where), "In", tuple(get_list(one, "values", where)))
                    for one in get_list(term, "matchLabelExpressions", where)
                )
            )
            for term in get_list(each, "allowedTopologies", where)
        )
        waits = get(each, "volumeBindingMode") == "WaitForFirstConsumer"
        return cls(name, get_text(each, "provisioner", where), waits, topologies)


@dataclass(frozen=True, slots=True)
class NodeDrivers:
    """A CSINode: the largest number of volumes of each CSI driver on a node; a driver without a limit is left out."""

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    @decoder("csinode")
    def from_k8s(cls, each: Mapping[str, Any]) -> "NodeDrivers":
        """Read a storage.k8s.io/v1 CSINode."""
        name = str(get(get(each, "metadata"), "name") or "")
        limits = {}
        for driver in get_list(get(each, "spec"), "drivers", f"csinode {name}: spec"):
            allocatable = get(driver, "allocatable")
            if get(allocatable, "count") is not None:
                limits[str(get(driver, "name"))] = get_whole(allocatable, "count", f"csinode {name}: spec.drivers")
        return cls(name, limits)


@dataclass(frozen=True, slots=True)
class Driver:
    """A CSIDriver; ``tracks_capacity`` says whether it publishes CSIStorageCapacity objects for the scheduler."""

    name: str
    tracks_capacity: bool = False

    @classmethod
    @decoder("csidriver")
    def from_k8s(cls, each: Mapping[str, Any]) -> "Driver":
        """Read a storage.k8s.io/v1 CSIDriver."""
        return cls(str(get(get(each, "metadata"), "name") or ""), bool(get(get(each, "spec"), "storageCapacity")))


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: largest volume that can be provisioned for a set of nodes.

    Attributes:
        storage_class: name of the StorageClass.
        nodes: labels of the nodes; None for no node.
        limit: size of the largest volume in bytes; None if it is unknown.
        free: free space in bytes; 0 if it is unknown.
    """

    storage_class: str
    nodes: LabelSelector | None = None
    limit: int | None = None
    free: int = 0

    @classmethod
    @decoder("csistoragecapacity")
    def from_k8s(cls, each: Mapping[str, Any]) -> "StorageCapacity":
        """Read a storage.k8s.io/v1 CSIStorageCapacity."""
        where = f"csistoragecapacity {get(get(each, 'metadata'), 'name')}"
        largest, free = (
            None if stated is None else _bytes(stated, where)
            for stated in (get(each, "maximumVolumeSize"), get(each, "capacity"))
        )
        nodes = read_label_selector(each, "nodeTopology", where)
        return cls(get_text(each, "storageClassName", where), nodes, free if largest is None else largest, free or 0)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment: a volume that is attached to a node, or being attached or detached."""

    node_name: str = ""
    driver: str = ""
    volume_name: str = ""

    @classmethod
    @decoder("volumeattachment")
    def from_k8s(cls, each: Mapping[str, Any]) -> "Attachment":
        """Read a storage.k8s.io/v1 VolumeAttachment."""
        spec, where = get(each, "spec"), f"volumeattachment {get(get(each, 'metadata'), 'name')}: spec"
        return cls(
            get_text(spec, "nodeName", where),
            get_text(spec, "attacher", where),
            get_text(get(spec, "source"), "persistentVolumeName", where),
        )


def _reference(claim: Any, where: str) -> tuple[str, str, str]:
    namespace, name, uid = (get_text(claim, key, where) for key in ("namespace", "name", "uid"))
    return namespace, name, uid


def _node_terms(selector: Any, where: str) -> tuple[NodeSelectorTerm, ...]:
    """Read the terms of a volume's node affinity; kube-scheduler compares labels only, so fields match no node."""
    return tuple(
        NodeSelectorTerm() if get(term, "matchFields") else read_node_term(term, f"{where}.nodeSelectorTerms[{index}]")
        for index, term in enumerate(get_list(selector, "nodeSelectorTerms", where))
    )


def _topology_term(requirements: tuple[NodeRequirement, ...]) -> NodeSelectorTerm:
    return NodeSelectorTerm(requirements if are_parsable(requirements) else ())


def _controller(metadata: Any, where: str) -> str:
    references = get_list(metadata, "ownerReferences", where)
    return next((str(get(each, "uid")) for each in references if get(each, "controller")), "")


def _size(amounts: Any, where: str) -> int | None:
    stated = get(amounts, "storage")
    return None if stated is None else _bytes(stated, f"{where}.storage")


def _bytes(stated: Any, where: str) -> int:
    """Return a quantity in bytes, rounded up."""
    try:
        return -(-quantity.nano_value(stated) // _NANO)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
