"""``trimaran scheduler`` on a real control plane with the rights of its manifest: bindings, statuses, leaders."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.processes import Process
from control_plane.usage import Kwok
from support.servers import free_port, wait_until

pytestmark = pytest.mark.e2e

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/standalone-scheduler.yaml"
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
NAME = "trimaran-standalone"
NODES, PODS, CORES = 100, 500, 4
LEASE_SECONDS = 9  # a busy machine takes seconds to renew it


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of 100 simulated nodes with the scheduler's account."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster, Kwok(cluster) as kubelets:
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
        for manifest in yaml.safe_load_all(MANIFEST.read_text()):
            if manifest["kind"] in RIGHTS:
                cluster.api.create(manifest)
        cluster.api.create(*(kubelets.for_kwok(node(f"node-{number}", str(CORES))) for number in range(NODES)))
        yield cluster


class RunningScheduler:
    """A replica of the scheduler, without a watcher, so that it scores by the fallback policy."""

    def __init__(self, cluster: ControlPlane) -> None:
        token = cluster.service_account("trimaran", "trimaran-standalone").token
        self.port = free_port()
        command = [
            sys.executable, "-m", "trimaran", "scheduler", "--name", NAME, "--port", str(self.port),
            "--kube-config", str(cluster.kubeconfig("standalone", token=token)),
            "--watcher", f"http://127.0.0.1:{free_port()}", "--set", f"scheduler.lease_seconds={LEASE_SECONDS}",
        ]  # fmt: skip
        self.process = Process(command, cluster.folder / f"scheduler-{self.port}.log")

    @property
    def leads(self) -> bool:
        try:
            text = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=5).text
        except requests.RequestException:
            return False
        return "trimaran_scheduler_leads 1.0" in text and "trimaran_scheduler_api_age_seconds 0.0" not in text


def pending(name: str, cpu: str = "500m") -> dict[str, Any]:
    return pod(name, container(requests={"cpu": cpu, "memory": "64Mi"}), schedulerName=NAME)


def pods_of(cluster: ControlPlane, prefix: str) -> list[dict[str, Any]]:
    return [each for each in cluster.api.items("/api/v1/pods") if each["metadata"]["name"].startswith(prefix)]


def all_bound(cluster: ControlPlane, prefix: str, count: int) -> bool:
    found = pods_of(cluster, prefix)
    return len(found) == count and all(each["spec"].get("nodeName") for each in found)


def overcommitted(cluster: ControlPlane) -> list[str]:
    """Return the nodes with more requests than they have; all pods request half a core."""
    counts = Counter(
        each["spec"]["nodeName"] for each in cluster.api.items("/api/v1/pods") if each["spec"].get("nodeName")
    )
    return [name for name, count in counts.items() if count > 2 * CORES]


def scheduled_events(cluster: ControlPlane, prefix: str) -> Counter[str]:
    """Return the number of Scheduled Events by pod: a pod that was bound twice has two."""
    events = cluster.api.items("/apis/events.k8s.io/v1/events")
    return Counter(
        each["regarding"]["name"] for each in events
        if each["reason"] == "Scheduled" and each["regarding"]["name"].startswith(prefix)
    )  # fmt: skip


def test_pods_are_bound_within_the_capacity(cluster: ControlPlane, record_property: Any) -> None:
    """500 pods are bound, none beyond a node's room; one that does not fit gets the condition and an Event."""
    scheduler = RunningScheduler(cluster)
    try:
        scheduler.process.wait_until(lambda: scheduler.leads, "it leads", 150)
        began = time.monotonic()
        cluster.api.create(*(pending(f"web-{number}") for number in range(PODS)), pending("large", "64"))
        scheduler.process.wait_until(lambda: all_bound(cluster, "web", PODS), "all pods are bound", 150)
        record_property("figures", f"{PODS} pods on {NODES} nodes in {time.monotonic() - began:.1f} s, with creation")
        assert overcommitted(cluster) == []
        conditions = lambda: pods_of(cluster, "large")[0]["status"].get("conditions") or []  # noqa: E731
        scheduler.process.wait_until(conditions, "the pod has a condition", 20)
        (condition,) = conditions()
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"].startswith(f"0/{NODES} nodes are available")
        failed = lambda: [  # noqa: E731
            each for each in cluster.api.items("/apis/events.k8s.io/v1/events")
            if each["reason"] == "FailedScheduling" and each["regarding"]["name"] == "large"
        ]  # fmt: skip
        scheduler.process.wait_until(failed, "there is an Event", 20)
        scheduler.process.wait_until(
            lambda: sum(scheduled_events(cluster, "web").values()) == PODS, "each pod has one Event", 30
        )
        assert set(scheduled_events(cluster, "web").values()) == {1}
        assert "403" not in scheduler.process.log.read_text()
    finally:
        scheduler.process.terminate()
        cluster.api.delete("/api/v1/namespaces/default/pods")


def test_nothing_is_bound_twice_or_lost_after_kills_and_pauses(cluster: ControlPlane) -> None:
    """Of two replicas the leader is killed, then the next one is stopped for longer than the Lease, under load."""
    replicas = [RunningScheduler(cluster), RunningScheduler(cluster)]
    started = list(replicas)
    try:
        leader = wait_until(lambda: next((each for each in replicas if each.leads), None), "a replica leads", 150)
        cluster.api.create(*(pending(f"kill-{number}") for number in range(200)))
        leader.process.kill()
        replicas.remove(leader)
        replicas.append(RunningScheduler(cluster))
        started.append(replicas[-1])
        wait_until(lambda: all_bound(cluster, "kill", 200), "the other replica binds the rest", 150)
        leader = wait_until(lambda: next((each for each in replicas if each.leads), None), "a replica leads", 150)
        cluster.api.create(*(pending(f"stop-{number}") for number in range(200)))
        leader.process.pause()
        wait_until(lambda: all_bound(cluster, "stop", 200), "the other replica binds the rest", 150)
        leader.process.resume()
        leader.process.wait_until(
            lambda: "exited with code 5" in leader.process.log.read_text(), "the old leader's worker ends", 60
        )
        assert "the Lease is lost" in leader.process.log.read_text()
        assert overcommitted(cluster) == []
        for prefix in ("kill", "stop"):
            assert not scheduled_events(cluster, prefix) or max(scheduled_events(cluster, prefix).values()) == 1
    finally:
        for each in started:
            if each.process.status is None:
                each.process.resume()
            each.process.kill()
        cluster.api.delete("/api/v1/namespaces/default/pods")
