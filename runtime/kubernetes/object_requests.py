"""Requests for single objects. Every write to the API server goes through here, and every read that precedes a write.

:class:`~runtime.kubernetes.api.KubernetesApi` lists and watches. All functions raise the exceptions in
``REQUEST_FAILURES``.
"""

from collections.abc import Mapping
from typing import Any

from runtime.http.gather import Deadline
from runtime.kubernetes.api import Sender
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.paths import MERGE_PATCH, list_path, object_path

_REVIEW_VERSIONS = {"TokenReview": "authentication.k8s.io/v1"}


def read(api: Sender, path: str, deadline: Deadline) -> Any:
    """Return an object."""
    return api.send("GET", path, deadline)


def create(api: Sender, path: str, body: Mapping[str, Any], deadline: Deadline) -> Any:
    """Create an object by a POST to a list or a subresource; return the created object."""
    return api.send("POST", path, deadline, body)


def replace(api: Sender, path: str, body: Mapping[str, Any], deadline: Deadline) -> Any:
    """Replace an object, and return the new one; the API server refuses a body with an old resource version."""
    return api.send("PUT", path, deadline, body)


def patch(api: Sender, path: str, body: Mapping[str, Any], deadline: Deadline, form: str = MERGE_PATCH) -> Any:
    """Patch an object, or a subresource such as ``status``; return the object.

    Args:
        api: Kubernetes API.
        path: path of the object.
        body: patch; with another UID or an old resource version the API server refuses it.
        deadline: time limit.
        form: media type of the patch.
    """
    return api.send("PATCH", path, deadline, body, form)


def delete_pod(api: Sender, pod: Pod, deadline: Deadline) -> None:
    """Delete a pod; the API server refuses it if the name belongs to a pod with another UID."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    api.send("DELETE", pod_path(pod), deadline, options)


def evict(api: Sender, namespace: str, name: str, uid: str, deadline: Deadline) -> None:
    """Request the eviction of a pod, which the disruption budgets must allow."""
    body = {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }  # fmt: skip
    create(api, object_path("Pod", name, namespace, "eviction"), body, deadline)


def binding(pod: Pod, node_name: str) -> dict[str, Any]:
    """Return the Binding of a pod; the API server refuses it if the pod's name belongs to a pod with another UID.

    A pod from a manifest has no UID of the API server: its Binding binds any pod of that name.
    """
    metadata = {"name": pod.name, "namespace": pod.namespace}
    if not pod.uid.startswith(f"{pod.namespace}/"):
        metadata["uid"] = pod.uid
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def bind(api: Sender, body: Mapping[str, Any], deadline: Deadline) -> None:
    """Bind a pod to a node by a :func:`binding`."""
    metadata = body["metadata"]
    create(api, object_path("Pod", metadata["name"], metadata["namespace"], "binding"), body, deadline)


def review(api: Sender, kind: str, spec: Mapping[str, Any], deadline: Deadline) -> Mapping[str, Any]:
    """Return the status of a review, such as a SubjectAccessReview, which the API server answers and does not store."""
    body = {"apiVersion": _REVIEW_VERSIONS.get(kind, "authorization.k8s.io/v1"), "kind": kind, "spec": dict(spec)}
    return create(api, list_path(kind), body, deadline).get("status") or {}


def pod_path(pod: Pod) -> str:
    """Return the path of a pod in the API."""
    return object_path("Pod", pod.name, pod.namespace)
