"""kube-scheduler's logged scores of in-tree plugins against the scores of ``scoring``.

A real kube-scheduler places pods of every shape on mixed nodes, first without and then with pod-level resources. Each
score in its log is computed again in the log's order, from the nodes and pods in the API.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from control_plane.api import Object, path_of
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, pod
from control_plane.scheduler import Attempt, Scheduler
from control_plane.shapes import GPU, RUNTIME_CLASS, SHAPES, Shape, nodes, pod_level
from support.servers import wait_until

from scoring import MetricsTable, NodeTable, Pod, PreparedPlugin, read_configuration
from scoring.kubernetes_version import KUBERNETES_VERSIONS

pytestmark = pytest.mark.e2e

NODES = 100
PODS = 400
PODS_AFTER = 100  # with pods with pod-level resources among them
FILTERS = "filters"
PLUGINS = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality")
_CPU, _MEMORY, _GPU = ({"name": name, "weight": weight} for name, weight in (("cpu", 1), ("memory", 2), (GPU, 3)))
_BALANCED = [{**resource, "weight": 1} for resource in (_CPU, _MEMORY, _GPU)]
_SHAPE = [{"utilization": 0, "score": 2}, {"utilization": 60, "score": 10}, {"utilization": 100, "score": 1}]
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "packing": {"type": "MostAllocated", "resources": [_CPU, _MEMORY, _GPU]},
    "shaped": {
        "type": "RequestedToCapacityRatio", "resources": [_CPU, _GPU], "requestedToCapacityRatio": {"shape": _SHAPE},
    },
}  # fmt: skip
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler"},
        *(
            {
                "schedulerName": name,
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}},
                    {"name": "NodeResourcesBalancedAllocation", "args": {"resources": _BALANCED}},
                ],
            }
            for name, strategy in STRATEGIES.items()
        ),
    ],
}
# Version of the rules that each program follows.
VERSIONS = {"kube-scheduler": KUBERNETES_VERSIONS[-1], "kube-scheduler-oldest": KUBERNETES_VERSIONS[0]}


@dataclass
class Comparison:
    """Number of compared scores, and a description of each different score."""

    compared: int = 0
    different: list[str] = field(default_factory=list)


@dataclass
class Run:
    """Results of a kube-scheduler's run.

    Attributes:
        program: name of the program.
        nodes: nodes from the API.
        pods: pods from the API at the end, by ``namespace/name``.
        attempts: attempts in the log, in order.
        first: number of attempts before the first pod with pod-level resources.
    """

    program: str
    nodes: list[Object] = field(repr=False)
    pods: Mapping[str, Object] = field(repr=False)
    attempts: list[Attempt] = field(repr=False)
    first: int

    def compare(self, wanted: range) -> dict[str, Comparison]:
        """Replay all attempts and compute the scores of the wanted attempts; return the comparison per plugin."""
        last = {
            attempt.pod: number for number, attempt in enumerate(self.attempts)
        }  # the successful attempt of each pod
        table = NodeTable.from_k8s(self.nodes, [each for name, each in self.pods.items() if name not in last])
        profiles = self._prepare(table)
        result = {name: Comparison() for name in (*PLUGINS, FILTERS)}
        for number, attempt in enumerate(self.attempts):
            pod = Pod.from_k8s(self.pods[attempt.pod])
            plugins = profiles[self.pods[attempt.pod]["spec"]["schedulerName"]] if number in wanted else {}
            if plugins and attempt.totals:  # a single feasible node is not scored
                result[FILTERS].compared += 1
                computed_nodes = {table.names[row] for row in table.feasible(pod).nonzero()[0]}
                if computed_nodes != attempt.totals.keys():
                    result[FILTERS].different.append(f"{attempt.pod}: {computed_nodes ^ attempt.totals.keys()}")
            for name, (prepared, weight) in plugins.items():
                scores = None if prepared.plugin.skips(pod) else prepared.score(pod) * weight
                for node in attempt.totals:
                    computed = None if scores is None else int(scores[table.row(node)])
                    logged = attempt.scores.get(name, {}).get(node)
                    result[name].compared += 1
                    if computed != logged:
                        result[name].different.append(f"{attempt.pod} on {node}: {logged}, computed {computed}")
            if pod.node_name and number == last[attempt.pod]:
                table.add(pod)
        return result

    def _prepare(self, table: NodeTable) -> dict[str, dict[str, tuple[PreparedPlugin, int]]]:
        """Return the plugins of each profile with their weights."""
        prepared: dict[str, dict[str, tuple[PreparedPlugin, int]]] = {}
        metrics = MetricsTable.empty(table)
        for profile in read_configuration(CONFIGURATION, kubernetes_version=VERSIONS[self.program]).profiles:
            plugins = prepared[profile.scheduler_name] = {}
            for weighted in profile.plugins:
                if weighted.plugin.name not in PLUGINS:
                    continue  # tests/e2e/test_scheduler_oracle.py has the others
                plugins[weighted.plugin.name] = (weighted.plugin.prepare(table, metrics), weighted.weight)
        return prepared


@pytest.fixture(
    scope="module", params=["kube-scheduler", pytest.param("kube-scheduler-oldest", marks=pytest.mark.oldest)]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Results of a kube-scheduler's run over all pods."""
    dice = random.Random(36)
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(RUNTIME_CLASS)
        cluster.api.create(*nodes(dice, NODES))
        add_old_pods(cluster)
        with Scheduler(cluster, CONFIGURATION["profiles"], request.param) as scheduler:
            place(cluster, dice, "pod", SHAPES, PODS)
            first = len(scheduler.attempts())
            # kube-scheduler 1.33 ignores pod-level resources, which an API server of its version would drop.
            more = () if VERSIONS[request.param] == "1.33" else (pod_level, pod_level)
            place(cluster, dice, "after", (*SHAPES, *more), PODS_AFTER)
            pods = {f"default/{each['metadata']['name']}": each for each in cluster.api.items("/api/v1/pods")}
            yield Run(request.param, cluster.api.items("/api/v1/nodes"), pods, scheduler.attempts(), first)


def add_old_pods(cluster: ControlPlane) -> None:
    """Add pods from before the scheduler's start: running, ended and terminating pods."""
    old = [pod(f"old-{n}", container(requests={"cpu": "300m"}), nodeName=f"node-{n}") for n in range(30)]
    for leaving in old[10:20]:
        leaving["metadata"]["finalizers"] = ["example.com/something-to-do"]
    created = cluster.api.create(*old)
    for ended in created[:10]:
        cluster.api.patch(f"{path_of(ended)}/status", {"status": {"phase": "Succeeded"}})
    for leaving in created[10:20]:
        cluster.api.delete(path_of(leaving))


def place(cluster: ControlPlane, dice: random.Random, prefix: str, shapes: Sequence[Shape], count: int) -> None:
    """Create pods of all shapes, for all profiles in turn, and wait until each is placed or unschedulable."""
    schedulers = [profile["schedulerName"] for profile in CONFIGURATION["profiles"]]
    pods = [shapes[number % len(shapes)](dice, f"{prefix}-{number}") for number in range(count)]
    for number, each in enumerate(pods):
        each["spec"]["schedulerName"] = schedulers[number % len(schedulers)]
    cluster.api.create(*pods)
    wait_until(lambda: all(map(decided, cluster.api.items("/api/v1/pods"))), f"{count} pods are placed")


def decided(pod: Object) -> bool:
    """Return whether a pod is placed or has a condition from the scheduler."""
    return bool(pod["spec"].get("nodeName") or pod["status"].get("conditions"))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_scores_equal_the_schedulers(run: Run, plugin: str) -> None:
    """Every computed score equals kube-scheduler's, for pods of every shape and every strategy."""
    comparison = run.compare(range(run.first))[plugin]
    assert not comparison.different, f"of {comparison.compared} rows {len(comparison.different)} differ"
    assert comparison.compared > NODES * PODS / 2


@pytest.mark.parametrize("plugin", PLUGINS)
def test_scores_equal_with_pod_level_resources(run: Run, plugin: str) -> None:
    """Scores of pods with pod-level resources, and of later pods, equal kube-scheduler's."""
    comparison = run.compare(range(run.first, len(run.attempts)))[plugin]
    assert not comparison.different, f"of {comparison.compared} rows {len(comparison.different)} differ"
    assert comparison.compared > NODES * PODS_AFTER / 4


def test_feasible_nodes_equal_the_schedulers(run: Run) -> None:
    """For every pod the computed feasible nodes are those that pass kube-scheduler's filters."""
    comparison = run.compare(range(len(run.attempts)))[FILTERS]
    assert not comparison.different
    assert comparison.compared > (PODS + PODS_AFTER) * 0.9


def test_the_scheduler_chooses_a_node_with_the_highest_total(run: Run) -> None:
    """The logged totals decide kube-scheduler's choice, so a comparison of scores is sufficient."""
    placed = {attempt.pod: attempt.totals for attempt in run.attempts if attempt.totals}
    chosen = {name: run.pods[name]["spec"]["nodeName"] for name in placed}
    assert all(totals[chosen[name]] == max(totals.values()) for name, totals in placed.items())
    assert len(placed) > (PODS + PODS_AFTER) * 0.9
