"""The use and the loads that a plan is made from: young pods, pods that are being deleted, and moves of late."""

from dataclasses import replace

import numpy as np
import orjson
import pytest
from support.extending import metrics, snapshot_of
from support.rebalancing import CORES, NOW, World, deployment, hot_and_cold, node, pod

from client import ClientError
from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.look import NO_USE, plan_arrays, recent_moves
from trimaran.rebalancer.measured_use import UseReader
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import MovePlan, plan_moves
from trimaran.rebalancer.rules import CapLimits, Cooldowns, MoveRules, NodeRules
from watcher import wire
from watcher.model import WatcherMetrics
from watcher.pod_use_table import PodUseTable
from watcher.wire import Dialect

RULES = MoveRules(
    holdout_percent=0, caps=CapLimits(percent_per_hour=100), nodes=NodeRules(bad_looks=1, good_looks=1),
    cooldowns=Cooldowns(node=0),
)  # fmt: skip
MOVE = MoveRecord(
    "uid-of-default-old", "default", "old", "Deployment", "app-a", "5d8f7c9b64", "old", "node-cold", "node-idle",
    state=MoveState.LANDED, planned_at=NOW - 120, evicted_at=NOW - 120, ready_at=NOW - 100,
    landed_on="node-idle", cores=4.0,
)  # fmt: skip


def plan(world: World, *records: MoveRecord) -> MovePlan:
    """Return the plan for a cluster."""
    return plan_moves(world.look(), records, RULES, BadLooks(1, 1))


def test_a_young_pod_begins_with_the_course_of_its_workload() -> None:
    """The steps before a pod's first one have its workload's course at the pod's level, as in a replay."""
    look = World([node("node-a")], [pod("web-0", "node-a")], [deployment("web", 2)], cores={"web-0": 0.5}).look()
    look.use.cpu_cores[0, :-12] = np.nan
    look.use.courses[:] = 1.0
    look.use.courses[0, 0, 3] = 2.0
    cpu = plan_arrays(look, (), 288).problem.cpu[0]
    hours = ((look.use.timestamp // 300 - np.arange(288, 0, -1)) // 12 % 24).astype(int)
    assert cpu[hours == 3].mean() / cpu[hours == 9].mean() > 1.2
    assert cpu[-12:].mean() == pytest.approx(0.5, abs=0.01)


def test_a_pod_that_is_being_deleted_no_longer_heats_its_node() -> None:
    """While the evicted pod terminates, its node counts without it: no further pod leaves for it."""
    world = hot_and_cold()
    assert len(plan(world).moves) == 2
    for name in ("app-a-hot", "app-b-hot"):
        world.pod(name)["metadata"]["deletionTimestamp"] = "2026-11-18T12:00:00Z"
    assert plan(world).moves == ()


def test_a_target_is_below_its_level_by_its_own_metrics_too() -> None:
    """A node that other programs load above target_percent takes no pod, however little its pods use."""
    world = hot_and_cold()
    world.nodes[1] = node("node-cold", spec={"unschedulable": True})
    world.pods.append(pod("busy", "node-idle", of="busy"))
    world.cores["busy"] = 3.5
    assert {each.record.target for each in plan(world).moves} == {"node-idle"}
    world.measured["node-idle"] = 69.0
    assert "node-idle" not in plan(world).targets
    assert plan(world).moves == ()
    world.measured["node-idle"], world.cores["busy"] = 30.0, 4.2  # the metrics lack some of the use of the pods
    assert "node-idle" not in plan(world).targets
    assert plan(world).moves == ()


def test_a_load_that_a_move_has_changed_is_corrected() -> None:
    """Right after a move the metrics show the former load: with the moved pod it agrees with the node's pods."""
    world = replace(hot_and_cold(), measured={"node-cold": 56.0, "node-idle": 0.0})
    world.pods.append(pod("busy", "node-idle", of="busy"))
    world.cores["busy"] = 4.0
    assert (plan(world).targets["node-idle"], plan(world).targets["node-cold"]) == ("disagrees", "disagrees")
    assert plan(world, MOVE).targets == {}
    earlier = MOVE.changed(planned_at=NOW - 2000, evicted_at=NOW - 2000)
    assert plan(world, earlier).targets["node-idle"] == "disagrees"


def test_a_source_that_has_cooled_starts_no_search() -> None:
    """The load trigger sees the load after a move, not that which the window still shows."""

    class Source:
        def metrics(self, window: str | None = None) -> object:
            return metrics({"node-cold": 90.0, "node-idle": 10.0}, NOW)

    reader = UseReader(Source(), 900, lambda: NOW)  # type: ignore[arg-type]
    assert max(reader.node_loads(())) == 90
    moves = list(recent_moves(hot_and_cold().look().table, [MOVE.changed(evicted_at=NOW)]))
    assert moves[0].source_percent == 100 * 4 / CORES
    assert sorted(reader.node_loads(moves))[:3] == [10, 40, 60]


class FakeSource:
    """A watcher whose metrics end at some time, with metadata of its first node; or one that fails."""

    def __init__(self, ended_at: float, error: str = "", **metadata: str) -> None:
        self.ended_at, self.error, self.metadata = ended_at, error, metadata

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        del window
        if self.error:
            raise ClientError(self.error)
        found = snapshot_of({"node-a": 50.0, "node-b": 60.0}, self.ended_at)
        found["data"]["node-a"]["metadata"] = self.metadata
        return wire.decode(orjson.dumps(found), Dialect.DOCUMENTED)

    def pod_history(self, nodes: object, pods: object = ()) -> PodUseTable:
        del nodes, pods
        return NO_USE


@pytest.mark.parametrize(("age", "is_fresh"), [(899, True), (901, False), (-899, True), (-901, False)])
def test_metrics_of_nodes_that_are_too_old_are_none(age: float, is_fresh: bool) -> None:
    """Metrics that ended long ago, or in the future, are not used, and the reason names the setting."""
    reader = UseReader(FakeSource(NOW - age), 900, lambda: NOW)
    assert ("too old" not in reader.refresh((), ())) is is_fresh
    assert bool(reader.loads) is is_fresh


@pytest.mark.parametrize("metadata", [{"suspect": "frozen"}, {"grade": "last_good"}])
def test_metrics_of_nodes_that_cannot_be_trusted_are_none(metadata: dict[str, str]) -> None:
    """A node with suspect metrics, or with the last good ones only, counts as not measured."""
    reader = UseReader(FakeSource(NOW, **metadata), 900, lambda: NOW)
    assert reader.refresh((), ()) == ""
    assert reader.loads == {"node-b": 60.0}


def test_loads_are_those_of_nodes_in_any_case() -> None:
    """A node has the load of the host name that the source reports in another case."""
    source = FakeSource(NOW)
    upper = source.metrics()
    source.metrics = lambda window=None: replace(upper, data={name.upper(): each for name, each in upper.data.items()})  # type: ignore[method-assign,misc]
    reader = UseReader(source, 900, lambda: NOW)
    assert reader.refresh(("node-a", "node-b"), ()) == ""
    assert (reader.loads["node-a"], reader.loads["node-b"]) == (50.0, 60.0)


def test_a_watcher_that_fails_is_a_reason() -> None:
    """Without an answer of the watcher there is a reason, and no use."""
    assert "gone" in UseReader(FakeSource(NOW, "gone"), 900, lambda: NOW).refresh((), ())


def test_a_target_that_waits_for_a_replacement_has_less_room() -> None:
    """The requests of a replacement without a node are reserved on its target, unless the target is gone."""
    waiting = MOVE.changed(state=MoveState.EVICTED, landed_on="", target="node-idle", ready_at=0.0)
    look = hot_and_cold().look()
    row = look.table.row("node-idle")
    free = [float(plan_arrays(look, records, 288).problem.free[0][row]) for records in ((), (waiting,))]
    assert free[0] - free[1] == 500.0
    gone = waiting.changed(target="node-gone")
    assert plan_arrays(look, (gone,), 288).pods == plan_arrays(look, (), 288).pods


def test_only_evicted_pods_correct_the_measured_loads() -> None:
    """A planned, refused or held move has not changed any node's load."""
    table = hot_and_cold().look().table
    others = [
        MOVE.changed(state=MoveState.PLANNED, evicted_at=0.0), MOVE.changed(state=MoveState.REFUSED),
        MOVE.changed(state=MoveState.HELD),
    ]  # fmt: skip
    assert list(recent_moves(table, others)) == []
    assert len(list(recent_moves(table, [MOVE]))) == 1
