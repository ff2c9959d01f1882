"""Moves from a node at its quota, where the use of pods is a lower bound of what they need."""

import time
from collections.abc import Callable, Iterator

import pytest
from control_plane.extender import Extender
from control_plane.landings import CONFIGURATION
from control_plane.moving import RebalancerProcess, ledger
from real_nodes.cluster import RealCluster
from real_nodes.measured_day import MeasuredDay
from real_nodes.programs import account, container, deployment, grant_shipped_rights, only, run_watcher, running
from real_nodes.recorder import Recorder
from support.servers import wait_until

pytestmark = pytest.mark.nodes
CORES = 0.45
APP, PODS, NEED = "needy", 4, 0.15
TARGET_PERCENT, POINTS = 70, 1.5
SETTLE_SECONDS = 40


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of three nodes."""
    with RealCluster(tmp_path_factory.mktemp("cluster"), [CORES] * 3) as cluster:
        grant_shipped_rights(cluster)
        yield cluster


def test_no_target_is_brought_above_its_bound(
    cluster: RealCluster, record_property: Callable[[str, object], None]
) -> None:
    """Four pods that need a third of a node each move from one at its quota; no target ends above its bound."""
    settings = ("--set", "watch.windows=60s", "--set", "watch.interval_seconds=5")
    with (
        run_watcher(cluster, *settings) as watcher,
        Extender(cluster, CONFIGURATION, watcher.url, kubeconfig=account(cluster, "extender")) as extender,
        extender.scheduler(verbosity=2), Recorder(cluster) as recorder, MeasuredDay(cluster, recorder) as day,
    ):  # fmt: skip
        with only(cluster, "node-1"):
            cluster.api.create(deployment(APP, PODS, container({"cpu": "50m"}, BURN=NEED)))
            wait_until(lambda: len(running(cluster, APP)) == PODS, "all pods run", 120)
        begin = time.time()
        wait_until(lambda: time.time() > begin + SETTLE_SECONDS, "the load is steady")
        full, use = day.loads()["node-1"], [cores for pod, cores in day.pods() if pod.name.startswith(APP)]
        record_property("figures", f"node-1 at {full:.0f} %, its pods use {100 * sum(use) / PODS / CORES:.0f} % each")
        assert full > 95
        rebalancer = RebalancerProcess(cluster, day.url, "act", moves_per_hour=2, lease_seconds=30)
        try:
            planned: dict[str, list[float]] = {}
            while len(landed := [each for each in ledger(cluster) if each.landed_on]) < 2:
                for each in rebalancer.status().get("planned", ()):
                    planned[each["name"]] = each["target_load"]["after"]
                if time.time() > begin + 240:
                    break
                time.sleep(0.2)
        finally:
            rebalancer.process.kill()
        wait_until(lambda: len(running(cluster, APP)) == PODS, "all pods run", 60)
        moved = time.time()
        wait_until(lambda: time.time() > moved + SETTLE_SECONDS, "the load is steady")
        loads = day.loads()
        for move in landed:
            after = planned.get(f"{move.namespace}/{move.name}", [float("nan")])[0]
            record_property(
                "figures", f"{move.source} to {move.target}: planned {after:.0f} %, measured {loads[move.target]:.0f} %"
            )
        record_property("figures", f"node-1 afterwards at {loads['node-1']:.0f} %")
        assert landed
        assert all(loads[move.target] <= TARGET_PERCENT + POINTS for move in landed)
