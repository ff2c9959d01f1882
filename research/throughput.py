"""Pods per second that kube-scheduler places with the extender, on a real control plane on this machine.

There are 5,000 empty nodes with the same load, so that scores do not favor some nodes, and 2,000 pods, which are
pending when kube-scheduler starts. kube-scheduler runs in turn without an extender, with scoring off (the baseline: the
same extender gets the same calls for pods of another scheduler, and answers a constant), and with scoring. The rate
comes from kube-scheduler's own metrics, from the first pods placed to the last. The metrics are read only five times
per second, because reading takes processor time, too.

    python research/throughput.py [--nodes 5000] [--pods 2000] [--rounds 3]
"""

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from common import Table, options
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from control_plane.scheduler import Scheduler
from support.extending import snapshot_of
from support.servers import wait_until

from trimaran.extender.answer import PrioritizeOutcome
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from watcher.testing.servers import reply, serving

RUNS = ("no extender", "scoring off", "ours")
PODS = "/api/v1/namespaces/default/pods"
BETWEEN_READS = 0.2  # seconds
PLACED = re.compile(r'^scheduler_schedule_attempts_total\{[^}]*result="scheduled"[^}]*\} (\S+)$', re.MULTILINE)


def scheduler_of(cluster: ControlPlane, extender: Extender, run: str) -> tuple[Scheduler, str]:
    """Return the kube-scheduler of a run, not started yet, and the scheduler name of the pods to place.

    Args:
        cluster: control plane.
        extender: extender, which the run may use.
        run: one of :data:`RUNS`.
    """
    config = render_config(LOAD_AWARE, ExtenderEndpoint(extender.url))
    extenders: dict[str, Any] = {} if run == "no extender" else {"extenders": config["extenders"]}
    name = "load-aware" if run == "ours" else "another"
    profiles = [{**config["profiles"][0], "schedulerName": name}]
    sampled = {"percentageOfNodesToScore": 0}  # kube-scheduler's own choice: a tenth of 5,000
    return Scheduler(cluster, profiles, verbosity=2, **sampled, **extenders), name


def metrics_text(session: requests.Session, cluster: ControlPlane, scheduler: Scheduler) -> str:
    """Return kube-scheduler's metrics in Prometheus' text format."""
    return session.get(
        f"{scheduler.url}/metrics",
        headers={"Authorization": f"Bearer {cluster.api.token}"},
        verify=str(cluster.certificates.certificate),
        timeout=30,
    ).text


def placed(session: requests.Session, cluster: ControlPlane, scheduler: Scheduler) -> float:
    """Return the number of pods that kube-scheduler has placed, by its metrics."""
    return sum(map(float, PLACED.findall(metrics_text(session, cluster, scheduler))))


def pods_a_second(cluster: ControlPlane, extender: Extender, run: str, pods: int) -> float:
    """Create pods, wait until kube-scheduler has placed all of them, and delete them; return the pods per second."""
    starting, name = scheduler_of(cluster, extender, run)
    small = container(requests={"cpu": "100m", "memory": "64Mi"})
    cluster.api.create(*(pod(f"pod-{number}", small, schedulerName=name) for number in range(pods)))
    readings: list[tuple[float, float]] = []

    def all_placed() -> bool:
        time.sleep(BETWEEN_READS)
        readings.append((time.perf_counter(), placed(session, cluster, scheduler)))
        return readings[-1][1] >= pods

    with starting as scheduler, requests.Session() as session:
        wait_until(all_placed, "all pods are placed", 120)
    delete_pods(cluster)
    running = [reading for reading in readings if 0 < reading[1] < pods]
    (start, first), (end, last) = running[0], running[-1]
    return (last - first) / (end - start)


def delete_pods(cluster: ControlPlane) -> None:
    """Delete all pods, and wait until they are gone."""
    cluster.api.delete(PODS)
    wait_until(lambda: not cluster.api.items(PODS), "no pod is left")


@contextmanager
def cluster_with_extender(nodes: int) -> Iterator[tuple[ControlPlane, Extender]]:
    """Run a control plane with empty nodes of the same load, and the extender; print its answers at the end."""
    loads = {f"node-{number}": 30.0 for number in range(nodes)}
    with ExitStack() as stack:
        watcher = stack.enter_context(
            serving(lambda handler: reply(handler, orjson.dumps(snapshot_of(loads)), Content_Type="application/json"))
        )
        cluster = stack.enter_context(ControlPlane(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        cluster.api.create(*(node(name, "32", "128Gi") for name in loads))
        extender = stack.enter_context(Extender(cluster, LOAD_AWARE, watcher.url, extender__deadline_seconds=0.3))
        yield cluster, extender
        counts = {name: extender.outcome(name) for name in PrioritizeOutcome}
        print("answers: " + ", ".join(f"{count:.0f} {name}" for name, count in counts.items() if count), end="\n\n")


def run_rounds(nodes: int, pods: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield the name and the pods per second of each run, in turn, for some rounds."""
    with cluster_with_extender(nodes) as (cluster, extender):
        for _ in range(rounds):
            for run in RUNS:
                yield run, pods_a_second(cluster, extender, run, pods)


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, pods=2_000, rounds=3)
    rates: dict[str, list[float]] = {run: [] for run in RUNS}
    for run, rate in run_rounds(size.nodes, size.pods, size.rounds):
        rates[run].append(rate)
    title = f"{size.nodes:,} nodes, {size.pods:,} pods, median of {size.rounds} rounds"
    table = Table(title, ("run", "pods a second", "times scoring off"))
    off = statistics.median(rates["scoring off"])
    for run, values in rates.items():
        rate = statistics.median(values)
        table.row(run, f"{rate:.0f}", f"{rate / off:.2f}")


if __name__ == "__main__":
    main()
