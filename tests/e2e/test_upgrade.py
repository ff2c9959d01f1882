"""An upgrade and the way back, in the middle of a move: processes of the earlier version and of this one.

Both run with the rights of today's manifests. tests/project/test_earlier_files.py reads files of the earlier version.
"""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from control_plane import node_writer
from control_plane.cluster import ControlPlane
from control_plane.earlier import Earlier
from control_plane.manifests import node
from control_plane.moving import APPS, HOT, LEDGER, PodUse, RebalancerProcess, hot_cluster, ledger, noted, ready
from control_plane.processes import Process
from control_plane.relay import Relay
from control_plane.rights import grant_rights
from support.servers import wait_until

from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.ledger import Brake, Ledger

pytestmark = pytest.mark.e2e

_NEWEST = "trimaran_nodes_metrics_timestamp_seconds"
_MOST = 3  # moves an hour, by the settings of both versions


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """Return the earlier version."""
    return Earlier(tmp_path_factory.mktemp("earlier"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a cluster with a hot node."""
    with hot_cluster(tmp_path_factory.mktemp("upgrade")) as cluster:
        yield cluster


class CoolNodes(PodUse):
    """A made-up watcher of nodes with little load."""

    def loads(self) -> dict[str, float]:
        """Return the CPU load of each node, percent."""
        return dict.fromkeys(super().loads(), 10.0)


class Evictions:
    """Evictions that the API server has accepted through a relay, by pod; at one of them a rebalancer is killed."""

    def __init__(self, relay: Relay) -> None:
        self.made: Counter[str] = Counter()
        self._victim: RebalancerProcess | None = None
        self._killed = threading.Event()
        relay.on_request = self._on_request

    def kill_after_the_next(self, rebalancer: RebalancerProcess) -> None:
        """Kill a rebalancer when its next eviction was made and not yet answered; wait for it."""
        self._killed.clear()
        self._victim = rebalancer
        wait_until(self._killed.is_set, "an eviction is requested", 120)

    def _on_request(self, method: str, path: str, *, answered: bool) -> None:
        if answered and method == "POST" and path.endswith("/eviction"):
            self.made[path] += 1
            if self._victim is not None:
                victim, self._victim = self._victim, None
                victim.process.kill()
                self._killed.set()


def test_a_taint_stands_over_an_upgrade_and_a_rollback(cluster: ControlPlane, earlier: Earlier) -> None:
    """The next writer leaves the taint of the version before on the hot node, and the last one removes it."""
    grant_rights(cluster, node_writer.MANIFEST)
    for name in ("node-8", "node-9"):  # of three nodes none may be hot, as at most a quarter is tainted
        cluster.api.create(node(name, "8", "32Gi"))
        cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    token = cluster.service_account("trimaran", "trimaran-nodes").token

    def taints() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.api.get(f"/api/v1/nodes/{HOT}")["spec"].get("taints", [])
        return found

    with PodUse(cluster) as watcher:
        first = earlier.node_writer(cluster, watcher.url, token).wait()
        set_by_first = wait_until(taints, "the hot node is tainted")
        first.process.terminate()
        for start in (node_writer.Writer, earlier.node_writer):
            writer = start(cluster, watcher.url, token).wait()
            writer.process.wait_until(lambda each=writer: each.metric("trimaran_nodes_writes_here"), "it leads")
            seen = writer.metric(_NEWEST)
            writer.process.wait_until(
                lambda each=writer, at=seen: each.metric(_NEWEST) > at + 1, "it runs a cycle more"
            )
            assert taints() == set_by_first
            writer.process.terminate()
    with CoolNodes(cluster) as watcher:
        writer = node_writer.Writer(cluster, watcher.url, token)
        writer.process.wait_until(lambda: not taints(), "the node has cooled, and today's version removes the taint")
        writer.process.terminate()


def test_a_move_goes_on_over_an_upgrade_and_a_rollback(cluster: ControlPlane, earlier: Earlier) -> None:
    """Each version is killed when it has evicted a pod and has not recorded that; the other one finishes the move.

    No pod is moved twice, and not one more than the settings allow in an hour: each has counted what the other did.
    """
    before = ready(cluster)
    with PodUse(cluster) as watcher, Relay(cluster) as relay:
        evictions = Evictions(relay)
        evictions.kill_after_the_next(earlier.rebalancer(cluster, watcher.url, server=relay.url))
        evictions.kill_after_the_next(RebalancerProcess(cluster, watcher.url, "act", server=relay.url))
        back = earlier.rebalancer(cluster, watcher.url, server=relay.url)
        try:
            back.process.wait_until(back.is_at_rest, "the moves are made", 180)
            wait_until(lambda: len(ready(cluster)) == 2 * len(APPS), "all pods are ready")
            wait_until(lambda: not noted(cluster), "no note is left")
            assert back.status()["brake"] is None
        finally:
            back.process.kill()
    moved = {name for name in before if name not in ready(cluster)}
    assert 2 <= sum(evictions.made.values()) == len(moved) <= _MOST
    made = [move for move in ledger(cluster) if move.is_made]
    assert sorted(move.name for move in made) == sorted(moved)


@pytest.mark.parametrize("reason", BrakeReason)
def test_a_brake_of_this_version_is_read_by_the_earlier_one(earlier: Earlier, reason: BrakeReason) -> None:
    """The earlier version reads each brake, also one for a reason that it does not know, and keeps it."""
    text = Ledger(brake=Brake(reason, "as tested", 1000.0)).to_json()
    code = "import sys; from trimaran.rebalancer.ledger import Ledger; print(Ledger.from_json(sys.argv[1]).to_json())"
    kept = Ledger.from_json(earlier.run("-c", code, text))
    assert kept.brake is not None
    assert (kept.brake.text, kept.brake.at) == ("as tested", 1000.0)
    assert kept.brake.reason is (BrakeReason.LOST if reason is BrakeReason.FAILING else reason)


def test_a_brake_holds_over_a_rollback_and_an_upgrade(cluster: ControlPlane, earlier: Earlier) -> None:
    """Set by a person through one version, it holds all moves of the other, and each version can release it."""
    with PodUse(cluster) as watcher:
        _forget_the_moves(cluster)
        new = RebalancerProcess(cluster, watcher.url, "act")
        _say(cluster, "stop")
        new.process.wait_until(lambda: new.status().get("brake"), "the brake is seen")
        new.process.terminate()
        old = earlier.rebalancer(cluster, watcher.url)
        _assert_that_it_rests(old, cluster)
        old.process.terminate()
        again = RebalancerProcess(cluster, watcher.url, "act")
        try:
            _assert_that_it_rests(again, cluster)
            _say(cluster, "resume")
            again.process.wait_until(lambda: again.status()["brake"] is None, "the brake is released")
        finally:
            again.process.terminate()


def _forget_the_moves(cluster: ControlPlane) -> None:
    """Empty the ledger, so that no cap holds a rebalancer."""
    cluster.api.patch(LEDGER, {"data": {"ledger": Ledger().to_json()}})


def _say(cluster: ControlPlane, command: str) -> None:
    """Set or release the brake as a person does."""
    words = [sys.executable, "-m", "trimaran", "rebalance", command, "--kube-config", str(cluster.kubeconfig())]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def _assert_that_it_rests(rebalancer: RebalancerProcess, cluster: ControlPlane) -> None:
    before = ready(cluster)
    state: dict[str, Any] = rebalancer.process.wait_until(
        lambda: (found := rebalancer.status()).get("leads") and found["searches"] >= 3 and found, "it has searched", 120
    )
    assert state["brake"]["reason"] == BrakeReason.STOPPED
    assert ready(cluster) == before
    assert HOT in before.values()  # so that without the brake there are moves


#: Code for the earlier version: saves the first snapshot of a file again for each five minutes of the past day.
_RECORD_A_DAY = """
import sys, time
from dataclasses import replace
from pathlib import Path
from watcher.store import Store
store = Store(Path(sys.argv[1]))
first = store.load_snapshots(["Fake"], ["15m"])["15m"]
now = int(time.time()) // 300 * 300
for at in range(now - 23 * 3600, now - 600, 300):
    store.save_snapshots({"15m": replace(first, timestamp=at)}, history_window="15m")
store.close()
"""


def test_a_day_of_history_outlives_an_upgrade_and_a_rollback(earlier: Earlier, tmp_path: Path) -> None:
    """Watchers of both versions serve from one file, in turn, all that the earlier one has recorded."""
    store, log = tmp_path / "watcher.sqlite", tmp_path / "watcher.log"
    words = ("-m", "trimaran", "watch", "--provider", "Fake", "--port", "0", "--store", str(store), "--interval", "1")
    today = [sys.executable, *words]
    with Process(earlier.command(*words), log) as watcher:
        wait_until(lambda: requests.get(f"{watcher.url}/watcher", timeout=60).ok, "nodes are served")
    earlier.run("-c", _RECORD_A_DAY, str(store))
    recorded = {}
    for command in (earlier.command(*words), today, earlier.command(*words), today):
        with Process(command, log) as watcher:
            served = requests.get(f"{watcher.url}/history", params={"since": "23h", "step": "5m"}, timeout=60).json()
        (series,) = (each for each in served["series"] if (each["type"], each["operator"]) == ("CPU", "AVG"))
        for name, values in zip(served["nodes"], series["values"], strict=True):
            day = {served["start"] + number * served["step"]: value for number, value in enumerate(values)}
            kept = recorded.setdefault(name, day)
            known = [at for at, value in kept.items() if value is not None and at in day]
            assert len(known) > 250
            assert [day[at] for at in known[:250]] == [kept[at] for at in known[:250]]
    assert [path.name for path in tmp_path.glob("watcher.sqlite.*")] == ["watcher.sqlite.lock"]  # none is set aside
