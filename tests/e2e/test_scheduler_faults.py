"""``trimaran scheduler`` in faults of the API, and next to a real kube-scheduler.

The faults are a cut network, a restarted API server, compaction, slow binds and late events. After each of them no pod
is bound twice, none is lost, and no node has more than its room, although the cluster is full in the end.
``TRIMARAN_FAULT_SECONDS`` makes the faults last longer.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from click.testing import CliRunner
from control_plane.cluster import ControlPlane
from control_plane.gang_scenarios import RESOURCES as GANGS
from control_plane.plugin_oracle import define
from control_plane.relay import Relay
from control_plane.scheduler import Scheduler as KubeScheduler
from support.servers import wait_until
from support.standalone import (
    CORES,
    NAME,
    RunningScheduler,
    all_bound,
    overcommitted,
    pending,
    pods_of,
    scheduled_events,
    standalone_cluster,
)

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e

NODES = 20
ROOM = NODES * 2 * CORES
FAULT_SECONDS = float(os.environ.get("TRIMARAN_FAULT_SECONDS", "2"))
BIND_SECONDS = 1  # time limit of a Binding, shorter than a fault
KEPT_SECONDS = 60 + 2 * FAULT_SECONDS  # of the Lease: the leader must live through each fault
PATIENCE = 150 + 3 * FAULT_SECONDS
PODS = "/api/v1/namespaces/default/pods"
GANG_SIZE = 5
GANG_PLUGINS = {
    "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
    "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of 20 simulated nodes with the scheduler's account."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), NODES) as cluster:
        define(cluster.api, GANGS)
        yield cluster


class Faults:
    """Faults between the scheduler and the API server.

    Attributes:
        relay: the way to the API server.
        seconds: delays of Bindings, in turn: before they are sent to the API server, and before they are answered.
    """

    def __init__(self, relay: Relay) -> None:
        self.relay, self.seconds = relay, 0.0
        self._open = threading.Event()
        self._open.set()
        self._bindings = 0
        relay.on_request = self._on_request

    def cut(self) -> None:
        """Drop all connections, and let requests wait."""
        self._open.clear()
        self.relay.cut()

    def heal(self) -> None:
        """Let everything pass, also what has waited."""
        self._open.set()

    def _on_request(self, method: str, path: str, *, answered: bool) -> None:
        self._open.wait(2 * PATIENCE)
        if self.seconds and path.endswith("/binding"):
            self._bindings += not answered
            if answered == (self._bindings % 2 == 0):
                time.sleep(self.seconds)


@pytest.mark.parametrize("in_gangs", [False, True])
def test_faults_of_the_api_bind_no_pod_twice_and_lose_none(
    cluster: ControlPlane, tmp_path: Path, record_property: Callable[[str, object], None], *, in_gangs: bool
) -> None:
    """A cut, slow binds, late events, then a compaction and a restart of the API server while nothing is heard.

    Of pods in gangs also no gang is bound in part, although one finds no room.
    """
    with Relay(cluster) as relay:
        faults = Faults(relay)
        constants = {"timeout_seconds": BIND_SECONDS, "lease_seconds": KEPT_SECONDS}
        placed = ("--config", str(gang_configuration(tmp_path))) if in_gangs else ("--name", NAME)
        make = member if in_gangs else pending
        if in_gangs:
            create_groups(cluster)
        scheduler = RunningScheduler(cluster, relay.url, placed, constants)
        try:
            scheduler.process.wait_until(lambda: scheduler.leads, "it leads", 300)
            figures = []
            for fault in ("cut", "slow", "late", "restart"):
                began, count = time.monotonic(), ROOM // 4
                prefix = f"gangs-{fault}" if in_gangs else fault
                names = [f"{prefix}-{number}" for number in range(count)]
                begin(fault, faults)
                cluster.api.create(*(make(name) for name in names[: count // 2]))
                time.sleep(FAULT_SECONDS)
                if fault == "restart":
                    restart_and_compact(cluster)
                end(faults)
                cluster.api.create(*(make(name) for name in names[count // 2 :]))
                scheduler.process.wait_until(lambda p=prefix, c=count: all_bound(cluster, p, c), fault, PATIENCE)
                check(cluster, prefix)
                figures.append(f"{fault} {time.monotonic() - began:.1f} s")
            record_property("figures", f"faults of {FAULT_SECONDS:g} s, {ROOM} pods in {ROOM} places: {figures}")
            log = scheduler.process.log.read_text()
            assert "the Lease is lost" not in log
            assert "reading a pod whose Binding got no answer" in log
            assert "the resource version is too old" in log
            if in_gangs:
                cluster.api.create(*(member(f"beyond-{number}") for number in range(GANG_SIZE)))
                scheduler.process.wait_until(
                    lambda: is_refused(cluster, "beyond"), "the last gang is refused", PATIENCE
                )
                assert not any(each["spec"].get("nodeName") for each in pods_of(cluster, "beyond"))
        finally:
            faults.heal()
            scheduler.process.terminate()
            cluster.api.delete(PODS)


def gang_configuration(folder: Path) -> Path:
    """Write a configuration with Coscheduling."""
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump({**document, "profiles": [{"schedulerName": NAME, "plugins": GANG_PLUGINS}]}))
    return file


def create_groups(cluster: ControlPlane) -> None:
    """Create the PodGroups of all gangs of the test."""
    names = [f"gangs-{fault}-{number}" for fault in ("cut", "slow", "late", "restart") for number in range(ROOM // 4)]
    for gang in sorted({gang_of(name) for name in (*names, "beyond-0")}):
        metadata = {"name": gang, "namespace": "default"}
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata}
        cluster.api.create({**group, "spec": {"minMember": GANG_SIZE}})


def gang_of(name: str) -> str:
    """Return the gang of a pod such as ``gangs-cut-7``."""
    prefix, _, number = name.rpartition("-")
    return f"{prefix}-{int(number) // GANG_SIZE}"


def member(name: str) -> dict[str, Any]:
    manifest = pending(name)
    manifest["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": gang_of(name)}
    return manifest


def is_refused(cluster: ControlPlane, prefix: str) -> bool:
    """Return whether all pods with a prefix are known to find no room."""
    reasons = [each.get("reason") for pod in pods_of(cluster, prefix) for each in pod["status"].get("conditions") or ()]
    return reasons == ["Unschedulable"] * GANG_SIZE


def begin(fault: str, faults: Faults) -> None:
    """Begin a fault; before the restart nothing is heard, so that the restart is found out afterwards."""
    if fault in {"cut", "restart"}:
        faults.cut()
    elif fault == "slow":
        faults.seconds = min(2.0 * BIND_SECONDS, FAULT_SECONDS)
    else:
        faults.relay.delayed_share, faults.relay.delay_seconds = 1.0, FAULT_SECONDS
        faults.relay.cut()  # only new watches are late


def end(faults: Faults) -> None:
    """End all faults."""
    faults.heal()
    faults.seconds = faults.relay.delayed_share = 0.0


def restart_and_compact(cluster: ControlPlane) -> None:
    """Restart the API server, and compact etcd's history, so that no watch can go on from an earlier version."""
    (changed,) = cluster.api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "compacted-"}}
    )
    revision = int(changed["metadata"]["resourceVersion"])
    requests.post(f"{cluster.etcd_url}/v3/kv/compaction", json={"revision": revision}, timeout=60).raise_for_status()
    cluster.apiserver.restart()

    def is_ready() -> bool:
        try:
            return cluster.api.request("GET", "/readyz").text == "ok"
        except requests.HTTPError:
            return False

    cluster.apiserver.wait_until(is_ready, "the API answers again")


def check(cluster: ControlPlane, prefix: str) -> None:
    """Check that no node has more than its room, and that no pod was bound twice."""
    assert overcommitted(cluster) == {}, prefix
    assert set(scheduled_events(cluster, prefix).values()) <= {1}


def test_nodes_shared_with_kube_scheduler(
    cluster: ControlPlane, record_property: Callable[[str, object], None]
) -> None:
    """Each scheduler places half of the pods: none is lost, and few go beyond a node's room, where kubelets reject."""
    count = ROOM * 9 // 10
    with KubeScheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=2):
        scheduler = RunningScheduler(cluster)
        try:
            scheduler.process.wait_until(lambda: scheduler.leads, "it leads", 300)
            names = (NAME, "default-scheduler")
            cluster.api.create(*(pending(f"half-{number}", scheduler=names[number % 2]) for number in range(count)))
            scheduler.process.wait_until(lambda: all_bound(cluster, "half", count), "all pods are bound", PATIENCE)
            beyond = sum(overcommitted(cluster).values())
            outdated = scheduler.value("trimaran_scheduler_outdated_decisions_total")
            figures = f"of {count} pods at once in {ROOM} places {beyond} beyond a node's room, {outdated:g} outdated"
            record_property("figures", figures)
            assert beyond <= count // 20
            assert set(scheduled_events(cluster, "half").values()) <= {1}
            check_a_rejection(cluster, scheduler)
        finally:
            scheduler.process.terminate()
            cluster.api.delete(PODS)


def check_a_rejection(cluster: ControlPlane, scheduler: RunningScheduler) -> None:
    """Let a kubelet reject a pod; check that it is counted, that its node is avoided, and that doctor says why."""
    rejected = next(each for each in pods_of(cluster, "half") if each["spec"]["schedulerName"] == NAME)
    name, node_name = rejected["metadata"]["name"], rejected["spec"]["nodeName"]
    cluster.api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
    counted = 'trimaran_scheduler_kubelet_rejections_total{reason="OutOfcpu"}'
    scheduler.process.wait_until(lambda: scheduler.value(counted) == 1, "it is counted")
    cluster.api.create(pending("again"))
    scheduler.process.wait_until(lambda: all_bound(cluster, "again", 1), "its replacement is bound")
    assert pods_of(cluster, "again")[0]["spec"]["nodeName"] != node_name
    result = CliRunner().invoke(main, ["doctor", "--scheduler", scheduler.url])
    assert result.exit_code == 1
    failed = [line for line in result.output.splitlines() if line.startswith("FAIL")]
    assert any("nodes have pods of this and of other schedulers" in line for line in failed), result.output
    assert any(f"as kubelets rejected pods: {node_name}" in line for line in failed), result.output


def test_shadow_next_to_kube_scheduler(cluster: ControlPlane, record_property: Callable[[str, object], None]) -> None:
    """With kube-scheduler's own plugins, each of its nodes is among the best by our scores, or nearly."""
    count, file = ROOM // 2, cluster.folder / "shadow.yaml"
    profile = {"schedulerName": "default-scheduler"}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**document, "profiles": [profile]}))
    with KubeScheduler(cluster, [profile], verbosity=2):
        scheduler = RunningScheduler(cluster, options=("--config", str(file), "--shadow"))
        try:
            scheduler.process.wait_until(lambda: scheduler.leads, "it is in shadow", 150)
            for number in range(count):
                cluster.api.create(pending(f"shadow-{number}", scheduler="default-scheduler"))
            wait_until(lambda: all_bound(cluster, "shadow", count), "kube-scheduler binds all", PATIENCE)

            def compared() -> dict[str, object]:
                report = requests.get(f"{scheduler.url}/shadow", timeout=60).json()
                return report if report["compared"] + report["missed"] == count else {}

            report = wait_until(compared, "all pods are compared")
            record_property("figures", {key: value for key, value in report.items() if key != "newest"})
            assert report["compared"] > report["missed"]
            assert report["infeasible"] == 0
            assert report["regret"]["mean"] < 1
        finally:
            scheduler.process.terminate()
            cluster.api.delete(PODS)
