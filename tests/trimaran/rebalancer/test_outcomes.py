"""Moves from eviction to measured gain: replacements by lineage, time-outs, and what a move was worth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.rebalancing import NOW, World, deployment, hot_and_cold, node, pod

from trimaran.planning.moves import MoveCosts
from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.lineage import lineage_of
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.outcomes import followed, measured
from trimaran.rebalancer.plan import plan_moves
from trimaran.rebalancer.rules import CapLimits, Cooldowns, MoveRules, NodeRules
from watcher.pod_use_table import STEPS

RULES = MoveRules(
    holdout_percent=0, caps=CapLimits(percent_per_hour=100), nodes=NodeRules(bad_looks=1),
    cooldowns=Cooldowns(node=0, workload=0),
)  # fmt: skip


def record(name: str = "web-old", **fields: Any) -> MoveRecord:
    """Return a move of a pod of the Deployment web from node-hot to node-idle, evicted five minutes ago."""
    given: dict[str, Any] = {
        "uid": f"uid-of-default-{name}", "namespace": "default", "name": name, "kind": "Deployment",
        "workload": "web", "revision": "5d8f7c9b64", "lineage": f"uid-of-default-{name}", "source": "node-hot",
        "target": "node-idle", "state": MoveState.EVICTED, "planned_at": NOW - 300, "evicted_at": NOW - 300,
        "youngest": NOW - 300,
    }  # fmt: skip
    return MoveRecord(**{**given, **fields})


def world(*pods: dict[str, Any], replicas: int = 2) -> World:
    """Return a cluster with a workload web."""
    return World([node("node-hot"), node("node-idle")], list(pods), [deployment("web", replicas)])


def changes(cluster: World, *records: MoveRecord) -> dict[str, MoveRecord]:
    """Return the records that have changed, by the name of the evicted pod."""
    return {each.name: each for each in followed(cluster.look(), records, RULES)}


def fresh(name: str, on: str = "", seconds: float = 290, **fields: Any) -> dict[str, Any]:
    """Return a pod that was created after the eviction, and is Ready if it has a node."""
    ready = {"ready_at": NOW - seconds + 20 if on else None}
    return pod(name, on, created_at=NOW - seconds, **{**ready, **fields})


def test_a_replacement_is_a_younger_pod_of_the_same_workload_and_revision() -> None:
    """Of older pods and pods of other revisions none is taken for the replacement; its uid and node are recorded."""
    other = {"labels": {"app": "web", "pod-template-hash": "77d8f9c4b5"}}
    cluster = world(pod("web-1", "node-hot"), fresh("web-2", "node-idle", metadata=other), fresh("web-3", "node-idle"))
    (landed,) = changes(cluster, record()).values()
    assert (landed.state, landed.replacement, landed.landed_on) == (
        MoveState.LANDED, "uid-of-default-web-3", "node-idle",
    )  # fmt: skip
    assert landed.ready_at == NOW - 270


def test_each_replacement_counts_for_one_move() -> None:
    """Two evictions get a replacement each, the oldest pod for the oldest eviction."""
    cluster = world(fresh("web-3", "node-idle", 290), fresh("web-4", "node-hot", 100), replicas=3)
    found = changes(cluster, record("first"), record("second", evicted_at=NOW - 120, youngest=NOW - 290))
    assert {name: each.replacement[-5:] for name, each in found.items()} == {"first": "web-3", "second": "web-4"}


def test_a_replacement_that_is_not_ready_keeps_the_move_open() -> None:
    """A move stays open until the replacement is Ready, and is lost after the time-out."""
    cluster = world(pod("web-1", "node-hot"), fresh("web-3", restarts=2))
    (waiting,) = changes(cluster, record()).values()
    assert (waiting.state, waiting.replacement, waiting.restarts) == (MoveState.EVICTED, "uid-of-default-web-3", 2)
    late = record(evicted_at=NOW - 1000, planned_at=NOW - 1000)
    assert changes(cluster, late)["web-old"].state is MoveState.LOST


def test_a_workload_that_shrank_needs_no_replacement() -> None:
    """If the desired replicas fell meanwhile, or the workload is gone, the move is over without a replacement."""
    (over,) = changes(world(pod("web-1", "node-hot"), replicas=1), record()).values()
    assert (over.state, over.replacement, over.ready_at) == (MoveState.LANDED, "", NOW - 300)
    gone = replace(world(), workloads=[])
    assert changes(gone, record())["web-old"].state is MoveState.LANDED


def test_an_eviction_without_an_answer_is_settled_by_the_watch() -> None:
    """A planned move is evicted once its pod is gone or terminating, and refused if the pod stays for two minutes."""
    planned = record("web-1", state=MoveState.PLANNED, evicted_at=0.0, planned_at=NOW - 100)
    old, late = pod("web-1", "node-hot"), replace_at(planned, NOW - 130)
    assert changes(world(old), planned) == {}
    assert changes(world(old), late)["web-1"].state is MoveState.REFUSED
    ending = pod("web-1", "node-hot", metadata={"deletionTimestamp": "2026-11-18T14:00:00Z"})
    for cluster in (world(ending), world()):
        seen = changes(cluster, planned)["web-1"]
        assert (seen.state, seen.evicted_at) == (MoveState.EVICTED, planned.planned_at)


def replace_at(move: MoveRecord, at: float) -> MoveRecord:
    return move.changed(planned_at=at)


def test_a_stateful_set_keeps_its_lineage_by_ordinal() -> None:
    """A pod of a StatefulSet and its replacement have one lineage; so have those of a Deployment by the record."""
    stateful = pod("db-0", "node-hot", of="db", kind="StatefulSet")
    cluster = world(stateful)
    (member,) = cluster.look().all_members()
    assert lineage_of(member.pod, {}) == "default/StatefulSet/db-0"
    (web,) = world(pod("web-3", "node-hot")).look().all_members()
    assert lineage_of(web.pod, {"": "another"}) == "uid-of-default-web-3"
    assert lineage_of(web.pod, {"uid-of-default-web-3": "the first"}) == "the first"


@pytest.mark.parametrize("cools", [True, False])
def test_the_gain_is_measured_after_the_move(cools: bool) -> None:
    """A move gained what both nodes would have cost with the pod on its former node, and nothing if that was cool."""
    cluster = hot_and_cold()
    cluster.pods[0] = pod("app-a-hot", "node-idle", of="app-a")
    if cools:
        cluster.cores = {"app-a-hot": 1.5}
    moved = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-idle", ready_at=NOW - 8000,
        planned_at=NOW - 8000,
    )  # fmt: skip
    (found,) = measured(cluster.look(), [moved], RULES, MoveCosts())
    assert found.measured == pytest.approx(0.0 if cools else 0.5, abs=0.02)
    early = moved.changed(ready_at=NOW - 6000)
    assert list(measured(cluster.look(), [early], RULES, MoveCosts())) == []


def test_a_move_back_to_the_same_node_gained_nothing() -> None:
    """If the replacement landed on the node that the pod left, the measured gain is 0."""
    back = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-hot", ready_at=NOW - 8000,
    )  # fmt: skip
    (found,) = measured(hot_and_cold().look(), [back], RULES, MoveCosts())
    assert found.measured == 0.0


def test_a_workload_that_still_lacks_a_pod_needs_its_replacement() -> None:
    """The move stays open while a pod of the workload is not Ready or missing, or while a deleted one has pods."""
    for cluster in (
        world(pod("web-1", "node-hot"), replicas=2),
        world(pod("web-1", "node-hot"), pod("web-2", "node-hot", ready_at=None), replicas=1),
        replace(world(pod("web-1", "node-hot")), workloads=[]),
    ):
        assert changes(cluster, record()) == {}


def test_a_pod_of_a_stateful_set_is_replaced_under_its_own_name() -> None:
    """Of two new pods of a StatefulSet the one with the evicted pod's name is the replacement."""
    new = [fresh(f"db-{number}", "node-idle", of="db", kind="StatefulSet") for number in range(2)]
    for each in new:
        each["metadata"]["uid"] += "-again"
    cluster = replace(world(*new), workloads=[deployment("db", 2, "StatefulSet")])
    evicted = record("db-1", kind="StatefulSet", workload="db", revision="")
    assert changes(cluster, evicted)["db-1"].replacement == "uid-of-default-db-1-again"


def test_neither_the_pod_itself_nor_an_earlier_replacement_replaces_it() -> None:
    """A pod that still terminates, and one that replaced another pod before, are no replacement."""
    itself = fresh("web-old", "node-hot")
    taken = fresh("web-2", "node-idle")
    earlier = record("web-0", state=MoveState.LANDED, replacement="uid-of-default-web-2", landed_on="node-idle")
    found = changes(world(itself, taken, replicas=3), earlier, record())
    assert "web-old" not in found


def test_restarts_are_counted_after_the_landing() -> None:
    """Restarts of a replacement count for the brake also once it has landed."""
    landed = record(state=MoveState.LANDED, replacement="uid-of-default-web-2", landed_on="node-idle")
    assert changes(world(fresh("web-2", "node-idle", restarts=4)), landed)["web-old"].restarts == 4


def test_a_replacement_that_is_gone_changes_nothing() -> None:
    """A landed move whose replacement was deleted keeps the restarts that were counted."""
    landed = record(state=MoveState.LANDED, replacement="uid-of-default-web-2", landed_on="node-idle", restarts=2)
    assert changes(world(pod("web-1", "node-hot")), landed) == {}


def test_an_unanswered_eviction_is_refused_if_the_clock_was_set_back() -> None:
    """A planned move that seems to lie in the future is over as well: else it would stay open for hours."""
    planned = record("web-1", state=MoveState.PLANNED, evicted_at=0.0, planned_at=NOW + 150)
    assert changes(world(pod("web-1", "node-hot")), planned)["web-1"].state is MoveState.REFUSED


def test_a_gain_is_measured_once_and_in_time() -> None:
    """A gain that is measured stays, and one that could not be measured in half an hour is not measured any more."""
    moved = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-hot", ready_at=NOW - 8000,
    )  # fmt: skip
    for other in (
        moved.changed(measured=0.5),
        moved.changed(ready_at=NOW - 9100),
        moved.changed(state=MoveState.LOST),
        moved.changed(ready_at=0.0),
        moved.changed(source="node-gone"),
    ):
        assert list(measured(hot_and_cold().look(), [other], RULES, MoveCosts())) == []


@pytest.mark.parametrize(("seconds", "is_due"), [(7199, False), (7200, True), (8999, True), (9000, False)])
def test_a_gain_is_due_for_half_an_hour(seconds: float, is_due: bool) -> None:
    """A gain is measured from the end of the time over which it is measured until half an hour later."""
    look = hot_and_cold().look()
    moved = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-hot",
        ready_at=look.use.timestamp - seconds,
    )  # fmt: skip
    assert bool(list(measured(look, [moved], RULES, MoveCosts()))) is is_due


@pytest.mark.parametrize(("hot_hours", "gain"), [((2, 0), 0.5), ((2, 1), 0.25), ((24, 2), 0.0)])
def test_only_the_use_after_the_move_counts(hot_hours: tuple[int, int], gain: float) -> None:
    """The gain is the average over the last two hours: a node that was hot before them only gained nothing."""
    cluster = hot_and_cold()
    cluster.pods[0] = pod("app-a-hot", "node-idle", of="app-a")
    look = cluster.look()
    hot, cores = np.zeros(STEPS, np.bool_), look.use.cpu_cores
    hot[STEPS - hot_hours[0] * 12 : STEPS - hot_hours[1] * 12] = True
    cores[:, ~hot] = 0.1
    moved = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-idle", ready_at=NOW - 8000,
    )  # fmt: skip
    (found,) = measured(look, [moved], RULES, MoveCosts())
    assert found.measured == pytest.approx(gain, abs=0.02)


def test_memory_counts_for_the_gain() -> None:
    """A move from a node whose memory the pod would have filled gained, though no node is short of CPU."""
    cluster = replace(hot_and_cold(), cores={})
    cluster.pods[0] = pod("app-a-hot", "node-idle", of="app-a")
    look = cluster.look()
    look.use.memory_gib[[name.endswith("-hot") for name in look.use.names]] = 6.0  # five of them: 94 percent
    moved = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-idle", ready_at=NOW - 8000,
    )  # fmt: skip
    (found,) = measured(look, [moved], RULES, MoveCosts())
    assert found.measured is not None
    assert found.measured > 0.1


def test_a_replacement_that_was_ready_before_the_eviction_lands_at_the_eviction() -> None:
    """No start-up is negative where clocks differ, and a planned move waits for its answer for two full minutes."""
    early = fresh("web-3", "node-idle", ready_at=NOW - 320)
    (landed,) = changes(world(pod("web-1", "node-hot"), early), record()).values()
    assert landed.ready_at == NOW - 300
    planned = record("web-1", state=MoveState.PLANNED, evicted_at=0.0, planned_at=NOW - 120)
    assert changes(world(pod("web-1", "node-hot")), planned) == {}


def test_a_replacement_that_moved_on_gained_nothing() -> None:
    """If the replacement is on another node than the one on which it landed, the gain is 0."""
    moved = record(
        state=MoveState.LANDED, replacement="uid-of-default-app-a-hot", landed_on="node-cold", ready_at=NOW - 8000,
    )  # fmt: skip
    (found,) = measured(hot_and_cold().look(), [moved], RULES, MoveCosts())
    assert found.measured == 0.0


def test_a_held_move_is_measured_as_if_it_had_been_made() -> None:
    """The gain of a move that was not made is what the move would have saved; without the pod there is none."""
    held = record("app-a-hot", state=MoveState.HELD, planned_at=NOW - 8000, evicted_at=0.0)
    (found,) = measured(hot_and_cold().look(), [held], RULES, MoveCosts())
    assert found.measured == pytest.approx(0.5, abs=0.02)
    cluster = hot_and_cold()
    del cluster.pods[0]
    assert list(measured(cluster.look(), [held], RULES, MoveCosts())) == []


def test_a_replacement_without_a_node_counts_on_its_target() -> None:
    """While a replacement has no node, the target carries the evicted pod's use and requests."""
    cluster = hot_and_cold()
    cluster.gone = [pod("big-0", "node-hot", of="big")]
    cluster.workloads.append(deployment("big", 2))
    cluster.pods.append(pod("big-1", "node-cold", of="big"))
    cluster.cores["big-0"] = 5.0  # 62 percent: with another pod above the target's level
    evicted = record("big-0", workload="big", lineage="big")
    for records, target in (((), "node-idle"), ((evicted,), "node-cold")):
        plan = plan_moves(cluster.look(), records, RULES, BadLooks(1, 1))
        assert plan.moves[0].record.target == target


def test_a_replacement_inherits_the_past_of_its_pod() -> None:
    """A replacement without a past of its own has that of the evicted pod, so its node is not taken for cold."""
    cluster = hot_and_cold()
    cluster.gone = [pod("old", "node-hot", of="app-a")]
    cluster.cores["old"] = 5.0
    look = cluster.look()
    place = look.use.uids.index("uid-of-default-app-a-idle")
    look.use.cpu_cores[place] = float("nan")
    look = replace(look, measured={**look.measured, "node-cold": 67.0})
    heir = record("old", state=MoveState.LANDED, replacement="uid-of-default-app-a-idle", ready_at=NOW - 200)
    plan = plan_moves(look, [heir], RULES, BadLooks(1, 1))
    assert plan.targets == {}
    assert plan.sources["node-cold"] == "not_hot"
    assert {each.record.target for each in plan.moves} == {"node-idle"}
