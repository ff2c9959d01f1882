"""Our scheduler against a real kube-scheduler: feasible nodes, every score, every sum and the reasons of every refusal.

kube-scheduler places pods of every shape; each attempt in its log is made again by our node selector, in the log's
order, on the nodes and pods of that moment.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from control_plane.api import Object
from control_plane.cluster import ControlPlane
from control_plane.rule_shapes import NAMESPACES, RULE_SHAPES, zoned_nodes
from control_plane.scheduler import Attempt, Scheduler
from control_plane.shapes import RUNTIME_CLASS, SHAPES, pod_level
from support.servers import wait_until

from scoring import MetricsTable, NodeTable, Pod
from scoring.plugins.filtering import count_reasons
from trimaran.scheduler.configuration import read_setup
from trimaran.scheduler.feasibility import run_filters

pytestmark = pytest.mark.e2e

NODES = 100
PODS = 500
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}],
}
_REASONS = re.compile(r"0/\d+ nodes are available: (.*?)\. (?:no new claims|preemption:)")


@dataclass
class Comparison:
    """Number of comparisons by kind, and a description of each difference."""

    compared: dict[str, int] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)

    def check(self, kind: str, pod: str, theirs: object, ours: object) -> None:
        """Compare one value."""
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if theirs != ours:
            self.different.append(f"{kind} of {pod}: {theirs}, computed {ours}"[:2000])


@dataclass
class Run:
    """Objects from the API after a kube-scheduler's run, and the attempts in its log."""

    nodes: list[Object] = field(repr=False)
    pods: Mapping[str, Object] = field(repr=False)
    namespaces: Mapping[str, Mapping[str, str]] = field(repr=False)
    attempts: list[Attempt] = field(repr=False)

    def compare(self) -> Comparison:
        """Make every attempt again, and compare."""
        result = Comparison()
        last = {attempt.pod: number for number, attempt in enumerate(self.attempts)}
        table = NodeTable.from_k8s(self.nodes)
        table.namespace_labels = self.namespaces
        (profile,) = read_setup(CONFIGURATION).profiles
        scores = profile.scores.prepare(table, MetricsTable.empty(table))
        for number, attempt in enumerate(self.attempts):
            document = self.pods[attempt.pod]
            pod = Pod.from_k8s({**document, "spec": {**document["spec"], "nodeName": ""}})
            feasible = run_filters(profile.filters, pod, table)
            names = {table.names[row] for row in np.flatnonzero(feasible.feasible)}
            is_last = number == last[attempt.pod]
            node_name = document["spec"].get("nodeName", "")
            if attempt.totals:
                result.check("feasible nodes", attempt.pod, set(attempt.totals), names)
            elif is_last and node_name:
                result.check("only feasible node", attempt.pod, {node_name}, names)
            if attempt.totals and names == set(attempt.totals):
                self._compare_scores(result, attempt, scores.score(pod, among=np.flatnonzero(feasible.feasible)))
                best = max(attempt.totals.values())
                result.check("choice", attempt.pod, True, not is_last or attempt.totals.get(node_name) == best)
            if is_last and not node_name:
                result.check("reasons", attempt.pod, _reasons(document), dict(count_reasons(feasible.verdicts)))
            if is_last and node_name:
                table.add(Pod.from_k8s(document))
        return result

    def _compare_scores(self, result: Comparison, attempt: Attempt, scores: Any) -> None:
        for index, name in enumerate(scores.names):
            result.check("total", f"{attempt.pod} on {name}", attempt.totals[name], int(scores.total[index]))
            for plugin, ours in scores.plugins.items():
                theirs = attempt.scores.get(plugin, {}).get(name)
                computed = None if ours.terms is None else int(ours.normalized[index]) * ours.weighted.weight
                if theirs is not None or computed:
                    result.check(plugin, f"{attempt.pod} on {name}", theirs or 0, computed or 0)


def _reasons(document: Object) -> dict[str, int]:
    """Return the number of nodes by reason, from the message of the pod's condition."""
    message = next(each["message"] for each in document["status"]["conditions"] if each["type"] == "PodScheduled")
    match = _REASONS.match(message)
    assert match is not None, message
    counted = (part.split(" ", 1) for part in match[1].split(", "))
    return {reason: int(number) for number, reason in counted}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Results of a kube-scheduler's run over pods of all shapes."""
    dice = random.Random(37)
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(RUNTIME_CLASS, *NAMESPACES)
        cluster.api.create(*zoned_nodes(dice, NODES))
        shapes = (*RULE_SHAPES, *RULE_SHAPES, *SHAPES, pod_level)
        pods = [shapes[number % len(shapes)](dice, f"pod-{number}") for number in range(PODS)]
        with Scheduler(cluster, CONFIGURATION["profiles"]) as scheduler:
            cluster.api.create(*pods)
            wait_until(lambda: all(map(_is_decided, cluster.api.items("/api/v1/pods"))), "all pods are decided", 120)
        listed = cluster.api.items("/api/v1/pods")
        by_name = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in listed}
        namespaces = cluster.api.items("/api/v1/namespaces")
        labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in namespaces}
        yield Run(cluster.api.items("/api/v1/nodes"), by_name, labels, scheduler.attempts())


def _is_decided(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName") or pod["status"].get("conditions"))


def test_every_attempt_is_decided_as_by_kube_scheduler(run: Run) -> None:
    """Feasible nodes, scores, sums, choices and reasons are equal in every attempt."""
    comparison = run.compare()
    assert not comparison.different, f"{len(comparison.different)} differ of {comparison.compared}"
    kinds = comparison.compared
    assert kinds["feasible nodes"] + kinds.get("only feasible node", 0) > PODS * 0.7
    assert kinds["reasons"] > 10
    for plugin in ("PodTopologySpread", "InterPodAffinity", "NodeAffinity", "TaintToleration", "ImageLocality"):
        assert kinds[plugin] > NODES, plugin
