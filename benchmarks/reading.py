"""Time from a watcher's answer to scoring's arrays, for each form of the answer.

The baseline is the code that one writes first: parse the JSON, make a Metric of every value, align the objects. All
forms must give the same arrays, or the benchmark stops. They take turns, and each pays for its own garbage; times are
medians in processor time, and a ratio is of times from one turn. Load-watcher's Go client takes its turn where Go is
installed: it reads Go's dialect, and has no arrays to make.

    python benchmarks/reading.py [--nodes 5000] [--rounds 15] [--before PATH]

``--before`` names the folder of another version of this project, which then takes turns in a process of its own.
"""

import gc
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import go_programs
import orjson
from common import TYPES, Table, median_ratio, options, snapshot

from scoring import MetricsTable, Node, NodeTable
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect

PLAIN, BEFORE, GO = "an object for every metric", "the version before", "load-watcher's Go client"
# Works with every version of this project: reads the file once for each line of standard input.
OTHER_VERSION = """
import gc, sys, time
from scoring import MetricsTable, Node, NodeTable
from watcher import wire
body = open(sys.argv[1], "rb").read()
nodes = NodeTable([Node(name) for name in wire.decode(body).data])
for _ in sys.stdin:
    gc.collect()
    start = time.thread_time()
    metrics = wire.decode(body)
    decoded = time.thread_time()
    MetricsTable.align(metrics, nodes)
    print(1000 * (decoded - start), 1000 * (time.thread_time() - decoded), flush=True)
"""


def decode_plainly(body: bytes) -> WatcherMetrics:
    """Make an object for every metric."""
    document = orjson.loads(body)
    data = {
        name: NodeMetrics(
            tuple(
                Metric(metric["name"], metric["type"], metric["operator"], metric["rollup"], metric["value"])
                for metric in node["metrics"]
            ),
            node["tags"],
            node["metadata"],
        )
        for name, node in document["data"].items()
    }
    return WatcherMetrics(document["timestamp"], Window(**document["window"]), document["source"], data)


def read(decode: Callable[[bytes], WatcherMetrics], body: bytes, nodes: NodeTable) -> tuple[float, float, MetricsTable]:
    """Return the milliseconds to decode and to align, and the arrays."""
    gc.collect()
    start = time.thread_time()
    metrics = decode(body)
    decoded = time.thread_time()
    table = MetricsTable.align(metrics, nodes)
    return 1000 * (decoded - start), 1000 * (time.thread_time() - decoded), table


class OtherVersion:
    """A process that runs another version of this project, and takes a turn on request."""

    def __init__(self, folder: Path, body: bytes) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(body)
        self._file = Path(file.name)
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER_VERSION, file.name], cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read(self) -> tuple[float, float]:
        """Return the milliseconds to decode and to align."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        decode, align = map(float, self._process.stdout.readline().split())
        return decode, align

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._file.unlink()


def take_turns(count: int, rounds: int, before: Path | None) -> tuple[dict[str, bytes], dict[str, list[tuple]]]:
    """Return the body of each form, and the milliseconds to decode and to align in each round."""
    metrics = snapshot(count)
    nodes = NodeTable([Node(name) for name in metrics.data])
    documented, go, columnar = wire.encode(metrics), wire.encode(metrics, Dialect.GO), wire.encode_columns(metrics)
    bodies = {PLAIN: documented, "documented dialect": documented, "Go's dialect": go, "columnar form": columnar}
    turns: dict[str, list[tuple]] = {name: [] for name in bodies}
    other = OtherVersion(before, documented) if before else None
    for _ in range(rounds):
        arrays = []
        for name, body in bodies.items():
            decode, align, table = read(decode_plainly if name == PLAIN else wire.decode, body, nodes)
            turns[name].append((decode, align))
            arrays.append({kind: (use.average.tolist(), use.deviation.tolist()) for kind, use in table.use.items()})
        if any(each != arrays[0] for each in arrays):
            sys.exit("the forms do not give the same arrays")
        if other:
            turns.setdefault(BEFORE, []).append(other.read())
        if in_go := go_programs.decode(go, 3):
            turns.setdefault(GO, []).append((in_go["client"]["processor_ms"], 0.0))
    if other:
        other.close()
    return bodies, turns


def main() -> None:
    """Print the table."""
    chosen = options(__doc__, nodes=5_000, rounds=15, before=None)
    bodies, turns = take_turns(chosen.nodes, chosen.rounds, chosen.before)
    title = f"{chosen.nodes:,} nodes x {2 * len(TYPES)} metrics, {chosen.rounds} rounds, processor time"
    table = Table(title, ("form", "MB", "MB compressed", "read, ms", "align, ms", "both, ms", "times as fast"))
    baseline = [sum(turn) for turn in turns[PLAIN]]
    for name, times in turns.items():
        body = bodies.get(name, bodies[PLAIN])
        decode, align = (statistics.median(column) for column in zip(*times, strict=True))
        both = [sum(turn) for turn in times]
        sizes = f"{len(body) / 1e6:.1f}", f"{len(gzip.compress(body, 1)) / 1e6:.2f}"
        aligning, total = "" if name == GO else f"{align:.1f}", f"{statistics.median(both):.1f}"
        table.row(name, *sizes, f"{decode:.1f}", aligning, total, f"{median_ratio(baseline, both):.1f}")


if __name__ == "__main__":
    main()
