"""Worker of ``trimaran rebalance``: mode observe asks for no Lease, and mode act does nothing without it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.nodes_api import NodesApi, http_error
from support.servers import wait_until
from support.watched_api import WatchedApi
from werkzeug.test import Client

from runtime.server.access import AccessCheck
from runtime.settings.loading import load
from trimaran.rebalancer import worker as worker_module
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.rebalancer.worker import RebalancerWorker


class WorkerApi(WatchedApi):
    """A fake API that stores Leases and ConfigMaps.

    Attributes:
        may_lead: whether the account may use Leases.
        sent: path of each request but lists and watches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_lead, self.sent, self._stored = False, list[str](), NodesApi()

    def send(self, method: str, path: str, *arguments: Any) -> Any:
        self.sent.append(path)
        if "/leases" in path and not self.may_lead:
            raise http_error(403)
        return self._stored.send(method, path, *arguments)

    def close(self) -> None:
        self.abort()


@contextmanager
def running(api: WorkerApi, mode: str, **more: float) -> Iterator[Client]:
    """Run a worker whose watcher does not answer; yield a client of its routes."""
    flags = {"mode": mode, "watcher": "http://127.0.0.1:9", "lease_seconds": 3, "interval_seconds": 0.1, **more}
    settings = load(RebalanceSettings, {f"rebalance.{name}": value for name, value in flags.items()}).settings
    worker = RebalancerWorker(settings, [api, api, api], AccessCheck())
    try:
        yield Client(worker.start())
    finally:
        worker.close()


def test_observe_asks_for_no_lease_and_writes_nothing() -> None:
    """In mode observe a worker searches without a Lease, and sends nothing but lists and watches."""
    api = WorkerApi()
    with running(api, "observe") as client:
        wait_until(lambda: "the watcher has no use" in client.get("/status").text, "it has tried to search")
        assert "trimaran_rebalancer_leads 1.0" in client.get("/metrics").text
    assert api.sent == []


def test_only_the_leader_reads_the_ledger() -> None:
    """In mode act a worker without the Lease sends requests for the Lease only, and follows moves once it has it."""
    api = WorkerApi()
    with running(api, "act") as client:
        wait_until(lambda: len(api.sent) > 2, "it has asked for the Lease for some seconds")
        assert all("/leases" in path for path in api.sent)
        assert "trimaran_rebalancer_leads 0.0" in client.get("/metrics").text
        api.may_lead = True
        wait_until(lambda: any("/configmaps" in path for path in api.sent), "it reads the ledger")


@pytest.mark.parametrize(("lease", "write"), [(3, 1), (60, 10)])
def test_the_worker_passes_its_limits_on(monkeypatch: pytest.MonkeyPatch, lease: float, write: float) -> None:
    """An eviction has a third of the Lease's duration, at most ten seconds; node metrics have max_age_seconds."""
    given: dict[str, tuple[Any, ...]] = {}
    for part in (worker_module.Evictor, worker_module.UseReader):

        def make(*arguments: Any, part: Any = part) -> Any:
            given[part.__name__] = arguments
            return part(*arguments)

        monkeypatch.setattr(worker_module, part.__name__, make)
    with running(WorkerApi(), "act", lease_seconds=lease, max_age_seconds=120):
        assert (given["Evictor"][1], given["UseReader"][1]) == (write, 120)
