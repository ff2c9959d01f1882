"""Nodes and pods of the live cluster for the Pod page, listed from the API server and cached for a minute."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.paths import NODES, PODS, list_path
from scoring import Node, NodeTable, Pod
from trimaran.cluster.object_reader import RUNNING, ObjectReader, pod_reader
from trimaran.dashboard.ttl_cache import TTLCache

_SECONDS = 60.0
_PENDING_SECONDS = 10.0
_LIST_TIMEOUT_SECONDS = 60.0
_TIMEOUT_SECONDS = 10.0
_FEW = 200


class LiveCluster:
    """Reader of nodes and pods from the API server, with one cache for all viewers. Thread-safe.

    Args:
        api: Kubernetes API client; its account needs the rights to list nodes and pods.
    """

    def __init__(self, api: KubernetesApi) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._api = api
        self._cache = TTLCache()

    def table(self) -> NodeTable:
        """Return a table of the nodes and their pods, which the caller may change; unreadable objects are left out.

        Raises:
            ValueError: the API server cannot be reached, or refuses the request; the message has the reason.
        """
        return self._cache.get("table", _SECONDS, self._read_table).copy()

    def pod(self, name: str) -> Pod:
        """Return the pod ``namespace/name`` from the API server, without its node name.

        Raises:
            ValueError: the API server cannot be reached, or has no such pod; the message has the reason.
        """
        namespace, _, pod = name.partition("/")
        for manifest in self._few(
            list_path("Pod", namespace), f"metadata.name={pod}"
        ):  # a list, since the account may lack the right to get pods
            if manifest["metadata"]["name"] == pod:
                return replace(Pod.from_k8s(manifest), node_name="")
        raise ValueError(f"the API server has no pod {name}")

    def pending_pods(self) -> list[str]:
        """Return the pods without a node as ``namespace/name``, sorted; at most 200.

        Raises the same error as :meth:`table`.
        """
        return self._cache.get("pending", _PENDING_SECONDS, self._read_pending)

    def _read_table(self) -> NodeTable:
        nodes = ObjectReader(Node.from_k8s)
        return NodeTable(self._read(NODES, nodes), self._read(PODS, pod_reader(), fieldSelector=RUNNING))

    def _read_pending(self) -> list[str]:
        items = self._few(PODS, f"spec.nodeName=,{RUNNING}")
        return sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in items)

    def _few(self, path: str, selector: str) -> list[dict[str, Any]]:
        """Return the first 200 objects of a list that a field selector matches."""
        try:
            deadline = Deadline.after(_TIMEOUT_SECONDS)
            page = next(self._api.pages(path, deadline, fieldSelector=selector, limit=str(_FEW)))
        except REQUEST_FAILURES as error:
            raise _failure(path, error) from None
        return page.items

    def _read(self, path: str, reader: ObjectReader[Any], **query: str) -> Iterator[Any]:
        try:
            for manifest in self._api.list_items(path, Deadline.after(_LIST_TIMEOUT_SECONDS), **query):
                read = reader.read(manifest)
                if read is not None:
                    yield read
        except REQUEST_FAILURES as error:
            raise _failure(path, error) from None


def _failure(path: str, error: Exception) -> ValueError:
    what = path.rsplit("/", 1)[-1]
    remedy = f"; the dashboard's account needs the right to list {what}" if "403" in describe(error).reason else ""
    return ValueError(f"the {what} cannot be listed from the API server: {describe(error).reason}{remedy}")
