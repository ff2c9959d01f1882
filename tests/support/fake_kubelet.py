"""A fake kubelet over TLS: the Summary API and ``/metrics/resource`` of one node.

Written from the types of the Summary API (k8s.io/kubelet, ``pkg/apis/stats/v1alpha1``) and the kubelet's code: times
are RFC 3339, unset amounts are left out, and ``only_cpu_and_memory`` leaves out ``io``.
"""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from support.fake_kubernetes import TOKEN, make_certificates, node

from watcher.testing import reply, serving


@dataclass
class FakeKubelet:
    """State of a fake kubelet, which tests change.

    Attributes:
        summary: response of ``/stats/summary``: a summary, bytes, or a status.
        metrics: response of ``/metrics/resource``: text, or a status.
        delay_seconds: delay of each response.
        name: name of the node in summaries that have none.
        port: port of the kubelet.
        requests: path and headers of each request.
        arrivals: monotonic time of each request.
        stopped: event that ends delays.
    """

    summary: dict[str, Any] | bytes | int = 404
    metrics: str | int = 404
    delay_seconds: float = 0.0
    name: str = ""
    port: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def node(self, name: str, cpu: str = "4", memory: str = "16Gi") -> dict[str, Any]:
        """Return the Node of this kubelet."""
        self.name = name
        listed = node(name, cpu, memory)
        listed["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
        listed["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}
        return listed

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Respond to a request, with the kubelet's checks of the token."""
        self.arrivals.append(time.monotonic())
        self.stopped.wait(self.delay_seconds)
        path, _, query = handler.path.partition("?")
        known: dict[str, Any] = {"/stats/summary": self.summary, "/metrics/resource": self.metrics}
        body = known.get(path, 404)
        if isinstance(body, dict):
            body = {**body, "node": {"nodeName": self.name, **body["node"]}}
        if handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            body = 401
        if isinstance(body, int):
            reply(handler, b"", body)
        elif isinstance(body, dict) and query == "only_cpu_and_memory=true":
            reply(handler, {**body, "node": {key: value for key, value in body["node"].items() if key != "io"}})
        else:
            reply(handler, body)


def rfc3339(at: float) -> str:
    """Return a time in the format of the API."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def stats(at: float, psi: dict[str, float] | None = None, **amounts: Any) -> dict[str, Any]:
    """Return the statistics of a resource: amounts, and pressure from totals in seconds by kind."""
    kinds = {
        kind: {"total": round(seconds * 1e6), "avg10": 0.0, "avg60": 0.0, "avg300": 0.0}
        for kind, seconds in (psi or {}).items()
    }
    return {"time": rfc3339(at), **amounts, **({"psi": kinds} if psi is not None else {})}


def summary(
    at: float, cpu: Any = None, memory: Any = None, psi: dict[str, dict[str, float]] | None = None, **cpu_more: Any
) -> dict[str, Any]:
    """Return the summary of a node without pods.

    Args:
        at: time of the measurement, Unix seconds.
        cpu: CPU time in nanoseconds.
        memory: working set in bytes.
        psi: totals of pressure in seconds by resource and kind; None for a kubelet without pressure.
        cpu_more: further fields of CPU, such as ``usageNanoCores``.
    """
    of = psi or {}
    resources = {
        "cpu": stats(at, of.get("cpu"), usageCoreNanoSeconds=cpu, **cpu_more),
        "memory": stats(at, of.get("memory"), workingSetBytes=memory),
        **({"io": stats(at, of["io"])} if "io" in of else {}),
    }
    return {"node": resources, "pods": []}


@contextmanager
def run_fake_kubelet(folder: Path) -> Iterator[FakeKubelet]:
    """Run a kubelet with the server certificate in the folder, which is created if there is none."""
    if not (folder / "server.pem").exists():
        make_certificates(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem", folder / "server.key")
    kubelet = FakeKubelet()
    with serving(kubelet.answer, tls) as server:
        kubelet.port, kubelet.requests = server.server.server_port, server.requests
        try:
            yield kubelet
        finally:
            kubelet.stopped.set()
