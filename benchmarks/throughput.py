"""How many pods a second does kube-scheduler place with the extender? A real control plane, all on this machine.

5,000 empty nodes that all use the same, so that scores do not skew the choice, and 2,000 pods, which wait when
kube-scheduler starts. It runs in turns without an extender, with ours asked about pods of another scheduler (the same
process and the same calls with scoring off: every answer is a constant), and with ours. The rate is by its own metrics,
which are read five times a second, as reading them takes its processor too, between the first pods that are placed and
the last.

    python benchmarks/throughput.py                 5,000 nodes, 2,000 pods, three rounds
    python benchmarks/throughput.py 1000 500 1      another size
"""

import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from control_plane.scheduler import Scheduler
from support.extending import snapshot_of
from support.servers import wait_until

from trimaran.extender.answer import Outcome
from trimaran.extender.kube_scheduler import Way, written
from watcher.testing.servers import reply, serving

RUNS = ("no extender", "scoring off", "ours")
PODS = "/api/v1/namespaces/default/pods"
BETWEEN_READS = 0.2  # seconds
PLACED = re.compile(r'^scheduler_schedule_attempts_total\{[^}]*result="scheduled"[^}]*\} (\S+)$', re.MULTILINE)


def scheduler_of(cluster: ControlPlane, extender: Extender, run: str) -> tuple[Scheduler, str]:
    """Return the kube-scheduler of a run, and the name that its pods ask for."""
    made = written(LOAD_AWARE, Way(extender.url))
    extenders: dict[str, Any] = {} if run == "no extender" else {"extenders": made["extenders"]}
    name = "load-aware" if run == "ours" else "another"
    profiles = [{**made["profiles"][0], "schedulerName": name}]
    sampled = {"percentageOfNodesToScore": 0}  # kube-scheduler's own choice: a tenth of 5,000
    return Scheduler(cluster, profiles, verbosity=2, **sampled, **extenders), name


def placed(session: requests.Session, cluster: ControlPlane, scheduler: Scheduler) -> float:
    """Return how many pods a kube-scheduler says that it placed."""
    text = session.get(
        f"{scheduler.url}/metrics",
        headers={"Authorization": f"Bearer {cluster.api.token}"},
        verify=str(cluster.certificates.certificate),
        timeout=10,
    ).text
    return sum(float(each) for each in PLACED.findall(text))


def pods_a_second(cluster: ControlPlane, extender: Extender, run: str, pods: int) -> float:
    """Have so many pods placed, and deleted again."""
    made, name = scheduler_of(cluster, extender, run)
    asking = container(requests={"cpu": "100m", "memory": "64Mi"})
    cluster.api.create(*(pod(f"pod-{number}", asking, schedulerName=name) for number in range(pods)))
    seen: list[tuple[float, float]] = []

    def all_placed() -> bool:
        time.sleep(BETWEEN_READS)
        seen.append((time.perf_counter(), placed(session, cluster, scheduler)))
        return seen[-1][1] >= pods

    with made as scheduler, requests.Session() as session:
        wait_until(all_placed, "all pods are placed", 120)
    cluster.api.delete(PODS)
    wait_until(lambda: not cluster.api.items(PODS), "no pod is left", 60)
    meanwhile = [each for each in seen if 0 < each[1] < pods]
    (began, first), (ended, last) = meanwhile[0], meanwhile[-1]
    return (last - first) / (ended - began)


def measured(nodes: int, pods: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield each run's name and rate."""
    loads = {f"node-{number}": 30.0 for number in range(nodes)}
    with ExitStack() as stack:
        watcher = stack.enter_context(
            serving(lambda handler: reply(handler, orjson.dumps(snapshot_of(loads)), Content_Type="application/json"))
        )
        cluster = stack.enter_context(ControlPlane(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        cluster.api.create(*(node(name, "32", "128Gi") for name in loads))
        extender = stack.enter_context(Extender(cluster, LOAD_AWARE, watcher.url, extender__deadline_seconds=0.3))
        for _ in range(rounds):
            for run in RUNS:
                yield run, pods_a_second(cluster, extender, run, pods)
        counts = {name: extender.outcome(name) for name in Outcome}
        print("answers: " + ", ".join(f"{count:.0f} {name}" for name, count in counts.items() if count))


def main() -> None:
    """Print the rates of each run, and beside those of the same process with scoring off."""
    nodes, pods, rounds = (int(word) for word in (sys.argv[1:] or ("5000", "2000", "3")))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    rates: dict[str, list[float]] = {run: [] for run in RUNS}
    for run, rate in measured(nodes, pods, rounds):
        print(f"  {run}: {rate:.0f} pods a second", flush=True)
        rates[run].append(rate)
    print(f"load {os.getloadavg()[0]:.1f} at the end\n")
    print(f"| {nodes} nodes, {pods} pods | pods a second, median of {rounds} | beside scoring off |\n|---|---:|---:|")
    off = statistics.median(rates["scoring off"])
    for run, found in rates.items():
        print(f"| {run} | {statistics.median(found):.0f} | {statistics.median(found) / off:.2f} |")


if __name__ == "__main__":
    main()
