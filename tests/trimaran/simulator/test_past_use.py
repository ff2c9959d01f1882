"""Past use of the running pods, compared with the same computed minute by minute."""

from dataclasses import replace

import numpy as np
import pytest
from support.worlds import small_world

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.faults import Fault, FaultKind
from trimaran.simulator.moving.past_use import PastUse
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import PodUse, Trace

END, DELAY = 400, 3


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Return nine hours of eight nodes, with arrays of use that are longer than the pods' part."""
    drawn = Synthetic(seed=5, nodes=8, minutes=540, warm_up_minutes=60).trace()
    use = drawn.use
    more = [np.concatenate([[9.0] * 50, part, [9.0] * 50]).astype(np.float16) for part in (use.cpu, use.memory)]
    return replace(drawn, use=PodUse(use.offsets + 50, *more))


@pytest.fixture(scope="module")
def cluster(trace: Trace) -> Cluster:
    """Return the cluster with the pods that run in one minute, most of them younger than the history."""
    cluster = Replay(trace, policies(trace)["default"]).run().cluster
    active = [run for run in cluster.pod_runs if run.start <= END + DELAY < run.end]
    cluster.running, cluster.minute = {run.pod: run for run in active}, END + DELAY
    return cluster


def past_use(cluster: Cluster) -> PastUse:
    return PastUse(cluster, SimulatedWatcher(Windows(delay_minutes=DELAY), cluster))


def every_minute(cluster: Cluster, pod: int, resource: int, minutes: int) -> np.ndarray:
    """Return a pod's use in each past minute, with the mean before a service's first node."""
    run = cluster.running[pod]
    began = cluster.use_origin(run)
    first = min(each.start for each in cluster.pod_runs if each.pod == pod) - began if not cluster.is_job(pod) else 0
    age = max(END - began, first)
    observed = cluster.trace.usage(pod, max(age - minutes, first), age)[resource]
    usual = observed.mean() if len(observed) and not cluster.is_job(pod) else 0.0
    return np.concatenate([np.full(minutes - len(observed), usual), observed])


@pytest.mark.parametrize(("minutes", "every"), [(360, 5), (360, 7), (300, 1), (45, 5), (15, 20)])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_cpu_is_shifted_to_the_last_hours_level(cluster: Cluster, minutes: int, every: int, share: float) -> None:
    """Each minute keeps its distance to the mean of its hour, and that mean shifts to the last hour's."""
    pods = np.fromiter(cluster.running, np.int64)
    expected = []
    for pod in pods.tolist():
        single = every_minute(cluster, pod, 0, minutes)
        hours = single.reshape(-1, min(60, minutes)).mean(axis=1)
        single = single + np.repeat(share * (hours[-1] - hours), min(60, minutes))
        expected.append(np.maximum(single, 0)[::-1][::every][::-1])
    result = past_use(cluster).cpu(pods, minutes, every, share)
    assert any(map(cluster.is_job, pods.tolist()))
    assert result == pytest.approx(np.array(expected), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("minutes", [360, 45, 15])
def test_memory_is_the_highest_of_each_quarter(cluster: Cluster, minutes: int) -> None:
    """A minute's peak counts for its quarter of an hour, as does the mean before a service's first node."""
    pods = np.fromiter(cluster.running, np.int64)
    past = [every_minute(cluster, pod, 1, minutes).reshape(-1, 15).max(axis=1) for pod in pods.tolist()]
    assert past_use(cluster).highest_memory(pods, minutes) == pytest.approx(np.array(past), rel=1e-6)
    younger = [END - cluster.use_origin(cluster.running[pod]) < minutes for pod in pods.tolist()]
    assert any(younger) or minutes == 15


def test_recorded_use_while_waiting_is_ignored() -> None:
    """Use that the trace records before a service's first node does not count."""
    trace = small_world(1, [("Deployment", 0.5)] * 5 + [("Deployment", 0.1)])
    trace.use.cpu[-trace.minutes : 100 - trace.minutes] = 2.0
    trace.end_minute[0] = 100
    cluster = Replay(trace, policies(trace)["default"]).run().cluster
    cluster.running, cluster.minute = {5: cluster.pod_runs[-1]}, 200
    assert cluster.pod_runs[-1].start == 100
    assert past_use(cluster).cpu(np.array([5]), 180, 5, 0.0) == pytest.approx(200, rel=1e-3)


def test_the_past_ends_with_the_served_window(trace: Trace) -> None:
    """The past ends with the served window, and is empty in an outage."""
    cluster = Cluster(trace, trace.overcommit)
    outage = (Fault(FaultKind.OUTAGE, 200, 300),)
    past = PastUse(cluster, SimulatedWatcher(Windows(delay_minutes=1), cluster, outage))
    known_minutes = {}
    for minute in range(330):
        cluster.minute = minute
        known_minutes[minute] = past.known_minutes(1440)
    assert [known_minutes[minute] for minute in (0, 15, 16, 60, 61, 200, 280, 320)] == [0, 0, 15, 45, 60, 180, 0, 300]
    assert past.known_minutes(100) == 60
