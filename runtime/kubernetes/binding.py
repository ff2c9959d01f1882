"""Bindings: requests that put a pod on a node."""

from typing import Any

from runtime.kubernetes.objects import Pod


def binding(pod: Pod, node_name: str) -> dict[str, Any]:
    """Return the Binding of a pod; the API server refuses it if the pod's name belongs to a pod with another UID.

    A pod from a manifest has no UID of the API server, so that any pod of its name is bound.
    """
    metadata = {"name": pod.name, "namespace": pod.namespace}
    if not pod.uid.startswith(f"{pod.namespace}/"):
        metadata["uid"] = pod.uid
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }
