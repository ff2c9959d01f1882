"""Does a hot minute hurt? Latency of HTTP services on real kubelets and containers, next to the load of their nodes.

    python tests/real_nodes/isolated.py .venv/bin/python research/real_nodes.py run FOLDER --minutes 60 --seed 1
    python research/real_nodes.py table research/evidence/real_nodes/minutes.csv
    python research/real_nodes.py plot research/evidence/real_nodes/minutes.csv minutes.png

``run`` starts four nodes of .25 cores, whose quota has periods of 5 ms: at the usual 100 ms a stall is up to 75 ms, and
the 99th percentile would measure the period. Kubelet and containerd use about 13 percent of such a node. On each node
runs a service that uses 2 ms of processor time a request, a batch job, and a job of bursts. Requests come at random
times from outside of the nodes, as many as a seed says for each node and minute; latency counts from the intended time.
Rows are added to ``FOLDER/minutes.csv``, one for each node and minute; a run that was disturbed has none, and says so.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from control_plane.api import Api
from real_nodes import cgroups
from real_nodes.cluster import RealCluster
from real_nodes.images import generator
from real_nodes.programs import container
from real_nodes.recorder import Recorder
from support.servers import wait_until

Floats = NDArray[np.float64]
CORES, NODES, PERIOD_MICROSECONDS, PORT, COST_MILLISECONDS = 0.25, 4, 5_000, 8080, 2
#: Cores of the batch job of each node, and of its bursts, which last a quarter of the time.
BATCH, BURST = (0.0, 0.03, 0.05, 0.08), 0.08
#: Requests a second of a minute.
RATES = (5.0, 75.0)
SLOW_MILLISECONDS = 50.0
MAX_LATENESS_MILLISECONDS, LEAST_IDLE_PERCENT = 5.0, 15.0
PREDICTORS = ("load", "hot_70", "hot_80", "hot_90", "throttled", "queue_wait")
OUTCOMES = ("p50", "p99", "slow_share")
_REQUESTS = 30
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


class QueueWaits:
    """Thread that adds up, by node, the time that tasks waited for a processor (``schedstat``), once a second.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._sums: dict[str, list[tuple[float, float]]] = {name: [] for name in cluster.nodes}
        self._before: dict[str, dict[str, int]] = {name: {} for name in cluster.nodes}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue-waits")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def rate(self, node: str, begin: float, end: float) -> float:
        """Return the seconds of waiting of all tasks of a node for each second between two times."""
        times, sums = zip(*self._sums[node], strict=True)
        first, last = np.interp([begin, end], times, sums)
        return float(last - first) / (end - begin)

    def _run(self) -> None:
        while not self._end.wait(1):
            for name, node in self._cluster.nodes.items():
                now = dict(self._waits(node.group.folders[0]))
                before = self._before[name]
                grown = sum(wait - before[task] for task, wait in now.items() if task in before)
                total = self._sums[name][-1][1] if self._sums[name] else 0.0
                self._sums[name].append((time.time(), total + max(grown, 0) / 1e9))
                self._before[name] = now

    @staticmethod
    def _waits(folder: Path) -> Iterator[tuple[str, int]]:
        """Yield each task of a group and those below it, with the nanoseconds for which it has waited."""
        for group in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
            for pid in cgroups.members(group):
                for task in Path(f"/proc/{pid}/task").glob("*"):
                    try:
                        yield task.name, int((task / "schedstat").read_text().split()[1])
                    except (OSError, IndexError):  # the task has ended
                        continue


def pods(cluster: RealCluster) -> dict[str, str]:
    """Create the service, the batch job and the bursts of each node; return the address of each service by node."""
    for name, batch in zip(cluster.nodes, BATCH, strict=True):
        programs = {
            "service": container({"cpu": "10m"}, PORT=PORT, COST=COST_MILLISECONDS),
            "bursts": container({"cpu": "10m"}, BURN=BURST, ON=15, OFF=45),
            **({"batch": container({"cpu": "10m"}, BURN=batch)} if batch else {}),
        }
        for kind, program in programs.items():
            cluster.api.create(_pod(f"{kind}-{name}", name, program))
    return {
        name: wait_until(lambda name=name: _address(cluster.api, name), "the service runs") for name in cluster.nodes
    }


def _pod(name: str, node: str, program: dict[str, Any]) -> dict[str, Any]:
    spec = {"nodeName": node, "containers": [program], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _address(api: Api, node: str) -> str:
    status = api.get(f"/api/v1/namespaces/default/pods/service-{node}")["status"]
    return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""


def phases(addresses: dict[str, str], minutes: int, seed: int) -> list[tuple[int, str, float]]:
    """Return the phases of the generator: minute, node, and requests a second."""
    random = np.random.default_rng(seed)
    return [(minute, name, float(random.uniform(*RATES))) for minute in range(minutes) for name in addresses]


def idle_seconds() -> tuple[float, float]:
    """Return the idle time of all processors of the machine, and all their time, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return float(ticks[3] + ticks[4]), float(sum(ticks))


def run(options: argparse.Namespace) -> int:
    """Run the services for some minutes, and add the rows; return 1 if the run was disturbed."""
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(Path(folder), options.minutes, options.seed, options.period)
    lateness = max(each.lateness for each in rows)
    idle = min(each.idle for each in rows)
    print(f"seed {options.seed}: lateness at most {lateness:.1f} ms, machine idle at least {idle:.0f} %")
    if lateness > MAX_LATENESS_MILLISECONDS or idle < LEAST_IDLE_PERCENT:
        print("disturbed: run it again")
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "minutes.csv"
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(NodeMinute)])
        if is_new:
            writer.writeheader()
        writer.writerows(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(each).items()}
            for each in rows
        )
    return 0


def measured(folder: Path, minutes: int, seed: int, period_microseconds: int) -> list[NodeMinute]:
    """Run the services on new nodes; return a row for each node and minute."""
    with (
        RealCluster(folder, [CORES] * NODES, period_microseconds=period_microseconds) as cluster,
        Recorder(cluster) as recorder,
        QueueWaits(cluster) as waits,
    ):
        addresses = pods(cluster)
        plan = phases(addresses, minutes, seed)
        lines = [
            f"{60 * minute} {60 * minute + 60} {rate} http://{addresses[name]}:{PORT}/" for minute, name, rate in plan
        ]
        time.sleep(10)  # the recorders know every node and pod
        command = subprocess.Popen(
            [generator(), "-seed", str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        begin = time.time()
        idle = [idle_seconds()]
        assert command.stdin is not None
        assert command.stdout is not None
        with command.stdin as standard_input:
            standard_input.write("\n".join(lines))
        answers: list[str] = []
        reader = threading.Thread(target=lambda: answers.extend(command.stdout or ()), name="answers")
        reader.start()
        for minute in range(1, minutes + 1):
            time.sleep(max(0.0, begin + 60 * minute - time.time()))
            idle.append(idle_seconds())
        reader.join()
        command.wait()
        command.stdout.close()
        time.sleep(2)
        requests = np.array([line.split(",") for line in answers], np.float64)
        return [
            row
            for number, (minute, name, _) in enumerate(plan)
            if (row := _row(seed, name, minute, begin, requests[requests[:, 0] == number], recorder, waits, idle))
        ]


def _row(
    seed: int, name: str, minute: int, begin: float, requests: Floats, recorder: Recorder, waits: QueueWaits,
    idle: Sequence[tuple[float, float]],
) -> NodeMinute | None:  # fmt: skip
    """Return the row of a node and minute; None with too few requests."""
    if len(requests) < _REQUESTS:
        return None
    start = begin + 60 * minute
    latencies, answered = requests[:, 3], requests[:, 4] == 200
    p50, p99 = np.percentile(latencies, [50, 99])
    used = idle[minute + 1][0] - idle[minute][0], idle[minute + 1][1] - idle[minute][1]
    return NodeMinute(
        seed, name, minute, 100 * recorder.cores(name, start, start + 60) / CORES,
        recorder.throttled(name, start, start + 60), waits.rate(name, start, start + 60), len(requests),
        float(p50), float(p99), float(np.mean((latencies > SLOW_MILLISECONDS) | ~answered)),
        float(np.percentile(requests[:, 2], 99)), 100 * used[0] / used[1],
    )  # fmt: skip


def read(path: Path) -> dict[str, Floats]:
    """Return the columns of a table of node-minutes as numbers, with the predictors that follow from the load."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
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


def table(options: argparse.Namespace) -> int:
    """Print rank correlations with 95 % bootstrap intervals, and latency by load."""
    columns = read(options.file)
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
    return 0


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

    columns = read(options.file)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.scatter(columns["load"], columns["p99"], s=8, alpha=0.5)
    axes.set(xlabel="CPU of the node in the minute, % of capacity", ylabel="p99 latency, ms", yscale="log")
    for percent in (70, 80, 90):
        axes.axvline(percent, color="grey", linewidth=0.8, linestyle="dotted")
    figure.savefig(options.image, dpi=120)
    return 0


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="measure for some minutes")
    command.add_argument("folder", type=Path)
    command.add_argument("--minutes", type=int, default=60)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--period", type=int, default=PERIOD_MICROSECONDS, help="period of the quota, microseconds")
    command.set_defaults(run=run)
    for name, function in (("table", table), ("plot", plot)):
        command = commands.add_parser(name)
        command.add_argument("file", type=Path)
        if name == "plot":
            command.add_argument("image", type=Path)
        command.set_defaults(run=function)
    options = parser.parse_args()
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
