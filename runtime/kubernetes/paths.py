"""Paths of the Kubernetes API: this module builds every path that is read or written."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

CORE: Final = "/api/v1"
_APPS, _BATCH, _STORAGE = "/apis/apps/v1", "/apis/batch/v1", "/apis/storage.k8s.io/v1"
LISTS: Final[Mapping[str, str]] = {
    "ConfigMap": f"{CORE}/configmaps",
    "CronJob": f"{_BATCH}/cronjobs",
    "CSIDriver": f"{_STORAGE}/csidrivers",
    "CSINode": f"{_STORAGE}/csinodes",
    "CSIStorageCapacity": f"{_STORAGE}/csistoragecapacities",
    "DaemonSet": f"{_APPS}/daemonsets",
    "Deployment": f"{_APPS}/deployments",
    "Event": f"{CORE}/events",
    "Event.events.k8s.io": "/apis/events.k8s.io/v1/events",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "Job": f"{_BATCH}/jobs",
    "Lease": "/apis/coordination.k8s.io/v1/leases",
    "Namespace": f"{CORE}/namespaces",
    "Node": f"{CORE}/nodes",
    "NodeMetrics": "/apis/metrics.k8s.io/v1beta1/nodes",
    "PersistentVolume": f"{CORE}/persistentvolumes",
    "PersistentVolumeClaim": f"{CORE}/persistentvolumeclaims",
    "Pod": f"{CORE}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PodMetrics": "/apis/metrics.k8s.io/v1beta1/pods",
    "ReplicaSet": f"{_APPS}/replicasets",
    "ReplicationController": f"{CORE}/replicationcontrollers",
    "SelfSubjectAccessReview": "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "Service": f"{CORE}/services",
    "StatefulSet": f"{_APPS}/statefulsets",
    "StorageClass": f"{_STORAGE}/storageclasses",
    "SubjectAccessReview": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "TokenReview": "/apis/authentication.k8s.io/v1/tokenreviews",
    "VerticalPodAutoscaler": "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
    "VolumeAttachment": f"{_STORAGE}/volumeattachments",
}
"""Path of the list of all objects, by kind; if two API groups have a kind, the second key ends with its group."""

OPTIONAL_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "PodGroup": ("/apis/scheduling.k8s.io/v1beta1/podgroups", "/apis/scheduling.k8s.io/v1alpha2/podgroups"),
    "PodGroup.scheduling.x-k8s.io": ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups",),
    "ElasticQuota": ("/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas",),
    "AppGroup": ("/apis/appgroup.diktyo.x-k8s.io/v1alpha1/appgroups",),
    "NetworkTopology": ("/apis/networktopology.diktyo.x-k8s.io/v1alpha1/networktopologies",),
    "NodeDiskIOInfo": ("/apis/ioi.intel.com/v1/nodediskioinfoes",),
    "SeccompProfile": ("/apis/security-profiles-operator.x-k8s.io/v1beta1/seccompprofiles",),
    "NodeResourceTopology": ("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1/priorityclasses",),
}
"""Paths of the lists of objects that a cluster may not have, newest version first, by kind."""

MERGE_PATCH: Final = "application/merge-patch+json"
VERSION: Final = "/version"
NODES: Final = LISTS["Node"]
PODS: Final = LISTS["Pod"]


def list_path(kind: str, namespace: str = "") -> str:
    """Return the path of the list of a kind's objects in one namespace, or in all if ``namespace`` is empty."""
    path = LISTS[kind]
    return in_namespace(path, namespace) if namespace else path


def object_path(kind: str, name: str, namespace: str = "", subresource: str = "") -> str:
    """Return the path of an object, or of a subresource such as ``binding``."""
    path = f"{list_path(kind, namespace)}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def in_namespace(path: str, namespace: str) -> str:
    """Return the path of one namespace's objects, from the path of the list of all namespaces."""
    version, _, resource = path.rpartition("/")
    return f"{version}/namespaces/{quote(namespace, safe='')}/{resource}"
