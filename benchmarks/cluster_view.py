"""What does the live view of a large cluster cost? Its first copy, its memory, a stream of pod events, another list.

A server in a process of its own answers as a Kubernetes API does, with nodes and pods as large as real ones (5 KB a pod
as JSON), 500 a page, and as many events a second as wanted; what it costs is its own. The view runs in this process.

    python benchmarks/cluster_view.py                   5,000 nodes, 100,000 pods, 500 events a second
    python benchmarks/cluster_view.py 1000 20000 500    another size
"""

import gc
import itertools
import multiprocessing
import sys
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import psutil

from runtime.kubernetes.api import Access, KubernetesApi
from trimaran.cluster.view import ClusterView

PAGE = 500
OWNERS = 400
POD_BYTES = 5_000
SECONDS = 20
MEGABYTE = 10**6


def node(number: int) -> dict[str, Any]:
    """Return a node with fifty images."""
    amounts = {"cpu": "32", "memory": "131072Mi", "ephemeral-storage": "100Gi", "pods": "110"}
    images = [
        {"names": [f"registry.example.com/team/service-{(number + each) % OWNERS}:v1"], "sizeBytes": 10**8 + each}
        for each in range(50)
    ]
    return {
        "metadata": {"name": f"node-{number}", "uid": f"{number:036d}", "resourceVersion": "1"},
        "status": {"capacity": amounts, "allocatable": {**amounts, "cpu": "31500m"}, "images": images},
    }


def pod(number: int, nodes: int, version: int = 1) -> bytes:
    """Return a running pod of one of some hundred owners, as JSON."""
    values = {
        "NUMBER": f"{number:06d}",
        "NODE": str(number % nodes),
        "VERSION": str(version),
        "HOUR": f"{number % 24:02}",
    }
    made = template(number % OWNERS)
    for name, value in values.items():
        made = made.replace(f"<{name}>".encode(), value.encode())
    return made


@cache
def template(owner: int) -> bytes:
    """Return what an owner's pods are made from."""
    amounts = {"cpu": f"{100 + owner}m", "memory": f"{64 + owner}Mi"}
    containers = [
        {
            "name": name, "image": f"registry.example.com/team/{name}-{owner}:v1",
            "resources": {"requests": amounts, "limits": amounts},
            "env": [{"name": f"SETTING_{each}", "value": "x" * 20} for each in range(15)],
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
    made: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"nodeName": "node-<NODE>", "containers": containers},
        "status": {"phase": "Running", "conditions": conditions, "startTime": at},
    }
    metadata["annotations"] = {"filler": "y" * max(0, POD_BYTES - len(orjson.dumps(made)))}
    return orjson.dumps(made)


class Server(ThreadingHTTPServer):
    """A Kubernetes API with that many nodes and pods, and that many pod events a second while told to."""

    daemon_threads = True

    def __init__(self, nodes: int, pods: int, rate: int) -> None:
        self.size = {"nodes": nodes, "pods": pods}
        self.rate, self.eventful = rate, threading.Event()
        self.sent = 0
        super().__init__(("127.0.0.1", 0), Handler)

    def item(self, kind: str, number: int) -> bytes:
        """Return one object."""
        return orjson.dumps(node(number)) if kind == "nodes" else pod(number, self.size["nodes"])


class Handler(BaseHTTPRequestHandler):
    """Lists and watches."""

    server: Server

    def do_GET(self) -> None:
        """Answer one."""
        asked = urlsplit(self.path)
        kind, query = asked.path.rpartition("/")[2], parse_qs(asked.query)
        self.send_response(200)
        if "watch" in query:
            self.end_headers()
            self._watch(kind, time.monotonic() + int(query["timeoutSeconds"][0]))
            return
        first = int(query.get("continue", ["0"])[0])
        last = min(first + PAGE, self.server.size[kind])
        items = b",".join(self.server.item(kind, number) for number in range(first, last))
        metadata = {"resourceVersion": "1", "continue": str(last) if last < self.server.size[kind] else ""}
        body = b'{"metadata":' + orjson.dumps(metadata) + b',"items":[' + items + b"]}"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, kind: str, until: float) -> None:
        """Each pod is deleted, made again on another node, and changed twice, in turn."""
        for tick in itertools.count():
            if time.monotonic() >= until:
                return
            if kind == "pods" and self.server.eventful.is_set():
                lines = []
                for _ in range(self.server.rate // 10):
                    turn, self.server.sent = self.server.sent, self.server.sent + 1
                    what = ("DELETED", "ADDED", "MODIFIED", "MODIFIED")[turn % 4]
                    each = pod(turn // 4 % self.server.size["pods"], self.server.size["nodes"], 2 + turn)
                    lines.append(b'{"type":"' + what.encode() + b'","object":' + each + b"}\n")
                self.wfile.write(b"".join(lines))
            elif tick % 50 == 0:
                self.wfile.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n')
            time.sleep(0.1)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(pipe: Connection, nodes: int, pods: int, rate: int) -> None:
    """Serve until told to end; a word starts or ends the events, and is answered with how many there were."""
    server = Server(nodes, pods, rate)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_address[1])
    while (word := pipe.recv()) != "end":
        server.eventful.set() if word == "go" else server.eventful.clear()
        pipe.send(server.sent)


def main() -> None:
    """Print what each costs."""
    nodes, pods, rate = map(int, sys.argv[1:4]) if len(sys.argv) > 3 else (5_000, 100_000, 500)
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there, nodes, pods, rate), daemon=True)
    server.start()
    port, process = here.recv(), psutil.Process()
    before = process.memory_info().rss
    print(f"{nodes:,} nodes, {pods:,} pods of {len(pod(0, nodes)):,} bytes\n")
    api = KubernetesApi(Access(address=f"http://127.0.0.1:{port}", token="none"))
    began, worked = time.monotonic(), time.process_time()
    view = ClusterView(api).start()
    if not view.wait(600):
        raise SystemExit("no whole copy within 10 minutes")
    print(
        f"first copy           {time.monotonic() - began:6.1f} s, {time.process_time() - worked:.1f} s of the processor"
    )
    gc.collect()
    print(f"memory               {process.memory_info().rss / MEGABYTE:6.0f} MB, {before / MEGABYTE:.0f} MB before")
    here.send("go")
    sent, longest = here.recv(), 0.0
    began, worked = time.monotonic(), time.process_time()
    while time.monotonic() < began + SECONDS:
        time.sleep(0.05)
        asked = time.monotonic()
        with view.reading():
            longest = max(longest, time.monotonic() - asked)
    used, lasted = time.process_time() - worked, time.monotonic() - began
    here.send("stop")
    events = (here.recv() - sent) / lasted
    print(f"events               {events:6.0f} a second: {100 * used / lasted:.1f} % of a core")
    print(f"longest wait         {1000 * longest:6.1f} ms for the table meanwhile")
    print(f"memory               {process.memory_info().rss / MEGABYTE:6.0f} MB after that")
    view.close()
    here.send("end")
    server.join(10)


if __name__ == "__main__":
    main()
