"""Cost of the live view of a cluster (an informer cache) with 5,000 nodes: first list, memory, and pod events.

A server in a separate process answers like a Kubernetes API. Its nodes and pods are as large as real ones (5 KB of JSON
per pod), it lists 500 objects per page, and it sends pod events at a steady rate. The cost of the server is not
counted. The view runs in this process. There is no baseline; the bounds in the table are the limits that the view was
designed for.

    python benchmarks/cluster_view.py [--nodes 5000] [--pods 100000] [--events 500]
"""

import gc
import itertools
import multiprocessing
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import psutil
from common import Table, options

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from trimaran.cluster.view import ClusterView

PAGE = 500
OWNERS = 400
POD_BYTES = 5_000
SECONDS = 20
MEGABYTE = 10**6


def node(number: int) -> dict[str, Any]:
    """Return a v1 Node with 50 images, as large as a real one."""
    amounts = {"cpu": "32", "memory": "131072Mi", "ephemeral-storage": "100Gi", "pods": "110"}
    images = [
        {"names": [f"registry.example.com/team/service-{(number + i) % OWNERS}:v1"], "sizeBytes": 10**8 + i}
        for i in range(50)
    ]
    return {
        "metadata": {"name": f"node-{number}", "uid": f"{number:036d}", "resourceVersion": "1"},
        "status": {"capacity": amounts, "allocatable": {**amounts, "cpu": "31500m"}, "images": images},
    }


def pod(number: int, nodes: int, version: int = 1) -> bytes:
    """Return a running v1 Pod as JSON, which belongs to one of 400 owners.

    Args:
        number: number of the pod, which determines its owner.
        nodes: number of nodes, among which the pods are distributed.
        version: resource version of the pod.
    """
    values = {"NUMBER": f"{number:06d}", "NODE": number % nodes, "VERSION": version, "HOUR": f"{number % 24:02}"}
    document = pod_template(number % OWNERS)
    for name, value in values.items():
        document = document.replace(f"<{name}>".encode(), str(value).encode())
    return document


@cache
def pod_template(owner: int) -> bytes:
    """Return the JSON of an owner's pods, with placeholders for the values that differ from pod to pod."""
    amounts = {"cpu": f"{100 + owner}m", "memory": f"{64 + owner}Mi"}
    containers = [
        {
            "name": name, "image": f"registry.example.com/team/{name}-{owner}:v1",
            "resources": {"requests": amounts, "limits": amounts},
            "env": [{"name": f"SETTING_{i}", "value": "x" * 20} for i in range(15)],
        }
        for name in ("service", "proxy")
    ]  # fmt: skip
    at = "2026-01-01T<HOUR>:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": at}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    metadata = {
        "name": f"service-{owner}-7d9f8b6c5d-<NUMBER>", "namespace": f"team-{owner % 40}", "uid": f"{0:030d}<NUMBER>",
        "resourceVersion": "<VERSION>", "labels": {"app": f"service-{owner}", "pod-template-hash": "7d9f8b6c5d"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": f"service-{owner}-7d9f8b6c5d", "uid": f"{owner:036d}"}],
        "annotations": {"filler": ""},
    }  # fmt: skip
    document: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"nodeName": "node-<NODE>", "containers": containers},
        "status": {"phase": "Running", "conditions": conditions, "startTime": at},
    }
    metadata["annotations"] = {"filler": "y" * max(0, POD_BYTES - len(orjson.dumps(document)))}
    return orjson.dumps(document)


class ApiServer(ThreadingHTTPServer):
    """Fake Kubernetes API with nodes and pods, which sends pod events while ``events_on`` is set."""

    daemon_threads = True

    def __init__(self, nodes: int, pods: int, rate: int) -> None:
        self.size = {"nodes": nodes, "pods": pods}
        self.rate, self.events_on, self.sent = rate, threading.Event(), 0
        super().__init__(("127.0.0.1", 0), ApiHandler)


class ApiHandler(BaseHTTPRequestHandler):
    """Handler of requests to list or to watch nodes and pods."""

    server: ApiServer

    def do_GET(self) -> None:
        """Answer a request to list or to watch objects."""
        url = urlsplit(self.path)
        kind, query = url.path.rpartition("/")[2], parse_qs(url.query)
        self.send_response(200)
        if "watch" in query:
            self.end_headers()
            self._watch(kind, time.monotonic() + int(query["timeoutSeconds"][0]))
            return
        first, size = int(query.get("continue", ["0"])[0]), self.server.size
        last = min(first + PAGE, size[kind])
        items = (orjson.dumps(node(i)) if kind == "nodes" else pod(i, size["nodes"]) for i in range(first, last))
        metadata = {"resourceVersion": "1", "continue": str(last) if last < size[kind] else ""}
        body = b'{"metadata":' + orjson.dumps(metadata) + b',"items":[' + b",".join(items) + b"]}"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, kind: str, until: float) -> None:
        """Send watch events until a time: each pod, one after another, is deleted, added again and modified twice."""
        for tick in itertools.count():
            if time.monotonic() >= until:
                return
            if kind == "pods" and self.server.events_on.is_set():
                lines = []
                for _ in range(self.server.rate // 10):
                    turn, self.server.sent = self.server.sent, self.server.sent + 1
                    event = ("DELETED", "ADDED", "MODIFIED", "MODIFIED")[turn % 4]
                    document = pod(turn // 4 % self.server.size["pods"], self.server.size["nodes"], 2 + turn)
                    lines.append(b'{"type":"' + event.encode() + b'","object":' + document + b"}\n")
                self.wfile.write(b"".join(lines))
            elif tick % 50 == 0:
                self.wfile.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n')
            time.sleep(0.1)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def serve(pipe: Connection, nodes: int, pods: int, rate: int) -> None:
    """Serve the fake Kubernetes API in this process until the message "end" arrives.

    The first message back is the port. "go" starts the pod events and any other message stops them; the answer is the
    number of events sent so far.
    """
    server = ApiServer(nodes, pods, rate)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_address[1])
    while (word := pipe.recv()) != "end":
        server.events_on.set() if word == "go" else server.events_on.clear()
        pipe.send(server.sent)


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, pods=100_000, events=500)
    spawn = multiprocessing.get_context("spawn")
    pipe, server_pipe = spawn.Pipe()
    server = spawn.Process(target=serve, args=(server_pipe, size.nodes, size.pods, size.events), daemon=True)
    server.start()
    port, process = pipe.recv(), psutil.Process()
    before = process.memory_info().rss
    title = f"{size.nodes:,} nodes, {size.pods:,} pods of {len(pod(0, size.nodes)):,} bytes"
    table = Table(title, ("cost", "bound", "measured"))
    start, computed = time.monotonic(), time.process_time()
    view = ClusterView(KubernetesApi(ApiServerConfig(address=f"http://127.0.0.1:{port}", token="none"))).start()
    if not view.wait(600):
        raise SystemExit("the first copy is not complete after 10 minutes")
    table.row("first copy, s", 40, f"{time.monotonic() - start:.1f}")
    table.row("first copy, processor s", "", f"{time.process_time() - computed:.1f}")
    gc.collect()
    table.row("memory before, MB", "", f"{before / MEGABYTE:.0f}")
    table.row("memory of the process, MB", 600, f"{process.memory_info().rss / MEGABYTE:.0f}")
    pipe.send("go")
    sent, longest = pipe.recv(), 0.0
    start, computed = time.monotonic(), time.process_time()
    while time.monotonic() < start + SECONDS:
        time.sleep(0.05)
        waiting = time.monotonic()
        with view.reading():
            longest = max(longest, time.monotonic() - waiting)
    used, elapsed = time.process_time() - computed, time.monotonic() - start
    pipe.send("stop")
    rate = (pipe.recv() - sent) / elapsed
    table.row(f"{rate:.0f} pod events a second, % of a processor", 30, f"{100 * used / elapsed:.1f}")
    table.row("longest wait for the table meanwhile, ms", "", f"{1000 * longest:.1f}")
    table.row("memory after the events, MB", 600, f"{process.memory_info().rss / MEGABYTE:.0f}")
    view.close()
    pipe.send("end")
    server.join(10)


if __name__ == "__main__":
    main()
