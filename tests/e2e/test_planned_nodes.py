"""Replacements of moved pods land on the planned node: kube-scheduler, our extender and ``trimaran rebalance``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from control_plane.extender import Extender
from control_plane.landings import CONFIGURATION, MOST, LandingCluster, MoveShares, landing_cluster
from control_plane.moving import PODS, RebalancerProcess, ledger, noted
from control_plane.relay import Relay
from control_plane.scheduler import Scheduler

from trimaran.rebalancer.moves import MoveState

pytestmark = pytest.mark.e2e

HOT, COLD, WORKLOADS = 6, 54, 30
LEAST_SHARE = 0.95
_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@dataclass
class Parts:
    """Running processes.

    Attributes:
        landing: the cluster.
        scheduler: kube-scheduler.
        relay: the API server as the rebalancer sees it.
        rebalancer: the rebalancer, in mode act.
    """

    landing: LandingCluster
    scheduler: Scheduler
    relay: Relay
    rebalancer: RebalancerProcess


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """A cluster with six full nodes and many empty ones, and a rebalancer."""
    folder = tmp_path_factory.mktemp("landings")
    with (
        landing_cluster(folder, HOT, COLD, WORKLOADS) as landing,
        landing.scheduler() as scheduler,
        Relay(landing.cluster) as relay,
    ):
        rebalancer = RebalancerProcess(landing.cluster, landing.watcher.url, "act", server=relay.url, **MOST)
        try:
            yield Parts(landing, scheduler, relay, rebalancer)
        finally:
            rebalancer.process.kill()


def check(shares: MoveShares, record_property: Callable[[str, object], None], case: str) -> None:
    """Print the shares; fail if a target was not offered, or too few of the moves landed."""
    record_property("figures", f"planned nodes, {HOT + COLD} nodes, {case}: {shares}")
    assert shares.offered == shares.moves  # below 100 nodes kube-scheduler offers all
    assert shares.landed >= LEAST_SHARE * shares.offered, shares.astray


def test_replacements_land_on_the_planned_node(parts: Parts, record_property: Callable[[str, object], None]) -> None:
    """At least 95 % of the moves land; the rebalancer itself sees where."""
    before = parts.landing.heat()
    moves = parts.landing.wait_for_moves(parts.rebalancer, before)
    check(parts.landing.shares(moves, before), record_property, "plain")
    assert sum(each.landed_on == each.target for each in moves) >= LEAST_SHARE * len(moves)
    assert not noted(parts.landing.cluster)


def test_replacements_land_while_the_workload_grows(
    parts: Parts, record_property: Callable[[str, object], None]
) -> None:
    """Each moved pod's Deployment gets one more replica at the very moment of the eviction, as from an HPA."""
    grown: list[str] = []

    def grow(method: str, path: str, *, answered: bool) -> None:
        if (method, answered) == ("POST", False) and path.endswith("/eviction"):
            name = path.split("/pods/")[1].rsplit("-", 2)[0]
            replicas = parts.landing.cluster.api.get(f"{_DEPLOYMENTS}/{name}")["spec"]["replicas"]
            parts.landing.cluster.api.patch(f"{_DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas + 1}})
            grown.append(name)

    parts.relay.on_request = grow
    before = parts.landing.heat()
    try:
        moves = parts.landing.wait_for_moves(parts.rebalancer, before)
    finally:
        parts.relay.on_request = lambda _method, _path, *, answered: None
    assert len(grown) >= len(moves)
    check(parts.landing.shares(moves, before), record_property, "one more replica at each eviction")


def test_replacements_land_after_a_restart_of_the_extender(
    parts: Parts, record_property: Callable[[str, object], None]
) -> None:
    """The extender is killed between the evictions and the placement, while the evicted pods still terminate.

    The restarted one reads the notes on the terminating pods; another replica, which was not restarted, prefers the
    same nodes.
    """
    landing = parts.landing
    with Extender(landing.cluster, CONFIGURATION, landing.watcher.url) as other:
        parts.scheduler.process.pause()
        landing.kwok.process.pause()
        before = landing.heat()
        try:
            landing.wait_for_moves(parts.rebalancer, before, MoveState.EVICTED, HOT)
            landing.extender.restart()
            pending = [each for each in landing.cluster.api.items(PODS) if "nodeName" not in each["spec"]]
            targets = {each.workload: each.target for each in ledger(landing.cluster) if each.is_open}
            names = [each["metadata"]["name"] for each in landing.cluster.api.items("/api/v1/nodes")]
            preferred = {each["metadata"]["labels"]["app"]: best(other.scores(each, names)) for each in pending}
        finally:
            parts.scheduler.process.resume()
            landing.kwok.process.resume()
        moves = parts.landing.wait_for_moves(parts.rebalancer, before)
    assert len(preferred) >= HOT
    assert preferred.items() <= targets.items()
    check(landing.shares(moves, before), record_property, "extender restarted before the placement")


def best(scores: dict[str, int]) -> str:
    """Return the name of the node with the highest score."""
    return max(scores, key=lambda name: scores[name])
