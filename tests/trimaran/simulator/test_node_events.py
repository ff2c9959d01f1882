"""Nodes that fail and join in a replay: their pods, metrics and measures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.worlds import GIB, small_world

from scoring import FallbackPolicy
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.simulator.saving import fewer_nodes
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace, write_trace

FAILS = NodeEvent(100, EventKind.FAIL, "n0")
COMES_BACK = NodeEvent(150, EventKind.JOIN, "n0")


def replayed(trace: Trace, *events: NodeEvent, policy: str = "default", **options) -> ReplayOutcome:
    return Replay(replace(trace, events=events), policies(trace)[policy], ReplayOptions(**options)).run()


def runs_of(outcome: ReplayOutcome, pod: int) -> list[tuple[int, int]]:
    return [(run.start, run.end) for run in outcome.cluster.pod_runs if run.pod == pod]


def test_services_of_a_failed_node_are_rescheduled() -> None:
    """Services continue on another node after five minutes, and the wait counts."""
    outcome = replayed(small_world(2, [("Deployment", 1.0)] * 4), FAILS)
    moved = [pod for pod in range(4) if len(runs_of(outcome, pod)) == 2]
    assert len(moved) == 2
    assert [runs_of(outcome, pod) for pod in moved] == [[(0, 100), (105, 240)]] * 2
    assert outcome.cluster.ledger.cpu_milli[0, 100:].max() == 0
    assert outcome.cluster.ledger.cpu_milli[1, 104:106].tolist() == pytest.approx([4000, 8000], rel=1e-3)
    counted = measures(outcome)
    assert (counted["displaced_pods"], counted["waited_pod_minutes"], counted["nodes"]) == (2, 10, 1)


def test_jobs_of_a_failed_node_start_over() -> None:
    """A job of a failed node runs its whole time again."""
    trace = small_world(2, [("Job", 1.0)] * 2)
    trace = replace(trace, end_minute=np.full(2, 120))
    outcome = replayed(trace, FAILS, evicted_after_minutes=0)
    assert sorted(runs_of(outcome, 0) + runs_of(outcome, 1)) == [(0, 100), (0, 120), (100, 220)]


def test_pods_wait_until_a_node_joins() -> None:
    """Pods wait while no node exists; a node that comes back has its old capacity and takes them at once."""
    outcome = replayed(small_world(1, [("Deployment", 1.0)] * 2), FAILS, COMES_BACK)
    assert runs_of(outcome, 0) == [(0, 100), (150, 240)]
    counted = measures(outcome)
    assert counted["waited_pod_minutes"] == 100
    assert counted["node_minutes"] == 240 - 60 - 50
    assert outcome.cluster.ledger.capacity[:, 1].tolist() == outcome.cluster.ledger.capacity[:, 0].tolist()


def test_a_displaced_pod_without_a_node_is_unplaced() -> None:
    """A displaced pod that gets no node until the end counts as unplaced."""
    assert measures(replayed(small_world(1, [("Deployment", 1.0)]), FAILS))["unplaced_pods"] == 1


def test_a_new_node_takes_pods() -> None:
    """A larger node joins and takes the queued pods."""
    trace = small_world(1, [("Deployment", 0.5)] * 8)
    event = NodeEvent(30, EventKind.JOIN, "large", (20_000, 64 * GIB))
    outcome = replayed(trace, event)
    assert sorted(run.start for run in outcome.cluster.pod_runs) == [0] * 5 + [30] * 3
    assert outcome.cluster.nodes.names == ("n0", "large")


def test_metrics_follow_the_nodes() -> None:
    """A new node is predicted, then measured since it joined; a failed node has no metrics."""
    cluster = Cluster(small_world(2, [("Deployment", 1.0)] * 2), (1.0, 1.0))
    watcher = SimulatedWatcher(Windows(smoothing_minutes=1), cluster)
    for number in range(2):
        cluster.place(number, cluster.pod(number), number)
    cluster.minute = 100
    cluster.leave("n0")
    cluster.join("new", (10_000, 64 * GIB))
    cluster.place(0, cluster.pod(0), cluster.nodes.row("new"))
    by_minute = {}
    for minute in (100, 102, 105, 130):
        cluster.minute = minute
        snapshot = watcher.snapshot()
        assert snapshot is not None
        grades = FallbackPolicy().judge(cluster.nodes, snapshot, cluster.now).grades.tolist()
        node = snapshot.data.get("new")
        by_minute[minute] = (list(snapshot.data), grades, node and (node.metrics[0].value, node.metadata))
    assert by_minute[100] == (["n1"], ["measured", "predicted"], None)
    names, grades, node = by_minute[105]
    assert (names, grades) == (["n1", "new"], ["measured", "measured"])
    assert node == (pytest.approx(20, rel=1e-3), {"coverage": pytest.approx(4 / 15)})
    assert by_minute[130][2] == (pytest.approx(20, rel=1e-3), {})


@pytest.mark.parametrize("policy", ["congestion-cost+moves", "clairvoyant", "peaks", "default+soft-taints"])
def test_every_minute_of_a_pod_is_on_one_existing_node(policy: str) -> None:
    """Every policy keeps pods on existing nodes while nodes fail and join."""
    trace = Synthetic(seed=2, nodes=6, minutes=300, warm_up_minutes=60).trace()
    events = [
        NodeEvent(90, EventKind.FAIL, "node-002"),
        NodeEvent(140, EventKind.JOIN, "node-002"),
        NodeEvent(200, EventKind.FAIL, "node-000"),
        NodeEvent(200, EventKind.JOIN, "more", (32_000, 2**37)),
    ]
    outcome = replayed(trace, *events, policy=policy)
    present = outcome.cluster.ledger.present()
    total = np.zeros(present.shape)
    for run in outcome.cluster.pod_runs:
        assert present[run.node, run.start : run.end].all()
        total[run.node, run.start : run.end] += outcome.cluster.series(run.pod, run.start)[0][: run.end - run.start]
    assert outcome.cluster.ledger.cpu_milli == pytest.approx(total, abs=1e-6)


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Events in events.csv survive a round trip."""
    events = (FAILS, COMES_BACK, NodeEvent(160, EventKind.JOIN, "m", (1, 2)))
    write_trace(replace(small_world(2, [("Deployment", 1.0)]), events=events), tmp_path / "world")
    assert read_trace(tmp_path / "world").events == events


def test_removed_nodes_have_no_events() -> None:
    """Removing a node from a trace also removes its events, and keeps those of the other nodes."""
    events = (NodeEvent(50, EventKind.FAIL, "n1"), NodeEvent(60, EventKind.JOIN, "n1"), FAILS)
    trace = replace(small_world(2, [("Deployment", 1.0)]), events=events)
    fewer = fewer_nodes(trace, 1)
    assert (fewer.nodes, fewer.events) == (("n0",), (FAILS,))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("9,fail,n7,,", "minute 9: node 'n7' fails but does not exist"),
        ("9,fail,n0,,\n9,fail,n0,,", "node 'n0' fails but does not exist"),
        ("9,join,n0,,", "node 'n0' joins but already exists"),
        ("9,join,x,,", "node 'x' joins without cpu_capacity_milli"),
        ("9,join,x,5,", 'row 2: an event "join" needs both capacities or neither'),
        ("9,burn,n0,,", "row 2: event must be fail or join, got 'burn'"),
        ("-9,fail,n0,,", "row 2: minute must be a whole number"),
    ],
)
def test_invalid_events_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    """The error names the file and the row, or the minute."""
    write_trace(small_world(2, [("Deployment", 1.0)]), tmp_path)
    (tmp_path / "events.csv").write_text(f"minute,event,node,cpu_capacity_milli,memory_capacity_bytes\n{rows}\n")
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path)
