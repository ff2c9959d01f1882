"""How long a fetch of 5,000 hosts takes from a real InfluxDB 1.x, beside the same queries as bare requests.

    .venv/bin/python benchmarks/influxdb.py [hosts]

Starts an influxd of its own with 15 minutes of CPU and memory, a sample every 10 s as Telegraf writes them. One fetch
is all three windows side by side, as the watcher does it. Bare is the same statements, posted by requests side by side
and read by orjson, and nothing else. Both take turns.
"""

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from influxdb_server import InfluxDb, run_influxdb

from watcher.gather import Deadline, gather
from watcher.model import Operator, Window
from watcher.providers.influxdb import InfluxDbProvider
from watcher.providers.influxdb_queries import influxql, queries
from watcher.settings import InfluxDbSettings, ProviderSettings, Settings

ROUNDS = 5
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


def timed(call: Callable[[], int]) -> tuple[float, float, int, float]:
    """Return seconds, those this process computed, what the call counted, and the peak memory in MB so far."""
    began, computed = time.perf_counter(), time.process_time()
    count = call()
    seconds, computed = time.perf_counter() - began, time.process_time() - computed
    return seconds, computed, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Fill, measure in turns, print."""
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as folder, run_influxdb(Path(folder)) as server:
        now = int(time.time())
        fill(server, hosts, now)
        windows = [Window(f"{minutes}m", now - minutes * 60, now) for minutes in MINUTES]
        operators = (Operator.AVG, Operator.STD)
        statements = [
            influxql(alternatives[0], operators, window, bounded=False)
            for alternatives in queries(InfluxDbSettings()).values()
            for window in windows
        ]
        provider = InfluxDbProvider(Settings(provider=ProviderSettings(name="InfluxDB", address=server.url)))
        results: dict[str, list[float]] = {"bare": [], "fetch": []}
        for turn in range(ROUNDS + 1):
            calls = {"bare": partial(bare, server.url, statements), "fetch": partial(fetched, provider, windows)}
            for name, call in calls.items():
                seconds, computed, count, peak = timed(call)
                if turn:  # the first turn warms up
                    results[name].append(seconds)
                    what = "series" if name == "bare" else "metrics"
                    here = f"{computed:.2f} s of it in this process"
                    print(f"{name:5}  {seconds:6.2f} s, {here}  {count} {what}  peak so far {peak:.0f} MB")
        provider.close()
        medians = {name: statistics.median(seconds) for name, seconds in results.items()}
        ratio = medians["fetch"] / medians["bare"]
        print(f"{hosts} hosts, 3 windows, CPU and Memory, AVG and STD, median of {ROUNDS}:")
        print(f"bare {medians['bare']:.2f} s, fetch {medians['fetch']:.2f} s: {ratio:.2f} times")


if __name__ == "__main__":
    main()
