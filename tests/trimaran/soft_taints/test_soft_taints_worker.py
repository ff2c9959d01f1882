"""Worker of ``trimaran nodes``: threads that survive odd answers, a truthful liveness probe, and suspension."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
import yaml
from control_plane.processes import Process
from control_plane.varied import varied
from support.extending import snapshot_of
from support.nodes_api import NodesApi
from support.scripted_api import SILENCE, ScriptedApi
from support.servers import run_server, wait_until
from werkzeug.test import Client

from runtime.controller.leadership import Leadership
from runtime.kubernetes.api import ListPage
from runtime.server.access import AccessCheck
from runtime.settings.loading import load
from trimaran.soft_taints.settings import NodesSection, NodesSettings
from trimaran.soft_taints.worker import SoftTaintsWorker

LEASE_SECONDS = 3.0


class WorkerApi(ScriptedApi):
    """A fake API without nodes, whose answer to requests for Leases is set by the test."""

    def __init__(self) -> None:
        super().__init__([[ListPage([], "1")]], [[SILENCE]])
        self.leases = NodesApi()
        self.error: BaseException | None = None

    def send(self, *arguments: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.leases.send(*arguments)

    def close(self) -> None:
        self.abort()


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodesSection, "lease_seconds", LEASE_SECONDS)


@contextmanager
def running(api: WorkerApi) -> Iterator[Client]:
    """Run a worker; yield a client of its routes."""
    flags = {"nodes.taints": True, "cluster.watcher": "http://127.0.0.1:9"}
    worker = SoftTaintsWorker(load(NodesSettings, flags).settings, [api], AccessCheck())
    try:
        yield Client(worker.start())
    finally:
        worker.close()


def writes_here(client: Client) -> bool:
    return "trimaran_nodes_writes_here 1.0" in client.get("/metrics").text


def test_the_lease_is_renewed_after_any_error() -> None:
    """A defect in a renewal does not end the thread, which holds the Lease again later."""
    api = WorkerApi()
    with running(api) as client:
        wait_until(lambda: writes_here(client), "the Lease is held")
        api.error = RuntimeError("a defect")
        wait_until(lambda: not writes_here(client), "the Lease has expired")
        assert client.get("/livez").status_code == 200
        api.error = None
        wait_until(lambda: writes_here(client), "the Lease is held again")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("ends", "status"), [(False, 200), (True, 503)])
def test_a_dead_thread_fails_the_liveness_probe(monkeypatch: pytest.MonkeyPatch, status: int, *, ends: bool) -> None:
    """If the Lease's thread ends, /livez says so."""
    if ends:
        monkeypatch.setattr(Leadership, "_run", lambda *_: None)
    with running(WorkerApi()) as client:
        wait_until(lambda: client.get("/livez").status_code == status, f"the probe answers {status}")


class SlowCluster(ThreadingHTTPServer):
    """A fake API server and watcher with 100 hot nodes.

    Attributes:
        patched: number of patches.
        may_answer: event without which patches get no answer.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SlowClusterHandler)
        self.api, self.lock = NodesApi(*(f"node-{number}" for number in range(100))), threading.Lock()
        self.patched = 0
        self.may_answer = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path.startswith("/watcher"):
            return 200, snapshot_of(dict.fromkeys(self.api.nodes, 95.0))
        if path.startswith("/api/v1/nodes?"):
            if "watch=" in path:
                time.sleep(5)
                return 200, b""
            return 200, {"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [*self.api.nodes.values()]}
        if method == "PATCH":
            self.patched += 1
            self.may_answer.wait(20)
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            with self.lock:
                return 200, self.api.send(method, path, None, body, content_type)
        except requests.HTTPError as error:
            return error.response.status_code, {"kind": "Status"}

    def hold_lease(self, holder: str) -> None:
        """Let another replica acquire the Lease."""
        with self.lock:
            ((path, lease),) = self.api.leases.items()
            lease["spec"]["holderIdentity"] = holder
            self.api.send("PUT", path, None, lease)


class SlowClusterHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowCluster

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = orjson.loads(self.rfile.read(length)) if length else None
        status, answer = self.server.answer(self.command, self.path, body)
        data = answer if isinstance(answer, bytes) else orjson.dumps(answer)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("successor", ["another replica", ""])
def test_a_resumed_writer_writes_nothing_more_of_its_cycle(tmp_path: Path, successor: str) -> None:
    """A writer stopped within a cycle for longer than the Lease writes no more, whether or not another took over."""
    cluster = SlowCluster()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": cluster.url}}],
            "users": [{"name": "me", "user": {"token": "nobody's"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        })
    )  # fmt: skip
    constants = {"max_hot_fraction": 1, "lease_seconds": LEASE_SECONDS}
    command = [
        *varied("trimaran.soft_taints.settings:NodesSection", constants), "nodes", "--taints",
        "--watcher", cluster.url, "--port", "0",
        "--kube-config", kubeconfig, "--set", "nodes.writes_per_minute=1000",
    ]  # fmt: skip
    with run_server(cluster), Process(command, tmp_path / "nodes.log") as process:
        process.wait_until(lambda: cluster.patched, "a cycle has begun")
        process.pause()
        time.sleep(LEASE_SECONDS * 1.2)
        if successor:
            cluster.hold_lease(successor)
        process.resume()
        time.sleep(LEASE_SECONDS / 2)  # the Lease is renewed meanwhile if nobody else holds it
        cluster.may_answer.set()
        time.sleep(LEASE_SECONDS / 2)
        assert cluster.patched == 1
        holder = next(iter(cluster.api.leases.values()))["spec"]["holderIdentity"]
        assert (holder == successor) == bool(successor)
