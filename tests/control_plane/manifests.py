"""Nodes and pods as the API takes them."""

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
    """Return a Node that is ready.

    Args:
        name: its name, which is also its label ``kubernetes.io/hostname``.
        cpu: its capacity.
        memory: its capacity.
        reserved_cpu: what of ``cpu`` is allocatable; all of it by default.
        resources: more that it has, such as ``nvidia.com/gpu``.
        images: name of each image that is on it, to bytes.
        labels: beside the hostname.
        taints: as in its spec.
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
    """Return a container; ``sidecar`` makes an init container one that keeps running."""
    resources = {kind: dict(amounts) for kind, amounts in (("requests", requests), ("limits", limits)) if amounts}
    made: Object = {"name": name, "image": image, "resources": resources}
    return {**made, "restartPolicy": "Always"} if sidecar else made


def pod(name: str, *containers: Object, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """Return a Pod of the namespace ``default``.

    Args:
        name: its name.
        containers: what it runs; one without requests by default.
        annotations: of its metadata.
        spec: the rest of its spec, under the API's names (``initContainers``, ``schedulerName``, ``nodeName`` ...).
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": {"containers": list(containers) or [container()], **spec},
    }
