"""Simulated cluster autoscaler: ordering nodes for pods that do not fit, and removing unneeded nodes."""

from dataclasses import replace

import numpy as np
import pytest
from support.worlds import small_world

from trimaran.simulator.autoscaling import Autoscaling
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.queue_waits import queue_waits
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace


def scaled(trace: Trace, policy: str = "default", **settings) -> ReplayOutcome:
    return Replay(trace, policies(trace)[policy], ReplayOptions(autoscaling=Autoscaling(**settings))).run()


def starts(outcome: ReplayOutcome) -> list[int]:
    return sorted(run.start for run in outcome.cluster.pod_runs)


def test_nodes_are_added_for_pods_that_do_not_fit() -> None:
    """Five pods of two cores fill a node of ten. Two more pods get an ordered node after the lead time."""
    outcome = scaled(small_world(1, [("Deployment", 1.0)] * 7), lead_minutes=4)
    assert starts(outcome) == [0] * 5 + [4] * 2
    assert outcome.cluster.nodes.names == ("n0", "scaled-1")
    assert sum(wait.end - wait.start for wait in queue_waits(outcome)) == 8


def test_pods_are_packed_on_ordered_nodes() -> None:
    """Pending pods are packed on ordered nodes, and no more nodes are ordered until these arrive."""
    outcome = scaled(small_world(1, [("Deployment", 1.0)] * 17), lead_minutes=7, max_nodes=10)
    assert len(outcome.cluster.nodes) == 4


def test_the_largest_size_is_a_limit() -> None:
    """No node is ordered above the largest size, and the remaining pods wait."""
    outcome = scaled(small_world(1, [("Deployment", 1.0)] * 17), max_nodes=2)
    assert (len(outcome.cluster.nodes), measures(outcome)["unplaced_pods"]) == (2, 7)


def test_a_pod_that_fits_no_shape_orders_no_node() -> None:
    """No node is ordered for a pod that would not fit on it."""
    trace = replace(small_world(1, [("Deployment", 0.1)]), cpu_request_milli=np.array([20_000]))
    assert len(scaled(trace).cluster.nodes) == 1


def test_a_pod_that_fits_no_shape_does_not_prevent_scale_down() -> None:
    """The same nodes are removed with and without a pending pod that fits no shape."""
    trace = small_world(3, [("Deployment", 0.1)] * 2)
    without = scaled(replace(trace, arrival_minute=np.array([0, 240])))
    with_pod = scaled(replace(trace, cpu_request_milli=np.array([2000, 20_000])))
    assert measures(with_pod)["unplaced_pods"] == 1
    assert measures(with_pod)["node_minutes"] == measures(without)["node_minutes"] < 240


def test_spare_nodes_take_late_pods_at_once() -> None:
    """A spare node takes late pods at once and is replaced, at the price of node-minutes."""
    trace = small_world(1, [("Deployment", 1.0)] * 7)
    trace = replace(trace, arrival_minute=np.array([0] * 5 + [100] * 2))
    without, with_spare = scaled(trace), scaled(trace, spare_nodes=1, max_nodes=5)
    assert starts(without)[5:] == [103] * 2
    assert starts(with_spare)[5:] == [100] * 2
    assert len(with_spare.cluster.nodes) == 3
    assert measures(with_spare)["node_minutes"] > measures(without)["node_minutes"]


def test_an_empty_node_is_removed_after_ten_minutes() -> None:
    """An empty node is removed after ten minutes, unless it is spare or the cluster has its smallest size."""
    trace = small_world(3, [("Deployment", 1.0)] * 3)
    trace = replace(trace, end_minute=np.array([240, 50, 50]), cpu_request_milli=np.full(3, 6000))
    outcome = scaled(trace, min_nodes=1)
    assert outcome.cluster.ledger.until.tolist().count(60) == 2
    assert len(scaled(trace, min_nodes=2).cluster.nodes) == 2
    assert len(scaled(trace, spare_nodes=1).cluster.nodes) == 2


def test_a_node_with_few_pods_is_drained() -> None:
    """An underused node is drained, and its pods continue on another node in the same minute."""
    trace = small_world(2, [("Deployment", 1.0)] * 6)
    trace = replace(trace, end_minute=np.array([240, 240, 240, 240, 50, 50]))
    outcome = scaled(trace)
    assert len(outcome.cluster.nodes) == 1
    assert measures(outcome)["displaced_pods"] == 2
    assert outcome.cluster.ledger.cpu_milli.sum(axis=0)[60:] == pytest.approx(np.full(180, 8000), rel=1e-3)


@pytest.mark.parametrize(("kind", "level"), [("Job", 4), ("Deployment", 6)])
def test_a_node_with_jobs_or_unplaceable_pods_stays(kind: str, level: int) -> None:
    """A node stays if it has jobs, which would start over, or pods that fit on no other node."""
    trace = small_world(2, [(kind, 1.0)] * level)
    outcome = scaled(trace, unneeded_percent=70.0)
    assert len(outcome.cluster.nodes) == 2


def test_no_node_is_removed_while_displaced_pods_wait() -> None:
    """No node is drained in the five minutes in which pods of a failed node wait."""
    pods = small_world(3, [("Deployment", 1.0)] * 11)
    trace = replace(pods, end_minute=np.array([240] * 5 + [102] + [240] * 5))
    first = Replay(trace, policies(trace)["most-allocated"]).run().cluster
    failing = first.nodes.names[first.pod_runs[0].node]
    trace = replace(trace, events=(NodeEvent(100, EventKind.FAIL, failing),))
    outcome = scaled(trace, "most-allocated")
    assert measures(outcome)["displaced_pods"] == 5


def test_a_failed_node_is_replaced() -> None:
    """Pods of a failed node get an ordered node."""
    trace = replace(small_world(2, [("Deployment", 1.0)] * 10), events=(NodeEvent(100, EventKind.FAIL, "n0"),))
    outcome = scaled(trace, lead_minutes=3)
    assert len(outcome.cluster.nodes) == 2
    assert starts(outcome)[10:] == [108] * 5


@pytest.mark.parametrize("policy", ["peaks", "congestion-cost+moves"])
def test_a_replay_with_an_autoscaler_is_deterministic(policy: str) -> None:
    """A repeated replay is equal, has fewer node-minutes than all nodes, and no pod waits longer than the lead time."""
    trace = Synthetic(seed=5, nodes=12, minutes=260, warm_up_minutes=60, requested=0.5).trace()
    first, second = scaled(trace, policy), scaled(trace, policy)
    assert [(s.pod, s.node, s.start) for s in first.cluster.pod_runs] == [
        (s.pod, s.node, s.start) for s in second.cluster.pod_runs
    ]
    assert measures(first)["node_minutes"] < 12 * 200
    assert all(trace.arrival_minute[number] > 260 - 3 for number in first.unplaced)
