"""Does placing by load help? Blocks with the same load, placed by the stock kube-scheduler or with the extender active.

Each node has a job for the whole time that uses more than it requests, which only metrics show. In a block services and
bursts arrive, and kube-scheduler places them; then requests come. A unit is three blocks with the same load, which the
seed decides, in an order that it decides, too: once with the extender active, and twice with the extender in shadow,
which gives all nodes the same score: stock kube-scheduler. The two stock blocks differ by chance only.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from control_plane.extender import Extender
from control_plane.landings import CONFIGURATION
from differences import difference, smallest_effect
from measuring import (
    CORES,
    COST_MILLISECONDS,
    NODES,
    PODS,
    PORT,
    Disturbance,
    append_rows,
    cluster_folder,
    create_pod,
    delete_pods,
    idle_percents,
    read_rows,
    undisturbed,
    url,
    wait_for_pods,
    worst,
)
from open_loop import Floats, Generator, latencies
from real_nodes.cluster import RealCluster
from real_nodes.programs import account, container, grant_shipped_rights, load_of_nodes, run_watcher
from real_nodes.recorder import Recorder
from support.servers import Service
from support.waiting import wait_until

FILE, DISTURBED = "blocks.csv", "blocks-disturbed.csv"
ACTIVE, STOCK, AGAIN = "active", "stock", "stock again"
OUTCOMES = {"p50": "p50, ms", "p99": "p99, ms", "slow": "over 50 ms, %", "throttled": "throttled periods, %",
            "hot_seconds": "hot node-seconds"}  # fmt: skip
#: Cores of the job of each node, and requests a second to each service of a block.
JOBS, RATES = (0.0, 0.04, 0.08, 0.12), (10.0, 15.0, 25.0, 30.0)
BURSTS, BURST_CORES = 4, 0.06
HOT_PERCENT, HOT_SPAN_SECONDS = 80.0, 10
_WINDOW_SECONDS = 30
# Kubelets measure every 10 to 15 s, and the watcher and the extender read every 5 s.
_LAG_SECONDS = 15
_REFRESH_SECONDS = 4.0
# Time of a block next to its measurement: until the metrics have forgotten the one before, and until its pods run.
_LEAST_SECONDS = _WINDOW_SECONDS + _LAG_SECONDS + 25
_PAUSE_SECONDS, _WARM_UP_SECONDS, _KNOWN_SECONDS = 1.0, 3.0, 1.5


@dataclass
class Block:
    """Outcome of a block.

    Attributes:
        unit: number of its unit, which is the seed of its load.
        name: ``active``, ``stock`` or ``stock again``.
        place: place of the block in its unit, from 0.
        scored: number of pods that the extender gave scores for.
        pods: number of pods on each node, without the jobs, in the order of the jobs' use.
        p50, p99: latency of all requests, milliseconds.
        slow: percentage of the requests that took more than 50 ms, or had no answer.
        throttled: percentage of the periods with work in which a node had to wait, mean of the nodes.
        hot_seconds: spans of ten seconds in which a node used 80 percent of its CPU or more, in node-seconds.
        load: mean CPU use of the nodes, percent.
        lateness: 99th percentile of the generator's own lateness, milliseconds.
        idle: idle time of the machine, percent.
    """

    unit: int
    name: str
    place: int
    scored: int
    pods: str
    p50: float
    p99: float
    slow: float
    throttled: float
    hot_seconds: float
    load: float
    lateness: float
    idle: float


class Blocks:
    """Cluster on which blocks run.

    Args:
        cluster: the cluster.
        recorder: recorder of the use of its nodes.
        watcher: the watcher.
        extender: the extender.
        settings: settings file of the extender, which reads it again when it changes.
    """

    def __init__(
        self, cluster: RealCluster, recorder: Recorder, watcher: Service, extender: Extender, settings: Path
    ) -> None:
        self._cluster, self._recorder = cluster, recorder
        self._watcher, self._extender, self._settings = watcher, extender, settings
        self._steady_since = time.time()

    def start_jobs(self) -> None:
        """Create the job of each node."""
        for name, cores in zip(self._cluster.nodes, JOBS, strict=True):
            # An idle one, too: without its requests kube-scheduler would prefer this node.
            program = container({"cpu": "10m", "memory": "16Mi"}, BURN=cores)
            create_pod(self._cluster.api, f"job-{name}", program, name, stays=True)
        wait_for_pods(self._cluster.api)
        self._steady_since = time.time()

    def run(self, unit: int, name: str, place: int, seconds: int) -> tuple[list[Block], Disturbance]:
        """Run a block; return its row, and how the machine disturbed it."""
        random, api = np.random.default_rng(unit), self._cluster.api
        self._switch("active" if name == ACTIVE else "shadow")
        self._forget()
        scored = self._extender.outcome("scored")
        rates = self._create(random)
        pods = wait_for_pods(api)
        scored = self._extender.outcome("scored") - scored
        urls = {service: url(pods[service]) for service in rates}
        phases = [(_WARM_UP_SECONDS, _WARM_UP_SECONDS + seconds, rates[service], urls[service]) for service in urls]
        warm_up = [(0.0, _WARM_UP_SECONDS, rates[service], urls[service]) for service in urls]
        time.sleep(_KNOWN_SECONDS)
        with Generator([*phases, *warm_up], unit) as generator:
            begin = generator.begin + _WARM_UP_SECONDS
            idle = list(idle_percents(begin, [begin + seconds]))
            requests = generator.result()
        requests = requests[requests[:, 0] < len(phases)]
        time.sleep(_KNOWN_SECONDS)
        disturbance = worst([requests], idle)
        block = Block(
            unit, name, place, int(scored), self._pods_by_node(), *latencies(requests), *self._counted(begin, seconds),
            disturbance.lateness, disturbance.idle,
        )  # fmt: skip
        self._steady_since = time.time()
        delete_pods(api)
        print(f"  {block}", flush=True)
        return [block], disturbance

    def _switch(self, mode: str) -> None:
        """Let the extender act or not."""
        new = self._settings.with_suffix(".new")
        new.write_text(f"[extender]\nmode = '{mode}'\n")
        new.replace(self._settings)
        percent = 100.0 if mode == "active" else 0.0
        wait_until(
            lambda: self._extender.metrics()["trimaran_extender_acting_percent"] == percent, f"the extender is {mode}"
        )

    def _forget(self) -> None:
        """Wait until the metrics of all nodes are of the time in which only the jobs run."""

        def is_forgotten() -> bool:
            loads, window_begin, _ = load_of_nodes(self._watcher)
            return len(loads) == NODES and window_begin >= self._steady_since + _LAG_SECONDS

        wait_until(is_forgotten, "the metrics show the jobs only", 180)
        time.sleep(_REFRESH_SECONDS + 1)

    def _create(self, random: np.random.Generator) -> dict[str, float]:
        """Create the pods of a block in the order of the seed; return the requests a second to each service."""
        requests = {"cpu": "30m", "memory": "16Mi"}
        rates = {f"service-{n}": rate for n, rate in enumerate(random.permutation(RATES).tolist())}
        programs = {
            **{name: container(requests, PORT=PORT, COST=COST_MILLISECONDS) for name in rates},
            **{f"bursts-{n}": container(requests, BURN=BURST_CORES, ON=5, OFF=5) for n in range(BURSTS)},
        }
        for name in random.permutation(list(programs)).tolist():
            create_pod(self._cluster.api, name, programs[name])
            time.sleep(_PAUSE_SECONDS)
        return rates

    def _pods_by_node(self) -> str:
        placed = [each["spec"]["nodeName"] for each in self._cluster.api.items(PODS)]
        return " ".join(str(placed.count(name) - 1) for name in self._cluster.nodes)

    def _counted(self, begin: float, seconds: int) -> tuple[float, float, float]:
        """Return throttled periods, hot seconds and load, by the control groups of the nodes."""
        end, names = begin + seconds, list(self._cluster.nodes)
        throttled = np.mean([self._recorder.throttled(name, begin, end) for name in names])
        spans = np.arange(begin, end - HOT_SPAN_SECONDS + 1e-3, HOT_SPAN_SECONDS).tolist()
        used = np.array([[self._recorder.cores(name, at, at + HOT_SPAN_SECONDS) for at in spans] for name in names])
        hot = HOT_SPAN_SECONDS * np.sum(100 * used / CORES >= HOT_PERCENT)
        return float(100 * throttled), float(hot), float(100 * used.mean() / CORES)


@contextmanager
def _running(folder: Path, period_microseconds: int) -> Iterator[Blocks]:
    settings = folder / "extender.toml"
    settings.write_text("[extender]\nmode = 'shadow'\n")
    windows = ("--set", f"watch.windows={_WINDOW_SECONDS}s", "--set", "watch.interval_seconds=5")
    with RealCluster(folder, [CORES] * NODES, period_microseconds=period_microseconds) as cluster:
        grant_shipped_rights(cluster)
        with (
            Recorder(cluster) as recorder,
            run_watcher(cluster, *windows) as watcher,
            # As it ships, but for a refresh that suits short blocks, and a deadline that suits a busy machine.
            Extender(
                cluster, CONFIGURATION, watcher.url, settings, kubeconfig=account(cluster, "extender"),
                extender__refresh_seconds=_REFRESH_SECONDS, extender__deadline_seconds=0.4,
            ) as extender,
            extender.scheduler(verbosity=2),
        ):  # fmt: skip
            blocks = Blocks(cluster, recorder, watcher, extender, settings)
            blocks.start_jobs()
            yield blocks


def contrast(options: argparse.Namespace) -> int:
    """Run units of three blocks; a block that was disturbed is repeated, a unit that was cut off is run again."""
    plan(options)
    path, end = options.folder / FILE, time.time() + 60 * options.most_minutes
    done = {int(row["unit"]) for row in read_rows(path)}
    left = [unit for unit in range(options.units) if unit not in done]
    keep = partial(append_rows, options.folder / DISTURBED)
    with cluster_folder(options.folder) as folder, _running(folder, options.period) as blocks:
        for unit in list(left):
            rows = []
            for place, name in enumerate(order(unit)):
                print(f"unit {unit}, {name}", flush=True)
                run = partial(blocks.run, unit, name, place, options.seconds)
                found = undisturbed(run, options.attempts, _LEAST_SECONDS + options.seconds, end, keep)
                if not found:
                    break
                rows += found
            else:
                append_rows(path, rows)
                left.remove(unit)
    print(f"left for the next call: units {left}" if left else "complete")
    return int(bool(left))


def order(unit: int) -> list[str]:
    """Return the blocks of a unit in a random order: each of two blocks is the first one in half of the units."""
    return [str(name) for name in np.random.default_rng([unit, 1]).permutation([ACTIVE, STOCK, AGAIN])]


def outcomes(folder: Path) -> tuple[int, dict[tuple[str, str], Floats]]:
    """Return the number of units in the file, and each outcome of each block, in the order of the units."""
    rows = sorted(read_rows(folder / FILE), key=lambda row: int(row["unit"]))
    found = {
        (outcome, name): np.array([float(row[outcome]) for row in rows if row["name"] == name])
        for outcome in OUTCOMES for name in (ACTIVE, STOCK, AGAIN)
    }  # fmt: skip
    return len(rows) // 3, found


def plan(options: argparse.Namespace) -> int:
    """Print the smallest effect that so many units can find, by the differences of the stock blocks so far."""
    factor = smallest_effect(options.units)
    if factor is None:
        print(f"{options.units} units have no interval: at least 6 are needed")
        return 0
    print(f"{options.units} units find, in 80 % of all experiments, an effect of {factor:.2f} standard deviations of a")
    count, found = outcomes(options.folder)
    print(f"difference between two stock blocks with the same load; of such differences {count} are known")
    if count > 1:
        for outcome, words in OUTCOMES.items():
            print(f"  {words}: {factor * _deviation(found, outcome):.3g}")
    return 0


def _deviation(found: dict[tuple[str, str], Floats], outcome: str) -> float:
    # Two stock blocks differ by chance only, so the mean of their differences is 0.
    return float(np.sqrt(np.mean((found[outcome, AGAIN] - found[outcome, STOCK]) ** 2)))


def contrast_table(folder: Path) -> None:
    """Print the mean differences between the blocks of a unit, with intervals."""
    count, found = outcomes(folder)
    if not count:
        return
    factor = smallest_effect(count) or float("nan")
    scored = min(int(row["scored"]) for row in read_rows(folder / FILE) if row["name"] == ACTIVE)
    print(
        f"\n{count} units; in each active block the extender scored at least {scored} of {len(RATES) + BURSTS} pods\n"
    )
    print(f"| outcome | {STOCK} | {ACTIVE} | {ACTIVE} - {STOCK} | {AGAIN} - {STOCK} | smallest effect that is found |")
    print("|---|---:|---:|---|---|---:|")
    for outcome, words in OUTCOMES.items():
        active, stock, again = (found[outcome, name] for name in (ACTIVE, STOCK, AGAIN))
        cells = [f"{stock.mean():.3g}", f"{active.mean():.3g}", difference(active, stock), difference(again, stock)]
        print(f"| {words} | " + " | ".join(map(str, cells)) + f" | {factor * _deviation(found, outcome):.3g} |")
