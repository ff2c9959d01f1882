"""Worker of ``trimaran rebalance``: its Lease, its limits, and ``trimaran doctor --rebalancer``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from support.nodes_api import NodesApi, http_error
from support.servers import served_app, wait_until
from support.watched_api import WatchedApi
from werkzeug.test import Client

from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from runtime.settings.loading import load
from trimaran.cli.main import main
from trimaran.rebalancer import worker as worker_module
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.ledger import Brake, Ledger
from trimaran.rebalancer.ledger_store import LedgerStore
from trimaran.rebalancer.rules import MoveRules
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.rebalancer.worker import RebalancerWorker


class WorkerApi(WatchedApi):
    """A fake API that stores Leases and ConfigMaps.

    Attributes:
        may_lead: whether the account may use Leases.
        lacks: verb, resource, and if they are not empty subresource and namespace of each right that the account lacks.
        defect: raised instead of each answer about a ConfigMap.
        sent: path of each request but lists and watches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_lead, self.sent, self._stored = False, list[str](), NodesApi()
        self.lacks = set[tuple[str, ...]]()
        self.defect: Exception | None = None

    def send(self, method: str, path: str, *arguments: Any) -> Any:
        self.sent.append(path)
        if path.endswith("/selfsubjectaccessreviews"):
            if ("reviews",) in self.lacks:
                raise http_error(503)
            asked = arguments[1]["spec"]["resourceAttributes"]
            right = tuple(asked[name] for name in ("verb", "resource", "subresource", "namespace") if asked[name])
            return {"status": {"allowed": right not in self.lacks}}
        if "/configmaps" in path and self.defect is not None:
            raise self.defect
        if "/leases" in path and not self.may_lead:
            raise http_error(403)
        return self._stored.send(method, path, *arguments)

    def close(self) -> None:
        self.abort()


@contextmanager
def serving(api: WorkerApi, mode: str, lease_seconds: float = 3, **more: float | str) -> Iterator[FastPath]:
    """Run a worker whose watcher does not answer; yield its application."""
    flags = {f"rebalance.{name}": value for name, value in {"mode": mode, **more}.items()}
    settings = load(RebalanceSettings, {"cluster.watcher": "http://127.0.0.1:9", **flags}).settings
    worker = RebalancerWorker(settings, [api] * 3, AccessCheck(), lease_seconds=lease_seconds, cycle_seconds=0.1)
    try:
        yield worker.start()
    finally:
        worker.close()


@contextmanager
def running(api: WorkerApi, mode: str, **more: float | str) -> Iterator[Client]:
    """Run a worker; yield a client of its routes."""
    with serving(api, mode, **more) as app:
        yield Client(app)


def failed_steps(url: str, *options: str) -> dict[str, str]:
    """Return the messages of the failed steps of ``trimaran doctor --rebalancer``."""
    output = CliRunner().invoke(main, ["doctor", "--rebalancer", url, *options]).output
    found = (line[6:].split(": ", 2) for line in output.splitlines() if line.startswith("FAIL"))
    return {step: message for _, step, message in found}


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


def test_the_readiness_probe_says_why_cycles_fail() -> None:
    """While cycles fail unexpectedly, /readyz has the error, and the process lives on."""
    api = WorkerApi()
    api.may_lead, api.defect = True, RuntimeError("odd ledger")
    with running(api, "act") as client:
        failed = "a cycle failed: RuntimeError: odd ledger"
        wait_until(lambda: failed in client.get("/readyz").text, "the reason is shown")
        assert client.get("/livez").status_code == 200
        api.defect = None
        wait_until(lambda: client.get("/readyz").status_code == 200, "cycles succeed again")


@pytest.mark.parametrize(("lease", "write"), [(3, 1), (60, 10)])
def test_the_worker_passes_its_limits_on(monkeypatch: pytest.MonkeyPatch, lease: float, write: float) -> None:
    """An eviction has a third of the Lease's duration, at most ten seconds; node metrics have the rules' age."""
    given: dict[str, tuple[Any, ...]] = {}
    for part in (worker_module.Evictor, worker_module.UseReader):

        def make(*arguments: Any, part: Any = part) -> Any:
            given[part.__name__] = arguments
            return part(*arguments)

        monkeypatch.setattr(worker_module, part.__name__, make)
    with running(WorkerApi(), "act", lease_seconds=lease):
        assert (given["Evictor"][1], given["UseReader"][1]) == (write, MoveRules().max_age)


@pytest.mark.parametrize(
    ("right", "named"),
    [
        (("get", "pods"), 'may not get pods; {RULE "pods"], verbs: ["get"]}'),
        (("patch", "pods"), 'may not patch pods; {RULE "pods"], verbs: ["patch"]}'),
        (("create", "pods", "eviction"), 'may not create pods/eviction; {RULE "pods/eviction"], verbs: ["create"]}'),
        (("reviews",), "the rights are not known: "),
    ],
)
def test_doctor_names_a_missing_right(right: tuple[str, ...], named: str) -> None:
    """In mode act doctor asks for each right of a move before the first eviction needs it, and names its rule."""
    named = named.replace("{RULE ", 'a ClusterRole bound to this user needs the rule {apiGroups: [""], resources: [')
    api = WorkerApi()
    api.may_lead, api.lacks = True, {right}
    with serving(api, "act") as app, served_app(app) as url:
        wait_until(lambda: any("/configmaps" in path for path in api.sent), "it leads")
        failed = failed_steps(url)
        assert named in failed["rights"]
        api.lacks.clear()
        assert "rights" not in failed_steps(url)
        wait_until(lambda: "the watcher has no use" in failed_steps(url)["search"], "it has tried to search")


def test_doctor_names_the_brake_and_asks_for_needed_rights_only() -> None:
    """Observing needs no right of a move, moves in one namespace need no other's, and a brake is a failed step."""
    api = WorkerApi()
    api.lacks = {("get", "pods")}
    with serving(api, "observe") as app, served_app(app) as url:
        assert "rights" not in failed_steps(url)
    api.lacks = {("get", "pods"), ("get", "pods", "b"), ("get", "pods", "c")}
    with serving(api, "act", namespaces="a,b") as app, served_app(app) as url:
        rule = 'a Role in the namespace b bound to this user needs the rule {apiGroups: [""], resources: ["pods"]'
        assert f"may not get pods in the namespace b; {rule}" in failed_steps(url)["rights"]
    api.lacks.clear()
    brake = Brake(BrakeReason.STOPPED, "stopped by a person", 1.0)
    with serving(api, "act") as app, served_app(app) as url:
        wait_until(lambda: "cluster.lease_namespace" in failed_steps(url).get("Lease", ""), "it cannot lead")
        assert list(failed_steps(url)) == ["Lease"]
        LedgerStore(api, "trimaran", "trimaran-rebalancer").write(Ledger().with_brake(brake))
        api.may_lead = True
        wait_until(lambda: "stopped by a person" in failed_steps(url).get("brake", ""), "the brake is read")
    refused = CliRunner().invoke(main, ["doctor", "--rebalancer", "http://x", "--scheduler", "http://y"])
    assert refused.exit_code == 2
    assert "checks one service alone" in refused.output
