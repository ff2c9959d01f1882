"""An empty cluster's API server over HTTP, for controllers as processes: lists, watches, Leases, and refusals."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
import yaml
from support.nodes_api import NodesApi
from support.servers import run_server

from runtime.kubernetes.paths import MERGE_PATCH, object_path


class ControllerApi(ThreadingHTTPServer):
    """A fake API server without objects but Leases and ConfigMaps.

    Attributes:
        url: its address.
        is_away: whether it closes every connection without a response.
        refused: status of the response to each request whose path contains a part.
        stored: Leases and ConfigMaps.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.is_away, self.refused, self.stored = False, dict[str, int](), NodesApi()
        self._lock, self._is_over = threading.Lock(), threading.Event()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig; return its path."""
        file = folder / "kubeconfig"
        file.write_text(
            yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": self.url}}],
                "users": [{"name": "me", "user": {"token": "nobody's"}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            })
        )  # fmt: skip
        return file

    def holder(self, name: str) -> str:
        """Return the holder of a Lease; empty if there is none."""
        with self._lock:
            lease = self.stored.leases.get(object_path("Lease", name, "trimaran"), {"spec": {}})
            return str(lease["spec"].get("holderIdentity", ""))

    def give_lease(self, name: str, holder: str) -> None:
        """Change the holder of a Lease, as another replica does that acquires it for an hour, or releases it."""
        path = object_path("Lease", name, "trimaran")
        with self._lock:
            lease = self.stored.leases[path]
            changes = {"holderIdentity": holder, "leaseDurationSeconds": 3600 if holder else 1}
            self.stored.send("PUT", path, None, {**lease, "spec": {**lease["spec"], **changes}})

    def close(self) -> None:
        """End all watches."""
        self._is_over.set()

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """Return the status and the body of a response; None for an empty watch, bytes for its events."""
        path = urlsplit(target).path
        for part, status in self.refused.items():
            if part in path:
                return status, {"kind": "Status", "status": "Failure", "message": "refused", "code": status}
        if path == "/version":
            return 200, {"gitVersion": "v1.37.0"}
        try:
            with self._lock:
                if "/leases" in path or "/configmaps/" in path or method != "GET":
                    content_type = MERGE_PATCH if method == "PATCH" else "application/json"
                    return 200, self.stored.send(method, path, None, body, content_type)
        except requests.HTTPError as error:
            return error.response.status_code, {"kind": "Status", "status": "Failure"}
        if "watch=" in target:
            self._is_over.wait(1)
            return 200, None
        return 200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ControllerApi

    def do_GET(self) -> None:
        if self.server.is_away:
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = orjson.loads(self.rfile.read(length)) if length else None
        status, answer = self.server.answer(self.command, self.path, body)
        data = answer if isinstance(answer, bytes) else b"" if answer is None else orjson.dumps(answer)
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the controller has ended

    do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def run_controller_api() -> Iterator[ControllerApi]:
    """Run the API server."""
    api = ControllerApi()
    with run_server(api):
        try:
            yield api
        finally:
            api.close()
