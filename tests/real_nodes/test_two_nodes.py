"""Tests of every change on real kubelets: measured use, a kill for lack of memory, a move, and a lost node.

Processes and accounts are those of a cluster. Only the rebalancer's watcher is made up, as it needs a day of use.
"""

import time
from collections.abc import Callable, Iterator

import pytest
import requests
from control_plane.extender import Extender
from control_plane.landings import CONFIGURATION
from control_plane.moving import RebalancerProcess, ledger, ready
from real_nodes.cluster import RealCluster
from real_nodes.measured_day import MeasuredDay
from real_nodes.programs import (
    account,
    container,
    deployment,
    grant_shipped_rights,
    load_of_nodes,
    on_node,
    only,
    run_watcher,
)
from real_nodes.recorder import Recorder
from support.servers import Service, wait_until

pytestmark = pytest.mark.nodes
CORES = 0.4
WINDOW_SECONDS = 60
LAG_SECONDS = 40
HUNGRY_MEBIBYTES = 32
POINTS = 1.5
#: Cores that a pod of each Deployment uses, by node: together with its system the first node is hot.
STEADY = {"node-1": (4, 0.072), "node-2": (1, 0.04)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of two nodes."""
    with RealCluster(tmp_path_factory.mktemp("cluster"), [CORES, CORES]) as cluster:
        grant_shipped_rights(cluster)
        yield cluster


@pytest.fixture(scope="module")
def watcher(cluster: RealCluster) -> Iterator[Service]:
    """A watcher that reads the kubelets, and keeps the samples before its shorter window for the longer one."""
    settings = (
        f"watch.windows={WINDOW_SECONDS}s,{2 * WINDOW_SECONDS}s",
        "watch.interval_seconds=5",
        "workloads.interval_seconds=60",
    )
    with run_watcher(cluster, *(word for each in settings for word in ("--set", each))) as service:
        yield service


@pytest.fixture(scope="module")
def load(cluster: RealCluster, watcher: Service) -> Iterator[float]:
    """Pods with a steady load; yield the time since which all of them run."""
    with Extender(cluster, CONFIGURATION, watcher.url, kubeconfig=account(cluster, "extender")) as extender:
        with extender.scheduler(verbosity=2):
            for name, (replicas, cores) in STEADY.items():
                steady = container({"cpu": "50m", "memory": "16Mi"}, BURN=cores)
                with only(cluster, name):
                    cluster.api.create(deployment(f"steady-{name}", replicas, steady))
                    wait_until(lambda app=f"steady-{name}", n=replicas: running(cluster, app) == n, "all pods run", 120)
            yield time.time()


@pytest.fixture(scope="module")
def hungry(cluster: RealCluster, load: float) -> None:
    """A Deployment whose container is killed a second after each start; its restarts come after the measurement."""
    killed = container({"memory": "16Mi"}, {"memory": f"{HUNGRY_MEBIBYTES}Mi"}, MEMORY=2 * HUNGRY_MEBIBYTES, AFTER=1)
    cluster.api.create(deployment("hungry", 1, killed, **on_node("node-1")))


def running(cluster: RealCluster, app: str) -> int:
    """Return the number of Ready pods of a Deployment."""
    return sum(name.startswith(f"{app}-") for name in ready(cluster))


def loads_of(watcher: Service) -> tuple[dict[str, float], float, float]:
    """Return the load of each node in the shorter window, percent, and the window's begin and end, Unix seconds."""
    return load_of_nodes(watcher, window=f"{WINDOW_SECONDS}s")


def test_kubelets_give_what_the_control_groups_count(
    recorder: Recorder, watcher: Service, load: float, record_property: Callable[[str, object], None]
) -> None:
    """Over a minute of steady load the CPU of each node is that of its counters within 1.5 points of its capacity."""

    def measured() -> list[tuple[dict[str, float], float, float]]:
        loads, begin, end = loads_of(watcher)
        return [(loads, begin, end)] if len(loads) == len(STEADY) and begin > load + LAG_SECONDS else []

    loads, begin, end = wait_until(
        measured, "a window under steady load is measured", WINDOW_SECONDS + LAG_SECONDS + 60
    )[0]
    wait_until(lambda: time.time() > end + 1, "it is recorded")
    counted = {name: 100 * recorder.sampled_cores(name, watcher.store, begin, end) / CORES for name in loads}
    lines = (f"{name} {loads[name]:.1f} % by its kubelet, {counted[name]:.1f} % by its counters" for name in loads)
    record_property("figures", f"over {end - begin:.0f} s: " + "; ".join(lines))
    assert loads == pytest.approx(counted, abs=POINTS)


@pytest.mark.usefixtures("hungry")
def test_a_pod_moves_to_the_planned_node(
    cluster: RealCluster, recorder: Recorder, record_property: Callable[[str, object], None]
) -> None:
    """The rebalancer moves a pod from the hot node; its replacement is Ready on the planned node."""
    with MeasuredDay(cluster, recorder) as day:
        loads = day.loads()
        rebalancer = RebalancerProcess(cluster, day.url, "act", moves_per_hour=1, lease_seconds=30)
        try:
            rebalancer.process.wait_until(lambda: any(each.is_made for each in ledger(cluster)), "a pod moves", 180)
            wait_until(lambda: ledger(cluster)[0].landed_on, "its replacement has a node", 60)
            number = STEADY["node-1"][0]
            wait_until(lambda: running(cluster, "steady-node-1") == number, "its replacement is Ready", 60)
        finally:
            rebalancer.process.kill()
    (move,) = ledger(cluster)
    record_property("figures", f"moved {move.name} from {move.source} ({loads[move.source]:.0f} %) to {move.landed_on}")
    assert (move.source, move.target, move.landed_on) == ("node-1", "node-2", "node-2")


def test_a_lost_node_is_no_longer_measured(cluster: RealCluster, watcher: Service) -> None:
    """A node without power is left out once its window has no measurement, and is back with its power."""
    node = cluster.nodes["node-2"]
    node.kill()
    path = f"/api/v1/nodes/{node.name}"

    def taints() -> set[str]:
        return {each["key"] for each in cluster.api.get(path)["spec"].get("taints", ())}

    wait_until(lambda: "node.kubernetes.io/unreachable" in taints(), "it counts as lost", 60)
    wait_until(lambda: loads_of(watcher)[0].keys() == {"node-1"}, "it is not measured", 120)
    node.start()
    node.kubelet.wait_until(node.is_ready, f"{node.name} is Ready")
    wait_until(lambda: loads_of(watcher)[0].keys() == cluster.nodes.keys(), "it is measured", 120)


@pytest.mark.usefixtures("hungry")
def test_a_kill_for_lack_of_memory_is_seen(watcher: Service) -> None:
    """A container that the kernel kills at its limit is recommended 100 MiB more than that, with all samples below."""

    def recommended() -> float:
        answer = watcher.get("/workloads/default/Deployment/hungry")
        if answer.status_code != requests.codes.ok:
            return 0
        (found,) = answer.json()["containers"]
        return float(found["recommended"]["memory_bytes"] or 0)

    wait_until(lambda: recommended() >= (HUNGRY_MEBIBYTES + 100) << 20, "the kill is known", 120)
