"""Recorded preemptions of a real kube-scheduler: our plugin takes the same victims on the same nodes.

``tests/e2e/test_preemption_oracle.py`` records them; see ``tests/control_plane/preemption_scenarios.py``.
"""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from control_plane.preemption_scenarios import Scenario, objects

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.objects import Pod
from scoring.plugins.filtering import count_reasons
from scoring.plugins.inter_pod_affinity import InterPodAffinity
from scoring.plugins.node_affinity import NodeAffinity
from scoring.plugins.node_name import NodeName
from scoring.plugins.node_ports import NodePorts
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.plugins.node_unschedulable import NodeUnschedulable
from scoring.plugins.pod_topology_spread import PodTopologySpread
from scoring.plugins.taint_toleration import TaintToleration
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import Preemption, Rejection
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption

VECTORS = Path(__file__).parents[2] / "data" / "preemption.jsonl"
FILTERS = (
    NodeUnschedulable(), NodeName(), TaintToleration(), NodeAffinity(), NodePorts(), NodeResourcesFit(),
    PodTopologySpread(), InterPodAffinity(),
)  # fmt: skip
_MESSAGE = "0/{} nodes are available: {}. {}"


@pytest.fixture(scope="module")
def vectors() -> list[Scenario]:
    return [json.loads(line) for line in VECTORS.read_text().splitlines()]


def test_the_victims_and_nodes_are_those_of_kube_scheduler(vectors: list[Scenario]) -> None:
    """Node, victims and message are equal in all recorded scenarios."""
    assert len(vectors) == 200
    outcomes = Counter(kind for scenario in vectors for kind in replay(scenario))
    assert outcomes["node"] >= 100, outcomes
    assert outcomes["message"] >= 30, outcomes


def replay(scenario: Scenario) -> list[str]:
    """Compare the outcome of each pending pod; return the kinds of outcome."""
    nodes, pods, budgets, pending = objects(scenario)
    table, limits = NodeTable.from_k8s(nodes, pods), [DisruptionBudget.from_k8s(each) for each in budgets]
    plugin = DefaultPreemption(FILTERS, lambda: limits, random.Random(scenario["seed"]))
    kinds = []
    for manifest, outcome in zip(pending, scenario["outcomes"], strict=True):
        pod, title = Pod.from_k8s(manifest), f"scenario {scenario['seed']}, {manifest['metadata']['name']}"
        result = run_filters(FILTERS, pod, table)
        if "bound" in outcome:
            assert outcome["bound"] in np.array(table.names)[result.feasible], title
            table.add(pod, outcome["bound"])
            kinds.append("bound")
            continue
        assert not result.feasible.any(), title
        answer = plugin.post_filter(pod, table, result.verdicts, now=0.0)
        if "message" in outcome:
            assert isinstance(answer, Rejection), title
            reasons = sorted(f"{count} {reason}" for reason, count in count_reasons(result.verdicts).items())
            message = _MESSAGE.format(len(table), ", ".join(reasons), answer.message)
            assert message == outcome["message"], title
            kinds.append("message")
            continue
        assert isinstance(answer, Preemption), title
        deleted = sorted(victim.name for victim in answer.victims if not victim.terminating)
        assert (answer.node_name, deleted) == (outcome["node"], outcome["victims"]), title
        # The victims stay until a kubelet has stopped them; there is none.
        for victim in answer.victims:
            table.add(replace(victim, terminating=True, preempted=True))
        table.nominate(pod, answer.node_name)
        kinds.append("node")
    return kinds
