"""How long a day's history of 5,000 nodes takes, to write and to read, and what that does to other requests.

    python benchmarks/history.py [--nodes 5000] [--turns 15]

A file with a day of four series of each node is written by the code that writes every fetch, then read through a real
``trimaran watch`` over HTTP: one node with all its series, and one series of all nodes. Beside the times stand the
processor's. Meanwhile a reader asks for one node again and again, first alone, then while histories of all nodes are
asked for, one after the other without a pause. Those are asked for by a process of their own, as they would be:
beside the meter in one process they would take the interpreter from it, and be measured too.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.days import fill, made_up_day
from support.servers import Service, free_port, wait_until


def timed(call: Callable[[], object], turns: int, process: psutil.Process) -> tuple[float, float, float]:
    """Return the median and the largest time of a call in ms, and the processor's time of the process for each."""
    call()
    before = process.cpu_times()
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - began))
    after = process.cpu_times()
    processor = 1000 * (after.user + after.system - before.user - before.system) / turns
    return statistics.median(times), max(times), processor


def latencies(url: str, seconds: float) -> list[float]:
    """Ask for one node again and again; return how long each answer took, in ms."""
    session, found = requests.Session(), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        session.get(f"{url}/watcher/node-7", timeout=10)
        found.append(1000 * (time.perf_counter() - began))
        time.sleep(0.005)
    return found


def read_all(url: str) -> None:
    """Ask for the history of all nodes again and again."""
    while True:
        requests.get(f"{url}/history", timeout=60)


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[-1]


def main() -> None:
    """Write, serve, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    loads = made_up_day(arguments.nodes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "watcher.sqlite"
        began = time.process_time()
        fill(path, loads, int(time.time()) // 60 * 60)
        each = 1000 * (time.process_time() - began) / loads.shape[2]
        size = path.stat().st_size / 2**20
        service = Service(
            path, Path(folder) / "log", free_port(), "--provider", "Fake", "--set", f"fake.nodes={arguments.nodes}"
        )
        try:
            wait_until(lambda: service.get("/readyz").ok, "the watcher is ready", 60)
            time.sleep(3)
            worker = psutil.Process(service.workers()[0])
            memory = worker.memory_info().rss / 2**20
            one = timed(lambda: service.get("/history?host=node-77"), arguments.turns, worker)
            every = timed(lambda: service.get("/history"), arguments.turns, worker)
            length = len(service.get("/history", headers={"Accept-Encoding": "identity"}).content) / 1e6
            alone = latencies(service.url, 6)
            other = multiprocessing.get_context("spawn").Process(target=read_all, args=(service.url,), daemon=True)
            other.start()
            time.sleep(2)  # until it has imported what it needs
            disturbed = latencies(service.url, 6)
            other.terminate()
            other.join()
            peak = worker.memory_info().rss / 2**20
        finally:
            service.terminate()
    print(f"{arguments.nodes} nodes x 4 series x {loads.shape[2]} minutes: {size:.0f} MiB")
    print(f"to write a minute: {each:.1f} ms of the processor; to read:")
    print(f"{'':36}{'median ms':>10}{'most ms':>10}{'processor ms':>14}")
    shown = {"one node, a day, four series": one, f"all nodes, a day, CPU, {length:.1f} MB": every}
    for name, found in shown.items():
        print(f"{name:36}{found[0]:10.1f}{found[1]:10.1f}{found[2]:14.1f}")
    ratio = p99(disturbed) / p99(alone)
    print(
        f"a node's load meanwhile, p99: {p99(alone):.1f} ms alone, {p99(disturbed):.1f} ms disturbed: {ratio:.1f} times"
    )
    print(f"memory of the worker: {memory:.0f} MiB, then {peak:.0f} MiB")


if __name__ == "__main__":
    main()
