"""Replays of recorded pod use under different policies."""

import numpy as np
import pytest

from trimaran.scheduler.framework.node_sampling import NodeSampling
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.simulator.windows import Windows, unix_seconds
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Synthetic(seed=3, nodes=12, minutes=600, warm_up_minutes=120).trace()


def replayed(trace: Trace, policy: str, **options) -> ReplayOutcome:
    return Replay(trace, policies(trace)[policy], ReplayOptions(**options)).run()


def placements(outcome: ReplayOutcome) -> list[tuple[int, int, int, int]]:
    return [(run.pod, run.node, run.start, run.end) for run in outcome.cluster.pod_runs]


@pytest.mark.parametrize("policy", ["default", "target-load-packing+load-variation-risk-balancing", "random"])
def test_a_replay_is_deterministic(trace: Trace, policy: str) -> None:
    """The same trace, policy and seed give the same placements and measures."""
    first, second = replayed(trace, policy), replayed(trace, policy)
    assert placements(first) == placements(second)
    assert measures(first) == measures(second)


def test_the_seed_breaks_ties(trace: Trace) -> None:
    """Another seed changes placements among equal nodes, but neither the pods nor their use."""
    first, second = replayed(trace, "default"), replayed(trace, "default", seed=1)
    assert placements(first) != placements(second)
    for pod in (0, 7):
        assert (first.cluster.series(pod, 500) == second.cluster.series(pod, 500)).all()


def test_node_use_is_the_sum_of_pod_use(trace: Trace) -> None:
    """The use of all nodes equals the use of the placed pods in every minute."""
    outcome = replayed(trace, "default")
    total = np.zeros(trace.minutes)
    for run in outcome.cluster.pod_runs:
        total[run.start : run.end] += outcome.cluster.series(run.pod, run.start)[0][: run.end - run.start]
    assert outcome.cluster.ledger.cpu_milli.sum(axis=0) == pytest.approx(total)


def test_requests_never_exceed_allocatable(trace: Trace) -> None:
    """The filter applies to requests after overcommit."""
    outcome = replayed(trace, "random")
    nodes = outcome.cluster.nodes
    for resource in ("cpu", "memory"):
        assert (nodes.in_tree_requests(resource) <= nodes.allocatable(resource)).all()


def test_pods_wait_with_larger_requests(trace: Trace) -> None:
    """Overcommit below 1 leaves more pods unplaced and waiting."""
    fitting, tight = replayed(trace, "default"), replayed(trace, "default", overcommit=(0.7, 0.7))
    assert measures(fitting)["unplaced_pods"] < measures(tight)["unplaced_pods"]
    assert measures(tight)["waited_pod_minutes"] > 0


def test_a_snapshot_is_of_the_past(trace: Trace) -> None:
    """A window ends before its delay and has the mean and deviation of past use, in percent."""
    cluster = replayed(trace, "default").cluster
    windows = Windows(window_minutes=10, interval_minutes=5, delay_minutes=2, smoothing_minutes=1)
    end = windows.window_end(303)
    assert end == 300
    snapshot = windows.snapshot(cluster.nodes.names, cluster.ledger, cluster.numbers, end)
    assert (snapshot.window.start, snapshot.window.end) == (unix_seconds(290), unix_seconds(300))
    name = cluster.nodes.names[4]
    percent = np.minimum(cluster.ledger.cpu_milli[4, 290:300] / cluster.capacity[0, 4], 1) * 100
    by_operator = {metric.operator: metric.value for metric in snapshot.data[name].metrics if metric.type == "CPU"}
    assert by_operator == pytest.approx({"AVG": percent.mean(), "STD": percent.std()})


def test_cpu_samples_are_rates_over_minutes(trace: Trace) -> None:
    """With smoothing a sample is the mean of the minutes up to it, which lowers the deviation; the mean stays exact."""
    cluster = replayed(trace, "default").cluster
    values = {}
    for smoothing in (1, 5):
        windows = Windows(smoothing_minutes=smoothing)
        snapshot = windows.snapshot(cluster.nodes.names, cluster.ledger, cluster.numbers, 300)
        values[smoothing] = [m.value for m in snapshot.data[cluster.nodes.names[0]].metrics if m.type == "CPU"]
    use = np.minimum(cluster.ledger.cpu_milli[0, 281:300] / cluster.capacity[0, 0], 1) * 100
    rates = np.convolve(use, np.full(5, 0.2), "valid")
    assert values[5] == pytest.approx([use[4:].mean(), rates.std()])
    assert values[1][0] == values[5][0]
    assert values[5][1] < values[1][1]


@pytest.mark.parametrize(("nodes", "wanted"), [(60, 60), (100, 100), (240, 117), (1000, 420), (6000, 300)])
def test_node_sampling_follows_kube_scheduler(nodes: int, wanted: int) -> None:
    """The percentage is 50 less one for each 125 nodes, at least 5 percent and 100 nodes."""
    assert NodeSampling(0).wanted(nodes) == wanted


def test_node_sampling_continues_from_the_last_search() -> None:
    """Each search starts at the end of the previous one and takes the next feasible nodes."""
    sampling = NodeSampling(10)
    feasible = np.ones(1000, np.bool_)
    feasible[:50] = False
    assert sampling.candidates(feasible).tolist() == list(range(50, 150))
    assert sampling.candidates(feasible).tolist() == list(range(150, 250))
    few = np.zeros(1000, np.bool_)
    few[[3, 700]] = True
    assert sampling.candidates(few).tolist() == [3, 700]
    for _ in range(8):
        last = sampling.candidates(feasible)
    assert last.tolist() == [*range(50, 100), *range(950, 1000)]
