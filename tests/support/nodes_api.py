"""An in-memory fake of the Kubernetes API for node patches, Leases and Events: an hour of many nodes in seconds."""

import copy
from typing import Any

import requests


class NodesApi:
    """A fake API that merges patches into nodes and stores Leases; it refuses writes with an old resource version.

    Attributes:
        nodes: name to Node.
        leases: path to Lease.
        events: all Events, in order.
        writes: method, path and body of each accepted node patch.
    """

    def __init__(self, *names: str) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.writes: list[tuple[str, str, Any]] = []
        self.down = False
        self._version = 0
        for name in names:
            self.nodes[name] = {"metadata": {"name": name, "resourceVersion": self._next()}, "spec": {}}

    def send(
        self, method: str, path: str, _deadline: object, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """Apply a request as the API server does; return the response body."""
        if self.down:
            raise requests.ConnectionError("no route")
        if "/nodes/" in path:
            assert (method, content_type) == ("PATCH", "application/merge-patch+json")
            return self._patch(path, body)
        if path.endswith("/events"):
            self.events.append(body)
            return body
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.leases:
                raise http_error(409)
        elif path not in self.leases:
            raise http_error(404)
        if method == "GET":
            return copy.deepcopy(self.leases[path])
        if method == "PUT" and body["metadata"]["resourceVersion"] != self.leases[path]["metadata"]["resourceVersion"]:
            raise http_error(409)
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = self._next()
        self.leases[path] = body
        return copy.deepcopy(body)

    def taint(self, name: str, *taints: dict[str, str]) -> None:
        """Set the taints of a node, as another client would."""
        self.nodes[name]["spec"]["taints"] = list(taints)
        self.nodes[name]["metadata"]["resourceVersion"] = self._next()

    def _patch(self, path: str, body: Any) -> Any:
        name = path.rpartition("/")[2]
        node = self.nodes[name]
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != node["metadata"]["resourceVersion"]:
            raise http_error(409)
        merged = merge(node, body)
        merged["metadata"]["resourceVersion"] = self._next()
        self.nodes[name] = merged
        self.writes.append(("PATCH", path, body))
        return copy.deepcopy(merged)

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def merge(target: Any, patch: Any) -> Any:
    """Return the target with a JSON merge patch applied, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def http_error(status: int) -> requests.HTTPError:
    """Return the error of a response with this status."""
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status}", response=response)
