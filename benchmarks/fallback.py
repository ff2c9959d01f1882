"""Cost of the fallback for missing metrics at 5,000 nodes, in the watcher and in scoring.

Publishing: the watcher publishes three windows of which one misses nodes; the baseline is a fetch without missing
nodes. Judging: a fallback policy grades all nodes of a snapshot; the baseline is the alignment of the same snapshot to
the nodes, which every score needs anyway. The times are medians of five.

    python benchmarks/fallback.py [--nodes 5000]
"""

import statistics

from common import NOW, TYPES, Call, Table, clock_ms, options

from scoring import FallbackPolicy, MetricsTable, Node, NodeTable, ResourceList
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.publishing.cache import Cache

RUNS = 5
WINDOWS = {"15m": 900, "10m": 600, "5m": 300}


def median_ms(call: Call) -> float:
    return statistics.median(clock_ms(call) for _ in range(RUNS))


def snapshot(nodes: int, window: str, end: int = NOW, missing: int = 0) -> WatcherMetrics:
    """Return a snapshot of nodes, in which the first ``missing`` nodes are missing.

    Args:
        nodes: number of nodes, including the missing ones.
        window: name of the window, such as ``15m``.
        end: end of the window, Unix seconds.
        missing: number of missing nodes.
    """
    metrics = {
        f"node-{i}": NodeMetrics(
            tuple(Metric(t.lower(), t, op, window, (i % 90) + 0.123456) for t in TYPES for op in ("AVG", "STD"))
        )
        for i in range(missing, nodes)
    }
    return WatcherMetrics(end, Window(window, end - WINDOWS[window], end), "benchmark", metrics)


def publish(table: Table, nodes: int) -> None:
    """Print the time to publish three windows, with no, 1 % and 10 % of the nodes missing in one of them."""
    complete = 0.0
    for label, gap in {"none": 0, "1 %": nodes // 100, "10 %": nodes // 10}.items():
        times = []
        for run in range(RUNS):
            cache = Cache(list(WINDOWS), 300)
            cache.publish({window: snapshot(nodes, window) for window in WINDOWS}, NOW)
            now = NOW + 60 + run
            fetched = {window: snapshot(nodes, window, now, gap if window == "15m" else 0) for window in WINDOWS}
            times.append(clock_ms(lambda cache=cache, fetched=fetched, now=now: cache.publish(fetched, now)))
        took = statistics.median(times)
        complete = complete or took
        table.row(f"publish 3 windows, {label} missing in 15m", f"{took:.0f} ms", f"{took / complete:.2f}")


def judge(table: Table, node_count: int) -> None:
    """Print the time to align a snapshot to the nodes, and the time to grade the nodes by a fallback policy."""
    size = ResourceList({"cpu": 8000, "memory": 32 << 30})
    nodes = NodeTable([Node(f"node-{i}", size, size, created_at=0) for i in range(node_count)])
    policy, received = FallbackPolicy(), snapshot(node_count, "15m", missing=node_count // 100)
    align = median_ms(lambda: MetricsTable.align(received, nodes))
    judging = median_ms(lambda: policy.judge(nodes, received, NOW + 10))
    table.row("align a snapshot", f"{align:.0f} ms", "1.00")
    table.row("judge it (aligns too), 1 % missing", f"{judging:.0f} ms", f"{judging / align:.2f}")


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000)
    table = Table(f"{size.nodes:,} nodes x {2 * len(TYPES)} metrics", ("operation", "time", "against its baseline"))
    publish(table, size.nodes)
    judge(table, size.nodes)


if __name__ == "__main__":
    main()
