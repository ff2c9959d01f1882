"""Pods per second of ``trimaran scheduler``, of kube-scheduler, and of a process that only binds, on one control plane.

There are 5,000 empty nodes with the same load, and 2,000 pods, which are pending when a scheduler starts: identical,
all different, or with required anti-affinity and topology spread. kube-scheduler runs as it comes, where it looks at a
tenth of 5,000 nodes, and with all nodes; ours filters and scores every node, with kube-scheduler's plugins and
CongestionCost. The process that only binds sends the same Bindings and Events to nodes in turn: what is left to gain.
The rate comes from each program's own metrics. Processor time is that of the scheduler's processes. ``--profile``
runs ours alone, without and with :mod:`scheduler_profile`, and prints where its processor time goes.

    python benchmarks/scheduler_rate.py [--nodes 5000] [--pods 2000] [--rounds 1] [--profile]
"""

import math
import multiprocessing
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import requests
from common import Table, options
from control_plane.api import Object
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.processes import Process
from control_plane.scheduler import Scheduler
from scheduler_profile import LockProbe, print_tables
from support.extending import snapshot_of
from support.servers import wait_until

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.keep_alive import KeepAliveConnection
from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.decisions import Bind
from trimaran.scheduler.service.binder import Binder, BindOutcome
from trimaran.scheduler.service.pod_events import PodEvent, PodEventWriter
from watcher.testing.servers import reply, serving

NAME = "ours"
PODS = "/api/v1/namespaces/default/pods"
BETWEEN_READS = 0.2  # seconds
THREADS = 4
PLACED = re.compile(r'^scheduler_schedule_attempts_total\{[^}]*result="scheduled"[^}]*\} (\S+)$', re.MULTILINE)
CYCLES = re.compile(r'^scheduler_scheduling_algorithm_duration_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
SHAPES = ("identical", "different", "spread")
TICKS_A_SECOND = 100
OURS = "ours, all nodes"
TRIMARAN = ("-m", "trimaran")
PROFILE = Path(__file__).with_name("scheduler_profile.py")
QUIET_SECONDS = 0.3  # processor time in two seconds, of a scheduler without pods to place


@dataclass
class Measurement:
    """Result of one run.

    Attributes:
        rate: pods per second.
        processor_ms: processor time of the scheduler, milliseconds per pod.
        cycle_ms: 99th percentile of the time of a scheduling cycle, milliseconds; NaN without cycles.
    """

    rate: float
    processor_ms: float
    cycle_ms: float = math.nan


def pods_of(shape: str, count: int) -> Iterator[Object]:
    """Yield the pods of a run."""
    dice = random.Random(5)
    for number in range(count):
        group = f"web-{number % 40}"
        amounts = {"cpu": "100m", "memory": "64Mi"}
        spec: dict[str, Any] = {"schedulerName": NAME}
        if shape == "different":
            amounts = {"cpu": f"{dice.randint(20, 900)}m", "memory": f"{dice.randint(20, 900)}Mi"}
        elif shape == "spread":
            selector = {"matchLabels": {"app": group}}
            term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
            zone = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            spec["topologySpreadConstraints"] = [{**zone, "labelSelector": selector}]
        manifest = pod(f"pod-{number}", container(requests=amounts), **spec)
        owner = group if shape != "different" else f"set-{number}"
        manifest["metadata"]["labels"] = {"app": group}
        manifest["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
        yield manifest


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time of some processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_A_SECOND


def is_quiet(process: Process) -> bool:
    """Return whether a process does next to nothing for two seconds."""
    before = processor_seconds(process.tree)
    time.sleep(2)
    return processor_seconds(process.tree) - before < QUIET_SECONDS


def percentile_ms(metrics: str, share: float = 0.99) -> float:
    """Return a percentile of the time of a scheduling cycle, milliseconds, as Prometheus' histogram_quantile does."""
    buckets = sorted((float(bound), float(count)) for bound, count in CYCLES.findall(metrics))
    wanted, lower, below = share * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and count > below:
            return 1000 * (lower + (min(bound, 2 * lower or bound) - lower) * (wanted - below) / (count - below))
        lower, below = bound, count
    return math.nan


class Bench:
    """Control plane with nodes, and the runs of the benchmark."""

    def __init__(self, cluster: ControlPlane, watcher: str, pods: int) -> None:
        self._cluster, self._watcher, self._pods = cluster, watcher, pods
        self.runs: Mapping[str, Callable[[], Measurement]] = {
            "only binds": self._bind_only,
            "kube-scheduler": lambda: self._kube_scheduler(0),
            "kube-scheduler, all nodes": lambda: self._kube_scheduler(100),
            OURS: self._ours,
        }

    def measure(self, run: str, shape: str) -> Measurement:
        """Create the pods, let a run place them, and delete them."""
        with self._pending(shape):
            return self.runs[run]()

    def profile(self, shape: str, title: str) -> None:
        """Print the profile of ours, after a run without it."""
        plain = self.measure(OURS, shape)
        report, idle = self._cluster.folder / "report.json", LockProbe()
        with self._pending(shape):
            idle.start()
            self._ours(PROFILE, report)
            idle.stop()
        title += f"; without the profile {plain.processor_ms:.2f} ms of processor time a pod"
        print_tables(report.read_bytes(), self._pods, title, idle.late)

    @contextmanager
    def _pending(self, shape: str) -> Iterator[None]:
        self._cluster.api.create(*pods_of(shape, self._pods))
        try:
            yield
        finally:
            self._cluster.api.delete(PODS)
            wait_until(lambda: not self._cluster.api.items(PODS), "no pod is left", 120)

    def _kube_scheduler(self, percent: int) -> Measurement:
        profile = [{"schedulerName": NAME}]
        starting = Scheduler(self._cluster, profile, verbosity=2, percentageOfNodesToScore=percent)
        with starting as scheduler:
            authority = str(self._cluster.certificates.certificate)
            token = {"Authorization": f"Bearer {self._cluster.api.token}"}
            return self._watch(scheduler.process, f"{scheduler.url}/metrics", verify=authority, headers=token)

    def _ours(self, *program: str | Path) -> Measurement:
        command = [
            sys.executable, *(program or TRIMARAN), "scheduler", "--name", NAME, "--watcher", self._watcher, "--port",
            "0", "--kube-config", str(self._cluster.kubeconfig()),
            "--set", "cluster.lease_namespace=default",
        ]  # fmt: skip
        process = Process(command, self._cluster.folder / "ours.log")
        try:
            result = self._watch(process, f"{process.url}/metrics")
            if program:  # a profile has the last Events, too
                process.wait_until(lambda: is_quiet(process), "the scheduler has nothing left to do")
            return result
        finally:
            process.terminate()

    def _watch(self, process: Process, url: str, **options: Any) -> Measurement:
        readings: list[tuple[float, float, float]] = []
        text = ""

        def all_placed() -> bool:
            nonlocal text
            time.sleep(BETWEEN_READS)
            try:
                text = session.get(url, timeout=10, **options).text
            except requests.ConnectionError:
                return False
            placed = sum(map(float, PLACED.findall(text)))
            readings.append((time.perf_counter(), placed, processor_seconds(process.tree)))
            return placed >= self._pods

        with requests.Session() as session:
            process.wait_until(all_placed, "all pods are placed", 300)
        running = [reading for reading in readings if reading[1] > 0]
        (start, first, before), (end, last, after) = running[0], running[-1]
        placed = last - first
        return Measurement(placed / (end - start), 1000 * (after - before) / placed, percentile_ms(text))

    def _bind_only(self) -> Measurement:
        spawn = multiprocessing.get_context("spawn")
        with spawn.Pool(1) as pool:
            return pool.apply(bind_only, (self._cluster.kubeconfig(), self._cluster.api.items(PODS)))


def bind_only(kubeconfig: Path, manifests: list[Object]) -> Measurement:
    """Bind pods to nodes in turn, and write the Event of each."""
    pods = list(map(Pod.from_k8s, manifests))
    api = KubernetesApi(ApiServerConfig(kube_config=kubeconfig))
    events = PodEventWriter(KeepAliveConnection(api), lambda: True, NAME, 1e6)
    binder = Binder([KeepAliveConnection(api) for _ in range(THREADS)], lambda: True)
    outcomes: list[BindOutcome] = []

    def report(outcome: BindOutcome) -> None:
        events.write(PodEvent(outcome.decision.pod, "Scheduled", "Binding", "Successfully assigned"))
        outcomes.append(outcome)

    events.start()
    start, before = time.perf_counter(), time.process_time()
    binder.start(report)
    for number, each in enumerate(pods):
        binder.carry_out(Bind(each, f"node-{number}", 1))
    while len(outcomes) < len(pods):
        time.sleep(0.01)
    seconds, processor = time.perf_counter() - start, time.process_time() - before
    failed = [outcome.failure for outcome in outcomes if outcome.failure]
    assert not failed, failed[0]
    return Measurement(len(pods) / seconds, 1000 * processor / len(pods))


def main() -> None:
    """Run the benchmark and print its tables."""
    size = options(__doc__, nodes=5_000, pods=2_000, rounds=1, profile=False)
    loads = {f"node-{number}": 30.0 for number in range(size.nodes)}
    with ExitStack() as stack:
        watcher = stack.enter_context(
            serving(lambda handler: reply(handler, orjson.dumps(snapshot_of(loads)), Content_Type="application/json"))
        )
        cluster = stack.enter_context(ControlPlane(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        zones = ({"topology.kubernetes.io/zone": "abc"[number % 3]} for number in range(size.nodes))
        cluster.api.create(*(node(name, "32", "128Gi", labels=zone) for name, zone in zip(loads, zones, strict=True)))
        bench = Bench(cluster, watcher.url, size.pods)
        for shape in SHAPES:
            title = f"{shape} pods: {size.nodes:,} nodes, {size.pods:,} pods"
            if size.profile:
                bench.profile(shape, title)
                continue
            title += f", median of {size.rounds} rounds"
            columns = (
                "times kube-scheduler",
                "share of only binds",
                "its processor time, ms a pod",
                "p99 of a cycle, ms",
            )
            table = Table(title, ("run", "pods a second", *columns))
            results = {run: [bench.measure(run, shape) for _ in range(size.rounds)] for run in bench.runs}
            rates = {run: statistics.median(result.rate for result in each) for run, each in results.items()}
            for run, each in results.items():
                ratios = [f"{rates[run] / rates[base]:.2f}" for base in ("kube-scheduler", "only binds")]
                processor = statistics.median(result.processor_ms for result in each)
                cycle = statistics.median(result.cycle_ms for result in each)
                shown = "" if math.isnan(cycle) else f"{cycle:.1f}"
                table.row(run, f"{rates[run]:.0f}", *ratios, f"{processor:.2f}", shown)


if __name__ == "__main__":
    main()
