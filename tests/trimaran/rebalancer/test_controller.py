"""The controller in mode act and observe, over an in-memory API: what it writes, and what a restart finds."""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests
from support.controlling import RULES, Controlled
from support.moving_api import Answer, MovingApi
from support.rebalancing import NOW, World, hot_and_cold, node, pod, rfc3339

from trimaran.cli.rebalance import status_lines
from trimaran.cluster.target_note import TargetNote
from trimaran.planning.move_triggers import Trigger
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.ledger import Brake, Ledger
from trimaran.rebalancer.measured_use import is_fragmented
from trimaran.rebalancer.moves import MoveState
from trimaran.rebalancer.plan import MovePlan
from trimaran.rebalancer.rules import CapLimits, NodeRules, PodRules
from trimaran.rebalancer.status import explanation, status_document

BUDGET = {"details": {"causes": [{"reason": "DisruptionBudget"}]}, "message": "the budget"}


class Killed(BaseException):
    """The process is killed."""


def kill_at(api: MovingApi, number: int) -> None:
    """Kill the process at a later change of the API: before it if the number is even, after it if odd."""
    sent, original = len(api.sent), api.send

    def send(method: str, *arguments: Any) -> Any:
        if method == "GET" or len(api.sent) - sent != number // 2:
            return original(method, *arguments)
        if number % 2:
            original(method, *arguments)
        api.send = original  # type: ignore[method-assign]
        raise Killed

    api.send = send  # type: ignore[method-assign]


def test_a_move_is_recorded_and_noted_before_the_eviction() -> None:
    """A move writes ledger, note, eviction and ledger, in this order, and an Event on the pod with both loads."""
    controlled = Controlled(hot_and_cold())
    controlled.run()
    name = controlled.api.evicted[0].removeprefix("uid-of-default-")
    assert controlled.api.sent[:5] == [
        "POST configmaps", f"PATCH namespaces/default/pods/{name}", f"POST namespaces/default/pods/{name}/eviction",
        "PUT trimaran-rebalancer", "POST events",
    ]  # fmt: skip
    note = TargetNote.read(controlled.world.gone[0]["metadata"]["annotations"])
    assert note is not None
    assert (note.target, note.source, note.until) == ("node-idle", "node-hot", controlled.now + 900)
    assert controlled.api.ledger().records[0].state is MoveState.EVICTED
    event = controlled.api.events[0]
    assert (event["reason"], event["metadata"]["namespace"]) == ("Rebalanced", "default")
    assert event["message"].startswith("Evicted from node-hot ")


def test_a_record_has_what_its_end_is_judged_by() -> None:
    """A record has the times of its own eviction, the youngest pod, and the grace period and version of its pod."""
    controlled, send = Controlled(hot_and_cold()), MovingApi._pod
    controlled.now += 0.12345678
    for each in controlled.world.pods:
        each["metadata"]["resourceVersion"] = "77"
        each["spec"]["terminationGracePeriodSeconds"] = 45
        if each["metadata"]["name"].endswith("-idle"):
            each["metadata"]["creationTimestamp"] = rfc3339(NOW - 3600)

    def answer(method: str, path: str, body: Any) -> Any:
        """Answer after three seconds; evicted pods end later."""
        controlled.now += 3
        return {"status": "Success"} if method == "POST" else send(controlled.api, method, path, body)

    controlled.api._pod = answer  # type: ignore[method-assign]
    begin = controlled.now + 60
    controlled.run()
    records = controlled.api.ledger().records
    assert [each.planned_at for each in records] == [round(begin, 4), round(begin + 9, 4)]  # patch, evict, read
    assert [each.evicted_at for each in records] == [round(begin + 9, 4), round(begin + 18, 4)]
    assert {(each.youngest, each.grace, each.version) for each in records} == {(NOW - 3600, 45.0, 77)}


def test_observe_sends_no_change() -> None:
    """In mode observe nothing is sent, the plan is published, and a planned move is not planned again at once."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run()
    plan = controlled.rebalancer.published.plan
    assert len(plan.moves) == 2
    first = {move.record.name for move in plan.moves}
    controlled.run(cycles=2)
    assert not first & {move.record.name for move in controlled.rebalancer.published.plan.moves}
    assert controlled.api.sent == []


@pytest.mark.parametrize("number", range(16))
def test_a_kill_at_any_write_loses_nothing(number: int) -> None:
    """Killed before or after any write, the next process exceeds no cap, knows every eviction, and leaves no note."""
    rules = replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=2))
    first = Controlled(hot_and_cold(), rules=rules)
    kill_at(first.api, number)
    with pytest.raises(Killed):
        first.run(cycles=3)
    second = Controlled(first.world, api=first.api, rules=rules)
    second.now = first.now
    second.run(cycles=4)
    evicted = first.api.evicted
    assert 1 <= len(evicted) <= 2
    known = {each.uid: each.state for each in first.api.ledger().records}
    assert all(known[uid] is not MoveState.PLANNED for uid in evicted)
    assert not [each for each in first.world.look().all_members() if each.facts.is_noted]
    assert not [uid for uid, state in known.items() if state is MoveState.PLANNED]


def test_two_leaders_evict_no_more_than_the_caps_allow() -> None:
    """A process that was suspended and still takes itself for the leader fails at the ledger before it evicts."""
    rules = replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1))
    first = Controlled(hot_and_cold(), rules=rules)
    second = Controlled(first.world, api=first.api, rules=rules)
    first.run(seconds=1)
    first.run(seconds=1)  # has read the ledger
    second.run(seconds=1)
    for _ in range(3):
        first.run()
        second.run()
    assert len(first.api.evicted) == 1


def test_a_node_that_is_ready_again_starts_searches_until_one_is_confirmed() -> None:
    """The trigger nodes starts as many searches as must find a node, then none until a failed node is Ready again."""
    world, rules = hot_and_cold(), replace(RULES, nodes=NodeRules(bad_looks=3))
    world.nodes[2] = node("node-idle", status={"conditions": [{"type": "Ready", "status": "False"}]})
    controlled = Controlled(world, rules=rules, trigger=Trigger.NODES)
    controlled.run(cycles=3)
    assert (controlled.rebalancer.counts.searches, len(controlled.api.evicted) > 0) == (3, True)
    assert {move.record.target for move in controlled.rebalancer.published.plan.moves} == {"node-cold"}
    controlled.run(cycles=3)
    assert controlled.rebalancer.counts.searches == 3
    world.nodes[2] = node("node-idle")
    controlled.run()
    assert controlled.rebalancer.counts.searches == 4


@pytest.mark.parametrize("status", [409, 500, 0])
def test_only_what_is_written_is_reported(status: int) -> None:
    """While the ledger refuses the end of a move and the brake, neither is counted or told; then each is, once."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, timeout=600.0))
    controlled.run()
    moved = len(controlled.api.evicted)
    controlled.api.fault = lambda method, path: (status, {}, {}) if method == "PUT" and "/configmaps" in path else None
    controlled.run(seconds=700, cycles=5)
    assert not {"lost", "landed"} & set(controlled.rebalancer.counts.moves)
    told = [each["reason"] for each in controlled.api.events]
    assert set(told) == {"Rebalanced"}
    controlled.api.fault = lambda _method, _path: None
    controlled.run(cycles=3)
    assert controlled.rebalancer.counts.moves["lost"] == moved
    told = [each["reason"] for each in controlled.api.events]
    assert told.count("RebalanceLost") == moved
    assert told.count("RebalancerStopped") == (controlled.api.ledger().brake is not None)


def test_without_the_lease_nothing_moves() -> None:
    """A replica without the Lease sends nothing; one that loses it in a cycle stops before the next write."""
    controlled = Controlled(hot_and_cold())
    controlled.term = None
    controlled.run(cycles=3)
    assert controlled.api.sent == []

    lost = Controlled(hot_and_cold())
    lost.api.fault = lambda method, _path: setattr(lost, "term", 2) if method == "PATCH" else None
    lost.run()
    assert lost.api.evicted == []
    (planned,) = lost.api.ledger().records
    assert planned.state is MoveState.PLANNED
    lost.api.fault = lambda _method, _path: None
    lost.run(seconds=121)
    assert [each.state for each in lost.api.ledger().records[:2]] == [MoveState.REFUSED, MoveState.EVICTED]


def test_before_the_first_lists_nothing_is_read_or_sent() -> None:
    """Until every kind is listed a cycle does nothing: a workload whose pods are not known yet would seem gone."""
    controlled = Controlled(hot_and_cold())
    controlled.watch.is_synced = False
    controlled.run(cycles=3)
    assert (controlled.rebalancer.run_cycle(), controlled.rebalancer.counts.searches) == (False, 0)
    assert controlled.api.sent == []
    controlled.watch.is_synced = True
    assert controlled.rebalancer.run_cycle()
    assert controlled.api.evicted


def refuse(answer: Answer) -> Callable[[str, str], Answer | None]:
    return lambda _method, path: answer if path.endswith("/eviction") else None


def test_a_refused_pod_waits_ever_longer() -> None:
    """After a refusal the note is removed, the pod stays for the pause, and then for twice as long."""
    world = hot_and_cold()
    others = tuple(f"app=app-{letter}" for letter in "bcde")
    rules = replace(RULES, pods=PodRules(excluded_labels=others))
    controlled = Controlled(world, rules=rules)
    controlled.api.fault = refuse((429, BUDGET, {}))
    tries = []
    for minute in range(1, 20):
        sent = controlled.api.sent.count("POST namespaces/default/pods/app-a-hot/eviction")
        controlled.run()
        if controlled.api.sent.count("POST namespaces/default/pods/app-a-hot/eviction") > sent:
            tries.append(minute)
    assert tries == [1, 6, 16]
    note = "PATCH namespaces/default/pods/app-a-hot"
    first = [each for each in controlled.api.sent if not each.endswith("events")][:5]
    assert first == [
        "POST configmaps", note, "POST namespaces/default/pods/app-a-hot/eviction", "PUT trimaran-rebalancer", note,
    ]  # fmt: skip
    assert world.pod("app-a-hot")["metadata"]["annotations"] == {}
    assert controlled.api.events[0]["reason"] == "RebalanceRefused"
    assert controlled.rebalancer.counts.refusals["budget"] == 3


@pytest.mark.parametrize(("last", "refusals"), [(MoveState.REFUSED, 4), (MoveState.LANDED, 1)])
def test_a_move_ends_a_row_of_refusals(last: MoveState, refusals: int) -> None:
    """A pause doubles with the refusals since the last move of the lineage."""
    controlled = Controlled(hot_and_cold())
    controlled.run()
    record = controlled.api.ledger().records[0]
    states = (MoveState.LANDED, MoveState.REFUSED) if last is MoveState.REFUSED else (MoveState.REFUSED, last)
    former = [
        record.changed(uid=f"former-{state}", state=state, refusals=3, planned_at=NOW - 80_000 + number, evicted_at=0.0)
        for number, state in enumerate(states)
    ]
    again = Controlled(hot_and_cold())
    again.api.store.write(Ledger(tuple(former)))
    again.api.fault = refuse((429, BUDGET, {}))
    again.run()
    (refused,) = [each for each in again.api.ledger().records if each.uid == record.uid]
    assert (refused.state, refused.refusals) == (MoveState.REFUSED, refusals)


def test_an_overloaded_api_server_pauses_all_moves() -> None:
    """A 429 that names no budget stops the plan, and no eviction is requested before Retry-After."""
    controlled = Controlled(hot_and_cold())
    controlled.api.fault = refuse((429, {"message": "slow down"}, {"Retry-After": "150"}))
    controlled.run(cycles=2)
    assert sum(each.endswith("eviction") for each in controlled.api.sent) == 1
    controlled.api.fault = lambda _method, _path: None
    controlled.run(cycles=2)
    assert controlled.api.evicted


def test_an_eviction_without_an_answer_counts() -> None:
    """If the connection breaks after the API server evicted the pod, the move counts and its end is awaited."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1)))
    original = controlled.api.send

    def send(method: str, path: str, *arguments: Any) -> Any:
        answer = original(method, path, *arguments)
        if path.endswith("/eviction"):
            raise requests.ConnectionError("broken")
        return answer

    controlled.api.send = send  # type: ignore[method-assign]
    controlled.run(cycles=3)
    assert len(controlled.api.evicted) == 1
    (record,) = controlled.api.ledger().records
    assert record.state is MoveState.EVICTED


def test_a_silent_watch_settles_no_move() -> None:
    """While the API server reports no pods, an evicted pod still seems to be there: its move counts nevertheless."""
    rules = replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1))
    controlled = Controlled(hot_and_cold(), rules=rules)
    before, original = copy.deepcopy(controlled.world), controlled.api.send

    def send(method: str, path: str, *arguments: Any) -> Any:
        answer = original(method, path, *arguments)
        if path.endswith("/eviction"):
            controlled.watch.world = before
            raise requests.ConnectionError("broken")
        return answer

    controlled.api.send = send  # type: ignore[method-assign]
    controlled.run()
    controlled.watch.age_seconds = 70.0
    controlled.run(cycles=2)
    controlled.watch.world, controlled.watch.age_seconds = controlled.world, 0.0
    controlled.run(cycles=3)
    assert len(controlled.api.evicted) == 1
    assert controlled.api.ledger().records[0].state is MoveState.EVICTED


def test_an_eviction_that_is_never_answered_is_tried_ever_less_often() -> None:
    """An eviction without an answer, whose pod stays, counts as refused: the pauses double."""
    others = tuple(f"app=app-{letter}" for letter in "bcde")
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, pods=PodRules(excluded_labels=others)))
    controlled.api.fault = refuse((503, {"message": "no answer"}, {}))
    controlled.run(cycles=40)
    assert sum(each.endswith("/eviction") for each in controlled.api.sent) == 4


@pytest.mark.parametrize("seconds", [-50.0, 50.0, -7200.0, 7200.0])
def test_a_replacement_is_found_whatever_the_clock_says(seconds: float) -> None:
    """The replacement keeps the lineage of the evicted pod if our clock is not the API server's, or jumps meanwhile."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1)))
    controlled.run()
    (uid,) = controlled.api.evicted
    at = controlled.now
    controlled.now += seconds  # the API server's clock from now on
    controlled.replace(uid.removeprefix("uid-of-default-"), "node-idle")
    controlled.now = at
    controlled.run()
    (record,) = controlled.api.ledger().records
    assert record.replacement.endswith("-new")


def test_a_pod_stays_while_its_replacement_could_not_be_told_apart() -> None:
    """Creation times are whole seconds: while a pod of the workload is that new, as after a scale-up, none moves."""
    controlled = Controlled(hot_and_cold())
    idle = [each for each in controlled.world.pods if each["metadata"]["name"].endswith("-idle")]
    for each in idle:
        each["metadata"]["creationTimestamp"] = rfc3339(controlled.now + 59)  # one second before the search
    controlled.run()
    assert controlled.api.evicted == []
    assert controlled.rebalancer.counts.refusals["recheck"]
    controlled.run()
    assert controlled.api.evicted


def test_a_jump_of_the_clock_forgets_no_move_and_loses_none() -> None:
    """A clock that jumps by two days, and back, neither empties the caps nor sets the brake for an open move."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1)))
    controlled.run()
    for jump in (2 * 86400.0, 0.0):
        controlled.jump = jump
        controlled.run(cycles=3)
    ledger = controlled.api.ledger()
    assert [each.state for each in ledger.records] == [MoveState.EVICTED]
    assert ledger.brake is None


def test_searches_keep_their_distance() -> None:
    """Between two searches there are ``rebalance.search_seconds``, however often the controller runs."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run(seconds=10, cycles=6)
    assert controlled.rebalancer.counts.searches == 1
    controlled.run(seconds=10)
    assert controlled.rebalancer.counts.searches == 2


def test_a_silent_watch_starts_no_search_and_no_move() -> None:
    """While the API server is silent nothing is planned; if it falls silent within a plan, the next pod stays."""
    silent = Controlled(hot_and_cold())
    silent.watch.age_seconds = 70.0
    silent.run()
    assert "70 s" in silent.rebalancer.published.plan.nothing
    assert silent.rebalancer.counts.searches == 0

    controlled = Controlled(hot_and_cold())
    controlled.api.fault = lambda _method, path: (
        setattr(controlled.watch, "age_seconds", 70.0) if path.endswith("/eviction") else None
    )
    controlled.run()
    assert len(controlled.rebalancer.published.plan.moves) == 2
    assert len(controlled.api.evicted) == 1


def interrupt_by_lease(controlled: Controlled) -> None:
    """Lose the Lease for a cycle."""
    controlled.term = None
    controlled.run()
    controlled.term = 2


def interrupt_by_outage(controlled: Controlled) -> None:
    """Let the API server be silent for a cycle."""
    controlled.watch.age_seconds = 70.0
    controlled.run()
    controlled.watch.age_seconds = 0.0


def interrupt_by_stale_use(controlled: Controlled) -> None:
    """Let the use of the pods be too old for a cycle."""
    controlled.world.use_age = 5000.0
    controlled.run()
    controlled.world.use_age = 60.0


def interrupt_by_brake(controlled: Controlled) -> None:
    """Set the brake for a cycle, which searches nevertheless, and release it."""
    for brake in (Brake(BrakeReason.STOPPED, "stopped by a person", NOW), None):
        store = controlled.api.store
        store.write(store.read().with_brake(brake))
        if brake is not None:
            controlled.run()


@pytest.mark.parametrize(
    "interrupt", [interrupt_by_lease, interrupt_by_outage, interrupt_by_stale_use, interrupt_by_brake]
)
def test_bad_looks_begin_again_after_an_interruption(interrupt: Callable[[Controlled], None]) -> None:
    """Searches before an interruption do not count: three in a row after it must find the node."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, nodes=NodeRules(bad_looks=3)))
    controlled.run(cycles=2)
    interrupt(controlled)
    controlled.run(cycles=2)
    assert controlled.api.evicted == []
    controlled.run()
    assert controlled.api.evicted


def test_a_set_brake_keeps_its_reason() -> None:
    """A brake that is set keeps its reason, whatever else goes wrong, and is reported once."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1)))
    controlled.run()
    stopped = Brake(BrakeReason.STOPPED, "stopped by a person", NOW)
    store = controlled.api.store
    store.write(store.read().with_brake(stopped))
    controlled.run(seconds=1000, cycles=2)
    assert [each.state for each in controlled.api.ledger().records] == [MoveState.LOST]
    assert controlled.api.ledger().brake == stopped
    assert "RebalancerStopped" not in {each["reason"] for each in controlled.api.events}


def waiting_pods(count: int, since: float) -> list[dict[str, Any]]:
    """Return pods of other workloads that wait for a node."""
    return [pod(f"queued-{number}", of="queued", created_at=since, ready_at=None) for number in range(count)]


@pytest.mark.parametrize(("before", "expected"), [(0.0, BrakeReason.PENDING), (1000.0, None)])
def test_a_wait_that_grows_after_a_move_sets_the_brake(before: float, expected: BrakeReason | None) -> None:
    """The brake compares the pods' wait for a node with that before the moves, which stays as it was then."""
    controlled = Controlled(hot_and_cold(), rules=replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1)))
    if before:
        controlled.world.pods += waiting_pods(6, controlled.now - before)
    controlled.run()
    assert controlled.api.evicted
    if not before:
        controlled.world.pods += waiting_pods(6, controlled.now)
    controlled.replace(controlled.api.evicted[0].removeprefix("uid-of-default-"), "node-idle")
    controlled.run(cycles=3)
    brake = controlled.api.ledger().brake
    assert (None if brake is None else brake.reason) is expected


def test_the_past_of_evicted_pods_is_asked_for() -> None:
    """The watcher is asked for the use of evicted pods, which their replacements inherit."""
    controlled = Controlled(hot_and_cold())
    controlled.run(cycles=2)
    assert controlled.api.evicted
    assert controlled.asked_pods == set(controlled.api.evicted)


def test_a_lineage_that_moved_twice_is_counted() -> None:
    """The gauge behind the alert on loops counts pods that moved twice with their replacements."""
    controlled = Controlled(hot_and_cold())
    controlled.run()
    records = controlled.api.ledger().records
    again = records[0].changed(uid="again", state=MoveState.LANDED)
    assert controlled.rebalancer.counts.twice == 0
    store = controlled.api.store
    store.write(store.read().put(again))
    controlled.run(seconds=1)
    assert controlled.rebalancer.counts.twice == 1


def test_only_notes_that_nobody_needs_are_removed() -> None:
    """A note stays while its move is open, and while its pod terminates; else the controller removes it."""
    controlled = Controlled(hot_and_cold())
    controlled.api.fault = refuse((503, {"message": "no answer"}, {}))
    controlled.run()
    (record,) = controlled.api.ledger().records
    note = TargetNote("node-idle", "node-cold", NOW + 900).annotations()
    ends = controlled.world.pod("app-a-idle")["metadata"]
    ends.update(annotations=dict(note), deletionTimestamp="2026-11-18T12:00:00Z")
    left = controlled.world.pod("app-b-idle")["metadata"]
    left["annotations"] = dict(note)
    controlled.run(seconds=5)
    assert TargetNote.read(controlled.world.pod(record.name)["metadata"]["annotations"]) is not None
    assert ends["annotations"] == note
    assert left["annotations"] == {}


@pytest.mark.parametrize(
    ("answer", "requested"),
    [((429, BUDGET, {}), 2), ((403, {"message": "forbidden"}, {}), 1), ((503, {"message": "no answer"}, {}), 1)],
)
def test_only_some_answers_stop_the_plan(answer: Answer, requested: int) -> None:
    """A budget is about its pod only; without the right or without an answer the other moves wait, too."""
    controlled = Controlled(hot_and_cold())
    controlled.api.fault = refuse(answer)
    controlled.run()
    assert sum(each.endswith("/eviction") for each in controlled.api.sent) == requested


def test_a_pod_that_cannot_be_noted_is_not_evicted() -> None:
    """Without the note the extender could not send the replacement to the target: the pod stays and rests."""
    controlled = Controlled(hot_and_cold())
    controlled.api.fault = lambda method, _path: (403, {"message": "forbidden"}, {}) if method == "PATCH" else None
    controlled.run()
    assert not any(each.endswith("/eviction") for each in controlled.api.sent)
    assert {each.state for each in controlled.api.ledger().records} == {MoveState.REFUSED}
    assert controlled.rebalancer.counts.refusals == {"denied": 2}
    assert "cannot be annotated with its target" in controlled.api.events[0]["message"]


def test_a_refused_pod_rests_for_retry_after() -> None:
    """A pod rests for Retry-After if that is longer than the cooldown of a refusal."""
    controlled = Controlled(hot_and_cold())
    controlled.api.fault = refuse((429, BUDGET, {"Retry-After": "700"}))
    controlled.run()
    assert {each.wait for each in controlled.api.ledger().records} == {700.0}


def very_hot() -> World:
    """Return a cluster whose hot node is hot without one of its pods, too."""
    world = hot_and_cold()
    world.cores = dict.fromkeys(world.cores, 1.8)
    return world


def test_the_next_pod_waits_for_the_replacement() -> None:
    """With one open move at a time the second pod moves once the replacement of the first is Ready."""
    rules = replace(RULES, caps=CapLimits(percent_per_hour=100, open_moves=1))
    controlled = Controlled(very_hot(), rules=rules)
    controlled.run(cycles=3)
    (uid,) = controlled.api.evicted
    name = uid.removeprefix("uid-of-default-")
    controlled.replace(name, "node-idle")
    controlled.run(cycles=1)
    landed = controlled.api.ledger().records[0]
    assert (landed.state, landed.landed_on) == (MoveState.LANDED, "node-idle")
    assert len(controlled.api.evicted) == 2
    assert controlled.rebalancer.counts.moves["landed"] == 1
    controlled.world.pods[-1]["status"]["containerStatuses"][0]["restartCount"] = 1
    controlled.run(cycles=1)
    assert controlled.api.ledger().records[0].restarts == 1
    assert controlled.rebalancer.counts.moves["landed"] == 1  # a restart afterwards is no second landing


def test_the_brake_survives_a_restart_and_stops_all_moves() -> None:
    """An unschedulable replacement sets the brake with a Warning; nothing moves from then on, also after a restart."""
    rules = replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=1))
    controlled = Controlled(very_hot(), rules=rules)
    controlled.run()
    name = controlled.api.evicted[0].removeprefix("uid-of-default-")
    since = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "lastTransitionTime": rfc3339(controlled.now)}  # fmt: skip
    controlled.replace(name, "", ready=False, conditions=[since])
    controlled.run(cycles=4)
    brake = controlled.api.ledger().brake
    assert brake is not None
    assert brake.reason is BrakeReason.UNSCHEDULABLE
    warning = [each for each in controlled.api.events if each["type"] == "Warning"]
    assert [each["reason"] for each in warning] == ["RebalancerStopped"]

    restarted = Controlled(controlled.world, api=controlled.api)
    restarted.now = controlled.now
    restarted.run()
    published = restarted.rebalancer.published
    assert (published.acts, bool(published.plan.moves)) == (False, True)  # it observes
    restarted.run(cycles=3)
    assert len(restarted.api.evicted) == 1


def test_moves_planned_under_the_brake_delay_none_after_it() -> None:
    """Moves are planned under the brake; after it the same pods move, and nothing is left of what was only planned."""
    controlled = Controlled(hot_and_cold())
    store = controlled.api.store
    store.write(store.read().with_brake(Brake(BrakeReason.STOPPED, "stopped by a person", NOW)))
    controlled.run(cycles=3)
    planned = {each.uid for each in controlled.rebalancer.published.ledger.records if each.state is MoveState.HELD}
    assert planned
    assert controlled.api.evicted == []
    store.write(store.read().with_brake(None))
    controlled.run()
    assert controlled.api.evicted[0] in planned
    assert MoveState.HELD not in {each.state for each in controlled.rebalancer.published.ledger.records}


def test_the_plan_under_the_brake_is_forgotten_with_it() -> None:
    """Until the first search after the brake nobody reads that a move is planned, or refused because of one."""
    controlled = Controlled(hot_and_cold())
    store = controlled.api.store
    store.write(store.read().with_brake(Brake(BrakeReason.STOPPED, "stopped by a person", NOW)))
    controlled.run()
    assert controlled.rebalancer.published.plan.moves
    store.write(store.read().with_brake(None))
    controlled.run(seconds=1)
    published = controlled.rebalancer.published
    assert (published.acts, published.plan.nothing, published.plan.moves) == (True, "no search yet", ())


def test_a_person_stops_between_search_and_eviction() -> None:
    """A brake that is written after the leader has read the ledger makes its next write fail: nothing is evicted."""
    controlled = Controlled(hot_and_cold())
    store = controlled.api.store
    store.write(store.read().with_brake(None))
    stopped = Brake(BrakeReason.STOPPED, "stopped by a person", NOW)
    original = controlled.metrics

    def stop(window: str | None = None) -> Any:
        store.read()
        store.write(Ledger(brake=stopped))
        return original(window)

    controlled.metrics = stop  # type: ignore[method-assign]
    controlled.run(cycles=3)
    assert controlled.api.evicted == []
    assert controlled.api.ledger().brake == stopped


def test_an_unreadable_ledger_moves_nothing() -> None:
    """A ConfigMap with something else is kept, and nothing moves."""
    controlled = Controlled(hot_and_cold())
    body = {"kind": "ConfigMap", "metadata": {"name": "trimaran-rebalancer"}, "data": {"ledger": "text"}}
    controlled.api.send("POST", "/api/v1/namespaces/trimaran/configmaps", None, body)
    controlled.run(cycles=3)
    assert controlled.api.sent == ["POST configmaps"]


@pytest.mark.parametrize("seconds", [120.0, -120.0])
def test_a_jump_of_the_clock_pauses_moves_for_an_hour(seconds: float) -> None:
    """After the clock jumped, caps by time cannot be trusted: pods that would move at once rest for an hour."""

    def heated(jump: float) -> Controlled:
        """Return a controller whose node becomes hot only now, so that no earlier move sets the brake."""
        world = hot_and_cold()
        hot, world.cores = world.cores, {}
        controlled = Controlled(world)
        controlled.run()
        # Not further than the rules' max_age, beyond which the use would be too old to plan by.
        world.cores, controlled.jump = hot, jump
        controlled.run()
        return controlled

    assert heated(0.0).api.evicted
    controlled = heated(seconds)
    controlled.run(seconds=599, cycles=6)
    assert controlled.api.evicted == []
    controlled.run()
    assert controlled.api.evicted
    assert controlled.api.ledger().brake is None


def test_searches_without_a_plan_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """While searches find no usable input, the log says so once, and once that the searches go on."""
    caplog.set_level("INFO")
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.world.use_age = 5000
    controlled.run(cycles=5)

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if "search" in each.getMessage()]

    assert lines() == ["no search for moves"]
    assert "up to date" in controlled.rebalancer.published.plan.nothing
    controlled.world.use_age = 60
    controlled.run(cycles=3)
    assert lines() == ["no search for moves", "moves are searched for again"]


def test_the_holdout_is_recorded() -> None:
    """Held moves are in the ledger, and are measured after the time; the gains are given by group."""
    rules = replace(RULES, holdout_percent=49, measure=900.0)
    controlled = Controlled(hot_and_cold(), rules=rules)
    controlled.run()
    held = [each for each in controlled.api.ledger().records if each.state is MoveState.HELD]
    assert held
    controlled.run(cycles=20)
    measured = [each for each in controlled.api.ledger().records if each.state is MoveState.HELD]
    assert all(each.measured is not None for each in measured if controlled.now - each.planned_at > 1000)
    assert ("held", "measured") in controlled.rebalancer.counts.gains


def test_the_state_and_the_explanation() -> None:
    """The state lists plan, caps and reasons; the explanation of a pod names the setting that keeps it."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run()
    state = status_document(controlled.rebalancer, "observe", leads=True)
    assert [move["source"] for move in state["planned"]] == ["node-hot", "node-hot"]
    assert state["caps"]["hour"] == [2, 10]
    lines = status_lines(state)
    assert lines[:2] == ["mode observe: only observes, 1 searches", "moves: 2 of 10 hour, 2 of 200 day, 0 of 5 open"]
    assert "from node-hot (CPU 94 % to 75 %) to node-idle (CPU 0 % to 19 %), gain 0.50" in lines[2]
    published = controlled.rebalancer.published
    moving = state["planned"][0]["name"]
    found = explanation(published, moving)
    assert found is not None
    assert found["moves"]
    stays = explanation(published, "default/app-a-idle")
    assert stays is not None
    assert "rebalance.source_percent" in stays["text"]
    assert explanation(published, "default/unknown") is None
    blind = replace(published, plan=MovePlan(nothing="nothing is measured"))
    found = explanation(blind, "default/app-a-idle")
    assert found is not None
    assert (found["reason"], found["text"]) == ("no_search", "nothing is measured")
    assert explanation(blind, "default/unknown") is None


def test_the_explanation_has_the_numbers_that_decide() -> None:
    """A pod that may move and does not: gain, interval, min_gain, coldest target, and what stops it."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run()
    published = controlled.rebalancer.published
    uid, (target, gain, low) = next(iter(published.plan.prospects.items()))
    (name,) = [
        f"{each.pod.namespace}/{each.pod.name}" for _, each in controlled.world.look().running if each.pod.uid == uid
    ]
    assert gain > published.plan.min_gain
    assert low > 0

    def reason_of(caps: Any = None, **changes: Any) -> tuple[str, str]:
        plan = replace(published.plan, **{"moves": (), "stays": {}, "missing": {}, **changes})
        found = explanation(replace(published, plan=plan, caps=caps or {}), name)
        assert found is not None
        assert found["coldest_target"] == "node-idle"
        return found["reason"], found["text"]

    assert reason_of(missing={"node-hot": 2})[0] == "few_bad_looks"
    assert reason_of(min_gain=2.0) == (
        "no_gain", f"its best move, to {target}, would gain {gain:.3f}, not more than rebalance.min_gain (2)"
    )  # fmt: skip
    assert reason_of(prospects={uid: (target, 0.2, -0.1)})[0] == "uncertain"
    assert reason_of(prospects={}, hot=frozenset())[0] == "no_gain"
    assert reason_of(prospects={})[0] == "others_first"
    assert reason_of(caps={"hour": (10, 10), "day": (10, 200)})[1].endswith("the caps are used up: hour 10 of 10")
    found = explanation(replace(published, plan=replace(published.plan, moves=(), stays={}, missing={})), name)
    assert found is not None
    assert (found["target"], found["gain"], found["low"]) == (target, gain, low)
    assert "hidden_cores" not in found
    hidden = replace(published.plan, moves=(), stays={}, missing={}, prospects={}, hidden={uid: 0.5})
    found = explanation(replace(published, plan=hidden), name)
    assert found is not None
    assert found["hidden_cores"] == 0.5
    assert "rebalance.target_percent" in found["text"]


@pytest.mark.parametrize(
    "state",
    [
        {"state": {"waiting": {"reason": "ErrImagePull"}}},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        {"state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled"}}},
    ],
)
@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_replacement_that_cannot_start_holds_all_moves(state: dict[str, Any], kind: str) -> None:
    """No pod moves, even while it runs between two crashes; then pods move again, or after two minutes it brakes."""
    controlled = Controlled(very_hot(), rules=replace(RULES, caps=CapLimits(percent_per_hour=100, per_hour=100)))
    controlled.run()
    name, moved = controlled.api.evicted[0].removeprefix("uid-of-default-"), len(controlled.api.evicted)
    controlled.replace(name, "node-cold", ready=False)
    failing = controlled.world.pods[-1]
    failing["status"][kind] = [{"name": "c", **state}]
    controlled.run(seconds=10)
    held = controlled.rebalancer.published.plan.nothing
    assert held.startswith(f"the pod default/{failing['metadata']['name']}, which replaces {name}, ")
    del failing["status"][kind]
    controlled.run(seconds=60)
    assert "is not Ready" in controlled.rebalancer.published.plan.nothing
    assert (len(controlled.api.evicted), controlled.api.ledger().brake) == (moved, None)
    recovers = kind == "containerStatuses"
    if recovers:
        controlled.world.pods.remove(failing)
        controlled.replace(name, "node-cold")
    controlled.run(seconds=60)
    assert "cannot start" not in controlled.rebalancer.published.plan.nothing  # with a brake nothing is planned
    brake = controlled.api.ledger().brake
    assert (None if brake is None else brake.reason) == (None if recovers else BrakeReason.FAILING)


def test_a_fragmented_cluster_is_seen() -> None:
    """An unschedulable pod that fits all nodes together, but no single one, makes the cluster fragmented."""
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    world = hot_and_cold()
    assert not is_fragmented(world.look())
    for request, expected in (("12", True), ("30", False)):
        waiting = pod("big", of="big", request=request, ready_at=None, conditions=[refused])
        assert is_fragmented(replace(world, pods=[*world.pods, waiting]).look()) is expected


@pytest.mark.parametrize("wrong", ['"planned_at":"now"', None])
def test_an_unreadable_ledger_is_one_message_and_moves_nothing(
    wrong: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A field of another type, or a ConfigMap without its key: no move, no write, and the brake is still set later."""
    controlled = Controlled(hot_and_cold())
    controlled.run()
    store = controlled.api.store
    store.write(store.read().with_brake(Brake(BrakeReason.LOST, "why", NOW)))
    (stored,) = controlled.api.maps.values()
    before = stored["data"]
    text = re.sub(r'"planned_at":[0-9.]+', wrong or "", before["ledger"], count=1)
    stored["data"] = {"ledger": text} if wrong else {}
    controlled.api.sent.clear()
    controlled.run(cycles=5)
    assert controlled.api.sent == []
    (told,) = [vars(each)["error"] for each in caplog.records if each.getMessage() == "no search for moves"]
    assert ("$.moves[0].planned_at" if wrong else "has no key 'ledger'") in told
    assert "nothing is moved" in told
    stored["data"] = before
    controlled.run()
    brake = controlled.rebalancer.published.ledger.brake
    assert brake is not None
    assert brake.reason is BrakeReason.LOST
    assert not [each for each in controlled.api.sent if each.endswith("/eviction")]
