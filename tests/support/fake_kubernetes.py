"""A fake of the parts of the Kubernetes API server that this project reads, over TLS, in a thread.

It serves nodes, pods, ReplicaSets, Jobs, the metrics API and discovery; lists with ``limit``, ``continue`` and
``labelSelector``; watches; bearer tokens and client certificates; RBAC refusals; and errors as Status objects (401,
403, 404, 410, 503).

Written from the Kubernetes API reference and API concepts (paging, watches, 410 Gone, Status), the types of
k8s.io/metrics v1beta1, and the requests of the clients below. Checked against kubectl 1.20 and 1.32 (``get nodes``
paged, with ``-l`` and ``-w``; ``get pods -A``; ``top nodes``; with a token and with a client certificate), which prints
the same output and errors as for a real cluster, and against the official Python client 37: both run in
test_fake_kubernetes.py. Not implemented: writes, tables, protobuf, field selectors, namespaces as objects.
"""

import base64
import copy
import gzip
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from watcher.testing.servers import run_server

TOKEN = "right-token"
METRICS_GROUP = "metrics.k8s.io"
_GZIP_FROM_BYTES = 128 * 1024  # the API server's own threshold
_BY_CERTIFICATE, _ANONYMOUS = "kubernetes-admin", "system:anonymous"
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 503: "ServiceUnavailable"}


def node(name: str, cpu: str = "4", memory: str = "16Gi", ready: str = "True", **labels: str) -> dict[str, Any]:
    """Return a Node as the API server sends it, without the rarely used fields."""
    capacity = {"cpu": cpu, "ephemeral-storage": "100Gi", "memory": memory, "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
        },
        "spec": {"podCIDR": "10.244.0.0/24"},
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, "ephemeral-storage": "90Gi"},
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": name}],
            "nodeInfo": {  # the official client requires every field
                "architecture": "amd64",
                "bootID": "5d0b7a3e-0000-4000-8000-000000000000",
                "containerRuntimeVersion": "containerd://1.7.24",
                "kernelVersion": "6.1.0-29-amd64",
                "kubeProxyVersion": "v1.32.4",
                "kubeletVersion": "v1.32.4",
                "machineID": "0123456789abcdef0123456789abcdef",
                "operatingSystem": "linux",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "systemUUID": "00000000-0000-4000-8000-000000000000",
            },
        },
    }


def node_metrics(name: str, cpu: str, memory: str, at: float, window: str = "15s") -> dict[str, Any]:
    """Return a NodeMetrics object; times are whole seconds, the format of metav1.Time."""
    return {
        "metadata": {"name": name, "creationTimestamp": rfc3339(time.time()), "labels": {}},
        "timestamp": rfc3339(at),
        "window": window,
        "usage": {"cpu": cpu, "memory": memory},
    }


def pod_metrics(
    name: str, at: float, *containers: tuple[str, str, str], namespace: str = "default", window: str = "15.5s"
) -> dict[str, Any]:
    """Return a PodMetrics object with the name, CPU and memory of each container."""
    return {
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": rfc3339(time.time()), "labels": {}},
        "timestamp": rfc3339(at),
        "window": window,
        "containers": [
            {"name": container, "usage": {"cpu": cpu, "memory": memory}} for container, cpu, memory in containers
        ],
    }


def pod(name: str, node_name: str = "", namespace: str = "default", phase: str = "Running") -> dict[str, Any]:
    """Return a Pod with one container."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{namespace}-{name}"},
        "spec": {"nodeName": node_name, "containers": [{"name": "main", "image": "web", "resources": {}}]},
        "status": {"phase": phase, "containerStatuses": []},
    }


def rfc3339(at: float) -> str:
    """Return Unix seconds in the time format of Kubernetes, RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


@dataclass
class FakeKubernetes:
    """The fake cluster; responses come from these attributes.

    Attributes:
        nodes: name to Node; :meth:`put` and :meth:`delete` also send watch events.
        metrics: name to NodeMetrics.
        pod_metrics: ``namespace/name`` to PodMetrics.
        pods: ``namespace/name`` to Pod.
        replicasets: ``namespace/name`` to ReplicaSet.
        jobs: ``namespace/name`` to Job.
        metrics_api: ``served``; ``missing`` (metrics-server was never installed) or ``down`` (registered, no backend).
        tokens: accepted bearer tokens; without any, only client certificates are accepted.
        forbidden: ``(group, resource, verb)`` that RBAC does not allow.
        expired_continues: number of continue tokens that get status 410 before one is accepted.
        delay_seconds: delay before every response.
        kubernetes: version of Kubernetes.
        requests: (path, query, Authorization header) of each request.
    """

    folder: Path
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    pod_metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    replicasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics_api: str = "served"
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    forbidden: set[tuple[str, str, str]] = field(default_factory=set)
    expired_continues: int = 0
    delay_seconds: float = 0
    requests: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    kubernetes: str = "v1.37.2"
    version: int = 1000
    oldest_version: int = 1000
    url: str = ""

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.log: list[tuple[int, str, str, dict[str, Any]]] = []  # version, resource, event type, object
        self.stopping = False

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def put(self, resource: str, item: dict[str, Any]) -> None:
        """Add or change an object, and send a watch event."""
        stored, key = self._place(resource, item)
        with self.changed:
            kind = "MODIFIED" if key in stored else "ADDED"
            self._record_event(resource, kind, item)
            stored[key] = item

    def delete(self, resource: str, item: dict[str, Any]) -> None:
        """Remove an object, and send a watch event."""
        stored, key = self._place(resource, item)
        with self.changed:
            del stored[key]
            self._record_event(resource, "DELETED", item)

    def forget_history(self) -> None:
        """Compact the history: watches from earlier versions get status 410."""
        with self.changed:
            self.oldest_version = self.version
            self.log.clear()

    def kube_config(self, name: str = "config", user: dict[str, Any] | None = None, **cluster: Any) -> Path:
        """Write a kubeconfig with the accepted token, or with the given user; return its path."""
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [
                {
                    "name": "fake",
                    "cluster": {"server": self.url, "certificate-authority-data": authority, **cluster},
                }
            ],
            "users": [{"name": "fake", "user": {"token": TOKEN} if user is None else user}],
        }
        path = self.folder / name
        path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        return path

    def service_account(self, folder: Path) -> Path:
        """Write the service account files that the kubelet mounts into a pod; return their folder."""
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(TOKEN, encoding="ascii")
        (folder / "ca.crt").write_bytes(self.ca_file.read_bytes())
        return folder

    def client_certificate(self) -> dict[str, str]:
        """Return a kubeconfig's user with a client certificate."""
        return {
            f"client-{part}-data": base64.b64encode((self.folder / file).read_bytes()).decode()
            for part, file in (("certificate", "client.pem"), ("key", "client.key"))
        }

    def _place(self, resource: str, item: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
        metadata = item["metadata"]
        if resource == "nodes":
            return self.nodes, metadata["name"]
        stored = {"pods": self.pods, "replicasets": self.replicasets, "jobs": self.jobs}[resource]
        return stored, f"{metadata['namespace']}/{metadata['name']}"

    def _record_event(self, resource: str, kind: str, item: dict[str, Any]) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, resource, kind, copy.deepcopy(item)))
        self.changed.notify_all()


class _Refusal(Exception):
    def __init__(self, code: int, message: str, **details: str) -> None:
        super().__init__(message)
        self.status = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": _REASONS[code], "details": details, "code": code,
        }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeKubernetes

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path).rstrip("/")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.fake.requests.append((path, query, self.headers.get("Authorization", "")))
        time.sleep(self.fake.delay_seconds)
        try:
            self._answer(path, query)
        except _Refusal as refusal:
            self._send(refusal.status["code"], refusal.status)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True  # the client has disconnected, as watch clients do

    def _answer(self, path: str, query: dict[str, str]) -> None:
        user = self._user()
        if path in {"/livez", "/readyz", "/healthz"}:
            self._send(200, b"ok", "text/plain")
        elif path == "/version":
            self._send(
                200, {"major": "1", "minor": "37", "gitVersion": self.fake.kubernetes, "platform": "linux/amd64"}
            )
        elif path in (documents := self._discovery()):
            self._send(200, documents[path])
        elif path.startswith("/api/v1/"):
            self._resource("", path.removeprefix("/api/v1/").split("/"), query, user)
        elif path.startswith(f"/apis/{METRICS_GROUP}/v1beta1/") and self.fake.metrics_api != "missing":
            self._resource(METRICS_GROUP, path.split("/")[4:], query, user)
        elif path.startswith(("/apis/apps/v1/", "/apis/batch/v1/")):
            self._resource(path.split("/")[2], path.split("/")[4:], query, user)
        else:
            self._send(404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _user(self) -> str:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if token:
            if scheme.lower() != "bearer" or token not in self.fake.tokens:
                raise _Refusal(401, "Unauthorized")
            return "system:serviceaccount:monitoring:trimaran"
        return _BY_CERTIFICATE if self.connection.getpeercert() else _ANONYMOUS

    def _discovery(self) -> dict[str, Any]:
        def resource(name: str, kind: str, namespaced: bool, verbs: list[str], *short: str) -> dict[str, Any]:
            singular = {"singularName": kind.lower(), "shortNames": list(short)}
            return {"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs, **singular}

        readable = ["get", "list", "watch"]
        version = {"groupVersion": f"{METRICS_GROUP}/v1beta1", "version": "v1beta1"}
        group = {"name": METRICS_GROUP, "versions": [version], "preferredVersion": version}
        documents = {
            "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
            "/api/v1": {
                "kind": "APIResourceList",
                "groupVersion": "v1",
                "resources": [
                    resource("nodes", "Node", False, readable, "no"),
                    resource("pods", "Pod", True, readable, "po"),
                ],
            },
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
            f"/apis/{METRICS_GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **group},
            f"/apis/{METRICS_GROUP}/v1beta1": {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version["groupVersion"],
                "resources": [
                    resource("nodes", "NodeMetrics", False, ["get", "list"]),
                    resource("pods", "PodMetrics", True, ["get", "list"]),
                ],
            },
        }
        if self.fake.metrics_api == "missing":
            documents = {path: each for path, each in documents.items() if METRICS_GROUP not in path}
            documents["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
        return documents

    def _resource(self, group: str, parts: list[str], query: dict[str, str], user: str) -> None:
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name = parts[0], parts[1] if len(parts) > 1 else ""
        kind, stored = self._stored(group, resource)
        watching = query.get("watch") in {"true", "1"}
        verb = "get" if name else "watch" if watching else "list"
        if user == _ANONYMOUS or (group, resource, verb) in self.fake.forbidden:
            full = f"{resource}.{group}" if group else resource
            message = (
                f'{full} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}" '
                "at the cluster scope"
            )
            raise _Refusal(403, message, group=group, kind=resource)
        if group == METRICS_GROUP and self.fake.metrics_api == "down":
            raise _Refusal(503, "the server is currently unable to handle the request")
        version = {"": "v1", METRICS_GROUP: f"{group}/v1beta1"}.get(group, f"{group}/v1")
        if name:
            key = f"{namespace}/{name}" if namespace else name
            if key not in stored:
                raise _Refusal(404, f'{resource} "{name}" not found', name=name, kind=resource)
            self._send(200, {"kind": kind, "apiVersion": version, **stored[key]})
        elif watching:
            self._watch(kind, group, resource, namespace, query)
        else:
            chosen = [each for each in stored.values() if _chosen(each, namespace, query.get("labelSelector", ""))]
            # metrics-server returns the whole list regardless of the limit.
            page, metadata = (chosen, {}) if group == METRICS_GROUP else self._page(chosen, query)
            self._send(200, {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": page})

    def _stored(self, group: str, resource: str) -> tuple[str, dict[str, dict[str, Any]]]:
        known = {
            (METRICS_GROUP, "nodes"): ("NodeMetrics", self.fake.metrics),
            (METRICS_GROUP, "pods"): ("PodMetrics", self.fake.pod_metrics),
            ("", "nodes"): ("Node", self.fake.nodes),
            ("", "pods"): ("Pod", self.fake.pods),
            ("apps", "replicasets"): ("ReplicaSet", self.fake.replicasets),
            ("batch", "jobs"): ("Job", self.fake.jobs),
        }
        if (group, resource) not in known:
            raise _Refusal(404, "the server could not find the requested resource")
        return known[group, resource]

    def _page(self, items: list[dict[str, Any]], query: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        start = 0
        if query.get("continue"):
            if self.fake.expired_continues > 0:
                self.fake.expired_continues -= 1
                message = "The provided continue parameter is too old to display a consistent list result."
                raise _Refusal(410, message)
            start = int(base64.b64decode(query["continue"]))
        limit = int(query.get("limit") or 0) or len(items)
        end = start + limit
        metadata: dict[str, Any] = {"resourceVersion": str(self.fake.version)}
        if end < len(items):
            metadata["continue"] = base64.b64encode(str(end).encode()).decode()
            metadata["remainingItemCount"] = len(items) - end
        return items[start:end], metadata

    def _watch(self, kind: str, group: str, resource: str, namespace: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
        seen = int(query.get("resourceVersion") or 0)
        with self.fake.changed:
            if not seen:  # from now on, starting with the existing objects
                for item in self._stored(group, resource)[1].values():
                    self._event("ADDED", kind, item)
                seen = self.fake.version
            if seen < self.fake.oldest_version:
                gone = _Refusal(410, f"too old resource version: {seen} ({self.fake.oldest_version})")
                self._event("ERROR", "Status", gone.status)
                end = 0
            while not self.fake.stopping and time.monotonic() < end:
                for version, item_resource, event, item in self.fake.log:
                    if (
                        version > seen
                        and item_resource == resource
                        and _chosen(item, namespace, query.get("labelSelector", ""))
                    ):
                        self._event(event, kind, item)
                seen = self.fake.version
                self.fake.changed.wait(min(0.5, max(0.0, end - time.monotonic())))
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: str, kind: str, item: dict[str, Any]) -> None:
        line = json.dumps({"type": event, "object": {"kind": kind, "apiVersion": "v1", **item}}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _send(self, code: int, body: Any, content_type: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        if len(data) >= _GZIP_FROM_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            data = gzip.compress(data, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        pass


def _chosen(item: dict[str, Any], namespace: str, selector: str) -> bool:
    """Return whether an item matches a namespace and an equality-based selector (``a=b,c!=d,e``)."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    if namespace and metadata.get("namespace") != namespace:
        return False
    for term in filter(None, selector.split(",")):
        key, unequal, value = term.partition("!=")
        if unequal:
            if labels.get(key) == value:
                return False
        else:
            key, equal, value = term.replace("==", "=").partition("=")
            if key not in labels or (equal and labels[key] != value):
                return False
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:  # not in accept: a client without a handshake must not block the others
            request = self.tls.wrap_socket(request, server_side=True)
        except (ssl.SSLError, OSError):
            return  # the client does not trust the certificate; a test checks this case
        try:
            super().finish_request(request, client_address)
        finally:
            request.close()


def make_certificates(folder: Path) -> None:
    """Create a CA, a server certificate for this machine and a client certificate, with openssl."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    authority = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=fake-ca", *authority)
    names = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes.default.svc"
    for name, subject, extra in (
        ("server", "/CN=fake", names),
        ("client", f"/O=system:masters/CN={_BY_CERTIFICATE}", ""),
    ):
        plain = ["-addext", "basicConstraints=CA:FALSE", *(["-addext", extra] if extra else [])]
        openssl(
            "req", "-x509", *key, "-CA", "ca.pem", "-CAkey", "ca.key",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", subject, *plain,
        )  # fmt: skip


@contextmanager
def run_fake_kubernetes(folder: Path, host: str = "127.0.0.1", **options: Any) -> Iterator[FakeKubernetes]:
    """Run the fake; certificates and kubeconfigs go to the folder."""
    import socket

    if not (folder / "server.pem").exists():
        make_certificates(folder)
    fake = FakeKubernetes(folder, **options)
    handler = type("Handler", (_Handler,), {"fake": fake})
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = type("Server", (_Server,), {"address_family": family})((host, 0), handler)
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.tls.load_verify_locations(folder / "ca.pem")
    server.tls.verify_mode = ssl.CERT_OPTIONAL
    fake.url = f"https://{f'[{host}]' if ':' in host else host}:{server.server_port}"
    with run_server(server):
        try:
            yield fake
        finally:
            with fake.changed:
                fake.stopping = True
                fake.changed.notify_all()
