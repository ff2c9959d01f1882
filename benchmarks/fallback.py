"""What does fallback cost? Publishing with and without gaps, reading, and judging, at 5,000 nodes.

The baseline of publishing is a fetch without gaps; that of judging is aligning the same snapshot, which every score
needs anyway; that of a record of placed pods is a mapping that is searched through at each pruning. Medians of five.

    python benchmarks/fallback.py
"""

import platform
import statistics
import time
from collections.abc import Callable

from client import AssignedPods
from scoring import FallbackPolicy, MetricsTable, Node, NodeTable, Pod, ResourceList
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.publishing.cache import Cache

NODES, RUNS, PODS = 5_000, 5, 5_000
SECONDS = {"15m": 900, "10m": 600, "5m": 300}
TYPES = ("CPU", "Memory", "Bandwidth", "Storage")


def median_ms(act: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        act()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def snapshot(window: str, end: int, first: int = 0) -> WatcherMetrics:
    nodes = {
        f"node-{i}": NodeMetrics(
            tuple(Metric(t.lower(), t, op, window, (i % 90) + 0.123456) for t in TYPES for op in ("AVG", "STD"))
        )
        for i in range(first, NODES)
    }
    return WatcherMetrics(end, Window(window, end - SECONDS[window], end), "bench", nodes)


def publishing() -> None:
    missing = {"none": 0, "1 %": NODES // 100, "10 %": NODES // 10}
    whole = 0.0
    for label, gap in missing.items():
        times = []
        for run in range(RUNS):
            cache = Cache(list(SECONDS), 300)
            cache.publish({w: snapshot(w, 1_000) for w in SECONDS}, 1_000)
            fetched = {w: snapshot(w, 1_060 + run, gap if w == "15m" else 0) for w in SECONDS}
            began = time.perf_counter()
            cache.publish(fetched, 1_060 + run)
            times.append(1000 * (time.perf_counter() - began))
        took = statistics.median(times)
        whole = whole or took
        print(f"| publish 3 windows, {label} missing in 15m | {took:.0f} ms | {took / whole:.2f} |")
    read = median_ms(lambda: [cache.served(None, 1_070) for _ in range(10_000)])
    print(f"| read what is served | {read / 10:.2f} us | {read / 10_000 / whole:.1e} |")


def judging() -> None:
    size = ResourceList({"cpu": 8000, "memory": 32 << 30})
    nodes = NodeTable([Node(f"node-{i}", size, size, created_at=0) for i in range(NODES)])
    policy, received = FallbackPolicy(), snapshot("15m", 1_000, NODES // 100)
    align = median_ms(lambda: MetricsTable.align(received, nodes))
    judge = median_ms(lambda: policy.judge(nodes, received, 1_010))
    print(f"| align a snapshot | {align:.0f} ms | 1.00 |")
    print(f"| judge it (aligns too), 1 % missing | {judge:.0f} ms | {judge / align:.2f} |")


def recording() -> None:
    placed = [Pod(name=f"p{i}") for i in range(PODS)]

    def searched_through() -> None:
        plain: dict[str, float] = {}
        for i, pod in enumerate(placed):
            plain[pod.uid] = i
            plain = {uid: at for uid, at in plain.items() if at >= i - 300}

    def recorded() -> None:
        pods = AssignedPods()
        for i, pod in enumerate(placed):
            pods.assign(pod, "a", i)
            pods.prune(i)

    plain, ours = median_ms(searched_through), median_ms(recorded)
    print(f"| {PODS} pods placed and pruned, searched through | {plain:.0f} ms | 1.00 |")
    print(f"| the same, AssignedPods | {ours:.0f} ms | {ours / plain:.2f} |")


def main() -> None:
    print(f"{NODES} nodes x {2 * len(TYPES)} metrics; Python {platform.python_version()}, {platform.machine()}\n")
    print("| what | time | against its baseline |\n|---|---:|---:|")
    publishing()
    judging()
    recording()


if __name__ == "__main__":
    main()
