"""Objects other than nodes and pods that plugins of the scheduler read: storage, budgets, selectors of pods.

Plugins hold the cache and see every change at once. A decision of a plugin that is not written yet, such as the claim
for which a volume is reserved, replaces the object until the API server shows a newer version, or until the decision is
undone. Otherwise the next pod would choose the same volume.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.k8s_fields import decoder, get, get_texts
from runtime.kubernetes.paths import OPTIONAL_LISTS
from runtime.kubernetes.scheduling_rules import read_label_selector
from scoring.plugins.filtering import ClusterEvent
from scoring.table.placed_rules import SelectorSources
from trimaran.scheduler.plugins.disk_io import NodeDisks, node_name_of
from trimaran.scheduler.plugins.network.objects import AppGroup, NetworkTopology
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology
from trimaran.scheduler.plugins.preemption.toleration import PriorityClass
from trimaran.scheduler.plugins.quotas.elastic_quota import ElasticQuota
from trimaran.scheduler.plugins.storage_objects import (
    Attachment,
    Claim,
    Driver,
    NodeDrivers,
    StorageCapacity,
    Volume,
    VolumeClass,
)
from trimaran.scheduler.plugins.syscalls import Syscalls, read_seccomp_profile

_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name; the namespace of objects without one is ""."""

_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "PersistentVolumeClaim": Claim.from_k8s,
    "PersistentVolume": Volume.from_k8s,
    "StorageClass": VolumeClass.from_k8s,
    "CSINode": NodeDrivers.from_k8s,
    "CSIDriver": Driver.from_k8s,
    "CSIStorageCapacity": StorageCapacity.from_k8s,
    "VolumeAttachment": Attachment.from_k8s,
    "PodDisruptionBudget": DisruptionBudget.from_k8s,
    "AppGroup": AppGroup.from_k8s,
    "NetworkTopology": NetworkTopology.from_k8s,
    "NodeDiskIOInfo": lambda each: (node_name_of(each), NodeDisks.from_k8s(each)),
    "NodeResourceTopology": NodeTopology.from_k8s,
    "SeccompProfile": read_seccomp_profile,
    "PriorityClass": PriorityClass.from_k8s,
    "ElasticQuota": ElasticQuota.from_k8s,
    "Namespace": lambda each: get_texts(get(each, "metadata"), "labels", "namespace: metadata"),
    "Service": lambda each: get_texts(get(each, "spec"), "selector", "service: spec"),
    "ReplicationController": lambda each: read_label_selector(
        {"selector": {"matchLabels": get(get(each, "spec"), "selector") or {}}},
        "selector",
        "replication controller: spec",
    ),
    **dict.fromkeys(
        ("ReplicaSet", "StatefulSet"),
        lambda each: read_label_selector(get(each, "spec"), "selector", f"{get(each, 'kind')}: spec"),
    ),
}
STANDARD_KINDS: Final = frozenset(_READERS) - OPTIONAL_LISTS.keys()
"""Kinds of objects that every cluster has; they are watched for all profiles."""
_OWNERS = ("ReplicationController", "ReplicaSet", "StatefulSet")
_SELECTORS = frozenset({"Namespace", "Service", *_OWNERS})
_STORAGE = frozenset({
    "CSIDriver", "CSINode", "CSIStorageCapacity", "PersistentVolume", "PersistentVolumeClaim", "StorageClass",
    "VolumeAttachment",
})  # fmt: skip
_NO_EVENT = frozenset({"PodDisruptionBudget", "PriorityClass", "SeccompProfile", "Service", *_OWNERS})


def object_kinds() -> Collection[str]:
    """Return the kinds of all objects that plugins read."""
    return _READERS.keys()


class ObjectCache:
    """Objects by kind, as the API server lists them, and the changes that plugins assume. For one thread."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Any]] = defaultdict(dict)
        self._assumed: dict[tuple[str, Key], Any] = {}
        self._sources: SelectorSources | None = None
        self._quotas: Mapping[str, ElasticQuota] | None = None
        self._ignored_quotas: frozenset[Key] = frozenset()
        self._disks: Mapping[str, NodeDisks] | None = None
        self._versions: Counter[str] = Counter()

    def put(self, kind: str, document: Mapping[str, Any]) -> ClusterEvent | None:
        """Add or update an object; return the event that may requeue unschedulable pods, or None.

        Raises:
            ValueError: the object cannot be read; the earlier version stays.
        """
        key, read = decoder(kind)(lambda each: (_key(each), _READERS[kind](each)))(document)
        if self._objects[kind].get(key) == read:
            return None
        self._objects[kind][key] = read
        self._forget_derived(kind)
        assumed = self._assumed.get((kind, key))
        if assumed is not None and assumed.resource_version != read.resource_version:
            del self._assumed[kind, key]
        return _event(kind)

    def drop(self, kind: str, document: Mapping[str, Any]) -> ClusterEvent | None:
        """Remove an object; return the event that may requeue unschedulable pods, or None."""
        key = _key(document)
        self._assumed.pop((kind, key), None)
        self._forget_derived(kind)
        return None if self._objects[kind].pop(key, None) is None else _event(kind)

    @property
    def budgets(self) -> Collection[DisruptionBudget]:
        """All disruption budgets."""
        return self._objects["PodDisruptionBudget"].values()

    def version(self, kind: str) -> int:
        """Return a number that increases whenever an object of a kind changes."""
        return self._versions[kind]

    def node_topology(self, node_name: str) -> NodeTopology | None:
        """Return the topology of a node; None if there is none."""
        found: NodeTopology | None = self._objects["NodeResourceTopology"].get(("", node_name))
        return found

    def app_group(self, namespaces: Sequence[str], name: str) -> AppGroup | None:
        """Return the AppGroup with a name in the first namespace that has one; None if it does not exist."""
        found: AppGroup | None = self._first("AppGroup", namespaces, name)
        return found

    def network_topology(self, namespaces: Sequence[str], name: str) -> NetworkTopology | None:
        """Return the NetworkTopology with a name in the first namespace that has one; None if it does not exist."""
        found: NetworkTopology | None = self._first("NetworkTopology", namespaces, name)
        return found

    def node_disks(self, node_name: str) -> NodeDisks | None:
        """Return the disks of a node; None if they are unknown."""
        if self._disks is None:
            self._disks = dict(self._objects["NodeDiskIOInfo"].values())
        return self._disks.get(node_name)

    def seccomp_profile(self, name: str) -> Syscalls:
        """Return the calls that the profile ``namespace/name`` allows; none if it does not exist."""
        namespace, _, plain = name.partition("/")
        found: Syscalls = self._objects["SeccompProfile"].get((namespace, plain), frozenset())
        return found

    def priority_class(self, name: str) -> PriorityClass | None:
        """Return a PriorityClass; None if there is none."""
        found: PriorityClass | None = self._objects["PriorityClass"].get(("", name))
        return found

    @property
    def elastic_quotas(self) -> Mapping[str, ElasticQuota]:
        """Quotas by namespace; if it has several, the first by name. The same object until a quota changes."""
        if self._quotas is None:
            ordered = sorted(self._objects["ElasticQuota"].items(), reverse=True)
            self._quotas = {namespace: quota for (namespace, _), quota in ordered}
            self._warn_of_ignored(self._quotas)
        return self._quotas

    @property
    def unreadable_quotas(self) -> Mapping[str, str]:
        """Elastic quotas with an unreadable amount, for which pods are refused: ``namespace/name`` to the reason."""
        return {
            f"{quota.namespace}/{quota.name}": "; ".join(quota.unreadable.values())
            for quota in self.elastic_quotas.values()
            if quota.unreadable
        }

    @property
    def selector_sources(self) -> SelectorSources:
        """Namespaces, Services and pod owners, which affinity and spread rules need to select pods.

        The same object is returned until one of these changes, so callers may compare by identity.
        """
        if self._sources is None:
            services: dict[str, list[Mapping[str, str]]] = defaultdict(list)
            for (namespace, _), selector in self._objects["Service"].items():
                if selector:
                    services[namespace].append(selector)
            self._sources = SelectorSources(
                {name: labels for (_, name), labels in self._objects["Namespace"].items()},
                services,
                {
                    (namespace, kind, name): selector
                    for kind in _OWNERS
                    for (namespace, name), selector in self._objects[kind].items()
                    if selector is not None
                },
            )
        return self._sources

    def claim(self, namespace: str, name: str, *, assumed: bool = True) -> Claim | None:
        """Return a claim, None if it does not exist; if ``assumed``, with the node that a plugin selected for it."""
        found: Claim | None = self._find("PersistentVolumeClaim", (namespace, name), assumed=assumed)
        return found

    def volume(self, name: str, *, assumed: bool = True) -> Volume | None:
        """Return a volume, None if it does not exist; if ``assumed``, with the claim that it was chosen for."""
        found: Volume | None = self._find("PersistentVolume", ("", name), assumed=assumed)
        return found

    def volumes(self) -> list[Volume]:
        """Return all volumes, with the claims that they were chosen for, by name."""
        kind = "PersistentVolume"
        return [self._assumed.get((kind, key), each) for key, each in sorted(self._objects[kind].items())]

    def storage_class(self, name: str) -> VolumeClass | None:
        """Return a StorageClass; None if there is none."""
        found: VolumeClass | None = self._objects["StorageClass"].get(("", name))
        return found

    def volume_limits(self, node_name: str) -> Mapping[str, int]:
        """Return the largest number of volumes on a node, by CSI driver."""
        found: NodeDrivers | None = self._objects["CSINode"].get(("", node_name))
        return {} if found is None else found.limits

    @property
    def has_volume_limits(self) -> bool:
        """True if any node limits the number of its volumes."""
        return any(each.limits for each in self._objects["CSINode"].values())

    def tracks_capacity(self, provisioner: str) -> bool:
        """Return whether a provisioner is a CSI driver that publishes the free space for new volumes."""
        found: Driver | None = self._objects["CSIDriver"].get(("", provisioner))
        return found is not None and found.tracks_capacity

    def capacities(self) -> Collection[StorageCapacity]:
        """Return the CSIStorageCapacity objects of the drivers."""
        return self._objects["CSIStorageCapacity"].values()

    def attachments(self) -> Collection[Attachment]:
        """Return all attachments of volumes to nodes."""
        return self._objects["VolumeAttachment"].values()

    def assume(self, changed: Claim | Volume) -> None:
        """Apply a change of an object that is not written to the API server yet."""
        self._assumed[_place(changed)] = changed

    def forget(self, changed: Claim | Volume) -> None:
        """Undo an assumed change, unless it was replaced."""
        if self._assumed.get(_place(changed)) == changed:
            del self._assumed[_place(changed)]

    def _forget_derived(self, kind: str) -> None:
        self._versions[kind] += 1
        if kind in _SELECTORS:
            self._sources = None
        if kind == "ElasticQuota":
            self._quotas = None
        if kind == "NodeDiskIOInfo":
            self._disks = None

    def _warn_of_ignored(self, quotas: Mapping[str, ElasticQuota]) -> None:
        """Warn once about each quota that has no effect, because its namespace has another quota."""
        ignored = frozenset(key for key in self._objects["ElasticQuota"] if quotas[key[0]].name != key[1])
        for namespace, name in sorted(ignored - self._ignored_quotas):
            _log.warning(
                "an elastic quota has no effect: its namespace has another quota, which counts; delete one of the two",
                extra={"quota": f"{namespace}/{name}", "counts": f"{namespace}/{quotas[namespace].name}"},
            )
        self._ignored_quotas = ignored

    def _first(self, kind: str, namespaces: Sequence[str], name: str) -> Any:
        objects = self._objects[kind]
        return next((objects[namespace, name] for namespace in namespaces if (namespace, name) in objects), None)

    def _find(self, kind: str, key: Key, *, assumed: bool) -> Any:
        found = self._objects[kind].get(key)
        return self._assumed.get((kind, key), found) if assumed else found


def _place(changed: Claim | Volume) -> tuple[str, Key]:
    if isinstance(changed, Claim):
        return "PersistentVolumeClaim", changed.key
    return "PersistentVolume", ("", changed.name)


def _key(document: Mapping[str, Any]) -> Key:
    metadata = get(document, "metadata")
    return str(get(metadata, "namespace") or ""), str(get(metadata, "name") or "")


def _event(kind: str) -> ClusterEvent | None:
    if kind in _NO_EVENT:
        return None  # changes of these kinds make no pod schedulable
    return ClusterEvent.VOLUME_CHANGED if kind in _STORAGE else ClusterEvent.OTHER_CHANGED
