"""Times to write and read a day's history of 5,000 nodes, and their effect on other requests.

The watcher's own code writes a file with a day of four series for each node. A real ``trimaran watch`` then serves the
file over HTTP: all series of one node, and one series of all nodes. Finally a client requests one node again and again:
first while the watcher is idle (the baseline), then while another process requests the histories of all nodes without a
pause. That process is separate, so that its own work does not slow down the measuring client.

    python benchmarks/history.py [--nodes 5000] [--turns 15]
"""

import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import psutil
import requests
from common import Call, Table, clock_ms, options
from support.days import fill, made_up_day
from support.servers import Service, wait_until


def read_latencies(url: str, seconds: float) -> list[float]:
    """Request the load of one node again and again for some seconds; return the latency of each answer in ms."""
    session, times = requests.Session(), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times.append(clock_ms(lambda: session.get(f"{url}/watcher/node-7", timeout=10)))
        time.sleep(0.005)
    return times


def read_all_histories(url: str) -> None:
    """Request the history of all nodes again and again, without an end."""
    while True:
        requests.get(f"{url}/history", timeout=60)


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[-1]


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, turns=15)
    loads = made_up_day(size.nodes)
    minutes = loads.shape[2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "watcher.sqlite"
        start = time.process_time()
        fill(path, loads, int(time.time()) // 60 * 60)
        writing = 1000 * (time.process_time() - start) / minutes
        title = f"{size.nodes:,} nodes x 4 series x {minutes:,} minutes, {path.stat().st_size / 2**20:.0f} MiB"
        table = Table(title, ("measurement", "median, ms", "largest, ms", "processor, ms", "times the baseline"))
        table.row("a minute, written", "", "", f"{writing:.1f}", "")
        service = Service(path, Path(folder) / "log", "--provider", "Fake", "--set", f"fake.nodes={size.nodes}")
        try:
            wait_until(lambda: service.get("/readyz").ok, "the watcher is ready")
            time.sleep(3)
            worker = psutil.Process(service.workers()[0])

            def read(name: str, call: Call) -> None:
                call()
                before = sum(worker.cpu_times()[:2])
                times = [clock_ms(call) for _ in range(size.turns)]
                computed = 1000 * (sum(worker.cpu_times()[:2]) - before) / size.turns
                table.row(name, f"{statistics.median(times):.1f}", f"{max(times):.1f}", f"{computed:.1f}", "")

            read("one node, a day, four series", lambda: service.get("/history?host=node-77"))
            length = len(service.get("/history", headers={"Accept-Encoding": "identity"}).content) / 1e6
            read(f"all nodes, a day, CPU, {length:.1f} MB", lambda: service.get("/history"))
            alone = read_latencies(service.url, 6)
            context = multiprocessing.get_context("spawn")
            other = context.Process(target=read_all_histories, args=(service.url,), daemon=True)
            other.start()
            time.sleep(2)  # until the process has imported its modules
            disturbed = read_latencies(service.url, 6)
            other.terminate()
            other.join()
            memory = worker.memory_info().rss / 2**20
        finally:
            service.terminate()
    table.row("one node's load, p99, idle watcher (baseline)", f"{p99(alone):.1f}", "", "", "1.0")
    ratio = p99(disturbed) / p99(alone)
    table.row("one node's load, p99, histories of all nodes meanwhile", f"{p99(disturbed):.1f}", "", "", f"{ratio:.1f}")
    print(f"\nmemory of the worker afterwards: {memory:.0f} MiB")


if __name__ == "__main__":
    main()
