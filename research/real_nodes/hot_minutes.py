"""Does a hot minute hurt? Latency of HTTP services next to the load of their nodes, minute by minute.

On each node runs a service that uses 2 ms of processor time a request, a batch job, and a job of bursts. All request
the same, so that a full node gives them equal parts. In each run the seed decides which node has which jobs, and how
many requests come to each node in each minute.
"""

import argparse
import time
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
from measuring import (
    CORES,
    COST_MILLISECONDS,
    NODES,
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
from open_loop import Floats, Generator, latencies, lateness
from queue_waits import QueueWaits
from ranks import Rows, rank_correlations, resampled, turning_point, with_interval
from real_nodes.cluster import RealCluster
from real_nodes.programs import container
from real_nodes.recorder import Recorder

FILE, DISTURBED = "minutes.csv", "minutes-disturbed.csv"
#: Cores of the batch jobs, and of the bursts, which last a quarter of each minute; one of each for a node.
BATCH, BURSTS = (0.0, 0.03, 0.05, 0.08), (0.03, 0.06, 0.1, 0.15)
#: Lowest and highest number of requests a second of a minute.
RATES = (5.0, 70.0)
PREDICTORS = ("load", "hot_70", "hot_80", "hot_90", "throttled", "queue_wait")
OUTCOMES = ("p50", "p99", "slow")
_WARM_UP_SECONDS, _WARM_UP_RATE = 10.0, 20.0
_RESAMPLES = 2000
_KNOWN_SECONDS = 3.0  # until recorders have read the counters of each pod


@dataclass
class NodeMinute:
    """Load and latency of a node in a minute.

    Attributes:
        seed: seed of the run.
        node: name of the node.
        minute: minute of the run.
        load: mean CPU use, percent of the node's capacity.
        system: part of it that no pod used: kubelet and containerd.
        throttled: percentage of the periods with work in which the node had to wait for the next one.
        queue_wait: time that all tasks of the node waited for a processor, seconds a second.
        requests: number of requests that were intended in the minute.
        p50, p99: latency, milliseconds.
        slow: percentage of the requests that took more than 50 ms, or had no answer.
        lateness: 99th percentile of the generator's own lateness, milliseconds.
        idle: idle time of the machine, percent.
    """

    seed: int
    node: str
    minute: int
    load: float
    system: float
    throttled: float
    queue_wait: float
    requests: int
    p50: float
    p99: float
    slow: float
    lateness: float
    idle: float


class MinuteRuns:
    """Cluster on which runs are made.

    Args:
        cluster: the cluster.
        recorder: recorder of the use of its nodes.
        waits: recorder of the waiting of their tasks.
    """

    def __init__(self, cluster: RealCluster, recorder: Recorder, waits: QueueWaits) -> None:
        self._cluster, self._recorder, self._waits = cluster, recorder, waits

    def run(self, seed: int, minutes: int) -> tuple[list[NodeMinute], Disturbance]:
        """Run services and jobs; return a row for each node and minute, and how the machine disturbed them."""
        random = np.random.default_rng(seed)
        urls = self._create(random)
        plan = [(minute, name) for minute in range(minutes) for name in urls]
        begins = [_WARM_UP_SECONDS + 60 * minute for minute, _ in plan]
        phases = [
            (begin, begin + 60, float(random.uniform(*RATES)), urls[name])
            for begin, (_, name) in zip(begins, plan, strict=True)
        ]
        warm_up = [(0.0, _WARM_UP_SECONDS, _WARM_UP_RATE, each) for each in urls.values()]
        time.sleep(_KNOWN_SECONDS)
        with Generator([*phases, *warm_up], seed) as generator:
            begin = generator.begin + _WARM_UP_SECONDS
            idle = list(idle_percents(begin, [begin + 60 * minute + 60 for minute in range(minutes)]))
            requests = generator.result()
        time.sleep(_KNOWN_SECONDS)
        parts = [requests[requests[:, 0] == number] for number in range(len(plan))]
        rows = [
            self._row(seed, name, minute, begin + 60 * minute, part, idle[minute])
            for (minute, name), part in zip(plan, parts, strict=True)
        ]
        delete_pods(self._cluster.api)
        return rows, worst(parts, idle)

    def _create(self, random: np.random.Generator) -> dict[str, str]:
        """Create the service, the batch job and the bursts of each node; return the URL of each service by node."""
        api, requests = self._cluster.api, {"cpu": "10m"}
        both = zip(random.permutation(BATCH).tolist(), random.permutation(BURSTS).tolist(), strict=True)
        for name, (batch, bursts) in zip(self._cluster.nodes, both, strict=True):
            create_pod(api, f"service-{name}", container(requests, PORT=PORT, COST=COST_MILLISECONDS), name)
            create_pod(api, f"bursts-{name}", container(requests, BURN=bursts, ON=15, OFF=45), name)
            if batch:
                create_pod(api, f"batch-{name}", container(requests, BURN=batch), name)
        pods = wait_for_pods(api)
        return {name: url(pods[f"service-{name}"]) for name in self._cluster.nodes}

    def _row(self, seed: int, name: str, minute: int, begin: float, requests: Floats, idle: float) -> NodeMinute:
        end, pods = begin + 60, self._cluster.nodes[name].group.pods()
        used = self._recorder.cores(name, begin, end)
        of_pods = sum(self._recorder.cores(pod, begin, end) for pod in pods)
        return NodeMinute(
            seed, name, minute, 100 * used / CORES, 100 * (used - of_pods) / CORES,
            100 * self._recorder.throttled(name, begin, end), self._waits.rate(name, begin, end),
            len(requests), *latencies(requests), lateness(requests), idle,
        )  # fmt: skip


def minutes(options: argparse.Namespace) -> int:
    """Measure load and latency of each node and minute; a run that was disturbed is repeated."""
    path, end = options.folder / FILE, time.time() + 60 * options.most_minutes
    done = {int(row["seed"]) for row in read_rows(path)}
    seeds = [seed for seed in range(options.seed, options.seed + options.runs) if seed not in done]
    keep = partial(append_rows, options.folder / DISTURBED)
    with (
        cluster_folder(options.folder) as folder,
        RealCluster(folder, [CORES] * NODES, period_microseconds=options.period) as cluster,
        Recorder(cluster) as recorder,
        QueueWaits({name: node.group.folders[0] for name, node in cluster.nodes.items()}) as waits,
    ):
        runs = MinuteRuns(cluster, recorder, waits)
        for seed in seeds:
            print(f"seed {seed}", flush=True)
            rows = undisturbed(
                partial(runs.run, seed, options.minutes), options.attempts, 60 * options.minutes + 40, end, keep
            )
            if rows:
                append_rows(path, rows)
                done.add(seed)
    left = [seed for seed in seeds if seed not in done]
    print(f"left for the next call: seeds {left}" if left else "complete")
    return int(bool(left))


def read(path: Path) -> dict[str, Floats]:
    """Return the columns of a table of node-minutes as numbers, with those that follow from them."""
    rows = read_rows(path)
    names = [field.name for field in fields(NodeMinute) if field.name != "node"]
    columns = {name: np.array([float(row[name]) for row in rows]) for name in names}
    columns["node"] = np.array([float(row["node"].rpartition("-")[2]) for row in rows])
    for percent in (70, 80, 90):
        columns[f"hot_{percent}"] = (columns["load"] >= percent).astype(np.float64)
    return columns


def minutes_table(folder: Path) -> None:
    """Print rank correlations with intervals, latency by load, and the load at which it turns."""
    if not (folder / FILE).exists():
        return
    columns = read(folder / FILE)
    # A backlog lasts into the next minute, and the jobs of a node are those of the whole run.
    groups = np.stack([columns["seed"], columns["node"]], axis=1)
    samples, count = resampled(groups, _RESAMPLES), len(groups)
    print(f"{count} node-minutes, {len(np.unique(groups, axis=0))} groups: the minutes of a node in a run")
    print(f"kubelet and containerd used {columns['system'].mean():.1f} % of a node")
    print(f"{Disturbance(columns['lateness'].max(), columns['idle'].min())}")
    predictors = [name for name in PREDICTORS if np.ptp(columns[name]) > 0]
    _print_correlations(columns, predictors, samples, count)
    print("\n| load, % | node-minutes | p50, ms | p99, ms | over 50 ms, % |\n|---|---:|---:|---:|---:|")
    for low in range(0, 110, 10):
        rows = (columns["load"] >= low) & (columns["load"] < low + 10)
        if rows.any():
            p50, p99 = (float(np.median(columns[outcome][rows])) for outcome in ("p50", "p99"))
            slow = float(np.average(columns["slow"][rows], weights=columns["requests"][rows]))
            print(f"| {low} to {low + 10} | {rows.sum()} | {p50:.1f} | {p99:.1f} | {slow:.2f} |")
    print()
    for outcome in ("p50", "p99"):

        def turn(rows: Rows, latency: Floats = columns[outcome]) -> Floats:
            return np.array(turning_point(columns["load"][rows], latency[rows]))

        load, (low, high) = with_interval(turn, samples, count)
        print(f"{outcome} turns at a load of {load:.0f} % ({low:.0f} to {high:.0f})")


def _print_correlations(columns: dict[str, Floats], predictors: list[str], samples: list[Rows], count: int) -> None:
    """Print the rank correlation of each predictor with each outcome, and how it differs from that of the load."""
    table = np.stack([columns[name] for name in (*predictors, *OUTCOMES)], axis=1)

    def correlations(rows: Rows) -> Floats:
        return rank_correlations(table[rows])[: len(predictors), len(predictors) :]

    for title, statistic in (
        ("rank correlation", correlations),
        ("difference from that of the load", lambda rows: correlations(rows) - correlations(rows)[0]),
    ):
        found, (low, high) = with_interval(statistic, samples, count)
        print(f"\n| {title} | " + " | ".join(OUTCOMES) + " |\n|---|" + "---|" * len(OUTCOMES))
        for row, name in enumerate(predictors):
            cells = [f"{found[row, n]:.2f} ({low[row, n]:.2f} to {high[row, n]:.2f})" for n in range(len(OUTCOMES))]
            print(f"| {name} | " + " | ".join(cells) + " |")


def plot(options: argparse.Namespace) -> int:
    """Draw the 99th percentile of latency over each measure of the node."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    columns = read(options.folder / FILE)
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
    labels = {
        "load": "CPU of the node in the minute, % of capacity", "throttled": "throttled periods, %",
        "queue_wait": "waiting of all tasks, s/s",
    }  # fmt: skip
    for each, (name, label) in zip(axes, labels.items(), strict=True):
        each.scatter(columns[name], columns["p99"], s=8, alpha=0.5)
        each.set(xlabel=label, yscale="log")
    axes[0].set(ylabel="p99 latency, ms")
    for percent in (70, 80, 90):
        axes[0].axvline(percent, color="grey", linewidth=0.8, linestyle="dotted")
    figure.savefig(options.image, dpi=120)
    return 0
