"""Does a hot minute hurt? Latency of HTTP services next to the load of their nodes, minute by minute.

On each node runs a service that uses 2 ms of processor time a request, a batch job, and a job of bursts. A seed decides
how many requests a second come in each minute.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measuring import (
    CORES,
    COST_MILLISECONDS,
    LEAST_IDLE_PERCENT,
    MAX_LATENESS_MILLISECONDS,
    NODES,
    PORT,
    Floats,
    Generator,
    QueueWaits,
    address,
    append_rows,
    create_pod,
    idle_percent,
    idle_ticks,
    latencies,
    lateness,
    read_rows,
)
from numpy.typing import NDArray
from real_nodes.cluster import RealCluster
from real_nodes.programs import container
from real_nodes.recorder import Recorder
from scipy.stats import spearmanr
from support.servers import wait_until

FILE = "minutes.csv"
#: Cores of the batch job of each node, and of its bursts, which last a quarter of the time.
BATCH, BURST = (0.0, 0.03, 0.05, 0.08), 0.08
#: Lowest and highest number of requests a second of a minute.
RATES = (5.0, 75.0)
PREDICTORS = ("load", "hot_70", "hot_80", "hot_90", "throttled", "queue_wait")
OUTCOMES = ("p50", "p99", "slow_share")
_LEAST_REQUESTS = 30
_BLOCK_MINUTES = 5
_RESAMPLES = 2000


@dataclass
class NodeMinute:
    """Load and latency of a node in a minute.

    Attributes:
        seed: seed of the run.
        node: name of the node.
        minute: minute of the run.
        load: mean CPU use, percent of the node's capacity.
        throttled: share of the periods in which the node had to wait.
        queue_wait: time that all tasks of the node waited for a processor, seconds a second.
        requests: number of requests that were intended in the minute.
        p50, p99: latency, milliseconds.
        slow_share: share of the requests that took more than 50 ms, or had no answer.
        lateness: 99th percentile of the generator's own lateness, milliseconds.
        idle: idle time of the machine, percent.
    """

    seed: int
    node: str
    minute: int
    load: float
    throttled: float
    queue_wait: float
    requests: int
    p50: float
    p99: float
    slow_share: float
    lateness: float
    idle: float


def minutes(options: argparse.Namespace) -> int:
    """Measure load and latency of each node and minute; a run that was disturbed adds nothing, and says so."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _measured(Path(folder), options.minutes, options.seed, options.period)
    late, idle = max(each.lateness for each in rows), min(each.idle for each in rows)
    print(f"seed {options.seed}: lateness at most {late:.1f} ms, machine idle at least {idle:.0f} %")
    if late > MAX_LATENESS_MILLISECONDS or idle < LEAST_IDLE_PERCENT:
        print("disturbed: run it again")
        return 1
    append_rows(options.folder / FILE, rows)
    return 0


def _measured(folder: Path, count: int, seed: int, period_microseconds: int) -> list[NodeMinute]:
    """Run the services on new nodes; return a row for each node and minute."""
    random = np.random.default_rng(seed)
    with (
        RealCluster(folder, [CORES] * NODES, period_microseconds=period_microseconds) as cluster,
        Recorder(cluster) as recorder,
        QueueWaits(cluster) as waits,
    ):
        urls = _services(cluster)
        plan = [(minute, name) for minute in range(count) for name in urls]
        phases = [
            (60.0 * minute, 60.0 * minute + 60, float(random.uniform(*RATES)), urls[name]) for minute, name in plan
        ]
        time.sleep(10)  # the recorders know every node and pod
        requests = Generator(phases, seed)
        idle = [idle_ticks()]
        for minute in range(1, count + 1):
            time.sleep(max(0.0, requests.begin + 60 * minute - time.time()))
            idle.append(idle_ticks())
        rows = requests.result()
        time.sleep(2)
        found = []
        for number, (minute, name) in enumerate(plan):
            own, start = rows[rows[:, 0] == number], requests.begin + 60 * minute
            if len(own) < _LEAST_REQUESTS:
                continue
            load = 100 * recorder.cores(name, start, start + 60) / CORES
            throttled = recorder.throttled(name, start, start + 60)
            waited = waits.rate(name, start, start + 60)
            is_idle = idle_percent(*idle[minute : minute + 2])
            found.append(
                NodeMinute(
                    seed, name, minute, load, throttled, waited, len(own), *latencies(own), lateness(own), is_idle
                )
            )
        return found


def _services(cluster: RealCluster) -> dict[str, str]:
    """Create the service, the batch job and the bursts of each node; return the URL of each service by node."""
    requests = {"cpu": "10m"}
    for name, batch in zip(cluster.nodes, BATCH, strict=True):
        create_pod(cluster.api, f"service-{name}", container(requests, PORT=PORT, COST=COST_MILLISECONDS), name)
        create_pod(cluster.api, f"bursts-{name}", container(requests, BURN=BURST, ON=15, OFF=45), name)
        if batch:
            create_pod(cluster.api, f"batch-{name}", container(requests, BURN=batch), name)
    found = {}
    for name in cluster.nodes:
        ip = wait_until(lambda pod=f"service-{name}": address(cluster.api, pod), f"the service of {name} runs", 120)
        found[name] = f"http://{ip}:{PORT}/"
    return found


def read(path: Path) -> dict[str, Floats]:
    """Return the columns of a table of node-minutes as numbers, with the predictors that follow from the load."""
    rows = read_rows(path)
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name != "node"}
    columns["node"] = np.array([float(row["node"].rpartition("-")[2]) for row in rows])
    for percent in (70, 80, 90):
        columns[f"hot_{percent}"] = (columns["load"] >= percent).astype(np.float64)
    return columns


def blocks(columns: dict[str, Floats]) -> list[NDArray[np.intp]]:
    """Return the rows of each block: five minutes of one node in one run, as minutes next to each other are alike."""
    keys = np.stack([columns["seed"], columns["node"], columns["minute"] // _BLOCK_MINUTES], axis=1)
    _, block = np.unique(keys, axis=0, return_inverse=True)
    return [np.flatnonzero(block == number) for number in range(block.max() + 1)]


def minutes_table(folder: Path) -> None:
    """Print rank correlations with 95 % bootstrap intervals, and latency by load."""
    if not (folder / FILE).exists():
        return
    columns = read(folder / FILE)
    parts = blocks(columns)
    random = np.random.default_rng(0)
    samples = [np.concatenate([parts[place] for place in random.integers(len(parts), size=len(parts))])
               for _ in range(_RESAMPLES)]  # fmt: skip
    print(f"{len(columns['load'])} node-minutes, {len(parts)} blocks of {_BLOCK_MINUTES} minutes\n")
    print("| predictor | " + " | ".join(OUTCOMES) + " |\n|---|" + "---|" * len(OUTCOMES))
    for predictor in PREDICTORS:
        cells = [_correlation(columns[predictor], columns[outcome], samples) for outcome in OUTCOMES]
        print(f"| {predictor} | " + " | ".join(cells) + " |")
    print("\n| load, % | node-minutes | p50, ms | p99, ms | over 50 ms, % |\n|---|---:|---:|---:|---:|")
    for low in range(10, 120, 10):
        rows = (columns["load"] >= low) & (columns["load"] < low + 10)
        if rows.any():
            p50, p99, slow = (float(np.median(columns[outcome][rows])) for outcome in OUTCOMES)
            print(f"| {low} to {low + 10} | {rows.sum()} | {p50:.1f} | {p99:.1f} | {100 * slow:.1f} |")


def _correlation(predictor: Floats, outcome: Floats, samples: Sequence[NDArray[np.intp]]) -> str:
    rank = float(spearmanr(predictor, outcome).statistic)
    drawn = [float(spearmanr(predictor[rows], outcome[rows]).statistic) for rows in samples]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return f"{rank:.2f} ({low:.2f} to {high:.2f})"


def plot(options: argparse.Namespace) -> int:
    """Draw the 99th percentile of latency over the load of the node."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    columns = read(options.folder / FILE)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.scatter(columns["load"], columns["p99"], s=8, alpha=0.5)
    axes.set(xlabel="CPU of the node in the minute, % of capacity", ylabel="p99 latency, ms", yscale="log")
    for percent in (70, 80, 90):
        axes.axvline(percent, color="grey", linewidth=0.8, linestyle="dotted")
    figure.savefig(options.image, dpi=120)
    return 0
