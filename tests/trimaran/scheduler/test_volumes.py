"""Filters of pods with volumes, and the binding of claims that wait for the pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from runtime.kubernetes.objects import Node, Pod
from scoring.load.metrics_table import MetricsTable
from scoring.plugins.filtering import ClusterEvent, FilterPlugin
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import Rejection
from trimaran.scheduler.plugins.resource_claims import DynamicResources
from trimaran.scheduler.plugins.volumes.binding import NOT_BOUND_HERE, VolumeBinding
from trimaran.scheduler.plugins.volumes.capacity_score import VolumeCapacityScore
from trimaran.scheduler.plugins.volumes.limits import TOO_MANY, NodeVolumeLimits
from trimaran.scheduler.plugins.volumes.matching import BIND_CONFLICT, NO_VOLUME, NODE_CONFLICT, NOT_ENOUGH_SPACE
from trimaran.scheduler.plugins.volumes.restrictions import DISK_CONFLICT, IN_USE, VolumeRestrictions
from trimaran.scheduler.plugins.volumes.zone import CONFLICT, VolumeZone
from trimaran.scheduler.profiles.configuration import default_document, read_setup
from trimaran.scheduler.profiles.object_cache import STANDARD_KINDS, ObjectCache

ZONE = "topology.kubernetes.io/zone"
Object = dict[str, Any]


def claim(name: str, size: str = "1Gi", *, volume: str = "", version: str = "1", **fields: Any) -> Object:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    if "node" in fields:
        annotations["volume.kubernetes.io/selected-node"] = fields.pop("node")
    spec = {
        "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        **({"volumeName": volume} if volume else {}), **fields.pop("spec", {}),
    }  # fmt: skip
    metadata = {
        "namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": version,
        "annotations": annotations, **fields.pop("metadata", {}),
    }  # fmt: skip
    return {"metadata": metadata, "spec": spec, **fields}


def volume(name: str, size: str = "1Gi", zone: str = "", *, version: str = "1", **fields: Any) -> Object:
    spec: Object = {
        "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
        **fields.pop("spec", {}),
    }  # fmt: skip
    if zone:
        expressions = [{"key": ZONE, "operator": "In", "values": [zone]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    metadata = {"name": name, "resourceVersion": version, **fields.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Available"}, **fields}


def storage_class(name: str = "late", provisioner: str = "csi.example", mode: str = "WaitForFirstConsumer") -> Object:
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}


def pod(*claims: str, name: str = "p", on: str = "", **fields: Any) -> Pod:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    volumes += fields.pop("volumes", [])
    spec = {"containers": [{"name": "main"}], "volumes": volumes, "nodeName": on, **fields}
    return Pod.from_k8s({"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec})


@dataclass
class Storage:
    """Three nodes in the zones a, b and c, and the storage of a cluster."""

    objects: ObjectCache = field(default_factory=ObjectCache)
    nodes: NodeTable = field(
        default_factory=lambda: NodeTable([Node(f"node-{zone}", labels={ZONE: zone}) for zone in "abc"])
    )

    def put(self, **kinds: Object | list[Object]) -> "Storage":
        for kind, documents in kinds.items():
            for document in documents if isinstance(documents, list) else [documents]:
                self.objects.put(kind, document)
        return self

    def verdict(self, plugin: FilterPlugin, pending: Pod) -> tuple[str, list[tuple[str, ...]]]:
        """Return the zones of the allowed nodes, and the reasons of the others; checks that rows may be selected."""
        verdict = plugin.filter(pending, self.nodes)
        assert verdict is not None
        for row in range(len(self.nodes)):
            single = plugin.filter(pending, self.nodes, np.array([row]))
            assert single is not None
            assert single.allowed.tolist() == [verdict.allowed[row]]
        refused = np.flatnonzero(~verdict.allowed)
        return "".join(np.array(list("abc"))[verdict.allowed]), [verdict.reasons(int(index)) for index in refused]

    def binding(self, pending: Pod) -> tuple[str, list[tuple[str, ...]]]:
        return self.verdict(VolumeBinding(self.objects, binds_claims=True), pending)


def test_every_kind_that_is_watched_can_be_stored_and_dropped() -> None:
    """The cache takes every watched kind, and reports changes only."""
    for kind in STANDARD_KINDS:
        objects, document = ObjectCache(), {"metadata": {"name": "x"}}
        objects.put(kind, document)
        without = ("PodDisruptionBudget", "Service", "ReplicationController", "ReplicaSet", "StatefulSet")
        expected = {**dict.fromkeys(without), "Namespace": ClusterEvent.OTHER_CHANGED}
        event = expected.get(kind, ClusterEvent.VOLUME_CHANGED)
        assert objects.put(kind, document) is None  # no change
        assert objects.drop(kind, document) == event
        assert objects.drop(kind, document) is None


def test_pods_without_volumes_skip_all_filters() -> None:
    """Filters return None for pods without volumes and resource claims."""
    storage = Storage()
    filters = [VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits]
    assert [each(storage.objects).filter(pod(), storage.nodes) for each in filters] == [None] * 4
    assert DynamicResources().filter(pod(), storage.nodes) is None


def test_pods_with_resource_claims_stay_pending() -> None:
    """No node is allowed for a pod with resource claims."""
    assert Storage().verdict(DynamicResources(), pod(resourceClaims=[{"name": "gpu"}]))[0] == ""


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({}, 'persistentvolumeclaim "data" not found'),
        (claim("data", volume="v", status={"phase": "Lost"}), 'bound to non-existent persistentvolume "v"'),
        (claim("data", volume="v", metadata={"deletionTimestamp": "now"}), "is being deleted"),
        (claim("data", spec={"storageClassName": "none"}), 'storageclass.storage.k8s.io "none" not found'),
        (claim("data", spec={"storageClassName": "soon"}), "pod has unbound immediate PersistentVolumeClaims"),
        (claim("data", spec={"storageClassName": ""}), "pod has unbound immediate PersistentVolumeClaims"),
        (claim("data", spec={"volumeName": "v"}), "pod has unbound immediate PersistentVolumeClaims"),  # not completed
    ],
)
def test_a_claim_that_cannot_be_used_refuses_all_nodes(stored: Object, message: str) -> None:
    """The message says what is wrong with the claim."""
    storage = Storage().put(StorageClass=[storage_class(), storage_class("soon", mode="Immediate")])
    if stored:
        storage.put(PersistentVolumeClaim=stored)
    allowed, reasons = storage.binding(pod("data"))
    assert allowed == ""
    assert message in reasons[0][0]


def test_a_bound_volume_can_be_used_from_its_own_nodes() -> None:
    """The node affinity of a bound volume decides."""
    storage = Storage().put(PersistentVolumeClaim=claim("data", volume="v"))
    assert storage.binding(pod("data")) == ("", [(NO_VOLUME,)] * 3)
    storage.put(PersistentVolume=volume("v"))
    assert storage.binding(pod("data")) == ("abc", [])
    storage.put(PersistentVolume=volume("v", zone="b"))
    assert storage.binding(pod("data")) == ("b", [(NODE_CONFLICT,)] * 2)


def test_claims_that_wait_for_the_pod_stay_unbound_unless_a_setting_allows_it() -> None:
    """By default such pods stay pending with a message."""
    storage = Storage().put(PersistentVolumeClaim=claim("data"), StorageClass=storage_class())
    assert storage.verdict(VolumeBinding(storage.objects), pod("data")) == ("", [(NOT_BOUND_HERE,)] * 3)
    assert storage.binding(pod("data"))[0] == "abc"


@pytest.mark.parametrize(
    ("changes", "zones"),
    [
        ({}, "b"),
        ({"size": "1Mi"}, ""),
        ({"size": "2Gi"}, "b"),
        ({"spec": {"storageClassName": "other"}}, ""),
        ({"spec": {"accessModes": ["ReadOnlyMany"]}}, ""),
        ({"spec": {"volumeMode": "Block"}}, ""),
        ({"spec": {"volumeAttributesClassName": "gold"}}, ""),
        ({"status": {"phase": "Released"}}, ""),
        ({"metadata": {"deletionTimestamp": "now"}}, ""),
        ({"spec": {"claimRef": {"namespace": "default", "name": "other"}}}, ""),
        ({"spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "older"}}}, ""),
        ({"spec": {"claimRef": {"namespace": "default", "name": "data"}}, "status": {"phase": "Pending"}}, "b"),
    ],
)
def test_an_existing_volume_serves_a_claim_if_it_suits(changes: Mapping[str, Any], zones: str) -> None:
    """Size, class, modes, phase and reservation decide."""
    storage = Storage().put(
        PersistentVolumeClaim=claim("data"),
        StorageClass=storage_class(provisioner="kubernetes.io/no-provisioner"),
        PersistentVolume=volume("v", zone="b", **changes),
    )
    assert storage.binding(pod("data")) == (zones, [(BIND_CONFLICT,)] * (3 - len(zones)))


def test_two_claims_need_two_volumes_and_the_larger_one_gets_the_larger() -> None:
    """Small claims take small volumes, and no volume is taken twice."""
    storage = Storage().put(
        PersistentVolumeClaim=[claim("big", "2Gi"), claim("small", "1Gi")],
        StorageClass=storage_class(provisioner="kubernetes.io/no-provisioner"),
        PersistentVolume=[volume("v1", "2Gi"), volume("v2", "3Gi", "a")],
    )
    assert storage.binding(pod("big", "small"))[0] == "a"
    plugin = VolumeBinding(storage.objects, binds_claims=True)
    plugin.filter(pod("big", "small"), storage.nodes)
    assert plugin.reserve(pod("big", "small"), "node-a") is None
    assert storage.objects.volume("v1").claim == ("default", "small", "uid-small")
    assert storage.objects.volume("v2").claim == ("default", "big", "uid-big")


def test_a_volume_is_made_where_the_class_and_the_free_space_allow_it() -> None:
    """Topologies and storage capacities decide where volumes are made."""
    limited = storage_class()
    limited["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    storage = Storage().put(PersistentVolumeClaim=claim("data", "2Gi"), StorageClass=limited)
    assert storage.binding(pod("data")) == ("ab", [(BIND_CONFLICT,)])
    storage.put(CSIDriver={"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": True}})
    assert storage.binding(pod("data"))[0] == ""
    room = [
        {
            "metadata": {"namespace": "kube-system", "name": zone}, "storageClassName": "late",
            "nodeTopology": {"matchLabels": {ZONE: zone}}, "capacity": capacity,
        }
        for zone, capacity in (("a", "1Gi"), ("b", "2Gi"), ("c", "9Gi"))
    ]  # fmt: skip
    storage.put(CSIStorageCapacity=room)
    assert storage.binding(pod("data")) == ("b", [(NOT_ENOUGH_SPACE,), (BIND_CONFLICT,)])


def test_nodes_with_more_room_in_the_storage_score_higher() -> None:
    """Existing volumes are scored by their size, new ones by the free space that the driver reports."""
    capacities = [
        {
            "metadata": {"name": zone}, "storageClassName": "late", "capacity": free,
            "nodeTopology": {"matchLabels": {ZONE: zone}},
        }
        for zone, free in (("a", "10Gi"), ("b", "10Gi"), ("c", "8Gi"))
    ]  # fmt: skip
    driver = {"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": True}}
    storage = Storage().put(StorageClass=storage_class(), CSIDriver=driver, CSIStorageCapacity=capacities)
    storage.put(PersistentVolumeClaim=[claim("data"), claim("more", "3Gi")])
    storage.put(PersistentVolume=[volume("tight", "1Gi", "a"), volume("roomy", "4Gi", "b")])
    plugin, empty = VolumeCapacityScore(storage.objects), MetricsTable.empty(storage.nodes)
    assert plugin.score(pod("data"), storage.nodes, empty).tolist() == [0, 75, 88]
    assert plugin.score(pod("more"), storage.nodes, empty).tolist() == [70, 25, 63]
    # Both claims: an existing volume on nodes a and b, whose other claim is not counted; two new ones on node c.
    assert plugin.score(pod("data", "more"), storage.nodes, empty).tolist() == [0, 75, 50]
    with_profile = read_setup(default_document("x")).profiles[0].scores.plugins[-1]
    assert (with_profile.plugin.name, with_profile.weight) == ("VolumeBinding", 1)
    assert plugin.equal_score(pod(), storage.nodes) == 0


def test_a_claim_with_a_selected_node_keeps_it() -> None:
    """A claim that is being provisioned fixes the node."""
    storage = Storage().put(PersistentVolumeClaim=claim("data", node="node-c"), StorageClass=storage_class())
    assert storage.binding(pod("data")) == ("c", [(BIND_CONFLICT,)] * 2)


def test_the_claim_of_an_ephemeral_volume_belongs_to_the_pod() -> None:
    """The claim is named after the pod and controlled by it."""
    pending = pod(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
    storage = Storage().put(StorageClass=storage_class())
    assert "waiting for ephemeral volume controller" in storage.binding(pending)[1][0][0]
    storage.put(PersistentVolumeClaim=claim("p-scratch"))
    assert "pod is not owner" in storage.binding(pending)[1][0][0]
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    storage.put(PersistentVolumeClaim=claim("p-scratch", metadata={"ownerReferences": [owner]}))
    assert storage.binding(pending)[0] == "abc"


def test_a_new_volume_is_requested_for_the_node_before_the_pod_is_bound() -> None:
    """The claim is marked with the node, and the pod waits until it is bound."""
    storage = Storage().put(PersistentVolumeClaim=claim("data", version="7"), StorageClass=storage_class())
    plugin, pending = VolumeBinding(storage.objects, binds_claims=True), pod("data")
    plugin.filter(pending, storage.nodes)
    assert plugin.reserve(pending, "node-b") is None
    (write,) = plugin.pre_bind(pending, "node-b")
    assert write.path == "/api/v1/namespaces/default/persistentvolumeclaims/data"
    annotations = {"volume.kubernetes.io/selected-node": "node-b"}
    assert write.body == {"metadata": {"resourceVersion": "7", "annotations": annotations}}
    assert plugin.is_ready(pending, "node-b") is False
    assert storage.binding(pod("data", name="other")) == ("b", [(BIND_CONFLICT,)] * 2)  # it shares the claim
    storage.put(PersistentVolumeClaim=claim("data", version="8", node="node-b"))
    assert plugin.is_ready(pending, "node-b") is False
    storage.put(PersistentVolume=volume("v", zone="b"))
    storage.put(PersistentVolumeClaim=claim("data", version="9", node="node-b", volume="v"))
    assert plugin.is_ready(pending, "node-b") is True
    storage.put(PersistentVolume=volume("v", zone="c"))
    assert isinstance(plugin.is_ready(pending, "node-b"), Rejection)
    plugin.post_bind(pending, "node-b")
    assert plugin.pre_bind(pending, "node-b") == ()


def test_a_provisioner_that_fails_rejects_the_pod() -> None:
    """A removed annotation or claim ends the wait."""
    storage = Storage().put(PersistentVolumeClaim=claim("data"), StorageClass=storage_class())
    plugin, pending = VolumeBinding(storage.objects, binds_claims=True), pod("data")
    plugin.filter(pending, storage.nodes)
    plugin.reserve(pending, "node-b")
    storage.put(PersistentVolumeClaim=claim("data", version="2", node="node-b"))
    storage.put(PersistentVolumeClaim=claim("data", version="3"))  # the provisioner took the annotation away
    assert plugin.is_ready(pending, "node-b") == Rejection('provisioning failed for persistentvolumeclaim "data"')
    storage.objects.drop("PersistentVolumeClaim", claim("data"))
    assert isinstance(plugin.is_ready(pending, "node-b"), Rejection)


def test_a_volume_is_reserved_for_the_claim_before_the_pod_is_bound() -> None:
    """The reservation counts at once, is written, and can be given back."""
    storage = Storage().put(
        PersistentVolumeClaim=[claim("data", version="7"), claim("other")],
        StorageClass=storage_class(provisioner="kubernetes.io/no-provisioner"),
        PersistentVolume=volume("v", zone="b", version="5"),
    )
    plugin, pending, other = VolumeBinding(storage.objects, binds_claims=True), pod("data"), pod("other", name="o")
    plugin.filter(pending, storage.nodes)
    plugin.reserve(pending, "node-b")
    assert storage.binding(other)[0] == ""
    plugin.unreserve(pending, "node-b")
    assert storage.binding(other)[0] == "b"
    plugin.reserve(pending, "node-b")
    (write,) = plugin.pre_bind(pending, "node-b")
    assert write.path == "/api/v1/persistentvolumes/v"
    assert write.body["metadata"]["resourceVersion"] == "5"
    assert write.body["spec"]["claimRef"]["uid"] == "uid-data"
    assert plugin.is_ready(pending, "node-b") is False
    reference = {"claimRef": {"namespace": "default", "name": "data", "uid": "uid-data"}}
    storage.put(PersistentVolume=volume("v", zone="b", version="6", spec=reference))
    assert plugin.is_ready(pending, "node-b") is False
    storage.put(PersistentVolumeClaim=claim("data", version="8", volume="theirs"))
    assert isinstance(plugin.is_ready(pending, "node-b"), Rejection)
    storage.put(PersistentVolumeClaim=claim("data", version="9", volume="v"))
    assert plugin.is_ready(pending, "node-b") is True
    storage.put(PersistentVolume=volume("v", zone="b", version="7"))
    assert isinstance(plugin.is_ready(pending, "node-b"), Rejection)


def test_a_change_by_others_ends_an_assumption() -> None:
    """A newer version of an object replaces what was assumed."""
    storage = Storage().put(
        PersistentVolumeClaim=claim("data"), StorageClass=storage_class(), PersistentVolume=volume("v")
    )
    plugin = VolumeBinding(storage.objects, binds_claims=True)
    plugin.filter(pod("data"), storage.nodes)
    plugin.reserve(pod("data"), "node-a")
    assert storage.objects.volume("v").claim is not None
    storage.put(PersistentVolume=volume("v", size="3Gi"))  # the same version: still assumed
    assert storage.objects.volume("v").claim is not None
    theirs = {"claimRef": {"namespace": "default", "name": "theirs", "uid": "x"}}
    storage.put(PersistentVolume=volume("v", version="2", spec=theirs))
    assert storage.objects.volume("v").claim == ("default", "theirs", "x")


def test_the_zones_of_a_volume_are_compared_with_those_of_the_node() -> None:
    """Old and new labels match, and several zones are allowed."""
    storage = Storage().put(
        PersistentVolumeClaim=claim("data", volume="v"),
        PersistentVolume=volume("v", metadata={"labels": {"failure-domain.beta.kubernetes.io/zone": "a__c"}}),
    )
    plugin = VolumeZone(storage.objects)
    assert storage.verdict(plugin, pod("data")) == ("ac", [(CONFLICT,)])
    storage.nodes = NodeTable([Node("node-a"), Node("node-b", labels={ZONE: "b"}), Node("node-c", labels={ZONE: "c"})])
    assert storage.verdict(plugin, pod("data")) == ("ac", [(CONFLICT,)])  # a node without zones is in all of them


def test_a_claim_for_one_pod_is_refused_to_a_second() -> None:
    """ReadWriteOncePod holds in the whole cluster, until the first pod leaves."""
    storage = Storage().put(PersistentVolumeClaim=claim("data", spec={"accessModes": ["ReadWriteOncePod"]}))
    plugin = VolumeRestrictions(storage.objects)
    assert storage.verdict(plugin, pod("data"))[0] == "abc"
    storage.nodes.add(pod("data", name="first", on="node-b"))
    assert storage.verdict(plugin, pod("data")) == ("", [(IN_USE,)] * 3)
    storage.nodes.remove(pod("data", name="first"))
    assert storage.verdict(plugin, pod("data"))[0] == "abc"


@pytest.mark.parametrize(
    ("kind", "disk", "other", "conflicts"),
    [
        ("gcePersistentDisk", {"pdName": "d"}, {"pdName": "d"}, True),
        ("gcePersistentDisk", {"pdName": "d", "readOnly": True}, {"pdName": "d", "readOnly": True}, False),
        ("gcePersistentDisk", {"pdName": "d", "readOnly": True}, {"pdName": "d"}, True),
        ("awsElasticBlockStore", {"volumeID": "d", "readOnly": True}, {"volumeID": "d", "readOnly": True}, True),
        ("awsElasticBlockStore", {"volumeID": "d"}, {"volumeID": "e"}, False),
        ("iscsi", {"iqn": "d"}, {"iqn": "d", "readOnly": True}, True),
        ("rbd", {"monitors": ["m", "n"], "image": "i"}, {"monitors": ["n"], "image": "i"}, True),
        ("rbd", {"monitors": ["m"], "image": "i"}, {"monitors": ["n"], "image": "i"}, False),
    ],
)
def test_pods_with_the_same_disk_keep_apart(kind: str, disk: Object, other: Object, conflicts: bool) -> None:
    """Disks exclude each other by kind, identity and mode."""
    storage = Storage()
    storage.nodes.add(pod(name="first", on="node-b", volumes=[{"name": "d", kind: other}]))
    pending = pod(volumes=[{"name": "d", kind: disk}])
    expected = ("ac", [(DISK_CONFLICT,)]) if conflicts else ("abc", [])
    assert storage.verdict(VolumeRestrictions(storage.objects), pending) == expected


def test_a_node_takes_as_many_volumes_as_its_driver_allows() -> None:
    """Volumes of pods and attachments count against the limit of the driver."""
    csi = {"csi": {"driver": "csi.example", "volumeHandle": "h"}}
    volumes = [volume(f"v{each}", spec={"csi": {**csi["csi"], "volumeHandle": each}}) for each in "1234"]
    limits = {"drivers": [{"name": "csi.example", "allocatable": {"count": 2}}]}
    storage = Storage().put(
        PersistentVolumeClaim=[claim(f"c{each}", volume=f"v{each}") for each in "1234"],
        PersistentVolume=volumes,
        StorageClass=storage_class(),
    )
    plugin = NodeVolumeLimits(storage.objects)
    assert plugin.filter(pod("c1"), storage.nodes) is None
    storage.put(CSINode={"metadata": {"name": "node-b"}, "spec": limits})
    storage.nodes.add(pod("c1", name="one", on="node-b"))
    assert storage.verdict(plugin, pod("c2"))[0] == "abc"
    assert storage.verdict(plugin, pod("c2", "c3")) == ("ac", [(TOO_MANY,)])
    assert storage.verdict(plugin, pod("c1", "c2"))[0] == "abc"  # one of them is attached already
    attachment = {"nodeName": "node-b", "attacher": "csi.example", "source": {"persistentVolumeName": "v4"}}
    storage.put(VolumeAttachment={"metadata": {"name": "a"}, "spec": attachment})
    assert storage.verdict(plugin, pod("c2"))[0] == "ac"
    storage.put(PersistentVolumeClaim=claim("new"))
    assert storage.verdict(plugin, pod("new"))[0] == "ac"  # its volume is not made yet, but will be
