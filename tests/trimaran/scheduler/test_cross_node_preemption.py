"""CrossNodePreemption: victims on several nodes, for pods that rules about other nodes' pods keep from every node."""

import random
from itertools import combinations

import numpy as np
import pytest
from control_plane.manifests import node
from support.configured import Configured, pod, profile

from runtime.kubernetes.objects import Pod
from scoring.plugins.inter_pod_affinity import InterPodAffinity
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.plugins.pod_topology_spread import PodTopologySpread
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.decisions import Unschedulable
from trimaran.scheduler.framework.extension_points import Preemption, Rejection
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.plugins.preemption.cross_node import CrossNodePreemption
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption, PreemptionOptions

ZONE = "topology.kubernetes.io/zone"
FILTERS = (NodeResourcesFit(), PodTopologySpread(), InterPodAffinity())


def far_from(app: str) -> dict[str, object]:
    """Return an affinity that keeps a pod out of zones with pods of an app."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def zone(*names: str) -> list[dict[str, object]]:
    return [node(name, "1", labels={ZONE: "z"}) for name in names]


@pytest.mark.parametrize("plugin", ["DefaultPreemption", "CrossNodePreemption"])
def test_pods_on_several_nodes_leave_for_one_that_keeps_away_from_them(plugin: str) -> None:
    """Two pods of a zone forbid the third: one node's pods are not enough, those of two nodes are."""
    machine = Configured(profile(plugin, "postFilter", without={"postFilter": ["*"]}), zone("a", "b"))
    machine.put(pod("left", labels={"app": "x"}), node="a")
    machine.put(pod("right", labels={"app": "x"}), node="b")
    machine.put(pod("stays", labels={"app": "y"}), node="b")
    machine.put(pod("new", priority=5, affinity=far_from("x")))
    (decision,) = machine.decide()
    assert isinstance(decision, Unschedulable)
    if plugin == "DefaultPreemption":
        assert decision.preemption is None
    else:
        assert decision.preemption is not None
        assert sorted(each.name for each in decision.preemption.victims) == ["left", "right"]


def test_a_pod_waits_for_victims_on_other_nodes() -> None:
    """While they terminate, nothing more is preempted; once they are gone, the pod is placed."""
    machine = Configured(profile("CrossNodePreemption", "postFilter", without={"postFilter": ["*"]}), zone("a", "b"))
    old = [pod(name, labels={"app": "x"}) for name in ("left", "right")]
    for each, name in zip(old, ("a", "b"), strict=True):
        machine.put(each, node=name)
    machine.put(pod("new", priority=5, affinity=far_from("x")))
    (first,) = machine.decide()
    assert isinstance(first, Unschedulable)
    assert first.preemption is not None
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    for each, name in zip(old, ("a", "b"), strict=True):
        leaving = {**each["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        machine.put({**each, "metadata": leaving, "status": {"conditions": [target]}}, node=name)
    machine.scheduler.drop_pod("left" if first.preemption.node_name == "b" else "right", machine.now)
    waiting = machine.decide(20.0)
    assert all(isinstance(each, Unschedulable) and each.preemption is None for each in waiting)
    assert waiting
    for each in old:
        machine.scheduler.drop_pod(each["metadata"]["uid"], machine.now)
    assert [type(each).__name__ for each in machine.decide(20.0)] == ["Bind"]


def test_the_search_ends_at_its_limit() -> None:
    """The message counts the nodes that were not tried, apart from those where no set helps, or preemption cannot."""
    chosen = profile("CrossNodePreemption", "postFilter", args={"maxTriedSets": 1}, without={"postFilter": ["*"]})
    machine = Configured(chosen, [*zone("a", "b"), node("small", "10m")])
    machine.put(pod("stays", priority=9, labels={"app": "x"}), pod("other"), node="a")
    reasons = machine.place(pod("new", priority=5, affinity=far_from("x")))["new"].partition("preemption: ")[2]
    assert reasons == (
        "0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 node(s) for which no pods were found whose deletion lets the pod fit, "
        "1 node(s) not tried, since the search reached maxTriedSets."
    )


def test_whenever_some_victims_help_it_finds_a_set_that_has_none_too_many() -> None:
    """Against a search through all subsets in 250 small clusters; a set is also found where one node is not enough."""
    more_than_one_node = 0
    for seed in range(250):
        dice = random.Random(seed)
        nodes = [node(f"n{place}", "1", labels={ZONE: f"z{place % 2}"}) for place in range(4)]
        pods = [
            pod(
                f"v{number}", {"cpu": f"{dice.choice([200, 400])}m"}, dice.randint(0, 9),
                labels={"app": dice.choice("xxy")}, nodeName=f"n{dice.randrange(4)}",
            )
            for number in range(6)
        ]  # fmt: skip
        table = NodeTable.from_k8s(nodes, pods)
        spread = {
            "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }  # fmt: skip
        rules = {"topologySpreadConstraints": [spread]} if dice.random() < 0.3 else {"affinity": far_from("x")}
        new = Pod.from_k8s(pod("new", {"cpu": "500m"}, 5, labels={"app": "x"}, **rules))
        feasibility = run_filters(FILTERS, new, table)
        if feasibility.feasible.any():
            continue
        arguments = (FILTERS, list, random.Random(0), PreemptionOptions())
        result = CrossNodePreemption(*arguments).post_filter(new, table, feasibility.verdicts, 0.0)
        lower = [each for each in map(Pod.from_k8s, pods) if each.priority < 5]
        helping = [some for size in range(1, 7) for some in combinations(lower, size) if fits(table, new, some)]
        assert isinstance(result, Preemption) == bool(helping), seed
        if isinstance(result, Preemption):
            assert fits(table, new, result.victims), seed
            assert not any(
                fits(table, new, [each for each in result.victims if each is not spared], result.node_name)
                for spared in result.victims
            ), seed
            alone = DefaultPreemption(*arguments).post_filter(new, table, feasibility.verdicts, 0.0)
            more_than_one_node += isinstance(alone, Rejection)
    assert more_than_one_node > 10


def fits(table: NodeTable, new: Pod, gone: "list[Pod] | tuple[Pod, ...]", name: str = "") -> bool:
    """Return whether a pod fits on some node, or on one, without some pods."""
    plan = table.copy()
    for each in gone:
        plan.remove(each)
    feasible = run_filters(FILTERS, new, plan).feasible
    return bool(feasible[plan.row(name)] if name else np.any(feasible))
