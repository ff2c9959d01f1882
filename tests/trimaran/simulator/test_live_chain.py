"""Live and replay with real parts: Prometheus, a watcher that is killed, HTTP, the client and the extender's reader."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.servers import run_prometheus, wait_until

from client import ServiceClient
from runtime.kubernetes.objects import CPU, MEMORY
from trimaran.cluster.workload_use import WorkloadUse
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES
from trimaran.simulator.windows import Windows, unix_seconds
from trimaran.traces.trace import PodUse, Trace

GIB = 2**30
MINUTES, PODS, OWNERS = 300, 36, 7
SCRAPE_SECONDS, SCRAPE_OFFSET = 30, 7  # no sample lies at the end of a round, where versions of Prometheus differ
FIRST_COUNT = 1e4  # of a counter; below it, rate() guesses when the counter was 0, and is up to 2 % too low


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Return a trace over midnight whose pods start and end in any minute; their use changes with every round."""
    dice = np.random.default_rng(35)
    arrival = np.sort(dice.integers(0, MINUTES - 40, PODS))
    end = np.minimum(arrival + dice.integers(3, 220, PODS), MINUTES + 1)
    offsets = np.append(0, np.cumsum(end - arrival))
    owner = dice.integers(0, OWNERS, PODS)
    requests = dice.integers(100, 4000, OWNERS)[owner]
    rounds = MINUTES // ROUND_MINUTES + 1
    levels = np.stack([dice.gamma(2, 0.2, (PODS, rounds)), dice.uniform(0.3, 0.9, (PODS, rounds))]).astype(np.float16)
    minutes = np.concatenate([np.arange(first, last) for first, last in zip(arrival, end, strict=True)])
    cpu, memory = levels[:, np.repeat(np.arange(PODS), end - arrival), minutes // ROUND_MINUTES]
    return Trace(
        name="chain",
        nodes=("a",),
        cpu_capacity_milli=np.full(1, 10**6),
        memory_capacity_bytes=np.full(1, 1000 * GIB),
        pods=tuple(f"pod-{number}" for number in range(PODS)),
        owner_kinds=tuple("StatefulSet" if number % 3 == 0 else "DaemonSet" for number in owner.tolist()),
        owners=tuple(f"owner-{number}" for number in owner.tolist()),
        arrival_minute=arrival,
        end_minute=end,
        cpu_request_milli=requests,
        memory_request_bytes=requests * 2**20,
        cpu_limit_milli=np.full(PODS, -1),
        memory_limit_bytes=np.full(PODS, -1),
        use=PodUse(offsets, cpu, memory),
        overcommit=(1.0, 1.0),
        warm_up_minutes=0,
        minutes=MINUTES + 1,  # pods end with the trace, and the last round is before
    )


def samples(trace: Trace) -> Iterator[str]:
    """Yield the series of cAdvisor that a kubelet would have served, as OpenMetrics text."""
    begin = unix_seconds(0)
    for metric, kind in (
        ("container_cpu_usage_seconds_total", "counter"),
        ("container_memory_working_set_bytes", "gauge"),
    ):
        yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
        for number, name in enumerate(trace.pods):
            first, last = trace.arrival_minute.item(number), trace.end_minute.item(number)
            part = slice(trace.use.offsets[number], trace.use.offsets[number + 1])
            cores = trace.use.cpu[part].astype(np.float64) * trace.cpu_request_milli[number] / 1000
            sizes = trace.use.memory[part].astype(np.float64) * trace.memory_request_bytes[number]
            used = FIRST_COUNT + 60 * np.append(0, np.cumsum(cores))
            labels = f'namespace="default",pod="{name}",container="main",image="i",id="/{name}",job="kubelet"'
            for second in range(SCRAPE_OFFSET, 60 * (last - first), SCRAPE_SECONDS):
                minute, rest = divmod(second, 60)
                value = used[minute] + cores[minute] * rest if kind == "counter" else sizes[minute]
                yield f"{metric}{{{labels}}} {float(value)!r} {begin + 60 * first + second}\n"


def lives(trace: Trace) -> dict[str, object]:
    """Return the pods with the times of their lives, and the ends of the first and last round."""
    begin = unix_seconds(0)
    pods = []
    for number, name in enumerate(trace.pods):
        start, end = (begin + 60 * minutes.item(number) for minutes in (trace.arrival_minute, trace.end_minute))
        owner = {"kind": trace.owner_kinds[number], "name": trace.owners[number], "controller": True}
        requests = {
            "cpu": f"{trace.cpu_request_milli[number]}m", "memory": str(trace.memory_request_bytes[number]),
        }  # fmt: skip
        started_at = np.datetime64(start, "s").item().strftime("%Y-%m-%dT%H:%M:%SZ")
        manifest = {
            "metadata": {"namespace": "default", "name": name, "ownerReferences": [owner]},
            "spec": {"nodeName": "a", "containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"phase": "Running", "startTime": started_at},
        }
        pods.append((start, end, manifest))
    return {"lives": pods, "first": unix_seconds(ROUND_MINUTES), "last": unix_seconds(MINUTES)}


@contextmanager
def watcher(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the watcher; yield its process, which is killed at the end with all that it started."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "support.replayed_watcher", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def address_of(watcher: "subprocess.Popen[bytes]") -> str:
    """Return the address of a watcher, which it writes before all else."""
    assert watcher.stdout is not None
    return watcher.stdout.readline().decode().strip()


@pytest.mark.server
@pytest.mark.slow
def test_the_live_chain_learns_as_the_replay(trace: Trace, tmp_path: Path) -> None:
    """Prometheus, watcher (killed once), GET /workloads, client and extender give the replay's levels to 1e-9."""
    cluster = Cluster(trace, trace.overcommit)
    history = UseHistory(cluster, SimulatedWatcher(Windows(delay_minutes=0), cluster))
    pods = {}
    for minute in range(MINUTES + 1):
        cluster.minute = minute
        for number in [number for number, run in cluster.running.items() if run.end <= minute]:
            cluster.end(number)
        for number in np.flatnonzero(trace.arrival_minute == minute).tolist():
            pods[number] = cluster.pod(number)
            cluster.place(number, pods[number], 0)
    replayed = history.levels()

    file, store = tmp_path / "pods.json", tmp_path / "store.db"
    past = lives(trace)
    file.write_text(json.dumps(past))
    with run_prometheus(tmp_path, samples(trace)) as prometheus:
        learned = []
        with watcher(prometheus, store, file) as first:
            assert first.stdout is not None
            address_of(first)
            while len(learned) < MINUTES // ROUND_MINUTES // 2:
                learned.append(int(first.stdout.readline()))
        with watcher(prometheus, store, file) as second, ServiceClient(address_of(second)) as client:
            assert second.stdout is not None
            continued = int(second.stdout.readline())
            assert learned[-1] < continued <= learned[-1] + 2 * 60 * ROUND_MINUTES
            while continued < past["last"]:
                continued = int(second.stdout.readline())
            use = WorkloadUse(client, 60, clock=lambda: float(continued))
            wait_until(lambda: (use.read_once() or use.age_seconds) == 0, "the last round is served")
            levels = use.levels()
    assert levels is not None
    assert use.workloads == len(history.learner.table()) == OWNERS
    for pod in pods.values():
        for resource in (CPU, MEMORY):
            request = pod.containers[0].requests[resource]
            live, replay = (
                (each.expected_use(pod, resource), each.deviation(pod.kin, resource, 1, request))
                for each in (levels, replayed)
            )
            assert live == pytest.approx(replay, rel=1e-9)
            assert live[0] > 0
            assert levels.knows(pod)
