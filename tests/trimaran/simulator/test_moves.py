"""CostMovePolicy: a few pods go where congestion falls most, under a budget."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.extending import metrics
from support.worlds import GIB, small_world

from scoring import MetricsTable, Node, NodeTable, Pod, Profile, ResourceList
from trimaran.simulator.cluster import Cluster, QueuedPod
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.base import MoveSchedule, Trigger
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization, quality_of_service
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policies.clairvoyant import whole_power
from trimaran.simulator.policies.soft_taints import TaintToleration
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.saving import count_near_edge, fewer_nodes, nodes_saved
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import PodUse, Trace

OFTEN = {"percent_per_hour": 2000, "every_minutes": 10, "after_minutes": 30}  # as many as there are, and soon


@pytest.fixture
def crowded() -> Trace:
    """Three nodes; most-allocated puts the first five pods, four of which are hot, on one."""
    return small_world(3, [("Deployment", 1.9)] * 4 + [("Deployment", 0.1)])


def moved(trace: Trace, **settings):
    policy = replace(policies(trace)["most-allocated"], spread=0, move_policy=CostMovePolicy(**settings))
    return Replay(trace, policy).run()


def test_moves_cool_the_hot_node(crowded: Trace) -> None:
    """With a large budget hot pods are spread, and no node is hot any more."""
    still = Replay(crowded, replace(policies(crowded)["most-allocated"], spread=0)).run()
    assert measures(still)["hot_minutes_80"] == 180
    spread = moved(crowded, **OFTEN)
    assert 0 < spread.moves <= 3
    assert measures(spread)["hot_minutes_80"] == 0
    assert measures(spread)["moves"] == spread.moves


def test_the_first_move_takes_the_pod_that_relieves_most(crowded: Trace) -> None:
    """It is a hot one, as soon as moves may be made, and not the one that uses next to nothing."""
    spread = moved(crowded, **OFTEN)
    first = next(run for run in spread.cluster.pod_runs if run.start > 0)
    assert first.pod != 4
    assert first.start == 30


def test_a_move_that_gains_little_is_not_made(crowded: Trace) -> None:
    """What a move has to gain is a mean over the past, so that a budget is kept for nodes that are hot for long."""
    assert moved(crowded, **OFTEN, min_gain=1.0).moves > 0
    assert moved(crowded, **OFTEN, min_gain=1000.0).moves == 0


def test_what_a_move_frees_is_given_to_pods_that_wait() -> None:
    """Four hot pods are on one node, a large one on the other; the last fits when one of the four has gone there."""
    trace = small_world(2, [("Deployment", 1.9)] * 4 + [("Deployment", 0.1)] * 2)
    trace = replace(trace, cpu_request_milli=np.array([2000] * 4 + [7000, 4000]))
    assert moved(trace).unplaced == (5,)
    spread = moved(trace, **OFTEN)
    assert [run.start for run in spread.cluster.pod_runs if run.pod == 5] == [30]


def dense(trace: Trace, percents: np.ndarray) -> Trace:
    """Return the trace with a memory use that is so many percent of the node's at each minute, and hardly any CPU."""
    memory = np.tile(64 * percents / 100 / 5, 5).astype(np.float16)  # of a GiB, five pods on 64
    return replace(trace, use=PodUse(trace.use.offsets, np.full(len(memory), 0.1, np.float16), memory))


@pytest.mark.parametrize(("percent", "moves"), [(80, 0), (100, 1)])
def test_memory_moves_where_it_runs_out(crowded: Trace, percent: int, moves: int) -> None:
    """A node whose pods use 80 percent of its memory is left alone; of one with 100 percent a pod goes."""
    assert moved(dense(crowded, np.full(crowded.minutes, percent)), **OFTEN).moves == moves


def test_memory_moves_where_it_ran_out_for_minutes(crowded: Trace) -> None:
    """Memory counts by the highest use of a quarter of an hour, whose mean shows nothing of five minutes."""
    percents = np.full(crowded.minutes, 60)
    percents[10:15] = 100
    assert moved(dense(crowded, percents), **OFTEN).moves == 1


def used(trace: Trace, percents: np.ndarray) -> Trace:
    """Return the trace with five pods that use so many percent of a node's CPU together, at each minute."""
    cpu = np.tile(10 * percents / 100 / 5 / 2, 5).astype(np.float16)  # of two cores, five pods on ten
    return replace(trace, use=PodUse(trace.use.offsets, cpu, np.full(len(cpu), 0.1, np.float16)))


@pytest.mark.parametrize(("percent", "gain", "moves"), [(70, 0.01, False), (90, 0.02, True), (100, 0.01, True)])
def test_bursts_count(crowded: Trace, percent: int, gain: float, moves: bool) -> None:
    """A node that is hot for five minutes of an hour loses a pod, however cool on average; one just below does not.

    From 100 percent the first pod gains less than from 90: the other four are still above the target.
    """
    percents = np.full(crowded.minutes, 40)
    percents[np.arange(crowded.minutes) % 60 < 5] = percent
    outcome = moved(used(crowded, percents), **OFTEN | {"after_minutes": 180}, min_gain=gain)
    assert bool(outcome.moves) == moves


@pytest.mark.parametrize(("share", "moves"), [(0.0, False), (1.0, True)])
def test_the_last_hour_tells_how_much_is_used(crowded: Trace, share: float, moves: bool) -> None:
    """What was hot for the last of three hours will be hot all the time, or for a third of it."""
    percents = np.full(crowded.minutes, 40)
    percents[120:] = 90
    late = {"percent_per_hour": 2000, "every_minutes": 200, "after_minutes": 200, "min_gain": 0.6}
    assert bool(moved(used(crowded, percents), **late, last_hour_share=share).moves) == moves


def test_nothing_is_left_to_move(crowded: Trace) -> None:
    """When all pods are gone there may be a budget left."""
    gone = replace(crowded, end_minute=np.full(5, 60))
    assert moved(gone, **OFTEN | {"after_minutes": 90}).moves == 0


def test_a_history_of_minutes(crowded: Trace) -> None:
    """Where there is less than an hour of history it is taken for one, and without a quarter nothing is moved."""
    assert moved(crowded, **OFTEN, history_minutes=15).moves > 0
    assert moved(crowded, **OFTEN, history_minutes=14).moves == 0


@pytest.fixture(scope="module")
def drawn() -> Trace:
    """Five hours of eight nodes whose pods come and go."""
    return Synthetic(seed=5, nodes=8, minutes=300, warm_up_minutes=60).trace()


@pytest.mark.parametrize("percent", [5.0, 10.0, 40.0])
def test_the_budget_is_kept(drawn: Trace, percent: float) -> None:
    """No more pods are moved than so many percent of those that run, each hour."""
    outcome = moved(drawn, percent_per_hour=percent, every_minutes=5, after_minutes=10, min_gain=0.001)
    assert outcome.moves > 0
    assert measures(outcome)["moves_percent_per_hour"] <= percent


def test_jobs_stay(crowded: Trace) -> None:
    """A job would begin anew, so it is never moved."""
    jobs = replace(crowded, owner_kinds=("Job",) * 5)
    assert moved(jobs, **OFTEN).moves == 0


def test_a_moved_pod_goes_on(crowded: Trace) -> None:
    """Each minute of a moved pod is on one node, and its use is counted once."""
    outcome = moved(crowded, **OFTEN)
    total = outcome.cluster.ledger.cpu_milli.sum(axis=0)
    assert total == pytest.approx(np.full(240, 4 * 3800 + 200), rel=1e-3)
    for pod in range(5):
        pod_runs = sorted((s for s in outcome.cluster.pod_runs if s.pod == pod), key=lambda run: run.start)
        assert [pod_runs[0].start, pod_runs[-1].end] == [0, 240]
        assert all(before.end == after.start for before, after in pairwise(pod_runs))


def test_a_pod_only_goes_where_it_fits(crowded: Trace) -> None:
    """A node whose requests leave no room is not a target."""
    full = small_world(2, [("Deployment", 2.0)] * 4 + [("Deployment", 0.0)] * 6)
    outcome = moved(full, **OFTEN)
    nodes = outcome.cluster.nodes
    assert (nodes.in_tree_requests("cpu") <= nodes.allocatable("cpu")).all()


@pytest.mark.parametrize("power", [1, 2, 5, 8, 16])
def test_whole_powers(power: int) -> None:
    """Squaring gives what the general function gives."""
    values = np.linspace(0, 2, 50)
    assert whole_power(values, power) == pytest.approx(values**power)


def test_fewer_nodes_keep_the_share_that_is_requested() -> None:
    """Of each size as many go, and requests are divided by so much more."""
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
def test_saved_nodes_are_the_numbers_on_which_it_is_as_good(seed: int, nodes: int, as_good: list[int]) -> None:
    """As many as there are of them; of twenty it does without three, and by chance not without two."""
    trace = Synthetic(seed=seed, nodes=nodes, minutes=400, warm_up_minutes=100).trace()
    made = policies(trace)
    default = measures(Replay(trace, made["default"]).run())

    def good(removed: int) -> bool:
        fewer = measures(Replay(fewer_nodes(trace, removed), made["clairvoyant"]).run())
        counted = ("hot_minutes_80", "memory_overrun_minutes", "unplaced_pods")
        return all(fewer[name] <= default[name] for name in counted)

    assert [removed for removed in range(1, 6) if good(removed)] == as_good
    assert nodes_saved(trace, made["clairvoyant"], default, ReplayOptions()) == len(as_good)


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
def test_what_holds_by_chance_is_counted_around_the_edge(good: set[int], most: int, count: int) -> None:
    """A number beyond the edge counts, and a gap before it does not; few numbers are looked at, each once."""
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number in good

    assert count_near_edge(holds, most) == count
    assert len(asked) == len(set(asked)) <= 11


def test_an_overcommit_and_events_that_are_asked_for_follow_the_nodes() -> None:
    """They save as much as where they are the trace's; a node that is taken away neither fails nor comes back."""
    trace = Synthetic(seed=5, nodes=20, minutes=400, warm_up_minutes=100).trace()
    policy = policies(trace)["clairvoyant"]
    events = tuple(NodeEvent(200 + number, EventKind.FAIL, name) for number, name in enumerate(trace.nodes[:2]))
    events += tuple(replace(event, minute=event.minute + 30, kind=EventKind.JOIN) for event in events)
    asked = ReplayOptions(overcommit=(1.7, 1.4), events=events)
    default = measures(Replay(trace, policies(trace)["default"], asked).run())
    own = replace(trace, overcommit=(1.7, 1.4), events=events)
    saved = [nodes_saved(own, policy, default, ReplayOptions()), nodes_saved(trace, policy, default, asked)]
    assert saved[0] == saved[1] > 0
    left = Replay(fewer_nodes(own, 8), policy, ReplayOptions()).run().unplaced
    assert len(left) < len(Replay(fewer_nodes(trace, 8), policy, ReplayOptions(overcommit=(1.7, 1.4))).run().unplaced)


def first_move(trace: Trace, trigger: Trigger, **settings) -> int:
    """Return the minute of the first move, 0 without any."""
    outcome = moved(trace, **OFTEN, triggers=(trigger,), **settings)
    return min((run.start for run in outcome.cluster.pod_runs if run.start > 0), default=0)


def test_load_is_a_trigger(crowded: Trace) -> None:
    """CostMovePolicy are made once a node is measured as hot, and none where none is."""
    assert first_move(crowded, Trigger.LOAD) == 30
    assert first_move(small_world(3, [("Deployment", 1.0)] * 4), Trigger.LOAD, hot_percent=90.0) == 0


def test_a_node_that_joins_is_a_trigger(crowded: Trace) -> None:
    """Without a change of the nodes nothing is moved; with one, at once."""
    assert first_move(crowded, Trigger.NODES) == 0
    joined = replace(crowded, events=(NodeEvent(77, EventKind.JOIN, "new", (10_000, 64 * GIB)),))
    assert first_move(joined, Trigger.NODES) == 77


def test_a_change_of_the_pods_is_a_trigger(crowded: Trace) -> None:
    """Pods that end or come make moves due, and the same pods none again."""
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
        if schedule.budget():
            due.append(cluster.minute)
    assert due == [1, 99]  # the budget has a whole pod after a minute


def test_fragmentation_is_a_trigger() -> None:
    """It is there while a pod waits that all nodes together have room for, and not while they have none."""
    cluster = Cluster(small_world(2, [("Deployment", 0.5)] * 5), (0.25, 0.25))  # 8 of 10 cores each
    for number in range(2):
        cluster.place(number, cluster.pod(number), number)
    assert not cluster.is_fragmented()
    cluster.queue[2] = QueuedPod(cluster.pod(2, (4000, GIB)), (4000, GIB), 0, 100)
    assert cluster.is_fragmented()
    cluster.queue[2] = QueuedPod(cluster.pod(2, (5000, GIB)), (5000, GIB), 0, 100)
    assert not cluster.is_fragmented()


def test_low_node_utilization_evicts_from_hot_nodes() -> None:
    """Two pods of the node above the target go in a run, and the scheduler places them elsewhere."""
    trace = small_world(2, [("Deployment", 1.8)] * 5)
    policy = replace(
        policies(trace)["most-allocated"], spread=0, move_policy=LowNodeUtilization(3000.0, after_minutes=30)
    )
    outcome = Replay(trace, policy).run()
    evicted = [run for run in outcome.cluster.pod_runs if run.start > 0]
    assert [run.start for run in evicted[:2]] == [30, 30]
    assert [run.start for run in evicted[2:4]] == [35, 35]  # it packs, so they are back
    assert outcome.moves == len(evicted)


def test_low_node_utilization_goes_by_the_default_scheduler() -> None:
    """With the default scheduler the evicted pods go to nodes with less, and once none is hot nothing is evicted."""
    outcome = Replay(
        trace := small_world(3, [("Deployment", 1.8)] * 5 + [("Deployment", 0.0)] * 10),
        replace(policies(trace)["default"], move_policy=LowNodeUtilization(1000.0, after_minutes=30)),
    ).run()
    still = Replay(trace, policies(trace)["default"]).run()
    hot = [measures(each)["hot_minutes_80"] for each in (outcome, still)]
    assert hot[0] <= hot[1]


@pytest.mark.parametrize(
    ("levels", "evicted"),
    [
        ([90.0, 20.0, 60.0], True),
        ([79.9, 20.0, 60.0], False),  # whole percents, rounded down: at the target, not above
        ([90.0, 51.0, 60.0], False),  # none is low
        ([90.0, 50.9, 60.0], True),
        ([90.0, 20.0, None], False),  # one has no value
    ],
)
def test_low_node_utilization_runs_as_upstreams(levels: list[float | None], evicted: bool) -> None:
    """Some nodes are low, some are above the target, and all of them are measured."""
    cluster = Cluster(small_world(3, [("Job", 1.0), ("Deployment", 1.0)]), (1.0, 1.0))
    for number in range(2):
        cluster.place(number, cluster.pod(number), 0)
    loads = {f"n{row}": level for row, level in enumerate(levels) if level is not None}

    class Said(SimulatedWatcher):
        def snapshot(self):
            return metrics(loads, cluster.now)

    descheduler = LowNodeUtilization(100_000.0, after_minutes=0).begin(cluster, Said(Windows(), cluster))
    assert descheduler.due() == ([(1, None)] if evicted else [])


def test_pods_are_evicted_by_their_class() -> None:
    """Best effort before burstable before guaranteed."""
    trace = small_world(1, [("Deployment", 1.0)] * 2)
    trace = replace(trace, cpu_limit_milli=np.array([2000, -1]), memory_limit_bytes=np.array([GIB, -1]))
    cluster = Cluster(trace, (1.0, 1.0))
    pods = [cluster.pod(0), cluster.pod(1), cluster.pod(1, (0, 0))]
    assert [quality_of_service(pod) for pod in pods] == [2, 1, 0]


def test_soft_taints_score_hot_nodes_lower() -> None:
    """100 without a taint and 0 with one; all alike where none has any, or all have one."""
    plugin = TaintToleration({"b", "gone"})
    amounts = ResourceList({"cpu": 1000, "memory": GIB})
    table = NodeTable([Node(name, amounts, amounts) for name in "abc"])
    prepared = Profile.of(plugin).prepare(table, MetricsTable.empty(table))
    assert prepared.score(Pod()).total.tolist() == [100, 0, 100]
    assert prepared.score(Pod(), among=["a", "c"]).total.tolist() == [100, 100]
    assert prepared.score(Pod(), among=["b"]).total.tolist() == [0]


def test_soft_taints_keep_pods_off_hot_nodes() -> None:
    """A pod that comes while a node is hot goes elsewhere, where the default scheduler alone takes the hot one."""
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


def test_triggers_may_be_replaced(crowded: Trace) -> None:
    """A replay's option takes the place of what each policy says."""
    policy = replace(policies(crowded)["most-allocated"], spread=0, move_policy=CostMovePolicy(1000.0, 10, 30))
    assert Replay(crowded, policy).run().moves > 0
    assert Replay(crowded, policy, ReplayOptions(move_triggers=(Trigger.NODES,))).run().moves == 0
