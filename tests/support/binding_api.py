"""An in-memory fake of the API server for bindings, statuses and Events of pods, with faults on demand."""

import threading
from collections.abc import Callable
from typing import Any

import requests

Fault = Callable[[str, str], Exception | None]
"""Returns the exception to raise for a request, or None; the request's method and path are given."""


def refusal(status: int, message: str = "refused") -> requests.HTTPError:
    """Return the error of a response with this status."""
    response = requests.Response()
    response.status_code, response.reason = status, message
    response._content = f'{{"kind": "Status", "message": "{message}"}}'.encode()
    return requests.HTTPError(response=response)


class BindingApi:
    """A fake API of pods that the threads of a binder and of a status writer may share.

    Attributes:
        pods: pod by namespace and name.
        sent: method and path of each request, in order.
        bodies: body of each request, in order.
        before: fault of a request that is not executed.
        after: fault of a request that is executed, but gets no answer.
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.sent: list[str] = []
        self.bodies: list[Any] = []
        self.before: Fault = lambda _method, _path: None
        self.after: Fault = lambda _method, _path: None
        self._lock = threading.Lock()

    def add(self, name: str, uid: str, node_name: str = "") -> None:
        """Add a pod."""
        spec = {"nodeName": node_name} if node_name else {}
        self.pods[f"default/{name}"] = {"metadata": {"name": name, "uid": uid}, "spec": spec, "status": {}}

    def send(
        self, method: str, path: str, _deadline: object, body: Any = None, _content_type: str = "application/json"
    ) -> Any:
        """Apply a request as the API server does; return the response body."""
        with self._lock:
            self.sent.append(f"{method} {path}")
            self.bodies.append(body)
            error = self.before(method, path)
            if error is not None:
                raise error
            answer = self._apply(method, path, body)
            error = self.after(method, path)
            if error is not None:
                raise error
            return answer

    def _apply(self, method: str, path: str, body: Any) -> Any:
        if path.endswith("/events"):
            return body
        parts = path.split("/")  # "", api, v1, namespaces, NAMESPACE, pods, NAME, SUBRESOURCE
        key, subresource = f"{parts[4]}/{parts[6]}", parts[7] if len(parts) > 7 else ""
        pod = self.pods.get(key)
        if pod is None:
            raise refusal(404, "not found")
        if method == "GET":
            return pod
        uid = (body.get("metadata") or body.get("preconditions") or {}).get("uid", "")
        if uid != pod["metadata"]["uid"]:
            raise refusal(409, "the UID in the precondition does not match")
        if subresource == "binding":
            if pod["spec"].get("nodeName"):
                raise refusal(409, f"pod {parts[6]} is already assigned to node {pod['spec']['nodeName']}")
            pod["spec"]["nodeName"] = body["target"]["name"]
        elif subresource == "status":
            pod["status"] |= body["status"]
        elif method == "DELETE":
            del self.pods[key]
        return {"kind": "Status"}
