"""Faults of the simulated watcher's metrics, and the fallback's judgment of the remaining metrics."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scoring import FallbackPolicy
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.faults import Fault, FaultKind, read_faults
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.problems import TraceProblems
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

FAR = 400


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Synthetic(seed=4, nodes=8, minutes=FAR, warm_up_minutes=60).trace()


@pytest.fixture(scope="module")
def replayed(trace: Trace) -> Cluster:
    """Return a cluster with pods placed until the end."""
    return Replay(trace, policies(trace)["random"]).run().cluster


def grades(cluster: Cluster, until: int, *faults: Fault) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each minute before a limit, and each node's grade in it under the default policy."""
    watcher = SimulatedWatcher(Windows(), cluster, faults)
    for minute in range(until):
        cluster.minute = minute
        judgment = FallbackPolicy().judge(cluster.nodes, watcher.snapshot(), cluster.now)
        yield minute, dict(zip(cluster.nodes.names, judgment.grades.tolist(), strict=True))


def cpu_averages(cluster: Cluster, minute: int, *faults: Fault) -> dict[str, float]:
    cluster.minute = minute
    snapshot = SimulatedWatcher(Windows(), cluster, faults).snapshot()
    assert snapshot is not None
    return {name: node.metrics[0].value for name, node in snapshot.data.items()}


def test_a_node_without_metrics_is_avoided_after_five_minutes(replayed: Cluster) -> None:
    """A node without metrics keeps its last good values for five minutes, and is then avoided until the fault ends."""
    fault = Fault(FaultKind.MISSING, 100, 130, "node-002")
    by_minute = {minute: by_node["node-002"] for minute, by_node in grades(replayed, 140, fault)}
    assert [by_minute[minute] for minute in (100, 101, 104, 105, 130, 131)] == [
        "measured", "last_good", "last_good", "avoided", "avoided", "measured",
    ]  # fmt: skip


def test_a_fault_of_one_node_does_not_affect_others(replayed: Cluster) -> None:
    """The other nodes stay measured during a fault of one node."""
    fault = Fault(FaultKind.MISSING, 100, 130, "node-002")
    for _, by_node in grades(replayed, 200, fault):
        assert {grade for name, grade in by_node.items() if name != "node-002"} == {"measured"}


def test_an_outage_falls_back_to_allocation_after_five_minutes(replayed: Cluster) -> None:
    """The last snapshot is served while it is fresh; then all nodes are scored by allocation."""
    grade_sets = [set(by_node.values()) for _, by_node in grades(replayed, 250, Fault(FaultKind.OUTAGE, 200, 240))]
    assert [grade_sets[minute] for minute in (200, 201, 204, 205, 241)] == [
        {"measured"}, {"last_good"}, {"last_good"}, {"allocation"}, {"measured"},
    ]  # fmt: skip


def test_more_than_half_of_the_nodes_missing_make_all_neutral(replayed: Cluster) -> None:
    """All nodes are neutral while five of eight have no metrics."""
    faults = [Fault(FaultKind.MISSING, 100, 200, f"node-00{number}") for number in range(5)]
    grade_sets = [set(by_node.values()) for _, by_node in grades(replayed, 151, *faults)]
    assert grade_sets[150] == {"neutral"}


def test_a_frozen_node_is_detected(replayed: Cluster) -> None:
    """A node with constant values becomes suspect within an hour, and is avoided until they change."""
    fault = Fault(FaultKind.FROZEN, 100, 300, "node-001")
    assert cpu_averages(replayed, 150, fault)["node-001"] == cpu_averages(replayed, 101)["node-001"]
    assert cpu_averages(replayed, 150, fault)["node-003"] == cpu_averages(replayed, 150)["node-003"]
    by_minute = {minute: by_node["node-001"] for minute, by_node in grades(replayed, 321, fault)}
    assert by_minute[120] == "measured"
    assert by_minute[200] == "avoided"
    assert by_minute[320] == "measured"


def test_a_node_that_reports_half_looks_cooler(replayed: Cluster) -> None:
    """A scaled node's values are halved, and no detector notices."""
    fault = Fault(FaultKind.SCALED, 100, 300, "node-001", 0.5)
    whole, half = cpu_averages(replayed, 160), cpu_averages(replayed, 160, fault)
    assert half["node-001"] == pytest.approx(whole["node-001"] / 2)
    assert half["node-003"] == whole["node-003"]


def test_faults_outside_the_replay_change_nothing(trace: Trace) -> None:
    """The path with faults serves the same metrics as the path without them."""
    never = (Fault(FaultKind.OUTAGE, 10_000, 10_001),)
    policy = policies(trace)["target-load-packing"]
    plain, faulty = Replay(trace, policy).run(), Replay(trace, policy, ReplayOptions(faults=never)).run()
    for first, second in zip(plain.cluster.pod_runs, faulty.cluster.pod_runs, strict=True):
        assert first == second


def test_an_avoided_node_gets_fewer_pods(trace: Trace) -> None:
    """Load-aware scores keep pods away from a node without metrics, if they fit elsewhere."""
    policy = policies(trace)["load-variation-risk-balancing"]
    faults = (Fault(FaultKind.MISSING, 5, FAR, "node-000"),)
    with_faults, without = (
        Replay(trace, policy, ReplayOptions(overcommit=(4, 4), faults=each)).run().cluster for each in (faults, ())
    )
    placed = [sum(run.node == 0 for run in cluster.pod_runs) for cluster in (with_faults, without)]
    assert placed[0] < 0.3 * placed[1]


def test_metrics_expire_after_five_minutes_without_faults(replayed: Cluster) -> None:
    """Metrics that are fetched every quarter of an hour are served for five of fifteen minutes."""
    watcher = SimulatedWatcher(Windows(interval_minutes=15), replayed)
    served = []
    for minute in range(46, 76):
        replayed.minute = minute
        served.append(watcher.snapshot() is not None)
    assert served == ([True] * 5 + [False] * 10) * 2


def test_a_table_of_faults_is_read(tmp_path: Path) -> None:
    """Each row becomes a fault, with a factor if the fault needs one."""
    path = tmp_path / "faults.csv"
    path.write_text(
        "start_minute,end_minute,node,fault,value\n10,20,node-001,missing,\n30,40,*,outage,\n5,50,n,scaled,0.5\n"
    )
    assert read_faults(path, TraceProblems()) == (
        Fault(FaultKind.MISSING, 10, 20, "node-001"),
        Fault(FaultKind.OUTAGE, 30, 40),
        Fault(FaultKind.SCALED, 5, 50, "n", 0.5),
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("10,20,n,lost,", "row 2: 'lost' is not a valid FaultKind; faults are missing, frozen"),
        ("20,20,n,missing,", "row 2: end_minute 20 is not after start_minute 20"),
        ("10,20,n,outage,", "row 2: node must be \\* for outage, got 'n'"),
        ("10,20,n,scaled,", "row 2: could not convert string to float"),
        ("10,20,n,scaled,nan", "row 2: value must be a number of at least 0"),
        ("10,20,n,missing,2", "row 2: value must be empty except for scaled"),
        ("-1,20,n,missing,", "row 2: start_minute must be a whole number"),
        ("1,20,,missing,", "row 2: node must be"),
    ],
)
def test_an_invalid_fault_is_refused(tmp_path: Path, row: str, message: str) -> None:
    """The error names the file, the row and the reason."""
    path = tmp_path / "faults.csv"
    path.write_text(f"start_minute,end_minute,node,fault,value\n{row}\n")
    problems = TraceProblems()
    assert read_faults(path, problems) == ()
    assert len(problems.errors) == 1
    assert re.search(message, problems.errors[0])
