"""Live replay of a tiny world: the real control plane, the watcher and the extender decide as the simulator does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.scheduler import Scheduler
from control_plane.world_player import CONTROLLERS, POD_LABEL, PodForm, WorldClock, WorldPlayer
from support.servers import need_server, wait_until

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import JOB, write_trace

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[2] / "research/live_replay"


def run(*arguments: object, statuses: tuple[int, ...] = (0,), seconds: float = 120) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode in statuses, done.stdout + done.stderr
    return done.stdout


def report(*arguments: object, statuses: tuple[int, ...]) -> dict[str, int]:
    return json.loads(run("check", *arguments, statuses=statuses).partition(" ")[2])


def test_recorded_decisions_are_those_of_the_simulator(tmp_path: Path) -> None:
    """Every recorded decision of some minutes has the simulator's scores; with other metrics the check fails."""
    world = tmp_path / "world"
    write_trace(Synthetic(seed=1, nodes=6, minutes=30, warm_up_minutes=1).trace(), world)
    run(
        "run", tmp_path / "live", "--world", world, "--policy", "congestion-cost-by-requests", "--runs", 1,
        "--from-hour", 0, "--hours", 0.07, "--warm-up-hours", 0.02, "--deadline-seconds", 0.4,
    )  # fmt: skip
    recorded = report(tmp_path / "live", statuses=(0, 1))  # one lag among so few choices fails the check
    assert recorded["decisions"] > 10
    assert recorded["equal_scores"] == recorded["decisions"]
    late = report(tmp_path / "live", "--change", "late-metrics", statuses=(1,))
    assert late["equal_scores"] < late["decisions"]


def test_the_live_learner_knows_what_a_replays_knows_after_the_same_history(tmp_path: Path) -> None:
    """Filled from Prometheus, the levels of workloads with 95 % of the use are within 2 %; without a history, not."""
    for program in ("prometheus", "promtool"):
        need_server(program)
    world, live = tmp_path / "world", tmp_path / "live"
    write_trace(Synthetic(seed=2, nodes=2, minutes=14 * 60, warm_up_minutes=60, history_days=3).trace(), world)
    run("history", live, "--world", world, seconds=240)
    learned = report(live, statuses=(0,))
    assert min(learned["cpu_near_percent"], learned["memory_near_percent"]) >= 95
    without = report(live, "--change", "no-history", statuses=(1,))
    assert max(without["cpu_near_percent"], without["memory_near_percent"]) < 50


@pytest.mark.parametrize("mover", ["more-moves", "low-node-utilization"])
def test_a_mover_runs_beside_the_scheduler(tmp_path: Path, mover: str) -> None:
    """The rebalancer leads and searches with the rights of its manifests, and the descheduler reads the nodes' load."""
    world = tmp_path / "world"
    write_trace(Synthetic(seed=1, nodes=6, minutes=30, warm_up_minutes=1).trace(), world)
    run(
        "run", tmp_path / "live", "--world", world, "--policy", f"default+{mover}", "--runs", 1, "--from-hour", 0,
        "--hours", 0.15, "--warm-up-hours", 0.02, statuses=(0, 1),
    )  # fmt: skip
    (folder,) = (tmp_path / "live").rglob("outcome.json")
    if mover == "low-node-utilization":
        log = (folder.parent / "programs/descheduler.log").read_text()
        assert '"Number of overutilized nodes"' in log
    else:
        status = json.loads((folder.parent / "rebalancer.json").read_text())["status"]
        assert status["acts"]
        assert status["searches"] > 0  # which ask the watcher for the past use of the pods


class Bindings:
    """Observer with the nodes that each pod of the trace was bound to, in order."""

    def __init__(self) -> None:
        self.nodes: dict[int, list[str]] = {}
        self.ended = 0

    def bound(self, uid: str, name: str, number: int, node_name: str, minute: float) -> None:
        self.nodes.setdefault(number, []).append(node_name)

    def gone(self, uid: str, minute: float) -> None:
        self.ended += 1


def test_an_evicted_replica_is_created_and_bound_again(tmp_path: Path) -> None:
    """As one-replica ReplicaSets, the pods of a trace come back after an eviction, and end with the trace's pod."""
    trace = Synthetic(seed=1, nodes=4, minutes=4, warm_up_minutes=1).trace()
    clock, bindings = WorldClock(20), Bindings()
    with (
        ControlPlane(tmp_path) as cluster,
        ControllerManager(cluster, CONTROLLERS),
        Scheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=1),
        WorldPlayer(cluster, trace, clock, bindings, PodForm.REPLICA) as player,
    ):
        player.create_nodes()
        player.create_owners()
        clock.start()
        player.play(until=1)
        wait_until(lambda: bindings.nodes, "a pod is bound")
        number = next(each for each in bindings.nodes if trace.owner_kinds[each] != JOB)
        (pod,) = cluster.api.items("/api/v1/pods", labelSelector=f"{POD_LABEL}={trace.pods[number]}")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/eviction"
        cluster.api.request("POST", path, json={**eviction, "deleteOptions": {"gracePeriodSeconds": 0}})
        wait_until(lambda: len(bindings.nodes[number]) == 2, "the pod is bound again")
        assert bindings.ended == 1
