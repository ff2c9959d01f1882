"""Opportunistic batching of a real kube-scheduler: identical pods a second, and how many were batched.

There are 1,000 empty nodes and 2,000 identical pods, which are pending when kube-scheduler starts. kube-scheduler runs
in turn: as it comes, where PodTopologySpread's default constraints rule batching out; without these constraints; and
without them in four more ways: with our extender, with soft taints that stand, and with soft taints that change once a
second (the default budget of ``trimaran nodes``) and ten times a second. A fifth of the nodes has one soft taint and a
twentieth has two. Rates and counts come from kube-scheduler's own metrics, from the first pods placed to the last; its
processor time for each pod tells the ways apart on a busy machine, too.

    python research/batching.py [--nodes 1000] [--pods 2000] [--rounds 3]
"""

import random
import re
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from common import Table, options
from control_plane.api import Api
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, pod
from control_plane.scheduler import Scheduler
from support.servers import wait_until
from throughput import BETWEEN_READS, cluster_with_extender, delete_pods, metrics_text

from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config

NO_SPREAD = {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": []}}
SPREAD, PLAIN, EXTENDER = "default constraints", "plain", "with the extender"
STANDING, FLIPPING, FLIPPING_FAST = "taints standing", "taints, 1 change a second", "taints, 10 changes a second"
RUNS = (SPREAD, PLAIN, EXTENDER, STANDING, FLIPPING, FLIPPING_FAST)
CHANGES_A_SECOND = {STANDING: 0.0, FLIPPING: 1.0, FLIPPING_FAST: 10.0}
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Reading:
    """kube-scheduler's metrics at one time: pods placed, pods that used a cached node, processor time in seconds."""

    at: float
    placed: float
    batched: float
    processor_seconds: float


def read(session: requests.Session, cluster: ControlPlane, scheduler: Scheduler) -> Reading:
    """Read kube-scheduler's metrics."""
    sums: dict[str, float] = defaultdict(float)
    for name, labels, value in _SAMPLE.findall(metrics_text(session, cluster, scheduler)):
        if name == "scheduler_schedule_attempts_total" and 'result="scheduled"' in labels:
            sums["placed"] += float(value)
        elif name == "scheduler_batch_attempts_total" and 'result="hint_used"' in labels:
            sums["batched"] += float(value)
        elif name == "process_cpu_seconds_total":
            sums["processor"] += float(value)
    return Reading(time.perf_counter(), sums["placed"], sums["batched"], sums["processor"])


def taint(api: Api, name: str, levels: int) -> None:
    """Give a node this number of soft taints."""
    keys = ("trimaran.io/warm", "trimaran.io/hot")[:levels]
    taints = [{"key": key, "value": "true", "effect": "PreferNoSchedule"} for key in keys]
    api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})


@contextmanager
def tainted(cluster: ControlPlane, nodes: int, run: str) -> Iterator[None]:
    """Taint nodes as the run needs, and change some of the taints until the block ends."""
    if run not in CHANGES_A_SECOND:
        yield
        return
    levels = {f"node-{number}": 2 if number % 20 == 0 else 1 if number % 5 == 0 else 0 for number in range(nodes)}
    marked = [name for name, level in levels.items() if level]
    for name in marked:
        taint(cluster.api, name, levels[name])
    rate, stop, chosen = CHANGES_A_SECOND[run], threading.Event(), random.Random(1)

    def flip() -> None:
        while rate and not stop.wait(1 / rate):
            name = chosen.choice(sorted(levels))
            levels[name] = 0 if levels[name] else chosen.choice((1, 2))
            taint(cluster.api, name, levels[name])

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for name in [name for name, level in levels.items() if level]:
            taint(cluster.api, name, 0)


def measure(cluster: ControlPlane, extender: Extender, run: str, nodes: int, pods: int) -> tuple[float, float, float]:
    """Place the pods; return pods a second, the share of batched pods, and kube-scheduler's milliseconds for each."""
    config = render_config(LOAD_AWARE, ExtenderEndpoint(extender.url))
    profile: dict[str, Any] = {**config["profiles"][0], "schedulerName": "load-aware"}
    if run != SPREAD:
        profile["pluginConfig"] = [*profile.get("pluginConfig", ()), NO_SPREAD]
    extenders: dict[str, Any] = {"extenders": config["extenders"]} if run == EXTENDER else {}
    small = container(requests={"cpu": "100m", "memory": "64Mi"})
    cluster.api.create(*(pod(f"pod-{number}", small, schedulerName="load-aware") for number in range(pods)))
    readings: list[Reading] = []

    def all_placed() -> bool:
        time.sleep(BETWEEN_READS)
        readings.append(read(session, cluster, scheduler))
        return readings[-1].placed >= pods

    with (
        tainted(cluster, nodes, run),
        Scheduler(cluster, [profile], verbosity=2, percentageOfNodesToScore=0, **extenders) as scheduler,
        requests.Session() as session,
    ):
        wait_until(all_placed, "all pods are placed", 240)
    delete_pods(cluster)
    running = [each for each in readings if 0 < each.placed < pods]
    first, last = running[0], running[-1]
    count = last.placed - first.placed
    milliseconds = 1000 * (last.processor_seconds - first.processor_seconds) / count
    return count / (last.at - first.at), (last.batched - first.batched) / count, milliseconds


def run_rounds(nodes: int, pods: int, rounds: int) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Yield the name and the measures of each run, in turn, for some rounds."""
    with cluster_with_extender(nodes) as (cluster, extender):
        for _ in range(rounds):
            for run in RUNS:
                yield run, measure(cluster, extender, run, nodes, pods)


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=1_000, pods=2_000, rounds=3)
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for run, measures in run_rounds(size.nodes, size.pods, size.rounds):
        found[run].append(measures)
    title = f"{size.nodes:,} nodes, {size.pods:,} identical pods, median of {size.rounds} rounds"
    table = Table(title, ("run", "pods a second", "batched", "processor time a pod"))
    for run, values in found.items():
        rate, share, milliseconds = (statistics.median(each) for each in zip(*values, strict=True))
        table.row(run, f"{rate:.0f}", f"{100 * share:.0f} %", f"{milliseconds:.2f} ms")


if __name__ == "__main__":
    main()
