"""Worker of ``trimaran nodes``: threads that survive odd answers, a truthful liveness probe, and suspension."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_plane.processes import Process
from control_plane.varied import varied
from support.controller_api import ControllerApi
from support.extending import snapshot_of
from support.nodes_api import NodesApi
from support.scripted_api import SILENCE, ScriptedApi
from support.servers import run_server, wait_until
from werkzeug.test import Client

from runtime.controller.leadership import Leadership
from runtime.kubernetes.api import ListPage
from runtime.kubernetes.paths import NODES
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("ends", "status"), [(False, 200), (True, 503)])
def test_a_dead_thread_fails_the_liveness_probe(monkeypatch: pytest.MonkeyPatch, status: int, *, ends: bool) -> None:
    """If the Lease's thread ends, /livez says so."""
    if ends:
        monkeypatch.setattr(Leadership, "_run", lambda *_: None)
    with running(WorkerApi()) as client:
        wait_until(lambda: client.get("/livez").status_code == status, f"the probe answers {status}")


class SlowCluster(ControllerApi):
    """A fake API server and watcher with 100 hot nodes.

    Attributes:
        patched: number of patches.
        may_answer: event without which patches get no answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored = NodesApi(*(f"node-{number}" for number in range(100)))
        self.patched = 0
        self.may_answer = threading.Event()

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        nodes = self.stored.nodes
        if target.startswith("/watcher"):
            return 200, snapshot_of(dict.fromkeys(nodes, 95.0))
        if target.startswith(f"{NODES}?") and "watch=" not in target:
            return 200, {"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [*nodes.values()]}
        if method == "PATCH":
            self.patched += 1
            self.may_answer.wait(20)
        return super().answer(method, target, body)


@pytest.mark.slow
@pytest.mark.parametrize("successor", ["another replica", ""])
def test_a_resumed_writer_writes_nothing_more_of_its_cycle(tmp_path: Path, successor: str) -> None:
    """A writer stopped within a cycle for longer than the Lease writes no more, whether or not another took over."""
    cluster = SlowCluster()
    constants = {"max_hot_fraction": 1, "lease_seconds": LEASE_SECONDS}
    command = [
        *varied("trimaran.soft_taints.settings:NodesSection", constants), "nodes", "--taints",
        "--watcher", cluster.url, "--port", "0",
        "--kube-config", cluster.kubeconfig(tmp_path), "--set", "nodes.writes_per_minute=1000",
    ]  # fmt: skip
    with closing(cluster), run_server(cluster), Process(command, tmp_path / "nodes.log") as process:
        process.wait_until(lambda: cluster.patched, "a cycle has begun")
        process.pause()
        time.sleep(LEASE_SECONDS * 1.2)
        if successor:
            cluster.give_lease("trimaran-nodes", successor)
        process.resume()
        time.sleep(LEASE_SECONDS / 2)  # the Lease is renewed meanwhile if nobody else holds it
        cluster.may_answer.set()
        time.sleep(LEASE_SECONDS / 2)
        assert cluster.patched == 1
        assert (cluster.holder("trimaran-nodes") == successor) == bool(successor)
