"""How long a fetch of 5,000 hosts takes from a real InfluxDB 1.x, beside the same queries as bare requests.

    python benchmarks/influxdb.py [--nodes 5000] [--runs 5]

Starts an influxd of its own with 15 minutes of CPU and memory, a sample every 10 s as Telegraf writes them. One fetch
is all three windows side by side, as the watcher does it. Bare is the same statements, posted by requests side by side
and read by orjson, and nothing else. Both take turns.
"""

import argparse
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.influxdb_server import InfluxDb, run_influxdb

from runtime.http.gather import Deadline, gather
from watcher.model import Operator, Window
from watcher.providers.influxdb.provider import InfluxDbProvider
from watcher.providers.influxdb.queries import influxql, queries
from watcher.settings import InfluxDbSettings, ProviderSettings, Settings

STEP_SECONDS = 10
MINUTES = (15, 10, 5)


def fill(server: InfluxDb, hosts: int, now: int) -> None:
    """Write every host's samples."""
    random = np.random.default_rng(5000)
    for at in range(now - MINUTES[0] * 60 + 1, now + 1, STEP_SECONDS):
        idle, available = random.uniform(5, 95, (2, hosts)).round(6).tolist()
        server.write(
            line
            for host in range(hosts)
            for line in (
                f"cpu,cpu=cpu-total,host=node-{host} usage_idle={idle[host]} {at}",
                f"mem,host=node-{host} available_percent={available[host]} {at}",
            )
        )


def bare(url: str, statements: list[str]) -> int:
    """Post the statements side by side and parse the answers; return how many series came."""
    session = requests.Session()

    def ask(statement: str) -> int:
        answer = session.post(f"{url}/query", data={"db": "telegraf", "epoch": "s", "q": statement}, timeout=120)
        return len(orjson.loads(answer.content)["results"][0]["series"])

    answers = gather({statement: partial(ask, statement) for statement in statements}, Deadline.after(120))
    return sum(answer for answer in answers.values() if isinstance(answer, int))


def fetched(provider: InfluxDbProvider, windows: list[Window]) -> int:
    """Fetch the windows side by side; return how many metrics came."""
    deadline = Deadline.after(120)
    answers = gather({window: partial(provider.fetch, window, deadline) for window in windows}, deadline)
    found = 0
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
        found += sum(len(node.metrics) for node in answer.nodes.values())
    return found


def timed(call: Callable[[], int]) -> tuple[float, float]:
    """Return seconds, and those of them that this process computed."""
    began, computed = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - computed


def peak(call: Callable[[], int]) -> float:
    """Return the most memory that the call held at once, in MB."""
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 1e6


def main() -> None:
    """Fill, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, run_influxdb(Path(folder)) as server:
        now = int(time.time())
        fill(server, options.nodes, now)
        windows = [Window(f"{minutes}m", now - minutes * 60, now) for minutes in MINUTES]
        statements = [
            influxql(alternatives[0], (Operator.AVG, Operator.STD), window, bounded=False)
            for alternatives in queries(InfluxDbSettings()).values()
            for window in windows
        ]
        provider = InfluxDbProvider(Settings(provider=ProviderSettings(name="InfluxDB", address=server.url)))
        calls = {
            "bare parallel queries, orjson": partial(bare, server.url, statements),
            "provider, to NodeMetrics": partial(fetched, provider, windows),
        }
        counts = [call() for call in calls.values()]  # warms up
        assert counts == [options.nodes * 6, options.nodes * 12], counts
        turns = [{name: timed(call) for name, call in calls.items()} for _ in range(options.runs)]
        peaks = {name: peak(call) for name, call in calls.items()}
        provider.close()
    print(f"influxdb: {options.nodes} nodes, {len(MINUTES)} windows, CPU and Memory, AVG and STD, {options.runs} runs")
    medians = []
    for name in calls:
        seconds, computed = (statistics.median(each) for each in zip(*(turn[name] for turn in turns), strict=True))
        medians.append(seconds)
        print(
            f"  {name:30} {seconds * 1000:8.0f} ms, {computed * 1000:5.0f} ms of it here   peak {peaks[name]:4.0f} MB"
        )
    print(f"  {'ratio':30} {medians[1] / medians[0]:8.2f}")


if __name__ == "__main__":
    main()
