"""Time to fill a day of history of 5,000 nodes from a real Prometheus, and its effect on fetches and requests.

Prometheus gets a day of both recording rules, one sample every 30 s. A real ``trimaran watch`` fetches from it every 20
seconds, and fills its history meanwhile. A client requests one node again and again: while the history is filled, and
afterwards (the baseline). The start of each fetch shows whether one was late. Prometheus, watcher and client share the
machine. The binaries prometheus and promtool are required.

    python benchmarks/backfill.py [--nodes 5000] [--hours 24]
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import requests
from common import Table, clock_ms, options
from support.servers import Service, prometheus_arguments, run_prometheus, wait_until

RULES = ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio")
INTERVAL_SECONDS = 20
_DONE = "gaps of the history are filled"


def day(nodes: int, hours: float, now: int) -> Iterator[str]:
    """Yield samples of both recording rules as OpenMetrics text, up to 25 minutes after ``now``, Unix seconds."""
    random = np.random.default_rng(907)
    times = np.arange(now - int((hours + 1) * 3600), now + 1500, 30)
    stamps = [f" {at}\n" for at in times.tolist()]
    for rule in RULES:
        yield f"# TYPE {rule} gauge\n"
        for node in range(nodes):
            values = np.clip(random.uniform(0.05, 0.9) + random.normal(0, 0.05, len(times)), 0, 1).round(4).tolist()
            labels = f'{rule}{{instance="node-{node}.example.com:9100"}} '
            yield "".join(f"{labels}{value}{stamp}" for value, stamp in zip(values, stamps, strict=True))


def watch(service: Service, seconds: float, done: str = "") -> tuple[list[float], list[int]]:
    """Request one node again and again for some seconds, or until the log has a text.

    Returns:
        The latency of each answer in ms, and the time of each fetch that was seen, Unix seconds.
    """
    session, latencies, fetches = requests.Session(), list[float](), list[int]()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (done and done in service.log.read_text()):
        latencies.append(clock_ms(lambda: session.get(f"{service.url}/watcher/node-7.example.com", timeout=10)))
        timestamp = session.get(f"{service.url}/watcher/node-7.example.com", timeout=10).json()["timestamp"]
        fetches += [timestamp] if timestamp not in fetches else []
        time.sleep(0.02)
    return latencies, fetches


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, hours=24.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with run_prometheus(folder, day(size.nodes, size.hours, int(time.time()))) as address:
            arguments = (*prometheus_arguments(address), "--interval", str(INTERVAL_SECONDS))
            backfill = ("--set", f"store.backfill_hours={size.hours}")
            service = Service(folder / "watcher.sqlite", folder / "log", *arguments, *backfill)
            try:
                wait_until(lambda: service.get("/readyz").ok, "the watcher is ready", 120)
                worker = psutil.Process(service.workers()[0])
                began, computed = time.monotonic(), sum(worker.cpu_times()[:2])
                filling, fetches = watch(service, 1200, _DONE)
                seconds, computed = time.monotonic() - began, sum(worker.cpu_times()[:2]) - computed
                memory = worker.memory_info().rss / 2**20
                step = "5m" if size.hours > 5 else "60"
                since = f"{int(size.hours * 3600)}s"
                history = service.get(f"/history?since={since}&step={step}").json()
                known = sum(value is not None for row in history["series"][0]["values"] for value in row)
                alone, _ = watch(service, 15)
            finally:
                service.terminate()
    intervals = [after - before for before, after in pairwise(fetches)]
    table = Table(f"{size.nodes:,} nodes, {size.hours:g} hours", ("measurement", "value", "times the baseline"))
    table.row("history filled, s", f"{seconds:.1f}", "")
    table.row("processor time of the watcher, s", f"{computed:.1f}", "")
    table.row("share of the steps that are known", f"{known / (len(history['nodes']) * history['steps']):.3f}", "")
    table.row(f"longest interval between fetches, s ({len(intervals)})", f"{max(intervals, default=0)}", "")
    table.row("memory of the worker afterwards, MiB", f"{memory:.0f}", "")
    table.row("one node's load, median, afterwards (baseline), ms", f"{statistics.median(alone):.1f}", "1.0")
    table.row("one node's load, p99, afterwards (baseline), ms", f"{p99(alone):.1f}", "1.0")
    table.row("one node's load, median, meanwhile, ms", f"{statistics.median(filling):.1f}",
              f"{statistics.median(filling) / statistics.median(alone):.1f}")  # fmt: skip
    table.row("one node's load, p99, meanwhile, ms", f"{p99(filling):.1f}", f"{p99(filling) / p99(alone):.1f}")


def p99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(times, n=100)[-1]


if __name__ == "__main__":
    main()
