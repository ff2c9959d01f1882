"""Tests of what stops the rebalancer on real kubelets: replacements that fail, and nodes that are short of memory."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from control_plane.moving import PODS, RebalancerProcess, ledger
from real_nodes.cluster import RealCluster
from real_nodes.images import WORKER_IMAGE
from real_nodes.measured_day import MeasuredDay
from real_nodes.programs import container, deployment, growing, only, pods_of, remove_workloads, running, small_cluster
from real_nodes.recorder import Recorder
from support.servers import run_trimaran, wait_until

from trimaran.rebalancer.moves import MoveRecord

pytestmark = pytest.mark.nodes
CORES = 0.45
#: With one pod less the node is still at its quota: without a brake a second pod would move.
REPLICAS, NEED = 6, 0.085
QUIET_SECONDS = 10
APP = "needy"
Figures = Callable[[str, object], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of two nodes with a stock kube-scheduler."""
    with small_cluster(tmp_path_factory.mktemp("cluster"), CORES) as cluster:
        yield cluster


@pytest.fixture
def day(cluster: RealCluster, recorder: Recorder) -> Iterator[MeasuredDay]:
    """A made-up watcher of pods that fill the first node; at the end no pod and no ledger is left."""
    with only(cluster, "node-1"):
        cluster.api.create(deployment(APP, REPLICAS, container({"cpu": "50m"}, BURN=NEED)))
        wait_until(lambda: len(running(cluster, APP)) == REPLICAS, "all pods run", 120)
    try:
        with MeasuredDay(cluster, recorder) as day:
            wait_until(lambda: day.loads()["node-1"] > 95, "the node is full", 60)
            yield day
    finally:
        remove_workloads(cluster)
        cluster.api.delete("/api/v1/namespaces/trimaran/configmaps")


@contextmanager
def rebalancing(
    cluster: RealCluster, day: MeasuredDay, rules: Mapping[str, float] | None = None, **settings: Any
) -> Iterator[RebalancerProcess]:
    """Run a rebalancer that could move three pods an hour, with further rules and settings."""
    rebalancer = RebalancerProcess(cluster, day.url, "act", rules=rules, lease_seconds=30, **settings)
    try:
        yield rebalancer
    finally:
        rebalancer.process.terminate()  # it gives back its Lease


def made(cluster: RealCluster) -> list[MoveRecord]:
    """Return the moves that were made."""
    return [each for each in ledger(cluster) if each.is_made]


def brake_of(rebalancer: RebalancerProcess) -> dict[str, Any]:
    """Return the brake; empty unless it is set."""
    return rebalancer.status().get("brake") or {}


def test_a_replacement_that_cannot_start_stops_all_moves(
    cluster: RealCluster, day: MeasuredDay, record_property: Figures
) -> None:
    """The target lacks the image: no second pod leaves the full node until a person resumes, also with the image."""
    node = cluster.nodes["node-2"]
    node.call("ctr", "--namespace", "k8s.io", "images", "remove", WORKER_IMAGE)
    with rebalancing(cluster, day, {"brake.failing": QUIET_SECONDS}) as rebalancer:
        try:
            wait = rebalancer.process.wait_until
            wait(lambda: "no pod moves until it is Ready" in rebalancer.status().get("nothing", ""), "moves wait", 120)
            wait(lambda: brake_of(rebalancer), "the brake is set", 60)
            brake, full = brake_of(rebalancer), day.loads()["node-1"]
            record_property("figures", f"{brake['reason']}: {brake['text']}; node-1 at {full:.0f} %")
            assert brake["reason"] == "failing"
            assert "ErrImageNeverPull" in brake["text"]
            assert len(made(cluster)) == 1
        finally:
            node.call("ctr", "--namespace", "k8s.io", "images", "import", cluster.images)
        wait(lambda: len(running(cluster, APP)) == REPLICAS, "the replacement runs", 90)
        quiet = time.time() + QUIET_SECONDS
        wait_until(lambda: time.time() > quiet, "no pod moves", QUIET_SECONDS + 5)
        assert [each.landed_on for each in made(cluster)] == ["node-2"]
        assert day.loads()["node-1"] > 95
        wait(lambda: "held" in {each["state"] for each in rebalancer.status()["moves"]}, "a move is only planned", 60)
        resumed = run_trimaran("rebalance", "resume", "--kube-config", cluster.kubeconfig())
        assert resumed.returncode == 0, resumed.stderr
        wait(lambda: len(made(cluster)) == 2, "the next pod moves", 90)


def test_replacements_that_restart_set_the_brake(
    cluster: RealCluster, day: MeasuredDay, record_property: Figures
) -> None:
    """A replacement was Ready, and its container is killed twice: one restart is allowed, two set the brake."""
    with rebalancing(cluster, day, {"brake.max_restarts": 1}, moves_per_hour=1) as rebalancer:
        wait = rebalancer.process.wait_until
        wait(lambda: any(each.ready_at for each in made(cluster)), "a replacement is Ready", 180)
        (move,) = made(cluster)
        for number in (1, 2):
            wait(lambda: kill_container(cluster, move.replacement), "the container is killed", 60)
            wait(lambda n=number: made(cluster)[0].restarts >= n, "the restart is seen", 90)
            if number == 1:
                assert not brake_of(rebalancer)
        wait(lambda: brake_of(rebalancer), "the brake is set", 30)
        record_property("figures", str(brake_of(rebalancer)))
        assert brake_of(rebalancer)["reason"] == "restarts"


def test_a_replacement_on_a_hung_node_sets_the_brake(
    cluster: RealCluster, day: MeasuredDay, record_property: Figures
) -> None:
    """The target's kubelet hangs once the pod is evicted: the replacement is never Ready, and no other pod moves."""
    kubelet = cluster.nodes["node-2"].kubelet
    with rebalancing(cluster, day, {"timeout": 2 * QUIET_SECONDS}) as rebalancer:
        try:
            rebalancer.process.wait_until(lambda: ledger(cluster), "a pod moves", 180)
            kubelet.pause()
            rebalancer.process.wait_until(lambda: brake_of(rebalancer), "the brake is set", 90)
            record_property("figures", str(brake_of(rebalancer)))
            assert brake_of(rebalancer)["reason"] == "lost"
            assert [each.landed_on for each in made(cluster)] == ["node-2"]
        finally:
            kubelet.resume()
    wait_until(cluster.nodes["node-2"].is_ready, "the node is back", 90)


def test_no_pod_moves_to_a_node_short_of_memory(
    cluster: RealCluster, day: MeasuredDay, record_property: Figures
) -> None:
    """While the kubelet of the only other node evicts pods, none moves there; once it has memory again, one does."""
    node = cluster.nodes["node-2"]

    def is_short() -> bool:
        conditions = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]["conditions"]
        return ("MemoryPressure", "True") in {(each["type"], each["status"]) for each in conditions}

    with rebalancing(cluster, day) as rebalancer:

        def searches() -> int:
            return int(rebalancer.status().get("searches", 0))

        with only(cluster, "node-1"):
            rebalancer.process.wait_until(searches, "it searches for moves", 120)
            cluster.api.create(growing(node))
            wait_until(is_short, "the node is short of memory", 180)
        phases = {"Failed", "Succeeded"}
        wait_until(lambda: cluster.api.get(f"{PODS}/growing")["status"]["phase"] in phases, "the pod is evicted")
        before, moves, found = wait_until(searches, "it searches for moves"), made(cluster), 0
        while is_short():  # so it was when the moves were read
            assert not moves
            moves, found = made(cluster), searches() - before
            time.sleep(0.2)
        record_property("figures", f"{found} searches while the node was short of memory")
        assert found >= 2
        rebalancer.process.wait_until(lambda: any(each.landed_on for each in made(cluster)), "a pod moves", 90)
        assert {each.landed_on for each in made(cluster)} == {node.name}


def kill_container(cluster: RealCluster, uid: str) -> bool:
    """Kill the processes of a pod's container, and not its sandbox; return whether it ran."""
    pod = next((each for each in pods_of(cluster, APP) if each["metadata"]["uid"] == uid), None)
    statuses = pod["status"].get("containerStatuses", ()) if pod is not None else ()
    if pod is None or not any("running" in each["state"] for each in statuses):
        return False
    group = cluster.nodes[pod["spec"]["nodeName"]].group
    identifier = statuses[0]["containerID"].rpartition("/")[2]
    pids = group.processes(group.pods()[uid], identifier)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return bool(pids)
