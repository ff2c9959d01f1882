"""Tests that each source measures what the kernel counts: steady load, restarts of all parts, and what is absent."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import yaml
from control_plane.scheduler import Scheduler
from control_plane.usage import MetricsServer
from real_nodes import cgroups
from real_nodes.cluster import RealCluster
from real_nodes.node import KUBELET_PORT
from real_nodes.programs import (
    account,
    container,
    deployment,
    grant_shipped_rights,
    load_of_nodes,
    on_node,
    pods_of,
    run_watcher,
)
from real_nodes.recorder import Recorder
from support.servers import Service, start_prometheus, wait_until

from watcher.settings import KubeletSettings, ProviderSettings, Settings
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.pods import Capacity, RunningPods
from watcher.windows.container_use import ContainerUse

pytestmark = pytest.mark.nodes
CORES = 0.45
WINDOW_SECONDS = 300
SHORT_SECONDS = 60
LAG_SECONDS = 45
POINTS = 1.5
#: Replicas of each Deployment, and the cores that a pod uses, by its node. The last one reaches its own limit.
STEADY = {"node-1": (2, 0.1), "node-2": (2, 0.05)}
LIMIT = 0.05
PROCESSORS = os.cpu_count() or 1
Figures = Callable[[str, object], None]


class LastRound:
    """Observer with the use of the last round."""

    def observe(self, use: ContainerUse, _pods: RunningPods, _capacity: Capacity | None = None) -> None:
        self.use = use

    def cores(self) -> dict[str, float]:
        """Return the use of each pod."""
        return dict(zip(self.use.pods, self.use.cpu_cores.tolist(), strict=True))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of two nodes with metrics-server."""
    folder = tmp_path_factory.mktemp("cluster")
    with RealCluster(folder, [CORES, CORES]) as cluster, MetricsServer(cluster, 15):
        grant_shipped_rights(cluster)
        with Scheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=2):
            yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus server that scrapes the kubelets as kube-prometheus does."""
    targets = [
        {"targets": [f"{node.address}:{KUBELET_PORT}"], "labels": {"node": node.name}}
        for node in cluster.nodes.values()
    ]
    job = {
        "job_name": "cadvisor", "scheme": "https", "metrics_path": "/metrics/cadvisor", "honor_labels": True,
        "honor_timestamps": False, "authorization": {"credentials": cluster.api.token},
        "tls_config": {"ca_file": str(cluster.certificates.certificate)}, "static_configs": targets,
    }  # fmt: skip
    settings = {"global": {"scrape_interval": "15s"}, "scrape_configs": [job]}
    folder = tmp_path_factory.mktemp("prometheus")
    with start_prometheus(folder, yaml.safe_dump(settings), server="prometheus-3") as url:
        yield url


@pytest.fixture(scope="module")
def watchers(cluster: RealCluster, prometheus: str) -> Iterator[dict[str, Service]]:
    """A watcher of each source."""
    windows = ("--set", f"watch.windows={WINDOW_SECONDS}s,{SHORT_SECONDS}s", "--set", "watch.interval_seconds=15")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(run_watcher(cluster, *windows, *more, provider=name)) for name, more in (
                ("Kubelet", ()), ("KubernetesMetricsServer", ()), ("Prometheus", ("--address", prometheus)),
            )
        }  # fmt: skip


@pytest.fixture(scope="module")
def load(cluster: RealCluster, watchers: dict[str, Service], recorder: Recorder) -> float:
    """Pods with a steady load, and one at its own limit; the time since which all of them are recorded."""
    for name, (replicas, cores) in STEADY.items():
        steady = container({"cpu": "10m", "memory": "16Mi"}, BURN=cores, MEMORY=20, CHANGE=5)
        cluster.api.create(deployment(f"steady-{name}", replicas, steady, **on_node(name)))
    limited = container({"cpu": "10m"}, {"cpu": f"{round(1000 * LIMIT)}m"}, BURN=4 * LIMIT)
    cluster.api.create(deployment("limited", 1, limited, **on_node("node-2")))
    names = (*(f"steady-{name}" for name in STEADY), "limited")

    def running() -> int:
        phases = [each["status"].get("phase") for name in names for each in pods_of(cluster, name)]
        return phases.count("Running")

    number = sum(replicas for replicas, _ in STEADY.values()) + 1
    wait_until(lambda: running() == number, "all pods run", 120)
    wait_until(lambda: len(recorder.pods()) >= number, "all pods are recorded")
    return time.time()


def measured(service: Service, since: float, seconds: int) -> tuple[dict[str, float], float, float]:
    """Wait for a window that begins after some time; return the loads of all nodes, and its begin and end."""

    def found() -> list[tuple[dict[str, float], float, float]]:
        loads, begin, end = load_of_nodes(service, window=f"{seconds}s")
        return [(loads, begin, end)] if loads.keys() == STEADY.keys() and begin >= since else []

    return wait_until(found, "a window is measured", seconds + 240)[0]


def compare(recorder: Recorder, loads: dict[str, float], begin: float, end: float, what: str, figures: Figures) -> None:
    """Fail if the load of a node differs by more than 1.5 points of its capacity from its counters."""
    wait_until(lambda: recorder.is_recorded(end), "it is recorded")
    counted = {name: 100 * recorder.cores(name, begin, end) / CORES for name in loads}
    lines = (f"{name} {loads[name]:.1f} %, counted {counted[name]:.1f} %" for name in loads)
    figures("figures", f"{what}, {end - begin:.0f} s: " + "; ".join(lines))
    assert loads == pytest.approx(counted, abs=POINTS)


@pytest.fixture(scope="module")
def rounds(cluster: RealCluster, load: float, prometheus: str) -> dict[str, tuple[LastRound, float, float]]:
    """The use of pods over five minutes by the kubelets and by Prometheus, with its begin and end."""
    access = {"kube_config": account(cluster, "watcher")}
    kubelet = Settings(
        provider=ProviderSettings(name="Kubelet", **access),
        kubelet=KubeletSettings(ca_file=cluster.certificates.certificate),
    )
    wait_until(lambda: time.time() > load + LAG_SECONDS, "the load is steady", 60)
    found = {}
    last = LastRound()
    counters = PodUseRounds(kubelet, [last])
    try:
        counters.run_once()  # counters only grow from one round to the next
        begin = time.time()
        wait_until(lambda: time.time() > begin + WINDOW_SECONDS, "five minutes pass", WINDOW_SECONDS + 10)
        assert counters.run_once(), counters.state.failure
        found["Kubelet"] = last, begin, time.time()
    finally:
        counters.stop()
    last = LastRound()
    provider = ProviderSettings(name="Prometheus", address=prometheus, **access)
    series = PodUseRounds(Settings(provider=provider), [last])
    try:
        assert series.run_once(), series.state.failure
        found["Prometheus"] = last, last.use.timestamp - WINDOW_SECONDS, last.use.timestamp
    finally:
        series.stop()
    return found


@pytest.mark.usefixtures("rounds")
@pytest.mark.parametrize("source", ["Kubelet", "KubernetesMetricsServer", "Prometheus"])
def test_nodes_have_their_use(
    watchers: dict[str, Service], recorder: Recorder, load: float, source: str, record_property: Figures
) -> None:
    """Over five minutes of steady load a node's CPU is within 1.5 points of its capacity of what the kernel counts."""
    loads, begin, end = measured(watchers[source], load + LAG_SECONDS, WINDOW_SECONDS)
    if source == "Prometheus":  # cAdvisor's capacity is that of the machine
        loads = {name: each * PROCESSORS / CORES for name, each in loads.items()}
    compare(recorder, loads, begin, end, source, record_property)


@pytest.mark.parametrize(("source", "part"), [("Kubelet", 0.05), ("Prometheus", 0.1)])
def test_pods_have_their_use(
    cluster: RealCluster, recorder: Recorder, rounds: dict[str, tuple[LastRound, float, float]], source: str,
    part: float, record_property: Figures,
) -> None:  # fmt: skip
    """The CPU of each pod is what the kernel counts, within 5 % by counters and 10 % by Prometheus."""
    last, begin, end = rounds[source]
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.api.items("/api/v1/pods")}
    cores = last.cores()
    counted = {name: recorder.cores(uids[name], begin, end) for name in cores}
    worst = max(abs(cores[name] / counted[name] - 1) for name in cores)
    record_property("figures", f"pods by {source}: at most {worst:.1%} of CPU off")
    assert len(cores) == sum(replicas for replicas, _ in STEADY.values()) + 1
    assert cores == pytest.approx(counted, rel=part)


def test_throttling_is_seen(
    cluster: RealCluster, recorder: Recorder, rounds: dict[str, tuple[LastRound, float, float]],
    record_property: Figures,
) -> None:  # fmt: skip
    """Prometheus has the share of periods in which a container waited at its limit; those without a limit never wait.

    The group of the pod has the same quota, and stops the container in the periods in which its own group does not.
    """
    last, begin, end = rounds["Prometheus"]
    pods = {each["metadata"]["name"]: each for each in cluster.api.items("/api/v1/pods")}
    assert last.use.strain is not None
    for name, throttled in zip(last.use.pods, last.use.strain[0].tolist(), strict=True):
        if name.startswith("limited"):
            container_id = pods[name]["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
            counted = recorder.throttled(container_id, begin, end)
            of_pod = recorder.throttled(pods[name]["metadata"]["uid"], begin, end)
            record_property(
                "figures",
                f"throttled: container {throttled:.0%} by Prometheus, {counted:.0%} counted; pod {of_pod:.0%}",
            )
            assert throttled == pytest.approx(counted, abs=0.05)
            assert counted + of_pod > 0.9
        else:
            assert not throttled > 0.05


@pytest.mark.skipif(cgroups.version() != 1, reason="version 2 has pressure")
def test_pressure_is_absent_on_version_1(watchers: dict[str, Service]) -> None:
    """Kubelets on control groups of version 1 report pressure as zeros; the watcher publishes none."""
    text = watchers["Kubelet"].wait_for("/watcher").text
    assert '"CPU"' in text
    assert "Pressure" not in text


def restart_a_container(cluster: RealCluster, node: str) -> None:
    """Run a container until it has restarted twice, and remove it: each start is itself a load."""
    restarting = container({"cpu": "10m"}, BURN=0.02, EXIT=5)
    cluster.api.create(deployment("restarting", 1, restarting, **on_node(node)))

    def restarts() -> int:
        states = [
            state for pod in pods_of(cluster, "restarting") for state in pod["status"].get("containerStatuses", ())
        ]
        return max((state["restartCount"] for state in states), default=0)

    wait_until(lambda: restarts() >= 2, "the container has restarted twice", 120)
    cluster.api.delete("/apis/apps/v1/namespaces/default/deployments/restarting")
    wait_until(lambda: not pods_of(cluster, "restarting"), "its pod is gone", 90)


@pytest.mark.usefixtures("rounds")
@pytest.mark.parametrize("part", ["container", "kubelet", "containerd", "node", "object"])
def test_a_restart_is_no_load(
    cluster: RealCluster, recorder: Recorder, watchers: dict[str, Service], part: str, record_property: Figures
) -> None:
    """After a restart of a part, or of the node's object, a window of steady load is again what the kernel counts.

    In the windows in between nothing is measured that is above the node's capacity.
    """
    node = cluster.nodes["node-2"]
    match part:
        case "container":
            restart_a_container(cluster, node.name)
        case "kubelet":
            node.kubelet.restart()
        case "containerd":
            node.containerd.restart()
        case "node":
            node.kill()
            node.start()
        case "object":
            cluster.api.delete(f"/api/v1/nodes/{node.name}")
            node.kubelet.restart()
    wait_until(node.is_ready, "the node is Ready", 120)
    ready, highest = time.time(), 0.0

    def steady() -> list[tuple[dict[str, float], float, float]]:
        nonlocal highest
        loads, begin, end = load_of_nodes(watchers["Kubelet"], window=f"{SHORT_SECONDS}s")
        highest = max(highest, loads.get(node.name, 0))
        return [(loads, begin, end)] if loads.keys() == STEADY.keys() and begin >= ready + LAG_SECONDS else []

    loads, begin, end = wait_until(steady, "a window is measured", SHORT_SECONDS + 180)[0]
    compare(recorder, loads, begin, end, f"after a restart: {part}", record_property)
    assert highest <= 100 + POINTS
