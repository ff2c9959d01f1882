"""Tests of our programs with real kubelets: refused and evicted pods, preemption, gangs, taints, budgets, resizes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from control_plane.moving import PODS, RebalancerProcess, budget, ledger
from control_plane.node_writer import Writer, tainted
from control_plane.plugin_oracle import define
from e2e.test_gangs import GROUP, KIND, PLUGINS
from e2e.test_request_patches import NOW, apply
from real_nodes.cluster import RealCluster
from real_nodes.measured_day import MeasuredDay
from real_nodes.programs import (
    container,
    deployment,
    growing,
    on_node,
    pods_of,
    remove_workloads,
    run_watcher,
    running,
    single,
    small_cluster,
)
from real_nodes.recorder import Recorder
from support.servers import run_trimaran, wait_until
from support.standalone import NAME, RunningScheduler

from runtime.kubernetes.k8s_fields import unix_seconds

pytestmark = pytest.mark.nodes
CORES = 0.45
UNREACHABLE = "node.kubernetes.io/unreachable"
GRACE_SECONDS = 6
SHORT_OF_MEMORY = "node.kubernetes.io/memory-pressure"
Figures = Callable[[str, object], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of two nodes with a stock kube-scheduler and our own."""
    with small_cluster(tmp_path_factory.mktemp("cluster"), CORES, "standalone-scheduler") as cluster:
        cluster.api.create({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
        })  # fmt: skip
        yield cluster


@pytest.fixture(scope="module")
def scheduler(cluster: RealCluster) -> Iterator[RunningScheduler]:
    """A running ``trimaran scheduler``, which knows gangs."""
    define(cluster.api, [KIND])  # a kind that is not served yet is looked for again after a minute
    file = cluster.folder / "standalone.yaml"
    version = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**version, "profiles": [{"schedulerName": NAME, "plugins": PLUGINS}]}))
    options = ("--config", str(file), "--set", "scheduler.preempt_shared=true")
    scheduler = RunningScheduler(cluster, options=options)
    try:
        scheduler.process.wait_until(lambda: scheduler.leads, "it leads", 150)
        yield scheduler
    finally:
        scheduler.process.terminate()


@pytest.fixture(autouse=True)
def empty(cluster: RealCluster) -> Iterator[None]:
    """Remove all workloads of a test."""
    yield
    remove_workloads(cluster)


def status(cluster: RealCluster, name: str) -> dict[str, Any]:
    """Return the status of a pod."""
    found: dict[str, Any] = cluster.api.get(f"{PODS}/{name}")["status"]
    return found


def taints(cluster: RealCluster, node: str) -> set[str]:
    """Return the keys of a node's taints."""
    return {each["key"] for each in cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", ())}


def in_one_list(cluster: RealCluster) -> dict[str, dict[str, Any]]:
    """Return all pods as they were at one time, by name."""
    return {each["metadata"]["name"]: each for each in cluster.api.items(PODS)}


def wait_for(cluster: RealCluster, name: str, phase: str, seconds: float = 60) -> dict[str, Any]:
    """Wait for the phase of a pod; return its status."""
    wait_until(lambda: status(cluster, name).get("phase") == phase, f"{name} is {phase}", seconds)
    return status(cluster, name)


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(("resource", "amount"), [("cpu", "500m"), ("memory", "1Gi")])
def test_a_pod_that_the_kubelet_refuses_takes_no_room(cluster: RealCluster, resource: str, amount: str) -> None:
    """A bound pod beyond the capacity fails as OutOfcpu or OutOfmemory, and our scheduler no longer counts it."""
    cluster.api.create(single("refused", container({resource: amount}), nodeName="node-1"))
    assert wait_for(cluster, "refused", "Failed")["reason"] == f"OutOf{resource}"
    room = container({"cpu": "390m", "memory": "380Mi"})
    cluster.api.create(single("fits", room, schedulerName=NAME, **on_node("node-1")))
    wait_for(cluster, "fits", "Running")


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("how", ["grace period", "preStop"])
def test_preemption_waits_for_the_victim(cluster: RealCluster, how: str, record_property: Figures) -> None:
    """Our scheduler nominates the node, and binds the pod once the victim has ended: the kubelet never refuses it."""
    victim = container({"cpu": "300m"}, TERM=GRACE_SECONDS if how == "grace period" else 0)
    if how == "preStop":
        victim["lifecycle"] = {"preStop": {"sleep": {"seconds": GRACE_SECONDS}}}
    place = {"schedulerName": NAME, **on_node("node-1")}
    cluster.api.create(single("victim", victim, **place, terminationGracePeriodSeconds=30))
    wait_for(cluster, "victim", "Running")
    cluster.api.create(single("urgent", container({"cpu": "300m"}), priorityClassName="high", **place))
    wait_until(lambda: status(cluster, "urgent").get("nominatedNodeName") == "node-1", "a node is nominated")
    began = time.monotonic()
    wait_for(cluster, "urgent", "Running", 90)
    waited = time.monotonic() - began
    record_property("figures", f"{how} of {GRACE_SECONDS} s: it ran {waited:.1f} s after its nomination")
    assert waited > GRACE_SECONDS - 2
    victims = [each for each in cluster.api.items(PODS) if each["metadata"]["name"] == "victim"]
    assert {each["status"]["phase"] for each in victims} <= {"Succeeded", "Failed"}


@pytest.mark.usefixtures("scheduler")
def test_a_gang_runs_as_a_whole(cluster: RealCluster, record_property: Figures) -> None:
    """Both pods of a gang wait while one node has room, also until the pod before them has ended; then both run."""
    occupant = container({"cpu": "300m"}, TERM=GRACE_SECONDS)
    place = {"schedulerName": NAME, **on_node("node-1")}
    cluster.api.create(single("occupant", occupant, **place, terminationGracePeriodSeconds=30))
    wait_for(cluster, "occupant", "Running")
    gang = {"metadata": {"name": "pair", "namespace": "default"}, "spec": {"minMember": 2}}
    cluster.api.create({"apiVersion": f"{GROUP}/v1alpha1", "kind": "PodGroup", **gang})
    for name in ("pair-1", "pair-2"):
        member = single(name, container({"cpu": "300m"}), schedulerName=NAME)
        member["metadata"]["labels"] = {f"{GROUP}/pod-group": "pair"}
        cluster.api.create(member)

    def reasons() -> set[str]:
        conditions = (status(cluster, name).get("conditions", ()) for name in ("pair-1", "pair-2"))
        return {each.get("reason", "") for of_pod in conditions for each in of_pod}

    wait_until(lambda: reasons() == {"Unschedulable"}, "both pods have no node")
    cluster.api.request("DELETE", f"{PODS}/occupant")
    began = time.monotonic()
    while "occupant" in (pods := in_one_list(cluster)) and pods["occupant"]["status"]["phase"] == "Running":
        assert not any(pods[name]["spec"].get("nodeName") for name in ("pair-1", "pair-2"))
        time.sleep(0.1)
    waited = time.monotonic() - began
    statuses = [wait_for(cluster, name, "Running") for name in ("pair-1", "pair-2")]
    record_property("figures", f"no pod of the gang had a node for {waited:.1f} s, until the pod before them had ended")
    assert waited > GRACE_SECONDS - 2
    pods = in_one_list(cluster)
    assert {pods[name]["spec"]["nodeName"] for name in ("pair-1", "pair-2")} == cluster.nodes.keys()
    bound = [
        unix_seconds(each["lastTransitionTime"], "") for of_pod in statuses for each in of_pod["conditions"]
        if each["type"] == "PodScheduled"
    ]  # fmt: skip
    assert max(bound) - min(bound) <= 2


@pytest.mark.usefixtures("scheduler")
def test_pods_avoid_a_node_that_is_short_of_memory(cluster: RealCluster, record_property: Figures) -> None:
    """No pod gets a node whose kubelet evicts one until it has memory again; the evicted pod then takes no room."""
    node = cluster.nodes["node-1"]
    cluster.api.create(growing(node))
    wait_until(lambda: SHORT_OF_MEMORY in taints(cluster, node.name), "the node is tainted", 180)
    wait_until(lambda: status(cluster, "growing")["phase"] in {"Failed", "Succeeded"}, "the pod is evicted")
    assert "TerminationByKubelet" in {each.get("reason") for each in status(cluster, "growing")["conditions"]}
    room = container({"cpu": "390m", "memory": "380Mi"})
    cluster.api.create(single("waits", room, schedulerName=NAME, **on_node(node.name)))
    cluster.api.create(single("elsewhere", container({"cpu": "50m"}), schedulerName=NAME))
    (condition,) = wait_until(lambda: status(cluster, "waits").get("conditions"), "it has no node")
    record_property("figures", condition["message"])
    assert "untolerated taint" in condition["message"]
    wait_for(cluster, "elsewhere", "Running")
    assert in_one_list(cluster)["elsewhere"]["spec"]["nodeName"] == "node-2"
    wait_until(lambda: in_one_list(cluster)["waits"]["spec"].get("nodeName"), "it gets the node", 90)
    assert SHORT_OF_MEMORY not in taints(cluster, node.name)
    wait_for(cluster, "waits", "Running")


def test_our_taint_stays_next_to_those_of_others(cluster: RealCluster) -> None:
    """The taints of a lost node come and go next to ours, which goes when the node has cooled."""
    node = cluster.nodes["node-2"]
    settings = ("--set", "watch.windows=60s", "--set", "watch.interval_seconds=5")
    token = cluster.service_account("trimaran", "trimaran-nodes").token
    cluster.api.create(deployment("busy", 1, container(BURN=CORES), **on_node(node.name)))
    with run_watcher(cluster, *settings) as watcher:
        writer = Writer(cluster, watcher.url, token, {"max_hot_fraction": 1}, windows="60s").wait()
        try:
            wait_until(lambda: tainted(cluster) == {node.name}, "the hot node is tainted", 120)
            node.kubelet.pause()
            wait_until(lambda: UNREACHABLE in taints(cluster, node.name), "it counts as lost", 60)
            assert "trimaran.io/hot" in taints(cluster, node.name)
            node.kubelet.resume()
            wait_until(lambda: UNREACHABLE not in taints(cluster, node.name), "it is back", 60)
            cluster.api.delete("/apis/apps/v1/namespaces/default/deployments/busy")
            wait_until(lambda: not tainted(cluster), "it has cooled", 180)
        finally:
            node.kubelet.resume()
            writer.process.terminate()


def test_a_budget_of_zero_keeps_all_pods(cluster: RealCluster) -> None:
    """On a hot node whose pods' budget allows no eviction, the rebalancer evicts none."""
    busy = container({"cpu": "50m"}, BURN=0.1)
    cluster.api.create(deployment("kept", 4, busy, **on_node("node-1")), budget("kept", 4))

    wait_until(lambda: len(running(cluster, "kept")) == 4, "all pods run", 90)
    before = running(cluster, "kept")
    with Recorder(cluster) as recorder, MeasuredDay(cluster, recorder) as day:
        wait_until(lambda: day.loads()["node-1"] > 85, "the node is hot", 60)
        rebalancer = RebalancerProcess(cluster, day.url, "act", lease_seconds=30)
        try:
            state = rebalancer.status
            rebalancer.process.wait_until(lambda: state().get("searches", 0) >= 3, "it has searched", 120)
            assert state()["planned"] == []
            pod = pods_of(cluster, "kept")[0]["metadata"]["name"]
            explained = run_trimaran("rebalance", "explain", f"default/{pod}", "--url", rebalancer.url).stdout
            assert "its disruption budget allows no eviction now" in explained
        finally:
            rebalancer.process.kill()
    assert not any(each.is_made for each in ledger(cluster))
    assert running(cluster, "kept") == before


def test_a_resize_reaches_the_control_group(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A patch of ``--patch --in-place`` changes the quota of the running container, which is not restarted."""
    limits = {"cpu": "100m", "memory": "64Mi"}
    cluster.api.create(deployment("web", 1, container(limits, limits, BURN=0.3), **on_node("node-1")))
    wait_until(lambda: [each["status"].get("phase") for each in pods_of(cluster, "web")] == ["Running"], "it runs", 60)
    (before,) = pods_of(cluster, "web")
    group = cluster.nodes["node-1"].group

    def quota() -> float:
        return group.limit(group.pods()[before["metadata"]["uid"]])

    assert quota() == pytest.approx(0.1)
    amounts = {"cpu_cores": 0.1, "memory_bytes": 2.0**26}
    advice = {"cpu_cores": 0.2, "memory_bytes": 2.0**26}
    times = {"first_seen": NOW - 864000, "last_seen": NOW, "pods": 1}
    found = {
        "name": "worker", "role": "container", "requests": amounts, "limits": amounts, "recommended_limits": advice,
        "use": amounts, "wasted": amounts, "cpu_cores_percentiles": {"90": 0.1}, "highest_memory_bytes": 2.0**25,
        "recommended": advice, "verdict": {"cpu_cores": "raise", "memory_bytes": "keep"},
        "reason": dict.fromkeys(amounts), **times,
    }  # fmt: skip
    workload = {"namespace": "default", "kind": "Deployment", "name": "web", **times, "containers": [found]}
    options = ("--in-place", "--kube-config", str(cluster.kubeconfig()))
    results = apply(cluster, tmp_path_factory.mktemp("patches"), workload, options=options)
    assert [each.returncode for each in results] == [0], results
    wait_until(lambda: quota() == pytest.approx(0.2), "the quota has changed", 60)
    (after,) = pods_of(cluster, "web")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
