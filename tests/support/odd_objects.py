"""Objects of all kinds but pods that are read, as the API server accepts them, and the reader of each."""

import copy
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from support.odd_pods import Object, change_leaves

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.gangs import PodGroup
from runtime.kubernetes.objects import Node
from trimaran.rebalancer.facts import NodeFacts, ScalerFacts, WorkloadFacts
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology
from trimaran.scheduler.plugins.preemption.toleration import PriorityClass
from trimaran.scheduler.plugins.quotas.elastic_quota import ElasticQuota
from trimaran.scheduler.profiles.object_cache import ObjectCache
from trimaran.soft_taints.node_state import NodeState

_SELECTOR: Object = {
    "matchLabels": {"app": "a"}, "matchExpressions": [{"key": "x", "operator": "In", "values": ["a", "b"]}],
}  # fmt: skip
_TEMPLATE: Object = {
    "metadata": {"labels": {"app": "a", "x": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
_INTOLERABLE = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
_TERMS: Object = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "In", "values": ["a"]}]}]}


class OddKind(NamedTuple):
    """Kind of objects: a document that the API server accepts, and what reads it.

    Attributes:
        document: the document.
        read: reads a document.
        fixed: keys below which nothing changes, as the API server checks that they agree.
    """

    document: Object
    read: Callable[[Mapping[str, Any]], object]
    fixed: tuple[str, ...] = ()


def _other(each: Mapping[str, Any]) -> object:
    cache = ObjectCache()
    return cache.put(str(each["kind"]), each)


def _kind(
    version: str, name: str, read: Callable[[Mapping[str, Any]], object] = _other, *, namespace: str = "default",
    annotations: Mapping[str, str] | None = None, **fields: Any,
) -> OddKind:  # fmt: skip
    metadata: Object = {"name": "o", "labels": {"app": "a"}, "annotations": dict(annotations or {})}
    if namespace:
        metadata["namespace"] = namespace
    fixed = ("template", "selector") if "template" in fields.get("spec", {}) else ()
    return OddKind({"apiVersion": version, "kind": name, "metadata": metadata, **fields}, read, fixed)


def _read_node(each: Mapping[str, Any]) -> object:
    return Node.from_k8s(each), NodeFacts.from_k8s(each), NodeState.from_k8s(dict(each))


_AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/x": "2"}
KINDS: Final = (
    _kind(
        "v1", "Node", _read_node, namespace="", annotations={"trimaran.io/network": "1G"},
        spec={"unschedulable": False, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        status={"capacity": dict(_AMOUNTS), "allocatable": dict(_AMOUNTS),
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": ["i:1"], "sizeBytes": 5}]},
    ),
    _kind("v1", "Namespace", namespace=""),
    _kind("v1", "Service", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]}),
    _kind(
        "v1", "PersistentVolumeClaim", annotations={"volume.kubernetes.io/selected-node": "n"},
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
              "storageClassName": "fast", "selector": copy.deepcopy(_SELECTOR)},
    ),
    _kind(
        "v1", "PersistentVolume", namespace="",
        spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
              "hostPath": {"path": "/d"}, "nodeAffinity": {"required": copy.deepcopy(_TERMS)}},
    ),
    _kind("v1", "ReplicationController", spec={"replicas": 2, "selector": {"app": "a"}, "template": _TEMPLATE}),
    _kind(
        "storage.k8s.io/v1", "StorageClass", namespace="", provisioner="p", volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    ),
    _kind(
        "storage.k8s.io/v1", "CSINode", namespace="",
        spec={"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 5}}]},
    ),
    _kind("storage.k8s.io/v1", "CSIDriver", namespace="", spec={"storageCapacity": True, "attachRequired": True}),
    _kind(
        "storage.k8s.io/v1", "CSIStorageCapacity", nodeTopology=copy.deepcopy(_SELECTOR), storageClassName="fast",
        capacity="1Gi", maximumVolumeSize="1Gi",
    ),
    _kind(
        "storage.k8s.io/v1", "VolumeAttachment", namespace="",
        spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    ),
    _kind(
        "policy/v1", "PodDisruptionBudget", DisruptionBudget.from_k8s,
        spec={"minAvailable": 1, "selector": copy.deepcopy(_SELECTOR)},
        status={"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    ),
    _kind(
        "scheduling.k8s.io/v1", "PriorityClass", PriorityClass.from_k8s, namespace="", value=5,
        annotations={_INTOLERABLE: "100"}, preemptionPolicy="Never",
    ),
    *(
        _kind(
            "apps/v1", name, read, spec={"replicas": 2, "selector": copy.deepcopy(_SELECTOR), "template": _TEMPLATE,
                                         **more},
            status={"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2},
        )
        for name, read, more in (
            ("Deployment", WorkloadFacts.from_k8s, {}), ("StatefulSet", WorkloadFacts.from_k8s, {"serviceName": "s"}),
            ("ReplicaSet", _other, {}), ("StatefulSet", _other, {"serviceName": "s"}),
        )
    ),
    _kind(
        "autoscaling/v2", "HorizontalPodAutoscaler", ScalerFacts.from_k8s,
        spec={"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "minReplicas": 1,
              "maxReplicas": 5},
    ),
    _kind(
        "scheduling.x-k8s.io/v1alpha1", "ElasticQuota", ElasticQuota.from_k8s,
        spec={"min": {"cpu": "1", "memory": "1Gi"}, "max": {"cpu": "2", "memory": "2Gi"}},
    ),
    _kind(
        "scheduling.x-k8s.io/v1alpha1", "PodGroup", PodGroup.from_k8s,
        spec={"minMember": 2, "scheduleTimeoutSeconds": 10, "minResources": {"cpu": "1"}},
    ),
    _kind(
        "topology.node.k8s.io/v1alpha2", "NodeResourceTopology", NodeTopology.from_k8s, namespace="",
        topologyPolicies=["SingleNUMANodeContainerLevel"],
        attributes=[{"name": "topologyManagerPolicy", "value": "none"}],
        zones=[{"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": 10}],
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "2"}]}],
    ),
)  # fmt: skip
"""Kinds of objects."""


def odd_object(dice: random.Random, kind: OddKind) -> Object:
    """Return an object of a kind with one to three odd leaves."""
    made = copy.deepcopy(kind.document)
    change_leaves(dice, made, *kind.fixed)
    return made
