"""Nodes as the Kubernetes API lists them, with the fields that providers need."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.http.gather import Deadline
from runtime.kubernetes import quantity
from runtime.kubernetes.api import KubernetesApi, ResourceExpired
from runtime.kubernetes.paths import NODES

_RESOURCES = ("cpu", "memory")
_KUBELET_PORT = 10250
#: Path of a node's ``/metrics/resource`` where its kubelet serves several nodes; metrics-server reads it, too.
PATH_ANNOTATION = "metrics.k8s.io/resource-metrics-path"


@dataclass(frozen=True, slots=True)
class ListedNode:
    """Node of the Kubernetes API, with the fields that providers need.

    Attributes:
        capacity: resource (``cpu``, ``memory``) to billionths of cores or bytes, above 0; unreadable amounts are left
            out.
        is_ready: whether the node is Ready; a node without that condition counts as ready.
        address: the node's InternalIP, which may be any text; empty if it has none.
        kubelet_port: port of the node's kubelet.
        resource_path: path of the node's ``/metrics/resource`` if it has an unusual one.
        created: time at which the node was created, Unix seconds; 0 if it is unknown.
    """

    capacity: Mapping[str, int]
    is_ready: bool
    address: str = ""
    kubelet_port: int = _KUBELET_PORT
    resource_path: str = ""
    created: float = 0.0


def list_nodes(api: KubernetesApi, selector: str, deadline: Deadline) -> dict[str, ListedNode]:
    """Return all nodes by name.

    Args:
        api: client of the API server.
        selector: label selector; empty for all nodes.
        deadline: deadline for the whole list.

    Raises:
        Exception: as :meth:`KubernetesApi.pages`.
    """
    with contextlib.suppress(ResourceExpired):
        return {
            name: read_node(item) for name, item in by_name(api.list_items(NODES, deadline, labelSelector=selector))
        }
    # The resource version of the first page expired before the last page: read all nodes in one page.
    items = api.list_items(NODES, deadline, labelSelector=selector, limit="")
    return {name: read_node(item) for name, item in by_name(items)}


def read_node(item: Any) -> ListedNode:
    """Return the fields of a Node object; missing and unreadable fields are left out."""
    status = member(item, "status")
    amounts, conditions, addresses = (member(status, key) for key in ("capacity", "conditions", "addresses"))
    capacity = {}
    for resource in _RESOURCES:
        try:
            amount = quantity.nano_value(member(amounts, resource))
        except ValueError:
            continue
        if amount > 0:
            capacity[resource] = amount
    is_ready = not any(
        member(condition, "type") == "Ready" and member(condition, "status") != "True"
        for condition in (conditions if isinstance(conditions, list) else ())
    )
    internal = (
        member(address, "address")
        for address in (addresses if isinstance(addresses, list) else ())
        if member(address, "type") == "InternalIP"
    )
    port = member(member(member(status, "daemonEndpoints"), "kubeletEndpoint"), "Port")
    path = member(member(member(item, "metadata"), "annotations"), PATH_ANNOTATION)
    created = 0.0
    with contextlib.suppress(TypeError, ValueError):
        created = datetime.fromisoformat(member(member(item, "metadata"), "creationTimestamp")).timestamp()
    return ListedNode(
        capacity,
        is_ready,
        str(next(internal, None) or ""),
        port if isinstance(port, int) and port > 0 else _KUBELET_PORT,
        path if isinstance(path, str) and path.startswith("/") else "",
        created,
    )


def by_name(items: Iterator[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each Kubernetes object with the name in its metadata; objects without a name are left out."""
    for item in items:
        name = member(member(item, "metadata"), "name")
        if name and isinstance(name, str):
            yield name, item


def member(parent: Any, key: str) -> Any:
    """Return a member of a JSON object; None if the member is missing, or the value is not an object."""
    return parent.get(key) if isinstance(parent, dict) else None
