"""Moves of running pods: by congestion cost, by LowNodeUtilization, and their budget and triggers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.extending import metrics
from support.rebalancing import WIDE_RULES
from support.worlds import GIB, small_world

from scoring import MetricsTable, Node, NodeTable, Pod, Profile, ResourceList
from trimaran.planning.move_triggers import Trigger
from trimaran.rebalancer.rules import MoveRules
from trimaran.simulator.cluster import Cluster, QueuedPod
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.base import MoveSchedule
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization, quality_of_service
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policies.clairvoyant import whole_power
from trimaran.simulator.policies.soft_taints import HotNodeTaints
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.saving import count_near_edge, fewer_nodes, nodes_saved
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import PodUse, Trace

OFTEN = {"percent_per_hour": 2000, "every_minutes": 10, "after_minutes": 30}  # a budget for all pods, and soon


@pytest.fixture
def crowded() -> Trace:
    """Return three nodes and five pods, four of them hot, which most-allocated packs on one node."""
    return small_world(3, [("Deployment", 1.9)] * 4 + [("Deployment", 0.1)])


def wide(**rules) -> CostMovePolicy:
    """Return a policy with the widest limits, which moves as soon as an hour of use is known."""
    return CostMovePolicy(**OFTEN, rules=replace(WIDE_RULES, **rules))


def moved(trace: Trace, policy: CostMovePolicy, *, ceiling: bool = True):
    packed = replace(policies(trace)["most-allocated"], spread=0, move_policy=policy)
    return Replay(trace, packed, ReplayOptions(ceiling=ceiling)).run()


def test_moves_cool_the_hot_node(crowded: Trace) -> None:
    """Moves with a large budget spread the hot pods as soon as an hour is known, and no node stays hot."""
    without_moves = Replay(crowded, replace(policies(crowded)["most-allocated"], spread=0)).run()
    assert measures(without_moves)["hot_minutes_80"] == 180
    spread = moved(crowded, wide())
    assert 0 < spread.moves <= 3
    assert measures(spread)["hot_minutes_80"] == 10  # the warm-up ends in minute 60
    assert measures(spread)["moves"] == spread.moves


def test_the_first_move_relieves_most(crowded: Trace) -> None:
    """The first move takes a hot pod, at the first search with an hour of use."""
    spread = moved(crowded, wide())
    first = next(run for run in spread.cluster.pod_runs if run.start > 0)
    assert first.pod != 4
    assert first.start == 70


def test_a_small_gain_is_not_worth_a_move(crowded: Trace) -> None:
    """No pod moves if the average gain over the past is below the limit."""
    assert moved(crowded, wide(min_gain=1.0), ceiling=False).moves > 0
    assert moved(crowded, wide(min_gain=1000.0)).moves == 0


def test_queued_pods_get_capacity_that_a_move_frees() -> None:
    """A large queued pod is placed in the minute in which a hot pod leaves the node."""
    trace = small_world(2, [("Deployment", 1.9)] * 4 + [("Deployment", 0.1)] * 2)
    trace = replace(trace, cpu_request_milli=np.array([2000] * 4 + [7000, 4000]))
    assert moved(trace, CostMovePolicy()).unplaced == (5,)
    spread = moved(trace, wide())
    assert [run.start for run in spread.cluster.pod_runs if run.pod == 5] == [70]


def dense(trace: Trace, percents: np.ndarray) -> Trace:
    """Return the trace with memory use at a percentage of the node's in each minute, and little CPU."""
    memory = np.tile(64 * percents / 100 / 5, 5).astype(np.float16)  # levels of five pods of 1 GiB on a node of 64 GiB
    return replace(trace, use=PodUse(trace.use.offsets, np.full(len(memory), 0.1, np.float16), memory))


@pytest.mark.parametrize(("percent", "moves"), [(80, 0), (100, 1)])
def test_a_node_that_runs_out_of_memory_loses_a_pod(crowded: Trace, percent: int, moves: int) -> None:
    """No pod leaves a node at 80 percent of its memory; one pod leaves a node at 100 percent."""
    assert moved(dense(crowded, np.full(crowded.minutes, percent)), wide()).moves == moves


@pytest.mark.parametrize(("hours", "moves"), [((0,), 0), ((0, 1, 2, 3), 1)])
def test_short_memory_peaks_move_a_pod(crowded: Trace, hours: tuple[int, ...], moves: int) -> None:
    """Memory counts by the highest use of a quarter of an hour, so peaks of five minutes suffice if they recur."""
    percents = np.full(crowded.minutes, 60)
    for hour in hours:
        percents[60 * hour + 10 : 60 * hour + 15] = 100
    assert moved(dense(crowded, percents), wide()).moves == moves


def used(trace: Trace, percents: np.ndarray) -> Trace:
    """Return the trace with five pods that together use a percentage of a node's CPU in each minute."""
    cpu = np.tile(10 * percents / 100 / 5 / 2, 5).astype(np.float16)  # levels of five pods of 2 cores on a node of 10
    return replace(trace, use=PodUse(trace.use.offsets, cpu, np.full(len(cpu), 0.1, np.float16)))


@pytest.mark.parametrize(("percent", "gain", "moves"), [(70, 0.01, False), (90, 0.02, True), (100, 0.01, True)])
def test_bursts_count(crowded: Trace, percent: int, gain: float, moves: bool) -> None:
    """A node that is hot for five minutes of an hour loses a pod, although its mean is low.

    From 100 percent the first pod gains less than from 90, because the other four remain above the target.
    """
    percents = np.full(crowded.minutes, 40)
    percents[np.arange(crowded.minutes) % 60 < 5] = percent
    outcome = moved(used(crowded, percents), replace(wide(min_gain=gain), after_minutes=180))
    assert bool(outcome.moves) == moves


@pytest.mark.parametrize(("share", "moves"), [(0.0, False), (1.0, True)])
def test_the_last_hour_shifts_the_level(crowded: Trace, share: float, moves: bool) -> None:
    """Only with the level of the last hour does a node that got hot recently lose a pod."""
    percents = np.full(crowded.minutes, 40)
    percents[120:] = 90
    late = replace(wide(min_gain=0.6, last_hour_share=share), every_minutes=200, after_minutes=200)
    assert bool(moved(used(crowded, percents), late).moves) == moves


def test_no_pod_is_left_to_move(crowded: Trace) -> None:
    """A budget without running pods moves nothing."""
    gone = replace(crowded, end_minute=np.full(5, 60))
    assert moved(gone, replace(wide(), after_minutes=90)).moves == 0


def test_a_short_history_is_enough(crowded: Trace) -> None:
    """A history of an hour is enough for moves; a shorter one says nothing about the spread of a gain."""
    assert moved(crowded, wide(history=3600)).moves > 0
    assert moved(crowded, wide(history=3599)).moves == 0


@pytest.fixture(scope="module")
def drawn() -> Trace:
    """Return five hours of eight nodes with arriving and ending pods."""
    return Synthetic(seed=5, nodes=8, minutes=300, warm_up_minutes=60).trace()


@pytest.mark.parametrize(
    ("rules", "first"),
    [
        (WIDE_RULES, 70),
        (replace(WIDE_RULES, nodes=replace(WIDE_RULES.nodes, bad_looks=3)), 90),
        (replace(WIDE_RULES, nodes=replace(WIDE_RULES.nodes, source_percent=96)), 0),
        (replace(WIDE_RULES, pods=replace(WIDE_RULES.pods, min_replicas=2)), 0),
        (replace(WIDE_RULES, pods=replace(WIDE_RULES.pods, min_age=6000)), 100),
    ],
)
def test_a_replay_has_the_protections_of_the_rebalancer(crowded: Trace, rules: MoveRules, first: int) -> None:
    """A replay waits for the third look and for the pods' age, and moves nothing that the rebalancer would not."""
    outcome = moved(used(crowded, np.full(crowded.minutes, 95)), CostMovePolicy(**OFTEN, rules=rules))
    assert min((run.start for run in outcome.cluster.pod_runs if run.start > 0), default=0) == first


@pytest.mark.parametrize("percent", [5.0, 10.0, 40.0])
def test_moves_stay_within_the_budget(drawn: Trace, percent: float) -> None:
    """At most the budgeted percentage of the running pods moves per hour."""
    outcome = moved(drawn, CostMovePolicy(percent, after_minutes=10, rules=replace(WIDE_RULES, min_gain=0.001)))
    assert outcome.moves > 0
    assert measures(outcome)["moves_percent_per_hour"] <= percent


def test_jobs_are_not_moved(crowded: Trace) -> None:
    """A job never moves, because it would start over."""
    jobs = replace(crowded, owner_kinds=("Job",) * 5)
    assert moved(jobs, wide()).moves == 0


def test_a_moved_pod_continues(crowded: Trace) -> None:
    """A moved pod is on one node in every minute, and its use counts once."""
    outcome = moved(crowded, wide(), ceiling=False)
    total = outcome.cluster.ledger.cpu_milli.sum(axis=0)
    assert total == pytest.approx(np.full(240, 4 * 3800 + 200), rel=1e-3)
    for pod in range(5):
        pod_runs = sorted((s for s in outcome.cluster.pod_runs if s.pod == pod), key=lambda run: run.start)
        assert [pod_runs[0].start, pod_runs[-1].end] == [0, 240]
        assert all(before.end == after.start for before, after in pairwise(pod_runs))


@pytest.mark.parametrize("seconds", [30, 120, 600])
def test_a_moved_pod_starts_up(crowded: Trace, seconds: int) -> None:
    """A moved pod uses nothing in the whole minutes of its start-up, which count, and then continues."""
    policy = replace(policies(crowded)["most-allocated"], spread=0, move_policy=wide())
    outcome = Replay(crowded, policy, ReplayOptions(startup_seconds=seconds)).run()
    assert measures(outcome)["starting_pod_minutes"] == outcome.moves * seconds / 60 > 0
    cluster, minutes = outcome.cluster, seconds // 60
    run = next(run for run in cluster.pod_runs if run.start > 0)
    others = [each for each in cluster.pod_runs if each.node == run.node and each is not run]
    use = cluster.ledger.cpu_milli[run.node].copy()
    for each in others:
        series = cluster.series(each.pod, each.start)[0, each.works - each.start : each.end - each.start]
        use[each.works : each.end] -= series
    assert use[run.start : run.start + minutes] == pytest.approx(0, abs=1)
    assert use[run.start + minutes : run.end] == pytest.approx(3801, abs=2)


def test_a_pod_moves_only_to_a_node_with_room(crowded: Trace) -> None:
    """No node gets more requests than its allocatable."""
    full = small_world(2, [("Deployment", 2.0)] * 4 + [("Deployment", 0.0)] * 6)
    outcome = moved(full, wide())
    nodes = outcome.cluster.nodes
    assert (nodes.in_tree_requests("cpu") <= nodes.allocatable("cpu")).all()


@pytest.mark.parametrize("power", [1, 2, 5, 8, 16])
def test_natural_powers(power: int) -> None:
    """Repeated squaring equals the general power."""
    values = np.linspace(0, 2, 50)
    assert whole_power(values, power) == pytest.approx(values**power)


def test_fewer_nodes_keep_the_requested_share() -> None:
    """Nodes of all sizes are removed evenly, and overcommit rises in proportion."""
    trace = Synthetic(seed=1, nodes=40, minutes=120, warm_up_minutes=20).trace()
    fewer = fewer_nodes(trace, 8)
    assert len(fewer.nodes) == 32
    for factor, was, now in (
        (0, trace.cpu_capacity_milli, fewer.cpu_capacity_milli),
        (1, trace.memory_capacity_bytes, fewer.memory_capacity_bytes),
    ):
        assert fewer.overcommit[factor] * now.sum() == pytest.approx(trace.overcommit[factor] * was.sum())
    assert fewer_nodes(trace, 0).nodes == trace.nodes


@pytest.mark.parametrize(("seed", "nodes", "as_good"), [(6, 12, [1]), (5, 20, [1, 3])])
def test_saved_nodes_are_counted_near_the_edge(seed: int, nodes: int, as_good: list[int]) -> None:
    """As many nodes are saved as numbers of removed nodes are as good, even if one in between is not."""
    trace = Synthetic(seed=seed, nodes=nodes, minutes=400, warm_up_minutes=100).trace()
    catalogue = policies(trace)
    default = measures(Replay(trace, catalogue["default"]).run())

    def good(removed: int) -> bool:
        fewer = measures(Replay(fewer_nodes(trace, removed), catalogue["clairvoyant"]).run())
        counted = ("hot_minutes_80", "memory_overrun_minutes", "unplaced_pods")
        return all(fewer[name] <= default[name] for name in counted)

    assert [removed for removed in range(1, 6) if good(removed)] == as_good
    assert nodes_saved(trace, catalogue["clairvoyant"], default, ReplayOptions()) == len(as_good)


@pytest.mark.parametrize(
    ("good", "most", "count"),
    [
        ({*range(1, 25)}, 24, 24),
        (set(), 24, 0),
        (set(), 0, 0),
        ({1}, 1, 1),
        ({1, 2}, 2, 2),
        ({*range(1, 10)} | {11}, 24, 10),
        ({*range(1, 12)} - {9}, 24, 10),
        ({1, 3}, 24, 2),
        ({*range(1, 24)}, 24, 23),
    ],
)
def test_numbers_near_a_noisy_edge_are_counted(good: set[int], most: int, count: int) -> None:
    """Numbers near the edge count if they satisfy the predicate, and few numbers are tried, each once."""
    tried: list[int] = []

    def holds(number: int) -> bool:
        tried.append(number)
        return number in good

    assert count_near_edge(holds, most) == count
    assert len(tried) == len(set(tried)) <= 11


def test_options_of_overcommit_and_events_follow_the_nodes() -> None:
    """Overcommit and events in the options give the same result as in the trace, also with fewer nodes."""
    trace = Synthetic(seed=5, nodes=20, minutes=400, warm_up_minutes=100).trace()
    policy = policies(trace)["clairvoyant"]
    events = tuple(NodeEvent(200 + number, EventKind.FAIL, name) for number, name in enumerate(trace.nodes[:2]))
    events += tuple(replace(event, minute=event.minute + 30, kind=EventKind.JOIN) for event in events)
    options = ReplayOptions(overcommit=(1.7, 1.4), events=events)
    default = measures(Replay(trace, policies(trace)["default"], options).run())
    in_trace = replace(trace, overcommit=(1.7, 1.4), events=events)
    saved = [nodes_saved(in_trace, policy, default, ReplayOptions()), nodes_saved(trace, policy, default, options)]
    assert saved[0] == saved[1] > 0
    adapted = Replay(fewer_nodes(in_trace, 8), policy, ReplayOptions()).run().unplaced
    fixed = Replay(fewer_nodes(trace, 8), policy, ReplayOptions(overcommit=(1.7, 1.4))).run().unplaced
    assert len(adapted) < len(fixed)


def first_move(trace: Trace, trigger: Trigger, **settings) -> int:
    """Return the minute of the first move, or 0 without any."""
    outcome = moved(trace, replace(wide(), triggers=(trigger,), **settings))
    return min((run.start for run in outcome.cluster.pod_runs if run.start > 0), default=0)


def test_load_is_a_trigger(crowded: Trace) -> None:
    """Pods move once a node's measured load is hot, and none moves without a hot node."""
    assert first_move(crowded, Trigger.LOAD) == 70
    assert first_move(small_world(3, [("Deployment", 1.0)] * 4), Trigger.LOAD, hot_percent=90.0) == 0


def test_a_node_that_joins_is_a_trigger(crowded: Trace) -> None:
    """No pod moves until a node joins; then one moves at once."""
    assert first_move(crowded, Trigger.NODES) == 0
    joined = replace(crowded, events=(NodeEvent(77, EventKind.JOIN, "new", (10_000, 64 * GIB)),))
    assert first_move(joined, Trigger.NODES) == 77


def test_a_change_of_the_pods_is_a_trigger(crowded: Trace) -> None:
    """Moves become due when the number of pods changes by more than a tenth."""
    fewer = replace(crowded, end_minute=np.array([240, 240, 240, 240, 99]))
    schedule = MoveSchedule(
        CostMovePolicy(percent_per_hour=1000, every_minutes=10, triggers=(Trigger.PODS,), after_minutes=0),
        cluster := Cluster(fewer, (1.0, 1.0)),
        SimulatedWatcher(Windows(), cluster),
    )
    for number in range(5):
        cluster.place(number, cluster.pod(number), 0)
    due = []
    for cluster.minute in range(200):
        if cluster.minute == 99:
            cluster.end(4)
        if schedule.is_due():
            due.append(cluster.minute)
    assert due == [0, 99]


def test_fragmentation_is_a_trigger() -> None:
    """Fragmentation holds while all nodes together, but no single one, have room for a queued pod."""
    cluster = Cluster(small_world(2, [("Deployment", 0.5)] * 5), (0.25, 0.25))  # 8 of 10 cores each
    for number in range(2):
        cluster.place(number, cluster.pod(number), number)
    assert not cluster.is_fragmented()
    cluster.queue[2] = QueuedPod(cluster.pod(2, (4000, GIB)), (4000, GIB), 0, 100)
    assert cluster.is_fragmented()
    cluster.queue[2] = QueuedPod(cluster.pod(2, (5000, GIB)), (5000, GIB), 0, 100)
    assert not cluster.is_fragmented()


def test_low_node_utilization_evicts_from_hot_nodes() -> None:
    """Two pods of the node above the target are evicted per cycle and rescheduled."""
    trace = small_world(2, [("Deployment", 1.8)] * 5)
    policy = replace(
        policies(trace)["most-allocated"], spread=0, move_policy=LowNodeUtilization(3000.0, after_minutes=30)
    )
    outcome = Replay(trace, policy).run()
    evicted = [run for run in outcome.cluster.pod_runs if run.start > 0]
    assert [run.start for run in evicted[:2]] == [30, 30]
    assert [run.start for run in evicted[2:4]] == [35, 35]  # most-allocated put them back on the same node
    assert outcome.moves == len(evicted)


def test_low_node_utilization_does_not_raise_hot_minutes() -> None:
    """Evictions with the default scheduler do not add hot minutes."""
    outcome = Replay(
        trace := small_world(3, [("Deployment", 1.8)] * 5 + [("Deployment", 0.0)] * 10),
        replace(policies(trace)["default"], move_policy=LowNodeUtilization(1000.0, after_minutes=30)),
    ).run()
    without_moves = Replay(trace, policies(trace)["default"]).run()
    hot = [measures(replay)["hot_minutes_80"] for replay in (outcome, without_moves)]
    assert hot[0] <= hot[1]


@pytest.mark.parametrize(
    ("levels", "evicted"),
    [
        ([90.0, 20.0, 60.0], True),
        ([79.9, 20.0, 60.0], False),  # rounded down to the target, not above it
        ([90.0, 51.0, 60.0], False),  # no node is underutilized
        ([90.0, 50.9, 60.0], True),
        ([90.0, 20.0, None], False),  # one node has no load
    ],
)
def test_low_node_utilization_evicts_as_upstream(levels: list[float | None], evicted: bool) -> None:
    """Pods are evicted if some nodes are underutilized, some are overutilized, and all are measured."""
    cluster = Cluster(small_world(3, [("Job", 1.0), ("Deployment", 1.0)]), (1.0, 1.0))
    for number in range(2):
        cluster.place(number, cluster.pod(number), 0)
    loads = {f"n{row}": level for row, level in enumerate(levels) if level is not None}

    class FixedMetrics(SimulatedWatcher):
        def snapshot(self):
            return metrics(loads, cluster.now)

    descheduler = LowNodeUtilization(100_000.0, after_minutes=0).begin(cluster, FixedMetrics(Windows(), cluster))
    assert descheduler.due() == ([(1, None)] if evicted else [])


def test_pods_are_evicted_by_their_class() -> None:
    """The classes are ordered best-effort, burstable, guaranteed."""
    trace = small_world(1, [("Deployment", 1.0)] * 2)
    trace = replace(trace, cpu_limit_milli=np.array([2000, -1]), memory_limit_bytes=np.array([GIB, -1]))
    cluster = Cluster(trace, (1.0, 1.0))
    pods = [cluster.pod(0), cluster.pod(1), cluster.pod(1, (0, 0))]
    assert [quality_of_service(pod) for pod in pods] == [2, 1, 0]


def test_soft_taints_score_hot_nodes_lower() -> None:
    """A node scores 100 without a soft taint and 0 with one, or the same as the others if all are equal."""
    plugin = HotNodeTaints({"b", "gone"})
    amounts = ResourceList({"cpu": 1000, "memory": GIB})
    table = NodeTable([Node(name, amounts, amounts) for name in "abc"])
    prepared = Profile.of(plugin).prepare(table, MetricsTable.empty(table))
    assert prepared.score(Pod()).total.tolist() == [100, 0, 100]
    assert prepared.score(Pod(), among=["a", "c"]).total.tolist() == [100, 100]
    assert prepared.score(Pod(), among=["b"]).total.tolist() == [0]


def test_soft_taints_keep_pods_off_hot_nodes() -> None:
    """A pod avoids a hot node that the default scheduler alone would choose."""
    trace = small_world(4, [("Deployment", 9.0)] + [("Deployment", 0.0)] * 4)
    trace = replace(
        trace,
        cpu_request_milli=np.array([1000, 2000, 2000, 2000, 2000]),
        arrival_minute=np.array([0, 1, 2, 3, 60]),
    )
    last = {}
    for name in ("default", "default+soft-taints"):
        pod_runs = Replay(trace, replace(policies(trace)[name], spread=0)).run().cluster.pod_runs
        last[name] = pod_runs[-1].node == pod_runs[0].node
    assert last == {"default": True, "default+soft-taints": False}


def test_triggers_in_the_options_replace_the_policys(crowded: Trace) -> None:
    """The triggers in a replay's options replace those of the policy."""
    policy = replace(policies(crowded)["most-allocated"], spread=0, move_policy=wide())
    assert Replay(crowded, policy).run().moves > 0
    assert Replay(crowded, policy, ReplayOptions(move_triggers=(Trigger.NODES,))).run().moves == 0
