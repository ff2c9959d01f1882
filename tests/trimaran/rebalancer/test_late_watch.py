"""Moves under a watch that is late, and evictions without effect: a move is judged by what came after it."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from support.controlling import RULES, Controlled, Watch
from support.moving_api import MovingApi
from support.rebalancing import NOW, World, hot_and_cold, pod, rfc3339

from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.ledger import Ledger
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.outcomes import followed
from trimaran.rebalancer.rules import CapLimits, NodeRules

CYCLE = 5.0
READY_AFTER = 30.0
ONE_AT_A_TIME = replace(
    RULES,
    caps=CapLimits(percent_per_hour=100, open_moves=1, node_per_hour=20),
    nodes=NodeRules(source_percent=50, target_percent=45, bad_looks=1),
)


class LateWatch(Watch):
    """Watches that show the pods of some seconds ago."""

    def __init__(self, world: World, seconds: float) -> None:
        super().__init__(world)
        self._seconds, self._past = seconds, [(world.now, copy.deepcopy(world.pods))]

    def keep(self) -> None:
        """Remember the pods of now."""
        self._past.append((self.world.now, copy.deepcopy(self.world.pods)))

    def look(self, use: Any, measured: Any, window: tuple[float, float], now: float) -> ClusterLook:
        pods, until = self.world.pods, self.world.now - self._seconds
        if self._seconds:
            self.world.pods = next((past for at, past in reversed(self._past) if at <= until), self._past[0][1])
        try:
            return super().look(use, measured, window, now)
        finally:
            self.world.pods = pods


class LateCluster:
    """A rebalancer under a late watch, over a cluster that replaces evicted pods.

    Attributes:
        controlled: the rebalancer.
        away: largest number of evicted pods without a Ready replacement at a time.
    """

    def __init__(self, late: float, *, places: bool) -> None:
        self.world = hot_and_cold()
        self.controlled = Controlled(self.world, rules=ONE_AT_A_TIME)
        self.watch = self.controlled.rebalancer._watch = LateWatch(self.world, late)
        self.away, self._places = 0, places
        self._replaced: dict[str, float] = {}

    @property
    def api(self) -> MovingApi:
        """The API."""
        return self.controlled.api

    def run(self, seconds: float) -> None:
        """Run cycles, and the workloads' controllers, scheduler and kubelets between them."""
        for _ in range(int(seconds / CYCLE)):
            self.controlled.run(CYCLE)
            self._replace()
            self.watch.keep()

    def _replace(self) -> None:
        now = self.controlled.now
        for uid in self.api.evicted:
            of = uid.removeprefix("uid-of-default-").rpartition("-")[0]
            if uid not in self._replaced:
                self._replaced[uid] = now
                waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                         "lastTransitionTime": rfc3339(now)}  # fmt: skip
                self.world.pods.append(pod(f"{of}-new", created_at=now, of=of, ready_at=None, conditions=[waits]))
            elif self._places and now - self._replaced[uid] == READY_AFTER:
                self.world.pods.remove(self.world.pod(f"{of}-new"))
                self.controlled.replace(f"{of}-hot", "node-idle")
        waiting = sum(each["metadata"]["name"].endswith("-new") and "nodeName" not in each["spec"]
                      for each in self.world.pods)  # fmt: skip
        self.away = max(self.away, waiting)


@pytest.mark.parametrize("late", [0.0, 5.0, 20.0, 60.0])
def test_a_late_watch_hides_no_lost_replacement(late: float) -> None:
    """A replacement without a node stops the moves however late it is seen, and no second pod is evicted."""
    cluster = LateCluster(late, places=False)
    cluster.run(900)
    ledger = cluster.api.ledger()
    assert ledger.brake is not None
    assert ledger.brake.reason is BrakeReason.UNSCHEDULABLE
    assert ledger.brake.at - ledger.records[0].evicted_at <= ONE_AT_A_TIME.brake.unschedulable + late + 3 * CYCLE
    assert [each.state for each in ledger.records] == [MoveState.EVICTED]
    assert len(cluster.api.evicted) == 1


def test_moves_go_on_under_a_late_watch() -> None:
    """Under a watch that is 5 or 20 seconds late the same pods move, one at a time, and each move has a replacement."""
    moved = {}
    for late in (0.0, 5.0, 20.0):
        cluster = LateCluster(late, places=True)
        cluster.run(500)
        records = cluster.api.ledger().records
        assert cluster.away == 1
        assert all(each.replacement for each in records if each.state is MoveState.LANDED)
        moved[late] = {each.name for each in records if each.is_made}
    assert len(moved[0.0]) > 1
    assert moved[0.0] == moved[5.0] == moved[20.0]


def test_an_eviction_without_effect_counts_and_is_lost() -> None:
    """The API server answers 200 and the pod stays: the move never lands, counts for the caps, and sets the brake."""
    world = hot_and_cold()
    api = MovingApi(world)
    asked: list[str] = []
    send = api._pod

    def answer(method: str, path: str, body: Any) -> Any:
        if method == "POST":
            asked.append(path)
            return {"kind": "Status", "status": "Success"}
        return send(method, path, body)

    api._pod = answer  # type: ignore[method-assign]
    controlled = Controlled(world, api=api)
    controlled.run(60, 4 * 60)
    ledger = api.ledger()
    assert [each.state for each in ledger.records] == [MoveState.LOST] * len(asked)
    assert ledger.brake is not None
    assert ledger.brake.reason is BrakeReason.LOST
    assert len(asked) <= RULES.caps.open_moves


def test_a_second_eviction_of_a_pod_is_a_second_record() -> None:
    """A pod whose eviction had no effect keeps its record when it is evicted again; a refusal is replaced."""
    first = MoveRecord(
        "uid", "default", "web", "Deployment", "web", "", "uid", "a", "b", MoveState.LOST, planned_at=NOW
    )
    second = first.changed(state=MoveState.PLANNED, planned_at=NOW + 3600)
    ledger = Ledger((first,)).put(second)
    assert ledger.records == (first, second)
    assert ledger.put(second.changed(state=MoveState.EVICTED)).records == (
        first,
        second.changed(state=MoveState.EVICTED),
    )
    refused = first.changed(state=MoveState.REFUSED)
    assert Ledger((refused,)).put(second).records == (second,)
    assert Ledger.from_json(ledger.to_json()).find(second.key) == second


def test_an_earlier_version_of_the_pods_says_nothing() -> None:
    """A move is not over without a replacement before the watch has reached the version of the evicted pod."""
    world = hot_and_cold()
    world.pods = [each for each in world.pods if each["metadata"]["name"] != "app-a-hot"]
    world.workloads[0]["spec"]["replicas"] = 1
    move = MoveRecord(
        "uid-of-default-app-a-hot", "default", "app-a-hot", "Deployment", "app-a", "5d8f7c9b64", "uid", "node-hot",
        "node-idle", MoveState.EVICTED, planned_at=NOW - 60, evicted_at=NOW - 60, youngest=NOW - 60, version=100,
    )  # fmt: skip
    for version, states in ((99, []), (100, [MoveState.LANDED])):
        look = replace(world.look(), version=version)
        assert [each.state for each in followed(look, [move], RULES)] == states


@pytest.mark.parametrize(("seconds", "state"), [(890.0, None), (910.0, None), (930.0, None), (950.0, MoveState.LOST)])
def test_a_pod_may_take_its_grace_period_to_end(seconds: float, state: MoveState | None) -> None:
    """A move whose pod is still there is lost after the timeout and the pod's own grace period."""
    world = hot_and_cold()
    move = MoveRecord(
        "uid-of-default-app-a-hot", "default", "app-a-hot", "Deployment", "app-a", "5d8f7c9b64", "uid", "node-hot",
        "node-idle", MoveState.EVICTED, planned_at=NOW - seconds, evicted_at=NOW - seconds, youngest=NOW - seconds,
        grace=30.0,
    )  # fmt: skip
    found = [each.state for each in followed(world.look(), [move], RULES)]
    assert found == ([] if state is None else [state])
