"""Time to convert a watcher's answer into the arrays for scoring, for each format of the answer.

The baseline is the simplest code: parse the JSON, create a Metric object for every value, and align the objects to the
nodes. All formats must give the same arrays, or the benchmark stops. They take turns, with a garbage collection before
each. Times are medians of processor time, and a ratio is of times from one turn. If Go is installed, load-watcher's Go
client and two decoders in Go take turns, too: they decode Go's dialect, but create no arrays.

    python benchmarks/reading.py [--nodes 5000] [--rounds 15]
"""

import gc
import gzip
import statistics
import sys
import time
from collections.abc import Callable

import go_programs
import orjson
from common import TYPES, Table, median_ratio, options, snapshot

from scoring import MetricsTable, Node, NodeTable
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect

PLAIN = "an object for every metric"
DECODERS = {
    "client": "load-watcher's Go client",
    "gojay": "its decoder alone (gojay)",
    "json": "Go's standard library",
}


def decode_plainly(body: bytes) -> WatcherMetrics:
    """Decode a snapshot in the documented dialect into an object for every metric: the baseline."""
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
    """Decode a body and align it to the nodes; return the milliseconds to decode, those to align, and the arrays."""
    gc.collect()
    start = time.thread_time()
    metrics = decode(body)
    decoded = time.thread_time()
    table = MetricsTable.align(metrics, nodes)
    return 1000 * (decoded - start), 1000 * (time.thread_time() - decoded), table


def take_turns(count: int, rounds: int) -> tuple[dict[str, bytes], dict[str, list[tuple[float, float]]]]:
    """Return, for each format of the answer, its body, and the milliseconds to decode and to align in each round.

    Args:
        count: number of nodes.
        rounds: number of rounds.
    """
    metrics = snapshot(count)
    nodes = NodeTable([Node(name) for name in metrics.data])
    documented, go, columnar = wire.encode(metrics), wire.encode(metrics, Dialect.GO), wire.encode_columns(metrics)
    bodies = {PLAIN: documented, "documented dialect": documented, "Go's dialect": go, "columnar form": columnar}
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in bodies}
    for _ in range(rounds):
        arrays = []
        for name, body in bodies.items():
            decode, align, table = read(decode_plainly if name == PLAIN else wire.decode, body, nodes)
            turns[name].append((decode, align))
            arrays.append({kind: (use.average.tolist(), use.deviation.tolist()) for kind, use in table.use.items()})
        if any(each != arrays[0] for each in arrays):
            sys.exit("the forms do not give the same arrays")
        for decoder, result in (go_programs.decode(go, 3) or {}).items():
            turns.setdefault(DECODERS[decoder], []).append((result["processor_ms"], 0.0))
            assert result["nodes"] == count, f"{decoder} found {result['nodes']} nodes"
    return {**bodies, **dict.fromkeys(DECODERS.values(), go)}, turns


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, rounds=15)
    bodies, turns = take_turns(size.nodes, size.rounds)
    title = f"{size.nodes:,} nodes x {2 * len(TYPES)} metrics, {size.rounds} rounds, processor time"
    table = Table(title, ("form", "MB", "MB compressed", "read, ms", "align, ms", "both, ms", "times as fast"))
    baseline = [sum(turn) for turn in turns[PLAIN]]
    for name, times in turns.items():
        decode, align = (statistics.median(column) for column in zip(*times, strict=True))
        both = [sum(turn) for turn in times]
        sizes = f"{len(bodies[name]) / 1e6:.1f}", f"{len(gzip.compress(bodies[name], 1)) / 1e6:.2f}"
        aligning, total = f"{align:.1f}" if align else "", f"{statistics.median(both):.1f}"
        table.row(name, *sizes, f"{decode:.1f}", aligning, total, f"{median_ratio(baseline, both):.1f}")


if __name__ == "__main__":
    main()
