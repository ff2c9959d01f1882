"""Kinds of objects other than nodes and pods that the scheduler watches for its plugins."""

from collections.abc import Mapping
from typing import Final

OTHER_KINDS: Final[Mapping[str, str]] = {
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "Service": "/api/v1/services",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}
"""Paths of the lists of objects other than nodes and pods, by kind."""

OPTIONAL_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
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
"""Paths of the lists of objects that a cluster may not have, newest version first, by kind.

They are watched for the plugins that read them. The kinds of PodGroups are those of
:data:`~runtime.kubernetes.gangs.POD_GROUP_KINDS`.
"""
