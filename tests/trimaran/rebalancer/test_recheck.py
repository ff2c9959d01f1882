"""The last check before an eviction: each change of the cluster since the plan that forbids a planned move."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.rebalancing import NOW, World, hot_and_cold, node, pod, rfc3339

from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import plan_moves
from trimaran.rebalancer.recheck import objection
from trimaran.rebalancer.rules import CapLimits, MoveRules, NodeRules

RULES = MoveRules(holdout_percent=0, caps=CapLimits(percent_per_hour=100), nodes=NodeRules(bad_looks=1))
UID = "uid-of-default-app-a-hot"


def planned() -> MoveRecord:
    """Return a planned move of a pod of app-a from node-hot to node-idle."""
    found = next(move.record for move in plan_moves(hot_and_cold().look(), (), RULES, BadLooks(1, 1)).moves)
    return found.changed(uid=UID, name="app-a-hot", workload="app-a", lineage=UID)


def budget(allowed: int) -> dict[str, Any]:
    """Return a disruption budget of app-a."""
    return {"metadata": {"name": "budget", "namespace": "default"}, "status": {"disruptionsAllowed": allowed},
            "spec": {"selector": {"matchLabels": {"app": "app-a"}}}}  # fmt: skip


def without_target(world: World) -> None:
    del world.nodes[2]


def without_pods(world: World) -> None:
    world.pods = [each for each in world.pods if each["metadata"]["labels"]["app"] != "app-a"]


CHANGES: dict[str, Callable[[World], object]] = {
    "the pod is no longer on node-hot": without_pods,
    "no longer on node-hot": lambda world: world.pod("app-a-hot")["spec"].update(nodeName="node-cold"),
    "pod is no longer on node-hot": lambda world: world.pod("app-a-hot")["metadata"].update(
        deletionTimestamp=rfc3339(NOW)
    ),
    "an annotation of the pod forbids it": lambda world: world.pod("app-a-hot")["metadata"]["annotations"].update(
        {"rebalancer.trimaran.io/move": "false"}
    ),
    "its workload is rolling out": lambda world: world.workloads[0]["status"].update(updatedReplicas=1),
    "another pod of its workload is not Ready": lambda world: world.pods.append(
        pod("app-a-new", of="app-a", ready_at=None)
    ),
    "its disruption budget allows no eviction now": lambda world: world.budgets.append(budget(0)),
    "so new that it could be taken for the replacement": lambda world: world.pod("app-a-idle")["metadata"].update(
        creationTimestamp=rfc3339(NOW - 1)
    ),
    "node node-hot: cordoned": lambda world: world.nodes.__setitem__(0, node("node-hot", spec={"unschedulable": True})),
    "node node-idle: not_ready": lambda world: world.nodes.__setitem__(
        2, node("node-idle", status={"conditions": [{"type": "Ready", "status": "False"}]})
    ),
    "node node-idle is gone": without_target,
    "node node-idle has no room for it": lambda world: world.pods.append(
        pod("large", "node-idle", of="large", request="7800m")
    ),
}


def test_an_unchanged_cluster_has_no_objection() -> None:
    """A move may be made if nothing has changed since its plan."""
    assert objection(hot_and_cold().look(), planned(), (), RULES) == ""


@pytest.mark.parametrize("reason", CHANGES)
def test_each_change_since_the_plan_is_an_objection(reason: str) -> None:
    """A change of pod, workload, budgets or nodes forbids the move, with the reason."""
    world = hot_and_cold()
    CHANGES[reason](world)
    assert reason in objection(world.look(), planned(), (), RULES)


def test_an_open_move_of_the_workload_is_an_objection() -> None:
    """A move that was recorded since the plan forbids another one of its workload only."""
    move = planned()
    open_move = move.changed(uid="other", state=MoveState.EVICTED)
    assert "another move of its workload is open" in objection(hot_and_cold().look(), move, [open_move], RULES)
    for other in (open_move.changed(workload="app-b"), open_move.changed(state=MoveState.LANDED)):
        assert objection(hot_and_cold().look(), move, [other], RULES) == ""


def test_a_pod_of_two_seconds_ago_is_no_objection() -> None:
    """Creation times are whole seconds: from two seconds on a pod is older than any replacement."""
    world = hot_and_cold()
    world.pod("app-a-idle")["metadata"]["creationTimestamp"] = rfc3339(NOW - 2)
    assert objection(world.look(), planned(), (), RULES) == ""


@pytest.mark.parametrize("name", ["node-hot", "node-idle"])
def test_a_node_whose_facts_are_gone_takes_no_part(name: str) -> None:
    """A source or target that has just been deleted may still be in the table of nodes: its facts are gone first."""
    look = hot_and_cold().look()
    facts = {each: known for each, known in look.nodes.items() if each != name}
    assert objection(replace(look, nodes=facts), planned(), (), RULES) == f"node {name} is gone"


def test_a_node_that_is_not_in_the_table_is_no_target() -> None:
    """A target that is created again may have facts first."""
    look = hot_and_cold().look()
    world = hot_and_cold()
    without_target(world)
    other = replace(look, table=world.look().table)
    assert objection(other, planned(), (), RULES) == "node node-idle is gone"
