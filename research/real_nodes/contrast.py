"""Does placing by load help? Pairs of blocks with the same load, one with the stock kube-scheduler.

A block begins with empty nodes but for a job on each, whose use its request does not show; a seed decides which node
has which job. Once the metrics know them, services and bursts arrive, which kube-scheduler places: with the extender
active in one block of a pair, and in shadow, so without an effect, in the other one; in which order, the seed decides.
Pairs of the kind ``stock`` have the extender in shadow twice: what they differ by is chance.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from control_plane.extender import Extender
from control_plane.landings import CONFIGURATION
from measuring import (
    CORES,
    COST_MILLISECONDS,
    LEAST_IDLE_PERCENT,
    MAX_LATENESS_MILLISECONDS,
    NODES,
    PORT,
    Floats,
    Generator,
    address,
    append_rows,
    create_pod,
    idle_percent,
    idle_ticks,
    latencies,
    lateness,
    read_rows,
)
from real_nodes.cluster import RealCluster
from real_nodes.programs import account, container, grant_shipped_rights, run_watcher
from real_nodes.recorder import Recorder
from support.servers import wait_until

FILE = "blocks.csv"
KINDS = ("active", "stock")
OUTCOMES = ("p50", "p99", "slow_share", "throttled", "hot_seconds")
#: Cores of the job of each node, and seconds until the metrics know them.
JOBS, KNOWN_SECONDS = (0.0, 0.04, 0.08, 0.12), 90
SERVICES, BURSTS, RATE, PAUSE_SECONDS, SECONDS = 4, 4, 20.0, 5, 180
HOT_PERCENT, _STEP_SECONDS = 80.0, 5
_PODS = "/api/v1/namespaces/default/pods"
_ATTEMPTS = 3
_RESAMPLES = 10_000


@dataclass
class Block:
    """Outcome of a block.

    Attributes:
        kind: kind of its pair.
        pair: number of its pair, which is the seed of its load.
        first: whether it is the first block of the pair.
        mode: mode of the extender.
        p50, p99: latency of all requests, milliseconds.
        slow_share: share of the requests that took more than 50 ms, or had no answer.
        throttled: share of the periods in which a node had to wait, mean of the nodes.
        hot_seconds: seconds in which nodes used 80 percent of their CPU or more, added up over nodes.
        lateness: 99th percentile of the generator's own lateness, milliseconds.
        idle: idle time of the machine, percent.
    """

    kind: str
    pair: int
    first: bool
    mode: str
    p50: float
    p99: float
    slow_share: float
    throttled: float
    hot_seconds: float
    lateness: float
    idle: float

    @property
    def is_disturbed(self) -> bool:
        """Return whether the generator was late, or the machine had no time left."""
        return self.lateness > MAX_LATENESS_MILLISECONDS or self.idle < LEAST_IDLE_PERCENT


class Blocks:
    """Cluster on which blocks run, with the extender and kube-scheduler.

    Args:
        cluster: the cluster.
        recorder: recorder of the use of its nodes.
        settings: settings file of the extender, which reads it again when it changes.
    """

    def __init__(self, cluster: RealCluster, recorder: Recorder, settings: Path) -> None:
        self._cluster, self._recorder, self._settings = cluster, recorder, settings

    def run(self, kind: str, pair: int, *, first: bool, mode: str) -> Block:
        """Run a block with the load of a pair."""
        random, api = np.random.default_rng(pair), self._cluster.api
        self._settings.write_text(f"[extender]\nmode = '{mode}'\ncanary = 100\n")
        small, requests = {"cpu": "10m", "memory": "16Mi"}, {"cpu": "30m", "memory": "16Mi"}
        for name, cores in zip(self._cluster.nodes, random.permutation(JOBS).tolist(), strict=True):
            if cores:
                create_pod(api, f"job-{name}", container(small, BURN=cores), name)
        time.sleep(KNOWN_SECONDS)
        programs = {
            **{f"service-{n}": container(requests, PORT=PORT, COST=COST_MILLISECONDS) for n in range(SERVICES)},
            **{f"bursts-{n}": container(requests, BURN=0.06, ON=20, OFF=20) for n in range(BURSTS)},
        }
        for name in random.permutation(list(programs)).tolist():
            create_pod(api, name, programs[name])
            time.sleep(PAUSE_SECONDS)
        urls = []
        for number in range(SERVICES):
            ip = wait_until(lambda pod=f"service-{number}": address(api, pod), "the service runs", 120)
            urls.append(f"http://{ip}:{PORT}/")
        before = idle_ticks()
        generator = Generator([(0.0, float(SECONDS), RATE, url) for url in urls], pair)
        rows = generator.result()
        idle = idle_percent(before, idle_ticks())
        time.sleep(2)
        block = self._measured(Block(kind, pair, first, mode, *latencies(rows), 0, 0, lateness(rows), idle), generator)
        api.request("DELETE", _PODS)
        wait_until(lambda: not api.items(_PODS), "all pods are gone", 120)
        return block

    def _measured(self, block: Block, generator: Generator) -> Block:
        """Fill in what the control groups count from the begin of the requests to their end."""
        begin, end = generator.begin, generator.begin + SECONDS
        names = list(self._cluster.nodes)
        block.throttled = float(np.mean([self._recorder.throttled(name, begin, end) for name in names]))
        steps = np.arange(begin, end, _STEP_SECONDS)
        loads = [
            100 * self._recorder.cores(name, at, at + _STEP_SECONDS) / CORES for name in names for at in steps.tolist()
        ]
        block.hot_seconds = float(_STEP_SECONDS * np.sum(np.array(loads) >= HOT_PERCENT))
        return block


@contextmanager
def _running(folder: Path, period_microseconds: int) -> Iterator[Blocks]:
    settings = folder / "extender.toml"
    settings.write_text("[extender]\nmode = 'shadow'\n")
    windows = ("--set", "watch.windows=60s", "--set", "watch.interval_seconds=5")
    with RealCluster(folder, [CORES] * NODES, period_microseconds=period_microseconds) as cluster:
        grant_shipped_rights(cluster)
        with (
            Recorder(cluster) as recorder,
            run_watcher(cluster, *windows) as watcher,
            Extender(
                cluster, CONFIGURATION, watcher.url, settings, kubeconfig=account(cluster, "extender")
            ) as extender,
            extender.scheduler(),
        ):
            yield Blocks(cluster, recorder, settings)


def contrast(options: argparse.Namespace) -> int:
    """Run pairs of blocks, and add them to the file; a pair with a disturbed block is run again, at most twice."""
    path = options.folder / FILE
    done = {int(row["pair"]) for row in read_rows(path) if row["kind"] == options.kind}
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder), options.period) as blocks:
        for pair in range(options.pairs):
            if pair in done:
                continue
            modes = ["shadow", "active" if options.kind == "active" else "shadow"]
            if np.random.default_rng(10_000 + pair).random() < 0.5:
                modes.reverse()
            for _attempt in range(_ATTEMPTS):
                both = [blocks.run(options.kind, pair, first=not place, mode=mode) for place, mode in enumerate(modes)]
                for each in both:
                    print(each, flush=True)
                if not any(each.is_disturbed for each in both):
                    append_rows(path, both)
                    break
                print("disturbed", flush=True)
    return 0


def contrast_table(folder: Path) -> None:
    """Print the mean differences of the pairs of each kind, with intervals that pairs by chance alone would have."""
    rows = read_rows(folder / FILE)
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        if not of_kind:
            continue
        # The block that acts minus the other; in pairs without one, the first minus the second.
        acts = [(row["mode"] == "active") if kind == "active" else row["first"] == "True" for row in of_kind]
        print(f"\n{kind}: {len(of_kind) // 2} pairs\n")
        print("| outcome | stock | difference | 95 % interval | smallest effect that so many pairs find |")
        print("|---|---:|---:|---:|---:|")
        for outcome in OUTCOMES:
            first, second = (
                np.array([float(row[outcome]) for row, each in zip(of_kind, acts, strict=True) if each is wanted])
                for wanted in (True, False)
            )
            mean, low, high, smallest = _difference(first - second)
            print(f"| {outcome} | {second.mean():.3g} | {mean:+.3g} | {low:+.3g} to {high:+.3g} | {smallest:.3g} |")


def _difference(differences: Floats) -> tuple[float, float, float, float]:
    """Return the mean of the differences of pairs, its bootstrap interval, and the effect found with 80 % power."""
    random, count = np.random.default_rng(0), len(differences)
    means = differences[random.integers(count, size=(_RESAMPLES, count))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    error = differences.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return float(differences.mean()), float(low), float(high), float(2.8 * error)
