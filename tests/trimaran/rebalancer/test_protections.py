"""Each protection of the rebalancer, in a plan for a cluster with one hot node: what it prevents does not happen.

The list of the protections is in docs/rebalancer.md; test_controller.py and the tests against a real control plane
cover those of the service.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.rebalancing import NOW, World, deployment, hot_and_cold, node, pod, rfc3339

from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.eligibility import NodeRefusal, Refusal
from trimaran.rebalancer.facts import NodeBarrier, PodBarrier
from trimaran.rebalancer.look import NO_USE
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import MovePlan, plan_moves
from trimaran.rebalancer.rules import CapLimits, Cooldowns, MoveRules, NodeRules, PodRules

RULES = MoveRules(
    holdout_percent=0, caps=CapLimits(percent_per_hour=100), nodes=NodeRules(bad_looks=1, good_looks=1),
    cooldowns=Cooldowns(node=0),
)  # fmt: skip


def plan(world: World, rules: MoveRules = RULES, records: Sequence[MoveRecord] = ()) -> MovePlan:
    """Return the plan for a cluster."""
    return plan_moves(world.look(), records, rules, BadLooks(rules.nodes.bad_looks, rules.nodes.good_looks))


def moved(world: World, rules: MoveRules = RULES, records: Sequence[MoveRecord] = ()) -> list[str]:
    """Return the names of the pods that a plan moves."""
    return [each.record.name for each in plan(world, rules, records).moves]


def record(name: str, at: float = NOW - 60, **fields: Any) -> MoveRecord:
    """Return a move of a pod of a Deployment that has landed."""
    given: dict[str, Any] = {
        "uid": f"uid-of-{name}", "namespace": "default", "name": name, "kind": "Deployment", "workload": "web",
        "revision": "5d8f7c9b64", "lineage": name, "source": "node-a", "target": "node-b", "state": MoveState.LANDED,
        "planned_at": at,
    }  # fmt: skip
    return MoveRecord(**{**given, **fields})


def test_1_the_dry_run_places_the_evicted_pod() -> None:
    """A plan names the target of each move, and the loads of both nodes before and after it."""
    (first, *_) = plan(hot_and_cold()).moves
    assert (first.record.source, first.record.target) == ("node-hot", "node-idle")
    assert [round(first.source.before[0]), round(first.source.after[0])] == [94, 75]
    assert [round(first.target.before[0]), round(first.target.after[0])] == [0, 19]


def test_1_a_record_describes_the_pod_and_the_plan() -> None:
    """The record has the pod's workload, use, start-up and restarts, and the predicted gain with its lower end."""
    world = hot_and_cold()
    world.pods[:5] = [pod(f"app-{each}-hot", "node-hot", of=f"app-{each}", restarts=3) for each in "abcde"]
    first = plan(world).moves[0]
    found = first.record
    assert (found.namespace, found.kind, found.workload) == ("default", "Deployment", found.name.removesuffix("-hot"))
    assert (found.revision, found.lineage, found.state) == ("5d8f7c9b64", found.uid, MoveState.PLANNED)
    assert (found.planned_at, found.startup, found.cores, found.restarts_before) == (world.now, 10.0, 1.5, 3)
    assert 0.3 < found.gain < 0.6
    assert 0.9 * 120 * found.gain < found.low <= 120 * found.gain  # the use hardly varies, so the interval is short
    assert plan(world, replace(RULES, startup=1200.0)).moves[0].record.low < 0.9 * found.low
    world.pods[:5] = [
        pod(f"app-{each}-hot", "node-hot", of=f"app-{each}", ready_at=NOW - 9000, created_at=NOW - 8995)
        for each in "abcde"
    ]
    assert plan(world).moves[0].record.startup == 0.0  # by two clocks


def test_1_a_record_has_the_use_of_the_last_hour() -> None:
    """Loads are means of the last hour, a record's cores of the last quarter, whatever the use was before."""
    look = hot_and_cold().look()
    is_hot = np.array([name.endswith("-hot") for name in look.use.names])
    look.use.cpu_cores[is_hot, :144], look.use.memory_gib[is_hot, :-4] = 1.25, 0.1
    for table in (look.use.cpu_cores, look.use.memory_gib):
        table[:, ::2] = np.nextafter(table[:, ::2], np.float16(np.inf))  # so that no mean is a number of 16 bits
    cpu, memory = look.use.cpu_cores.astype(float), look.use.memory_gib.astype(float)
    first = plan_moves(look, (), RULES, BadLooks(1, 1)).moves[0]
    place = look.use.uids.index(first.record.uid)
    assert first.record.cores == pytest.approx(cpu[place, -3:].mean(), abs=1e-6)
    own = 100 * cpu[place, -12:].mean() / 8, 100 * memory[place, -4:].mean() / 32
    before = 100 * cpu[is_hot, -12:].mean(axis=1).sum() / 8, 100 * memory[is_hot, -4:].mean(axis=1).sum() / 32
    assert first.source.before == pytest.approx(before, abs=1e-6)
    assert first.source.after == pytest.approx(np.subtract(before, own), abs=1e-6)
    assert first.target.before == pytest.approx((0.0, 0.0), abs=1e-6)
    assert first.target.after == pytest.approx(own, abs=1e-6)


def test_1_a_plan_has_what_it_was_made_from() -> None:
    """A plan has the hot nodes, the searches that are missing, the best moves, the length of the past and min_gain."""
    found = plan(hot_and_cold(), replace(RULES, nodes=NodeRules(bad_looks=3), min_gain=0.02))
    assert (found.moves, found.hot, found.missing) == ((), {"node-hot"}, {"node-hot": 2})
    assert (found.steps, found.min_gain, found.hidden) == (288, 0.02, {})
    assert found.prospects.keys() == {f"uid-of-default-app-{each}-hot" for each in "abcde"}
    assert {target for target, gain, low in found.prospects.values() if 0.3 < gain < 0.6 and low > 0} == {"node-idle"}
    assert plan(hot_and_cold(), replace(RULES, history=7200)).steps == 24


def test_2_several_bad_looks_in_a_row_are_needed() -> None:
    """A pod leaves a node at the third search in a row that finds the node; two good ones begin the count again."""
    looks, rules = BadLooks(3, 2), replace(RULES, nodes=NodeRules())
    hot, cool = hot_and_cold(), replace(hot_and_cold(), cores={})
    found = [bool(plan_moves(world.look(), (), rules, looks).moves) for world in (hot, hot, cool, hot, hot, hot)]
    assert found == [False, False, False, False, False, True]
    found = [bool(plan_moves(world.look(), (), rules, looks).moves) for world in (cool, hot, cool, cool, hot)]
    assert found == [False, True, False, False, False]


def test_3_a_target_stays_below_the_level_of_a_source() -> None:
    """A target never gets above target_percent, and rules with a target above the source are refused."""
    world = hot_and_cold()
    world.pods += [pod("busy", "node-idle", of="busy"), pod("busy-2", "node-cold", of="busy")]
    world.cores |= {"busy": 3.5, "busy-2": 4.0}  # with another pod 62 percent and more
    assert moved(world, replace(RULES, nodes=NodeRules(target_percent=60, bad_looks=1))) == []
    assert moved(world) != []
    with pytest.raises(ValueError, match=r"target_percent 90 .* source_percent 80"):
        NodeRules(target_percent=90)


def test_3_a_target_may_reach_its_level() -> None:
    """A target may come to target_percent with the pod, but not above it."""
    world = hot_and_cold()
    world.cores = dict.fromkeys(world.cores, 1.375)  # 17.1875 percent of a node
    for percent, expected in ((17.1875, 1), (17.187, 0)):
        assert len(moved(world, replace(RULES, nodes=NodeRules(target_percent=percent, bad_looks=1)))) == expected


def test_3_a_source_reached_its_level() -> None:
    """A node that was never above source_percent is no source."""
    assert plan(hot_and_cold(), replace(RULES, nodes=NodeRules(source_percent=96))).sources["node-hot"] == "not_hot"


@pytest.mark.parametrize("age", [1000.0, -1000.0])
def test_4_stale_use_moves_nothing(age: float) -> None:
    """Use that ended long ago, or in the future, gives no plan, and the reason names the setting."""
    found = plan(replace(hot_and_cold(), use_age=age))
    assert (found.moves, found.hot) == ((), frozenset())
    assert found.nothing == f"the use of the pods is not up to date: it ended {age:.0f} s ago"
    at_the_limit = plan(replace(hot_and_cold(), use_age=900.0 if age > 0 else -900.0))
    assert at_the_limit.nothing == ""


def test_4_without_any_use_nothing_moves() -> None:
    """A table of use without pods gives no plan."""
    found = plan_moves(replace(hot_and_cold().look(), use=NO_USE), (), RULES, BadLooks(1, 1))
    assert found.nothing == "the use of the pods is not up to date: nothing is measured"


def test_4_a_node_without_capacity_takes_no_part() -> None:
    """A node that has not reported its capacity is no target, and nothing is divided by it."""
    world = hot_and_cold()
    world.nodes.append(node("node-new", status={"capacity": {}, "allocatable": {}}))
    world.pods.append(pod("early", "node-new", of="early"))
    arrived = record("arrived", evicted_at=NOW - 60, landed_on="node-new", hidden=0.5)
    found = plan(world, replace(RULES, nodes=NodeRules(bad_looks=1, max_disagreement=np.inf)), [arrived])
    assert "node-new" not in found.targets
    assert {each.record.target for each in found.moves} == {"node-idle", "node-cold"}


def test_4_a_node_without_metrics_takes_no_part() -> None:
    """A node that has no fresh metrics is neither source nor target."""
    world = hot_and_cold()
    look = replace(world.look(), measured={"node-cold": 6.0, "node-idle": 0.0})
    found = plan_moves(look, (), RULES, BadLooks(1, 1))
    assert (found.moves, found.sources["node-hot"]) == ((), NodeRefusal.NOT_MEASURED)


def test_4_a_node_with_unknown_requests_is_no_target() -> None:
    """No pod moves to a node whose free CPU and memory are not known; pods may leave it."""
    look = hot_and_cold().look()
    assert plan_moves(look, (), RULES, BadLooks(1, 1)).moves
    why = dict.fromkeys(("node-hot", "node-cold", "node-idle"), "pod default/bad cannot be read")
    found = plan_moves(replace(look, unknown_nodes=why), (), RULES, BadLooks(1, 1))
    assert (found.moves, set(found.targets.values())) == ((), {NodeRefusal.UNKNOWN_REQUESTS})
    assert "node-hot" not in found.sources


@pytest.mark.parametrize("measured", [9.4, 0.0])
def test_4_a_node_whose_metrics_are_wrong_takes_no_part(measured: float) -> None:
    """A node whose load is a tenth of the sum of its pods, or zero, is neither source nor target."""
    found = plan(replace(hot_and_cold(), measured={"node-hot": measured}))
    assert (found.moves, found.sources["node-hot"]) == ((), NodeRefusal.DISAGREES)


def test_5_without_a_cold_target_nothing_moves() -> None:
    """If all nodes are hot, no pod moves."""
    world = hot_and_cold()
    world.pods += [pod(f"busy-{n}-{on}", on, of="busy") for n in range(4) for on in ("node-idle", "node-cold")]
    world.cores |= {f"busy-{n}-{on}": 1.7 for n in range(4) for on in ("node-idle", "node-cold")}
    assert moved(world) == []


def test_6_a_pod_never_moves_to_its_own_node() -> None:
    """With no other node a pod stays, and no move has its source as its target."""
    world = hot_and_cold()
    assert all(each.record.source != each.record.target for each in plan(world).moves)
    world.nodes[1:] = [node(name, spec={"unschedulable": True}) for name in ("node-cold", "node-idle")]
    assert moved(world) == []


def test_7_a_move_gains_at_least_min_gain() -> None:
    """No move is planned whose predicted gain is below the least."""
    gains = [each.record.gain for each in plan(hot_and_cold()).moves]
    assert gains
    assert moved(hot_and_cold(), replace(RULES, min_gain=max(gains) + 0.01)) == []


def test_8_the_smallest_pod_that_suffices_moves() -> None:
    """Of two pods that gain nearly alike the one with the lower use moves; one that fills its node never does."""
    world = hot_and_cold()
    world.cores |= {"app-a-hot": 2.0, "app-b-hot": 1.9, **dict.fromkeys(("app-c-hot", "app-d-hot", "app-e-hot"), 1.0)}
    assert moved(world)[0] == "app-b-hot"
    found = plan(world, replace(RULES, pods=PodRules(max_pod_percent=15)))
    large = {each.removeprefix("uid-of-default-") for each, why in found.stays.items() if why is Refusal.LARGE}
    assert large == {"app-a-hot", "app-b-hot"}
    assert {each.record.name for each in found.moves} <= {"app-c-hot", "app-d-hot", "app-e-hot"}


def test_8_a_pod_moves_up_to_its_largest_use() -> None:
    """A pod may move that uses max_pod_percent of its node on average, but not more."""
    look, uid = hot_and_cold().look(), "uid-of-default-app-a-hot"
    cpu = look.use.cpu_cores[look.use.uids.index(uid)]
    cpu[:] = 2.0
    assert uid not in plan_moves(look, (), RULES, BadLooks(1, 1)).stays
    cpu[::2] = np.nextafter(np.float16(2.0), np.float16(3.0))
    assert plan_moves(look, (), RULES, BadLooks(1, 1)).stays[uid] is Refusal.LARGE


@pytest.mark.parametrize(("steps", "is_large"), [(4, False), (5, True)])
def test_8_a_burst_does_not_raise_the_past(steps: int, is_large: bool) -> None:
    """The level of the last hour, by which the past is adjusted, leaves out as many steps as one burst can reach."""
    look = hot_and_cold().look()
    cpu = look.use.cpu_cores[look.use.uids.index("uid-of-default-app-a-hot")]
    cpu[:] = 1.25
    cpu[-steps:] = 1.6
    found = plan_moves(look, (), replace(RULES, pods=PodRules(max_pod_percent=15.8)), BadLooks(1, 1))
    assert (found.stays.get("uid-of-default-app-a-hot") is Refusal.LARGE) is is_large


def test_9_each_move_counts_for_the_next() -> None:
    """The second move leaves the node from the load after the first, and pods stay once the node is cool."""
    moves = plan(hot_and_cold()).moves
    assert moves[1].source.before[0] == pytest.approx(moves[0].source.after[0])
    assert len(moves) < 5


CAPS: dict[str, tuple[CapLimits, int]] = {
    "percent": (CapLimits(percent_per_hour=10), 1),
    "hour": (CapLimits(percent_per_hour=100, per_hour=1), 1),
    "day": (CapLimits(percent_per_hour=100, per_day=1), 1),
    "open": (CapLimits(percent_per_hour=100, open_moves=1), 1),
    "node": (CapLimits(percent_per_hour=100, node_per_hour=1), 1),
    "namespace": (CapLimits(percent_per_hour=100, namespace_per_hour=1), 1),
    "none": (CapLimits(percent_per_hour=100), 2),
}


@pytest.mark.parametrize("cap", CAPS)
def test_10_caps_limit_the_moves(cap: str) -> None:
    """Each cap alone limits the number of moves; without a tight one the cluster needs two."""
    limits, expected = CAPS[cap]
    assert len(moved(hot_and_cold(), replace(RULES, caps=limits))) == expected


def test_10_a_workload_moves_one_pod_at_a_time() -> None:
    """Of several hot pods of one workload one moves, and none while its replacement is not Ready."""
    world = hot_and_cold()
    world.pods = [pod(f"web-{n}", "node-hot") for n in range(5)]
    world.workloads = [{**world.workloads[0], "metadata": {**world.workloads[0]["metadata"], "name": "web"}}]
    world.cores = {f"web-{n}": 1.5 for n in range(5)}
    assert len(moved(world)) == 1
    waits = record("web-9", state=MoveState.EVICTED, evicted_at=NOW - 60, planned_at=NOW - 60)
    found = plan(world, records=[waits])
    assert (found.moves, set(found.stays.values())) == ((), {Refusal.OPEN_MOVE})
    spent = [record(f"web-{n}", NOW - 3000, lineage=f"old-{n}") for n in range(2)]
    assert set(plan(world, records=spent).stays.values()) == {Refusal.WORKLOAD_CAP}


def budget(allowed: int, app: str = "app-a") -> dict[str, Any]:
    """Return a PodDisruptionBudget that allows so many evictions."""
    return {"metadata": {"name": "budget", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed}}  # fmt: skip


def test_11_disruption_budgets_hold() -> None:
    """A pod stays if its budget allows no eviction, and if two budgets cover it, which the API server refuses."""
    world = hot_and_cold()
    assert "app-a-hot" in moved(replace(world, budgets=[budget(1)]))
    for budgets, reason in (([budget(0)], Refusal.BUDGET), ([budget(5), budget(5)], Refusal.MANY_BUDGETS)):
        found = plan(replace(world, budgets=budgets))
        assert found.stays["uid-of-default-app-a-hot"] is reason
        assert found.moves


def set_workload(world: World, **fields: Any) -> None:
    world.workloads[0] = {**world.workloads[0], **fields}


WORKLOADS: dict[Refusal, Callable[[World], None]] = {
    Refusal.FEW_REPLICAS: lambda world: set_workload(world, spec={"replicas": 1}),
    Refusal.ROLLOUT: lambda world: world.workloads[0]["status"].update(updatedReplicas=1),
    Refusal.PENDING_REPLICA: lambda world: world.pods.append(pod("app-a-new", of="app-a", ready_at=None)),
    Refusal.UNKNOWN_WORKLOAD: lambda world: world.workloads.pop(0) and None,
    Refusal.SCALED: lambda world: world.scalers.append({
        "metadata": {"namespace": "default"}, "status": {"lastScaleTime": rfc3339(NOW - 300)},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "app-a"}},
    }),
}  # fmt: skip


@pytest.mark.parametrize("reason", WORKLOADS)
def test_11_a_workload_in_change_is_left_alone(reason: Refusal) -> None:
    """No pod moves of a workload that is rolling out, scaled of late, unknown, too small, or has a pod not Ready."""
    world = replace(hot_and_cold(), now=NOW)
    WORKLOADS[reason](world)
    found = plan(world)
    assert found.stays["uid-of-default-app-a-hot"] is reason
    assert found.moves


def test_12_a_young_pod_stays() -> None:
    """A pod that is Ready for less than the least age does not move."""
    world = hot_and_cold()
    world.pods[0] = pod("app-a-hot", "node-hot", of="app-a", ready_at=NOW - 600)
    assert plan(world).stays["uid-of-default-app-a-hot"] is Refusal.YOUNG


def test_12_a_lineage_a_workload_and_a_node_rest_after_a_move() -> None:
    """After a move the replacement, its workload, and both nodes rest; the pause of the lineage doubles."""
    world, uid = hot_and_cold(), "uid-of-default-app-a-hot"
    base = {"workload": "app-a", "replacement": uid, "lineage": "first"}
    once = [record("old", NOW - 3600, uid="old", **base)]
    assert uid not in plan(world, records=once).stays
    assert plan(world, records=[record("old", NOW - 3500, uid="old", **base)]).stays[uid] is Refusal.COOLDOWN
    twice = [record("oldest", NOW - 9000, uid="oldest", **{**base, "replacement": "old"}), *once]
    assert plan(world, records=twice).stays[uid] is Refusal.COOLDOWN
    sibling = [record("other", NOW - 60, uid="other", workload="app-a")]
    assert plan(world, records=sibling).stays[uid] is Refusal.COOLDOWN
    assert uid not in plan(world, records=[sibling[0].changed(planned_at=NOW - 300)]).stays
    of_node = [record("other", NOW - 60, uid="other", source="node-hot", target="node-idle")]
    found = plan(world, replace(RULES, cooldowns=Cooldowns(node=300)), of_node)
    assert (found.sources["node-hot"], found.targets["node-idle"]) == (NodeRefusal.COOLDOWN, NodeRefusal.COOLDOWN)


OPT_OUT: dict[Refusal, PodRules] = {
    Refusal.NAMESPACE: PodRules(excluded_namespaces=frozenset({"default"})),
    Refusal.LABEL: PodRules(excluded_labels=("app=other", "pod-template-hash")),
    Refusal.PRIORITY: PodRules(protected_priority=0),
}


@pytest.mark.parametrize("reason", OPT_OUT)
def test_13_pods_opt_out(reason: Refusal) -> None:
    """Namespaces, labels and priorities of the settings keep pods in place."""
    found = plan(hot_and_cold(), replace(RULES, pods=OPT_OUT[reason]))
    assert (found.moves, found.stays["uid-of-default-app-a-hot"]) == ((), reason)
    only = PodRules(namespaces=frozenset({"other"}))
    assert moved(hot_and_cold(), replace(RULES, pods=only)) == []
    assert moved(hot_and_cold(), replace(RULES, pods=PodRules(namespaces=frozenset({"default"})))) != []


def test_15_with_a_taint_first_pods_leave_tainted_nodes_only() -> None:
    """With source_taint, pods leave a node only once it has the soft taint."""
    world, rules = hot_and_cold(), replace(RULES, nodes=NodeRules(bad_looks=1, source_taint="trimaran.io/hot"))
    assert plan(world, rules).sources["node-hot"] is NodeRefusal.NOT_TAINTED
    world.nodes[0] = node("node-hot", spec={"taints": [{"key": "trimaran.io/hot", "effect": "PreferNoSchedule"}]})
    assert moved(world, rules)


NODES: dict[NodeBarrier, dict[str, Any]] = {
    NodeBarrier.TERMINATING: {"metadata": {"deletionTimestamp": "2026-11-25T12:00:00Z"}},
    NodeBarrier.NOT_READY: {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    NodeBarrier.PRESSURE: {"status": {"conditions": [{"type": "Ready", "status": "True"},
                                                     {"type": "MemoryPressure", "status": "True"}]}},
    NodeBarrier.LEAVING: {"spec": {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler",
                                               "effect": "PreferNoSchedule"}]}},
    NodeBarrier.CORDONED: {"spec": {"unschedulable": True}},
    NodeBarrier.DO_NOT_DISRUPT: {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
}  # fmt: skip


@pytest.mark.parametrize("barrier", NODES)
def test_nodes_that_leave_or_are_in_trouble_take_no_part(barrier: NodeBarrier) -> None:
    """Such a node is neither source nor target."""
    world = hot_and_cold()
    world.nodes[0] = node("node-hot", **NODES[barrier])
    found = plan(world)
    assert (found.moves, found.sources["node-hot"]) == ((), barrier)
    world = hot_and_cold()
    world.nodes[2] = node("node-idle", **NODES[barrier])
    found = plan(world)
    assert found.targets["node-idle"] is barrier
    assert {each.record.target for each in found.moves} == {"node-cold"}


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_taints_of_autoscalers_are_known(key: str) -> None:
    """A node that an autoscaler is about to delete is neither source nor target."""
    world = hot_and_cold()
    world.nodes[0] = node("node-hot", spec={"taints": [{"key": key, "effect": "NoSchedule"}]})
    assert plan(world).sources["node-hot"] is NodeBarrier.LEAVING


def test_the_holdout_is_planned_and_not_made() -> None:
    """With a holdout of a half some planned moves are held back, and a held pod is not planned again."""
    world = hot_and_cold()
    found = plan(world, replace(RULES, holdout_percent=49))
    assert found.held
    held = {each.record.uid for each in found.held}
    assert not held & {each.record.uid for each in found.moves}
    assert all(each.record.state is MoveState.HELD for each in found.held)
    one = replace(RULES, holdout_percent=49, caps=CapLimits(percent_per_hour=100, per_hour=1))
    assert [len(each) for each in (plan(world, one).moves, plan(world, one).held)] == [1, 1]
    again = plan(world, replace(RULES, holdout_percent=49), [each.record for each in found.held])
    assert not held & {each.record.uid for each in again.held}


def test_4_use_that_is_hardly_known_moves_nothing() -> None:
    """With less than a quarter of an hour of use there is no search."""
    look = hot_and_cold().look()
    for seconds, expected in ((800.0, "less than a quarter of an hour"), (901.0, "")):
        use = replace(look.use, since=np.full(len(look.use), look.use.timestamp - seconds))
        assert expected in plan_moves(replace(look, use=use), (), RULES, BadLooks(1, 1)).nothing
    use = replace(look.use, since=np.full(len(look.use), look.use.timestamp - 800))
    assert plan_moves(replace(look, use=use), (), RULES, BadLooks(1, 1)).nothing


def test_4_a_pod_of_unknown_use_stays() -> None:
    """A pod whose use was never measured does not move, and is not taken for an idle one."""
    world, uid = hot_and_cold(), "uid-of-default-app-a-hot"
    world.cores = dict.fromkeys(world.cores, 1.8)  # hot without it, too
    look = world.look()
    look.use.cpu_cores[look.use.uids.index(uid)] = float("nan")
    assert plan_moves(look, (), RULES, BadLooks(1, 1)).stays[uid] is Refusal.UNKNOWN_USE


def test_4_a_node_whose_facts_have_not_arrived_is_no_target() -> None:
    """A node that was just added may be in the table before its facts, such as whether it is Ready, are known."""
    look = hot_and_cold().look()
    facts = {name: each for name, each in look.nodes.items() if name != "node-idle"}
    found = plan_moves(replace(look, nodes=facts), (), RULES, BadLooks(1, 1))
    assert found.targets["node-idle"] is NodeBarrier.NOT_READY
    assert {each.record.target for each in found.moves} == {"node-cold"}


def test_4_a_node_whose_facts_are_gone_is_no_source() -> None:
    """A node that is being deleted may still be in the table: whether it was cordoned is not known any more."""
    look = hot_and_cold().look()
    assert plan_moves(look, (), RULES, BadLooks(1, 1)).moves
    facts = {name: each for name, each in look.nodes.items() if name != "node-hot"}
    found = plan_moves(replace(look, nodes=facts), (), RULES, BadLooks(1, 1))
    assert found.sources["node-hot"] is NodeBarrier.NOT_READY
    assert not found.moves


def test_3_a_target_stays_below_its_level_by_memory_too() -> None:
    """A node whose memory is used above target_percent takes no pod, and one above source_percent is a source."""
    look = hot_and_cold().look()
    for number, name in enumerate(look.use.names):
        if name.endswith("-idle"):
            look.use.memory_gib[number] = 5.0  # five pods on node-cold: 78 percent of its memory
    found = plan_moves(look, (), RULES, BadLooks(1, 1))
    assert {each.record.target for each in found.moves} == {"node-idle"}
    assert found.sources["node-cold"] is NodeRefusal.NOT_HOT
    look.use.memory_gib[[name.endswith("-idle") for name in look.use.names]] = 5.5
    assert "node-cold" not in plan_moves(look, (), RULES, BadLooks(1, 1)).sources


def test_6_a_pod_moves_only_where_it_fits_and_is_accepted() -> None:
    """A target has free CPU for the pod's request, also after the moves before it, and a label that the pod selects."""
    world = hot_and_cold()
    world.pods.append(pod("large", "node-idle", of="large", request="7200m"))  # 0.8 of 8 cores are free: one pod fits
    world.nodes[1] = node("node-cold", spec={"unschedulable": True})
    assert len(moved(world)) == 1
    world.pods[-1] = pod("large", "node-idle", of="large", request="7800m")
    assert moved(world) == []
    world = hot_and_cold()
    for each in world.pods:
        each["spec"]["nodeSelector"] = {"disk": "fast"}
    assert moved(world) == []
    world.nodes[1] = node("node-cold", metadata={"labels": {"disk": "fast"}})
    assert {each.record.target for each in plan(world).moves} == {"node-cold"}


def test_9_a_target_takes_one_pod_in_a_plan() -> None:
    """The level of a target is known before its first move only: with one target one pod moves."""
    world = hot_and_cold()
    assert len({each.record.target for each in plan(world).moves}) == 2
    world.nodes[1] = node("node-cold", spec={"unschedulable": True})
    assert len(moved(world)) == 1


def test_10_a_node_whose_cap_is_used_up_takes_no_part() -> None:
    """After ``node_moves_per_hour`` moves a node is no source, or no target, for the rest of the hour."""
    spent = [
        record(f"other-{number}", uid=f"other-{number}", workload="other", source="node-hot", target="node-idle")
        for number in range(2)
    ]
    found = plan(hot_and_cold(), records=spent)
    assert (found.sources["node-hot"], found.targets["node-idle"]) == (NodeRefusal.CAP, NodeRefusal.CAP)
    assert found.moves == ()
    found = plan(hot_and_cold(), records=[each.changed(source="node-cold") for each in spent])
    assert {each.record.target for each in found.moves} == {"node-cold"}


def test_12_a_node_rests_within_a_plan() -> None:
    """With a pause between two moves from a node only one pod leaves it in a plan."""
    assert len(moved(hot_and_cold())) == 2
    assert len(moved(hot_and_cold(), replace(RULES, cooldowns=Cooldowns(node=300)))) == 1


def test_the_holdout_needs_bad_looks_and_has_its_share_only() -> None:
    """A held move is planned only once a node is confirmed, and no more than the holdout's share of the moves."""
    rules = replace(RULES, holdout_percent=49)
    waiting = replace(rules, nodes=NodeRules(bad_looks=2))
    spent = [record(f"other-{number}", NOW - 80_000, uid=f"o-{number}", lineage=f"o-{number}") for number in range(9)]
    assert plan(hot_and_cold(), waiting, spent).held == ()
    found = plan(hot_and_cold(), rules, spent)
    assert found.held
    before = [record(f"h-{number}", NOW - 80_000, uid=f"h-{number}", state=MoveState.HELD) for number in range(12)]
    assert plan(hot_and_cold(), rules, [*spent, *before]).held == ()
    assert len(plan(hot_and_cold(), rules).held) <= len(plan(hot_and_cold(), rules).moves)


def test_pods_that_never_move_stay_in_a_plan() -> None:
    """The reason of a pod that never moves is in the plan, here a DaemonSet's."""
    world = hot_and_cold()
    world.pods.append(pod("agent", "node-hot", of="agent", kind="DaemonSet"))
    found = plan(world)
    assert found.stays["uid-of-default-agent"] is PodBarrier.DAEMON_SET
    assert found.refused() == {"daemon_set": 1, "source": 5}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_any_plan_keeps_requests_constraints_and_caps(seed: int) -> None:
    """Each move of a random plan fits by requests, obeys taints and levels, and no workload or pod moves twice."""
    dice = random.Random(seed)
    world = random_world(dice)
    look = world.look()
    found = plan_moves(look, (), RULES, BadLooks(1, 1))
    table, workloads = look.table, set()
    for each in found.moves:
        one = next(placed.pod for _, placed in table.placed_pods() if placed.pod.uid == each.record.uid)
        assert one.node_name == each.record.source != each.record.target
        assert each.record.of not in workloads
        workloads.add(each.record.of)
        table.remove(one)
        assert table.feasible(one)[table.row(each.record.target)]
        table.add(one, each.record.target)
        assert each.target.after[0] <= RULES.nodes.target_percent + 1e-6
        assert each.record.gain > RULES.min_gain
        assert each.record.source not in found.sources
        assert each.record.target not in found.targets
    moved_back = [each.record.changed(state=MoveState.LANDED, replacement=each.record.uid) for each in found.moves]
    again = {each.record.uid for each in plan(world, RULES, moved_back).moves}
    assert not again & {each.record.uid for each in found.moves}


def random_world(dice: random.Random) -> World:
    """Return a cluster of up to eight nodes, some tainted or cordoned, with pods of random size and use."""
    taints = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    specs: list[dict[str, Any]] = [dice.choice([{}, {}, {}, taints, {"unschedulable": True}]) for _ in range(8)]
    nodes = [node(f"node-{number}", spec=spec) for number, spec in enumerate(specs[: dice.randint(2, 8)])]
    pods, cores = [], {}
    for number in range(dice.randint(2, 40)):
        name, app = f"pod-{number}", f"app-{number % 12}"
        cores[name] = dice.uniform(0.0, 2.0)
        request = f"{dice.choice([100, 500, 1500])}m"
        place = min(dice.randrange(len(nodes)), dice.randrange(len(nodes)))  # the first nodes have more
        pods.append(pod(name, f"node-{place}", of=app, request=request))
    sizes = Counter(each["metadata"]["labels"]["app"] for each in pods)
    return World(nodes, pods, [deployment(app, size) for app, size in sizes.items()], cores=cores)
