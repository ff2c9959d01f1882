"""How long a watcher's answer takes to become scoring's arrays: each form of it, beside an object for every metric.

The baseline is what one writes first: parse the JSON, make a Metric of every value, align the objects. All ways must
give the same arrays, or the benchmark stops. They take turns, and each pays for its own garbage; times are medians, in
processor time, and a ratio is of times from one turn.

    python benchmarks/reading.py [--nodes 5000] [--rounds 15] [--before PATH]

``--before`` is the folder of another version of this project, which then takes its turns too, in a process of its own.
So does load-watcher's Go client, where there is Go: it reads Go's dialect, and has no arrays to make.
"""

import argparse
import gc
import gzip
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import go_programs
import numpy as np
import orjson

from scoring import MetricsTable, Node, NodeTable
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect

TYPES = ("CPU", "Memory", "Bandwidth", "Storage")
# What any version of this project can do: read the file in turns with us, one line a turn.
OTHER = """
import gc, sys, time
from scoring import MetricsTable, Node, NodeTable
from watcher import wire
body = open(sys.argv[1], "rb").read()
nodes = NodeTable([Node(name) for name in wire.decode(body).data])
for _ in sys.stdin:
    gc.collect()
    began = time.thread_time()
    metrics = wire.decode(body)
    decoded = time.thread_time()
    MetricsTable.align(metrics, nodes)
    print(1000 * (decoded - began), 1000 * (time.thread_time() - decoded), flush=True)
"""


def snapshot(nodes: int) -> WatcherMetrics:
    random = np.random.default_rng(nodes)
    labels = [(f"instance:node_{each.lower()}:ratio", each, operator) for each in TYPES for operator in ("AVG", "STD")]
    return WatcherMetrics(
        1_700_000_000,
        Window("15m", 1_699_999_100, 1_700_000_000),
        "Prometheus",
        {
            f"node-{number}.eu-west-1.compute.internal": NodeMetrics(
                tuple(
                    Metric(*label, "15m", value)
                    for label, value in zip(labels, random.uniform(0, 100, 8).tolist(), strict=True)
                ),
                {"smoothing": "5m"},
            )
            for number in range(nodes)
        },
    )


def plain(body: bytes) -> WatcherMetrics:
    """Make an object for every metric."""
    document = orjson.loads(body)
    data = {
        name: NodeMetrics(
            tuple(
                Metric(each["name"], each["type"], each["operator"], each["rollup"], each["value"])
                for each in node["metrics"]
            ),
            node["tags"],
            node["metadata"],
        )
        for name, node in document["data"].items()
    }
    return WatcherMetrics(document["timestamp"], Window(**document["window"]), document["source"], data)


def take(read: Callable[[bytes], WatcherMetrics], body: bytes, nodes: NodeTable) -> tuple[float, float, MetricsTable]:
    """Return the milliseconds to read and to align, and what came of it."""
    gc.collect()
    began = time.thread_time()
    metrics = read(body)
    decoded = time.thread_time()
    table = MetricsTable.align(metrics, nodes)
    return 1000 * (decoded - began), 1000 * (time.thread_time() - decoded), table


class Before:
    """Another version, which takes a turn when it is told to."""

    def __init__(self, folder: Path, body: bytes) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(body)
        self._file = Path(file.name)
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER, file.name], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def take(self) -> tuple[float, float]:
        """Return the milliseconds to read and to align."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        decode, align = map(float, self._process.stdout.readline().split())
        return decode, align

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._file.unlink()


def main(count: int, rounds: int, before: Path | None) -> None:
    metrics = snapshot(count)
    nodes = NodeTable([Node(name) for name in metrics.data])
    documented = wire.encode(metrics)
    forms = {
        "an object for every metric": (plain, documented),
        "documented dialect": (wire.decode, documented),
        "Go's dialect": (wire.decode, wire.encode(metrics, Dialect.GO)),
        "columnar form": (wire.decode, wire.encode_columns(metrics)),
    }
    other = Before(before, documented) if before else None
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
    if other:
        turns["the version before"] = []
    in_go = go_programs.decode(forms["Go's dialect"][1], 1)
    if in_go:
        turns["load-watcher's Go client"] = []
    for _ in range(rounds):
        found = []
        for name, (read, body) in forms.items():
            decode, align, table = take(read, body, nodes)
            turns[name].append((decode, align))
            found.append({each: (use.average.tolist(), use.deviation.tolist()) for each, use in table.use.items()})
        if any(each != found[0] for each in found):
            sys.exit("the forms do not give the same arrays")
        if other:
            turns["the version before"].append(other.take())
        if in_go:
            in_go = go_programs.decode(forms["Go's dialect"][1], 3)
            turns["load-watcher's Go client"].append((in_go["client"]["processor_ms"], 0.0))
    if other:
        other.close()
    print(f"\n{count} nodes x {2 * len(TYPES)} metrics, Python {platform.python_version()}, {rounds} rounds\n")
    print("| form | MB | MB compressed | read, ms | align, ms | both, ms | times as fast |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    baseline = [sum(turn) for turn in turns["an object for every metric"]]
    for name, taken in turns.items():
        body = forms.get(name, (None, documented))[1]
        sizes = f"{len(body) / 1e6:.1f} | {len(gzip.compress(body, 1)) / 1e6:.2f}"
        decode, align, both = (
            statistics.median(each) for each in ([t[0] for t in taken], [t[1] for t in taken], [sum(t) for t in taken])
        )
        faster = statistics.median(plain / sum(turn) for plain, turn in zip(baseline, taken, strict=True))
        print(f"| {name} | {sizes} | {decode:.1f} | {align:.1f} | {both:.1f} | {faster:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    main(options.nodes, options.rounds, options.before)
