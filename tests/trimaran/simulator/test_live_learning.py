"""Live and replay: the same samples give the same learned use, through the live path with its store and in a replay."""

from pathlib import Path

import numpy as np
import pytest

from runtime.kubernetes.objects import CPU, MEMORY
from scoring import UseLevels
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES
from trimaran.simulator.windows import Windows, unix_seconds
from trimaran.traces.trace import PodUse, Trace
from watcher.store import Store
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.sources.pods import ContainerResources, PodKey, PodTemplate, RunningPod
from watcher.windows.container_use import ContainerUse

GIB = 2**30
MINUTES, PODS, OWNERS = 1600, 120, 12


@pytest.fixture
def trace() -> Trace:
    """Return a trace over midnight: pods of services and jobs that start and end in any minute, with random use."""
    dice = np.random.default_rng(7)
    arrival = np.sort(dice.integers(0, MINUTES - 200, PODS))
    end = np.minimum(arrival + dice.integers(3, 1000, PODS), MINUTES)
    offsets = np.append(0, np.cumsum(end - arrival))
    owner = dice.integers(0, OWNERS, PODS)
    requests = dice.integers(100, 4000, OWNERS)[owner]
    return Trace(
        name="random",
        nodes=("a", "b"),
        cpu_capacity_milli=np.full(2, 10**6),
        memory_capacity_bytes=np.full(2, 1000 * GIB),
        pods=tuple(f"pod-{number}" for number in range(PODS)),
        owner_kinds=tuple("Job" if number % 3 == 0 else "Deployment" for number in owner.tolist()),
        owners=tuple(f"owner-{number}" for number in owner.tolist()),
        arrival_minute=arrival,
        end_minute=end,
        cpu_request_milli=requests,
        memory_request_bytes=requests * 2**20,
        cpu_limit_milli=np.full(PODS, -1),
        memory_limit_bytes=np.full(PODS, -1),
        use=PodUse(
            offsets,
            dice.gamma(2, 0.2, offsets[-1]).astype(np.float16),
            dice.uniform(0.3, 0.9, offsets[-1]).astype(np.float16),
        ),
        overcommit=(1.7, 1.1),
        warm_up_minutes=0,
        minutes=MINUTES,
    )


def measure(cluster: Cluster, until: int) -> tuple[ContainerUse, dict[PodKey, RunningPod]]:
    """Return what a provider measures at the end of a round: the running pods, in another order than in the replay."""
    running, rows = {}, []
    for run in reversed(cluster.pod_runs):
        if not run.start < until < run.end:
            continue
        pod, kind, name = (getattr(cluster.trace, each)[run.pod] for each in ("pods", "owner_kinds", "owners"))
        milli, size = run.requests
        template = PodTemplate(cluster.workload(kind, name), "", (ContainerResources("main", milli, size),))
        running[PodKey("default", pod)] = RunningPod(template, unix_seconds(run.start))
        since = max(until - ROUND_MINUTES, run.start) - run.start
        cpu, memory = cluster.series(run.pod, run.start)[:, since : until - run.start]
        rows.append((pod, cpu.mean() / 1000, memory.max()))
    names, cores, sizes = zip(*rows, strict=True) if rows else ((), (), ())
    return ContainerUse(
        timestamp=unix_seconds(until),
        window_seconds=60.0 * ROUND_MINUTES,
        namespaces=["default"] * len(rows),
        pods=names,
        containers=["main"] * len(rows),
        cpu_cores=np.array(cores, np.float64),
        memory_bytes=np.array(sizes, np.float64),
    ), running


def test_live_learning_equals_the_replay(trace: Trace, tmp_path: Path) -> None:
    """After every round all expected uses and deviations agree to 1e-9, with a watcher that is restarted on the way."""
    cluster = Cluster(trace, trace.overcommit)
    history = UseHistory(cluster, SimulatedWatcher(Windows(delay_minutes=0), cluster))
    store = Store(tmp_path / "store.db")
    live, compared, levels = LearnerService(store, "x"), 0, None
    for minute in range(MINUTES + 1):
        cluster.minute = minute
        for number in [number for number, run in cluster.running.items() if run.end <= minute]:
            cluster.end(number)
        if minute % ROUND_MINUTES == 0 and minute:
            if minute % 400 == 0:
                store.close()
                store = Store(tmp_path / "store.db")
                live = LearnerService(store, "x")
            live.observe(*measure(cluster, minute))
            replayed = history.levels()
            levels = UseLevels.of_workloads(live.table(), levels)
            pods = list(cluster.pods.values())
            for resource in (CPU, MEMORY):
                for pod in pods:
                    request = pod.containers[0].requests[resource]
                    of_both = [
                        (each.expected_use(pod, resource), each.deviation(pod.kin, resource, 1, request))
                        for each in (levels, replayed)
                    ]
                    assert of_both[0] == pytest.approx(of_both[1], rel=1e-9)
                    compared += 1
        for number in np.flatnonzero(trace.arrival_minute == minute).tolist():
            cluster.place(number, cluster.pod(number), number % 2)
    assert compared > 10_000
    both = live.containers(), history.learner.containers()
    order = [both[1].keys.index(key) for key in both[0].keys]
    for field in ("cpu_percentiles", "highest_memory", "pod_minutes", "by_hour"):
        theirs = np.take(getattr(both[1], field), order, axis=1 if field in {"cpu_percentiles", "by_hour"} else 0)
        np.testing.assert_allclose(getattr(both[0], field), theirs, rtol=1e-6, err_msg=field)
    store.close()
