"""Past use of the running pods in a replay, compared with the same computed minute by minute."""

from dataclasses import replace

import numpy as np
import pytest
from support.rebalancing import WIDE_RULES
from support.worlds import small_world

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.faults import Fault, FaultKind
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.past_use import PastUse
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

END, DELAY = 400, 3


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Synthetic(seed=5, nodes=8, minutes=540, warm_up_minutes=60).trace()


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
    """Return a pod's use in each past minute, NaN where it did not run; a pod that starts over has no earlier past."""
    use = np.full(minutes, np.nan)
    for run in cluster.pod_runs:
        if run is cluster.running[pod]:
            first, last = max(run.start, END - minutes), min(run.end, END)
            origin = cluster.use_origin(run)
            if first < last:
                use[first - END + minutes : last - END + minutes] = cluster.trace.usage(
                    pod, first - origin, last - origin
                )[resource]
    return use


@pytest.mark.parametrize("minutes", [360, 60, 15])
def test_each_step_has_the_mean_of_its_minutes(cluster: Cluster, minutes: int) -> None:
    """CPU is the mean of the minutes in which the pod ran, memory the highest of each quarter; else both are NaN."""
    pods, past = np.fromiter(cluster.running, np.int64), past_use(cluster)
    steps = past.known_steps(minutes)
    assert steps == minutes // 5
    cpu, memory = past.measured(list(cluster.running.values()), steps)
    for row, pod in enumerate(pods.tolist()):
        single = every_minute(cluster, pod, 0, minutes).reshape(-1, 5)
        ran = ~np.isnan(single)
        mean = np.where(ran, single, 0).sum(axis=1) / np.where(ran.any(axis=1), ran.sum(axis=1), np.nan)
        assert cpu[row] == pytest.approx(mean / 1000, rel=1e-3, abs=1e-6, nan_ok=True)
        # Quarters are those of the clock, so the newest one has just begun.
        peaks = every_minute(cluster, pod, 1, 15 * (memory.shape[1] - 1) + END % 15)
        quarters = np.split(peaks, range(15, len(peaks), 15))
        highest = [np.nan if np.isnan(quarter).all() else np.nanmax(quarter) / 1024**3 for quarter in quarters]
        assert memory[row] == pytest.approx(highest, rel=1e-3, abs=1e-6, nan_ok=True)
    assert any(map(cluster.is_job, pods.tolist()))
    assert np.isnan(cpu).any() or minutes == 15


def test_recorded_use_while_waiting_is_unknown() -> None:
    """Use that the trace records before a service's first node does not count."""
    trace = small_world(1, [("Deployment", 0.5)] * 5 + [("Deployment", 0.1)])
    trace.use.cpu[-trace.minutes : 100 - trace.minutes] = 2.0
    trace.end_minute[0] = 100
    cluster = Replay(trace, policies(trace)["default"]).run().cluster
    cluster.running, cluster.minute = {5: cluster.pod_runs[-1]}, 200
    assert cluster.pod_runs[-1].start == 100
    past = past_use(cluster)
    cpu, _ = past.measured([cluster.running[5]], past.known_steps(180))
    assert np.isnan(cpu[0, :16]).all()
    assert cpu[0, 17:] == pytest.approx(0.2, rel=1e-3)


def test_a_moved_pod_keeps_its_past_and_others_begin(trace: Trace) -> None:
    """The past of a moved pod goes on across its nodes; a pod that starts over without a move begins a new one."""
    moves = CostMovePolicy(100.0, after_minutes=120, rules=replace(WIDE_RULES, min_gain=0.0))
    policy = replace(policies(trace)["default"], move_policy=moves)
    moved = Replay(trace, policy).run().cluster
    runs = [run.pod for run in moved.pod_runs]
    pod = next(pod for pod in dict.fromkeys(runs) if runs.count(pod) == 2)
    first, last = [run for run in moved.pod_runs if run.pod == pod]
    moved.running, moved.minute = {pod: last}, last.start + 10 + DELAY
    past = past_use(moved)
    past.moved([pod])
    steps = past.known_steps(60)
    known = past.measured([last], steps)[0][0, -(last.start - first.start) // 5 :]
    assert np.isnan(known).sum() <= 1  # not measured at the end of the round in which it moved
    begun = past_use(moved)  # the same pod has only the steps since its last start
    assert begun.known_steps(60) == steps
    measured = begun.measured([last], steps)[0][0]
    assert np.isnan(measured[:-3]).all()
    assert not np.isnan(measured[-1])
    assert not np.isnan(begun.courses([last])[0][0]).all()


def test_the_past_ends_with_the_served_window() -> None:
    """The past ends with the served window, and is empty in an outage."""
    trace = small_world(1, [("Deployment", 0.5)])
    cluster = Cluster(trace, trace.overcommit)
    cluster.place(0, cluster.pod(0), 0)
    outage = (Fault(FaultKind.OUTAGE, 120, 180),)
    past = PastUse(cluster, SimulatedWatcher(Windows(delay_minutes=1), cluster, outage))
    known_steps = {}
    for minute in range(trace.minutes):
        cluster.minute = minute
        known_steps[minute] = past.known_steps(1440)
    assert [known_steps[minute] for minute in (0, 15, 16, 60, 61, 120, 170, 230)] == [0, 0, 3, 9, 12, 12, 0, 36]
    assert past.known_steps(100) == 12
