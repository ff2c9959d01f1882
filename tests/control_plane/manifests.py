"""Manifests of nodes and pods for the API."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]


def node(
    name: str,
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    reserved_cpu: str = "",
    resources: Mapping[str, str] | None = None,
    images: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Object:
    """Return a ready Node.

    Args:
        name: name of the node and value of its label ``kubernetes.io/hostname``.
        cpu: CPU capacity.
        memory: memory capacity.
        reserved_cpu: allocatable CPU; all of ``cpu`` by default.
        resources: further resources, such as ``nvidia.com/gpu``.
        images: name of each image on the node to its size in bytes.
        labels: labels in addition to the hostname.
        taints: taints of the node's spec.
    """
    capacity = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": "110", **(resources or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, "cpu": reserved_cpu or cpu},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": [{"names": [image], "sizeBytes": size} for image, size in (images or {}).items()],
        },
    }


def container(
    name: str = "main",
    image: str = "registry.k8s.io/pause:3.10",
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    *,
    sidecar: bool = False,
) -> Object:
    """Return a container; with ``sidecar`` it is an init container that keeps running."""
    resources = {kind: dict(amounts) for kind, amounts in (("requests", requests), ("limits", limits)) if amounts}
    plain: Object = {"name": name, "image": image, "resources": resources}
    return {**plain, "restartPolicy": "Always"} if sidecar else plain


def pod(name: str, *containers: Object, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """Return a Pod in the namespace ``default``.

    Args:
        name: name of the pod.
        containers: containers of the pod; by default one without requests.
        annotations: annotations of the pod.
        spec: further fields of the spec, by the API's names (``initContainers``, ``schedulerName``, ``nodeName`` ...).
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": {"containers": list(containers) or [container()], **spec},
    }
