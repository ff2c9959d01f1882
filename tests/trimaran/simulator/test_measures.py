"""Measures of a replay, on worlds small enough to count by hand."""

from dataclasses import replace

import numpy as np
import pytest
from support.worlds import one_node_world

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.heat_map import heat_map
from trimaran.simulator.measures import fragmentation_percent, measures, requested_at
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.queue_waits import QueueWait, queue_waits
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace


def replayed(trace: Trace) -> ReplayOutcome:
    return Replay(trace, policies(trace)["default"]).run()


def test_services_and_jobs_are_measured_separately() -> None:
    """Hot, throttled and overrun minutes count for the kind of the pods on the node."""
    trace = one_node_world(("Deployment", 0, 20, 500, 2.0, 1.5), ("Job", 10, 14, 400, 0.5, 1.1))
    measured = measures(replayed(trace))
    assert measured["hot_minutes_80"] == 15
    assert (measured["service_hot_pod_minutes"], measured["job_hot_pod_minutes"]) == (15, 4)
    # For four minutes demand is 1200m on 1000m. The job's 200m are below its share, so the service lacks 200m.
    assert measured["throttled_core_seconds"] == pytest.approx(48)
    assert measured["service_throttled_core_seconds"] == pytest.approx(48, abs=0.01)
    assert measured["job_throttled_core_seconds"] == 0
    assert measured["memory_overrun_minutes"] == 4
    assert (measured["service_overrun_pod_minutes"], measured["job_overrun_pod_minutes"]) == (4, 4)
    # Without the ceiling both lack what they demand in proportion to it: the service 1000 / 1200 of 200m.
    options = ReplayOptions(ceiling=False)
    measured = measures(Replay(trace, policies(trace)["default"], options).run())
    assert measured["service_throttled_core_seconds"] == pytest.approx(40, abs=0.01)
    assert measured["job_throttled_core_seconds"] == pytest.approx(8, abs=0.01)


def test_a_node_hour_is_short_if_any_of_its_minutes_is() -> None:
    """Of the two hours after the warm-up, CPU is short in the first for one minute, and memory in none."""
    trace = one_node_world(
        ("Deployment", 0, 180, 500, 1.0, 1.0), ("Job", 90, 91, 500, 1.2, 1.0), ("Job", 10, 11, 500, 9.0, 1.0),
        minutes=180, warm_up=60,
    )  # fmt: skip
    measured = measures(replayed(trace))
    assert (measured["cpu_short_percent"], measured["memory_short_percent"]) == (50, 0)
    assert measured["cpu_requested_percent"] == pytest.approx(50 + 50 / 120, abs=0.001)


def test_waits_are_counted_after_the_warm_up() -> None:
    """A wait lasts until the pod fits or its time is over, and free CPU meanwhile is stranded."""
    trace = one_node_world(
        ("Deployment", 0, 9, 700, 1.0, 1.0),
        ("Job", 2, 6, 500, 1.0, 1.0),
        ("Deployment", 4, 8, 400, 1.0, 1.0),
        ("Deployment", 1, 4, 400, 1.0, 1.0),
        ("Job", 12, 14, 2000, 1.0, 1.0),
    )
    outcome = replayed(trace)
    assert list(queue_waits(outcome)) == [
        QueueWait(1, 2, 9),
        QueueWait(2, 4, 8, is_last=True),
        QueueWait(3, 1, 4, is_last=True),
        QueueWait(4, 12, 20, is_last=True),
    ]
    measured = measures(outcome)
    assert (measured["service_waited_pod_minutes"], measured["job_waited_pod_minutes"]) == (3, 4 + 8)
    assert measured["waited_pod_minutes"] == 15
    assert (measured["service_unplaced_pods"], measured["job_unplaced_pods"]) == (1, 1)
    assert measured["unplaced_pods"] == 2
    # In minutes 5 to 8 300m are free, in 12 500m, and from 13 on 1000m.
    assert measured["stranded_core_hours"] == pytest.approx((4 * 0.3 + 0.5 + 7 * 1.0) / 60, abs=0.001)


def test_requests_are_those_of_admission() -> None:
    """A right-sized pod counts with the requests of its admission, and the rest of the node is free."""
    trace = one_node_world(
        *[("Deployment", start, 300, 400, 0.5, 1.0) for start in (0, 100)], ("Job", 120, 125, 2000, 1.0, 1.0),
        minutes=300, warm_up=0,
    )  # fmt: skip
    trace = replace(
        trace,
        owners=("web", "web", "job"),
        memory_capacity_bytes=np.array([2**34]),
        memory_request_bytes=np.full(3, 2**30),  # above the lowest recommendation
    )
    outcome = Replay(trace, policies(trace)["right-sized"]).run()
    first, second = outcome.cluster.pod_runs
    assert first.requests == (400, 2**30)
    assert 200 < second.requests[0] < 300
    assert requested_at(outcome, 150)[0] == first.requests[0] + second.requests[0]
    waited = 300 - 120  # minutes of the job, which is larger than the node
    free = 1000 - first.requests[0] - second.requests[0]
    assert measures(outcome)["stranded_core_hours"] == pytest.approx(waited * free / 1000 / 60, abs=0.001)


def test_fragmentation_does_not_depend_on_the_order_of_pods() -> None:
    """The sampled pods are the same in any order of the trace."""
    trace = Synthetic(seed=3, nodes=6, minutes=300, warm_up_minutes=60).trace()
    assert len(trace.pods) > 400
    outcome = replayed(trace)
    turned = replace(
        trace, cpu_request_milli=trace.cpu_request_milli[::-1], memory_request_bytes=trace.memory_request_bytes[::-1]
    )
    cluster = Cluster(turned, trace.overcommit)
    cluster.pod_runs, cluster.ledger = outcome.cluster.pod_runs, outcome.cluster.ledger
    assert fragmentation_percent(replace(outcome, cluster=cluster)) == fragmentation_percent(outcome) > 0


def test_a_failed_node_has_no_stranded_cpu() -> None:
    """No CPU is stranded while a displaced pod waits and no node exists."""
    events = (NodeEvent(10, EventKind.FAIL, "node"), NodeEvent(16, EventKind.JOIN, "node", (400, 1000)))
    trace = one_node_world(("Deployment", 0, 20, 500, 1.0, 1.0))
    outcome = Replay(trace, policies(trace)["default"], ReplayOptions(events=events)).run()
    measured = measures(outcome)
    assert measured["service_waited_pod_minutes"] == 10
    assert measured["stranded_core_hours"] == pytest.approx(4 * 0.4 / 60, abs=0.001)


def test_cpu_is_not_stranded_before_a_pod_is_ready() -> None:
    """No CPU is stranded in the five minutes in which a displaced pod is not ready."""
    trace = one_node_world(("Deployment", 0, 20, 500, 1.0, 1.0))
    two = replace(
        trace, nodes=("node", "other"), cpu_capacity_milli=np.full(2, 1000), memory_capacity_bytes=np.full(2, 1000)
    )
    first = Replay(two, policies(two)["default"]).run().cluster.pod_runs[0].node
    events = (NodeEvent(10, EventKind.FAIL, two.nodes[first]),)
    measured = measures(Replay(two, policies(two)["default"], ReplayOptions(events=events)).run())
    assert (measured["waited_pod_minutes"], measured["stranded_core_hours"]) == (5, 0)


def test_a_heat_map_is_small_and_begins_after_the_warm_up() -> None:
    """A heat map has a row per node and a column per minute after the warm-up, or per span in a long replay."""
    short = heat_map(replayed(one_node_world(("Deployment", 0, 20, 500, 1.0, 1.0))))
    assert short == [[50] * 15]
    long = heat_map(replayed(one_node_world(("Deployment", 0, 250, 500, 1.0, 1.0), minutes=500, warm_up=0)))
    assert long == [[50] * 83 + [17] + [0] * 83]
