"""Share of the replacements of moved pods that land on the planned node, on a real control plane of 5,000 nodes.

50 nodes are full of pods, which then use 82 % of them, and all other nodes are empty. ``trimaran rebalance`` moves some
pods off each full node; kube-scheduler places the replacements with two replicas of our extender. It runs with its own
sample of the nodes (a tenth of 5,000), and with percentageOfNodesToScore 100; with this also while one Deployment after
the other gets one more pod, and while one replica of the extender is killed amid the moves. Last, this process
nominates the planned node of each replacement (``nominatedNodeName``) as soon as its own watch shows the pod.

    python research/planned_nodes.py [--nodes 5000] [--hot 50]
"""

import itertools
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from common import Table, options
from control_plane.cluster import ControlPlane
from control_plane.landings import MOST, LandingCluster, MoveShares, landing_cluster
from control_plane.moving import PODS, RebalancerProcess, ledger
from control_plane.scheduler import Scheduler

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.objects import Pod
from trimaran.cluster.planned_targets import PlannedTargets
from trimaran.cluster.view import ClusterView

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_SCALING_SECONDS = 1.0
SECONDS = re.compile(r"^scheduler_scheduling_attempt_duration_seconds_(sum|count)\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Scenario:
    """A run of the benchmark.

    Attributes:
        title: name of the row.
        percent: percentageOfNodesToScore; 0 for kube-scheduler's own choice.
        nominates: whether this process nominates the planned nodes.
        disturbs: runs next to the moves, until the event is set; None for nothing.
    """

    title: str
    percent: int = 0
    nominates: bool = False
    disturbs: Callable[[LandingCluster, threading.Event], None] | None = None


def scale_up(parts: LandingCluster, over: threading.Event) -> None:
    """Add a pod to one Deployment after the other, as a HorizontalPodAutoscaler does, until the moves are over."""
    replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in parts.cluster.api.items(DEPLOYMENTS)}
    for name in itertools.cycle(sorted(replicas)):
        if over.wait(_SCALING_SECONDS):
            return
        replicas[name] += 1
        parts.cluster.api.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas[name]}})


def restart_a_replica(parts: LandingCluster, over: threading.Event) -> None:
    """Kill one replica of the extender once moves are under way, and start it again."""
    while not over.wait(0.1):
        if any(record.is_open for record in ledger(parts.cluster)):
            parts.extenders[0].restart()
            return


RUNS = (
    Scenario("sample"),
    Scenario("all nodes", 100),
    Scenario("all nodes, scaled up", 100, disturbs=scale_up),
    Scenario("all nodes, a replica restarts", 100, disturbs=restart_a_replica),
    Scenario("sample, nominated", nominates=True),
)


class Nominator:
    """Observer of pods that nominates the planned node of each pending replacement.

    Args:
        cluster: the control plane.

    Attributes:
        early, late: nominations written while the pod had no node, and after it got one.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster, self._targets, self._seen = cluster, PlannedTargets(), set[str]()
        self._lock = threading.Lock()
        self.early = self.late = 0

    def put(self, manifest: dict[str, Any], read: Pod) -> None:
        """Follow a pod, and nominate its node if it is a replacement without one."""
        self._targets.put(manifest, read)
        note = None if read.node_name or read.uid in self._seen else self._targets.claim(read)
        if note is not None:
            self._seen.add(read.uid)
            threading.Thread(target=self._nominate, args=(read.name, note.target), daemon=True).start()

    def drop(self, key: str) -> None:
        """Follow the end of a pod."""
        self._targets.drop(key)

    def keep_only(self, keys: Any) -> None:
        """Follow a full list."""
        self._targets.keep_only(keys)

    def _nominate(self, name: str, target: str) -> None:
        changed = self._cluster.api.patch(f"{PODS}/{name}/status", {"status": {"nominatedNodeName": target}})
        with self._lock:
            is_late = bool(changed["spec"].get("nodeName"))
            self.early, self.late = self.early + (not is_late), self.late + is_late


@contextmanager
def nominating(cluster: ControlPlane) -> Iterator[Nominator]:
    """Nominate the planned nodes of replacements during the block."""
    nominator = Nominator(cluster)
    with (
        closing(KubernetesApi(ApiServerConfig(kube_config=cluster.kubeconfig()))) as api,
        closing(ClusterView(api, pod_observer=nominator).start()) as view,
    ):
        assert view.wait(60)
        yield nominator


def attempt_seconds(cluster: ControlPlane, scheduler: Scheduler) -> float:
    """Return the mean duration of kube-scheduler's attempts."""
    text = requests.get(
        f"{scheduler.url}/metrics",
        headers={"Authorization": f"Bearer {cluster.api.token}"},
        verify=str(cluster.certificates.certificate),
        timeout=10,
    ).text
    sums = {"sum": 0.0, "count": 0.0}
    for name, value in SECONDS.findall(text):
        sums[name] += float(value)
    return sums["sum"] / max(sums["count"], 1)


@contextmanager
def disturbing(parts: LandingCluster, scenario: Scenario) -> Iterator[None]:
    """Run what disturbs the moves in a thread during the block."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        ended = None if scenario.disturbs is None else executor.submit(scenario.disturbs, parts, over)
        try:
            yield
        finally:
            over.set()
        if ended is not None:
            ended.result()


def run(parts: LandingCluster, scenario: Scenario) -> tuple[MoveShares, float, str]:
    """Heat the full nodes, and move pods until none is hot; return the shares, the attempts' seconds, and a note."""
    cluster, before = parts.cluster, parts.heat()
    nominated = nominating(cluster) if scenario.nominates else nullcontext()
    with parts.scheduler(scenario.percent) as scheduler, nominated as nominator:
        rebalancer = RebalancerProcess(cluster, parts.watcher.url, "act", **{**MOST, "search_seconds": 5})
        try:
            with disturbing(parts, scenario):
                moves = parts.wait_for_moves(rebalancer, before, seconds=900)
            seconds = attempt_seconds(cluster, scheduler)
        finally:
            rebalancer.process.terminate()
    note = "" if nominator is None else f"{nominator.early} nominated before they got a node, {nominator.late} after"
    return parts.shares(moves, before), seconds, note


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, hot=50)
    table = Table(
        f"{size.nodes:,} nodes",
        ("kube-scheduler", "moves", "offered", "landed", "of those offered", "of all", "attempt, ms"),
    )
    notes = []
    with tempfile.TemporaryDirectory() as folder, landing_cluster(
        Path(folder), size.hot, size.nodes - size.hot, size.hot, 2
    ) as parts:  # fmt: skip
        for scenario in RUNS:
            shares, seconds, note = run(parts, scenario)
            of_offered, of_all = (f"{shares.landed / max(of, 1):.1%}" for of in (shares.offered, shares.moves))
            table.row(
                scenario.title, f"{shares.moves}", f"{shares.offered / max(shares.moves, 1):.1%}", f"{shares.landed}",
                of_offered, of_all, f"{1000 * seconds:.0f}",
            )  # fmt: skip
            notes += [note, *shares.astray]
        metrics = parts.extenders[-1].metrics()
        answers = {name: value for name, value in metrics.items() if "answers_total" in name and value}
    print(*filter(None, notes), f"answers: {answers}", sep="\n")


if __name__ == "__main__":
    main()
