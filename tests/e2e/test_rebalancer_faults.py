"""Two rebalancers with leader election on a real control plane: the leader is stopped or killed amid a move."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from control_plane.cluster import ControlPlane
from control_plane.moving import APPS, PODS, PodUse, RebalancerProcess, hot_cluster, ledger, noted, ready
from control_plane.relay import Relay
from support.servers import wait_until

from trimaran.rebalancer.moves import MoveState

pytestmark = pytest.mark.e2e

LIMITS = {"moves_per_hour": 3, "lease_seconds": 15}
CAP = LIMITS["moves_per_hour"]


@pytest.mark.parametrize("fault", ["stopped", "killed"])
def test_a_standby_takes_over_amid_a_move(tmp_path: Path, fault: str) -> None:
    """A leader gets SIGSTOP or kill -9 between the note and the eviction, and another one goes on.

    The other one makes the moves that the cap leaves; for a minute the interrupted move counts. A leader that continues
    after its Lease has expired neither evicts the pod nor writes anything else. No more pods are evicted than the cap
    and the disruption budget allow, and after ``stop --clean`` no note is left and nothing moves.
    """
    with (
        hot_cluster(tmp_path) as cluster,
        PodUse(cluster) as watcher,
        Relay(cluster) as first,
        Relay(cluster) as second,
    ):
        before = ready(cluster)
        leader = RebalancerProcess(cluster, watcher.url, "act", server=first.url, **LIMITS)
        interrupt = leader.process.pause if fault == "stopped" else leader.process.kill
        interrupted, written = threading.Event(), list[str]()
        first.on_request = once_noted(interrupted, interrupt, written)
        standby = None
        try:
            wait_until(lambda: leader.leads() or interrupted.is_set(), "the first one leads")
            standby = RebalancerProcess(cluster, watcher.url, "act", server=second.url, **LIMITS)
            wait_until(interrupted.is_set, "a pod is noted")
            (noted_pod,) = noted(cluster)
            standby.process.wait_until(lambda: landed(cluster) >= CAP - 1, "the other one moves on", 90)
            assert noted_pod in ready(cluster)
            assert standby.status()["caps"]["hour"][0] <= CAP
            if fault == "stopped":
                written.clear()
                leader.process.resume()
                wait_until(lambda: leader.lines("another replica took the Lease"), "it notices the loss")
                searches = standby.status()["searches"]
                standby.process.wait_until(lambda: standby.status()["searches"] > searches + 2, "time passes")
                assert not written
                assert not leader.leads()
            stop_and_clean(cluster)
            assert not noted(cluster)
            standby.process.wait_until(lambda: is_stopped(standby), "the brake is seen")
        finally:
            for each in (leader, standby):
                if each is not None:
                    each.process.kill()
        wait_until(lambda: len(ready(cluster)) == 2 * len(APPS), "all pods are ready")
        after = ready(cluster)
        assert CAP - 1 <= len(before.keys() - after.keys()) <= CAP
        assert noted_pod in after
        assert {name for name in before if name.startswith("app-a")} <= after.keys()


def is_stopped(rebalancer: RebalancerProcess) -> bool:
    """Return whether a rebalancer knows that a person has stopped it."""
    return (rebalancer.status().get("brake") or {}).get("reason") == "stopped"


def landed(cluster: ControlPlane) -> int:
    """Return the number of moves whose replacement is Ready."""
    return sum(move.state is MoveState.LANDED for move in ledger(cluster))


def once_noted(interrupted: threading.Event, interrupt: Callable[[], None], written: list[str]) -> Callable[..., None]:
    """Return a hook of a relay that interrupts a process when its first note is written, and lists its writes."""

    def on_request(method: str, path: str, *, answered: bool) -> None:
        if method != "GET" and not answered:
            written.append(f"{method} {path}")
        if method == "PATCH" and path.startswith(PODS) and answered and not interrupted.is_set():
            interrupt()
            interrupted.set()

    return on_request


def stop_and_clean(cluster: ControlPlane) -> None:
    """Run ``trimaran rebalance stop --clean``."""
    command = [sys.executable, "-m", "trimaran", "rebalance", "stop", "--clean", "--kube-config"]
    subprocess.run([*command, str(cluster.kubeconfig())], check=True, timeout=60)
