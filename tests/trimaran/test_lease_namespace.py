"""A Lease whose namespace is missing, or that the account may not use: each controller names the setting."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import requests
from support.nodes_api import NodesApi, http_error
from support.scripted_api import SILENCE, ScriptedApi
from support.waiting import wait_until
from werkzeug.test import Client

from runtime.kubernetes.api import ListPage
from runtime.server.access import AccessCheck
from runtime.settings.loading import load
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.rebalancer.worker import RebalancerWorker
from trimaran.scheduler.profiles.configuration import default_document, read_setup
from trimaran.scheduler.service.settings import SchedulerSection, SchedulerSettings
from trimaran.scheduler.service.worker import SchedulerWorker
from trimaran.soft_taints.settings import NodesSection, NodesSettings
from trimaran.soft_taints.worker import SoftTaintsWorker

WATCHER = "http://127.0.0.1:9"


class Namespaceless(ScriptedApi):
    """API server without nodes and pods, which refuses Leases by a status until it is 0."""

    def __init__(self, status: int) -> None:
        super().__init__([[ListPage([], "1")]], [[SILENCE]])
        self.status, self._stored = status, NodesApi()

    def send(self, method: str, path: str, *arguments: Any) -> Any:
        if self.status and "/leases" in path:
            raise http_error(self.status)
        return self._stored.send(method, path, *arguments)

    def close(self) -> None:
        self.abort()


def soft_taints(api: Any) -> Any:
    flags = {"nodes.taints": True, "cluster.watcher": WATCHER}
    return SoftTaintsWorker(load(NodesSettings, flags).settings, [api], AccessCheck())


def rebalancer(api: Any) -> Any:
    flags = {"rebalance.mode": "act", "cluster.watcher": WATCHER}
    settings = load(RebalanceSettings, flags).settings
    return RebalancerWorker(settings, [api, api, api], AccessCheck(), lease_seconds=3)


def scheduler(api: Any) -> Any:
    flags = {"scheduler.name": "ours", "cluster.watcher": WATCHER}
    settings = load(SchedulerSettings, flags).settings
    return SchedulerWorker(settings, read_setup(default_document("ours")), [api, api], AccessCheck())


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (soft_taints, "cluster.lease_namespace"), (rebalancer, "cluster.lease_namespace"),
        (scheduler, "cluster.lease_namespace"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("status", "remedy"), [(404, "create the namespace trimaran, or set"), (403, "grant the right to get, create")]
)
def test_a_lease_that_cannot_be_acquired_is_not_ready(
    make: Callable[[Any], Any], setting: str, status: int, remedy: str, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """/readyz has the reason and the setting, the log one line, not one for each attempt; a remedy makes it ready."""
    for section in (NodesSection, SchedulerSection):
        monkeypatch.setattr(section, "lease_seconds", 3.0)
    api = Namespaceless(status)
    worker = make(api)
    with closing(worker):
        client = Client(worker.start())
        wait_until(lambda: "lease_namespace" in client.get("/readyz").text, "the reason is known")
        answer = client.get("/readyz")
        assert answer.status_code == requests.codes.unavailable
        assert remedy in answer.text
        assert setting in answer.text

        def lines() -> int:
            return sum(setting in str(getattr(record, "error", "")) for record in caplog.records)

        wait_until(lines, "the reason is logged, just after it is shown")
        assert lines() == 1
        api.status = 0
        wait_until(lambda: client.get("/readyz").status_code == requests.codes.ok, "it is ready with the Lease")
