"""Time to fetch three windows of 5,000 hosts from a real InfluxDB 1.x, compared with bare queries.

The script starts an influxd with 15 minutes of CPU and memory samples, one every 10 s, as Telegraf writes them. The
baseline posts the same statements in parallel by the requests library, parses the answers by orjson, and does nothing
else. Baseline and provider take turns.

    python benchmarks/influxdb.py [--nodes 5000] [--runs 5]
"""

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests
from common import FETCH_COLUMNS, Table, compare_fetches, options
from support.influxdb_server import InfluxDb, run_influxdb

from runtime.http.gather import Deadline, gather
from watcher.model import Operator, Window
from watcher.providers.influxdb.provider import InfluxDbProvider
from watcher.providers.influxdb.queries import influxql, queries
from watcher.settings import InfluxDbSettings, ProviderSettings, Settings

STEP_SECONDS = 10
MINUTES = (15, 10, 5)


def fill(server: InfluxDb, hosts: int, now: int) -> None:
    """Write 15 minutes of CPU and memory samples of every host.

    Args:
        server: InfluxDB server.
        hosts: number of hosts.
        now: time of the last samples, Unix seconds.
    """
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


def query_all(url: str, statements: list[str], expected: int) -> None:
    """Post InfluxQL statements in parallel and parse the answers: the baseline.

    Args:
        url: URL of the server.
        statements: InfluxQL statements.
        expected: number of series that must come.
    """
    session = requests.Session()

    def send(statement: str) -> int:
        answer = session.post(f"{url}/query", data={"db": "telegraf", "epoch": "s", "q": statement}, timeout=120)
        return len(orjson.loads(answer.content)["results"][0]["series"])

    answers = gather({statement: partial(send, statement) for statement in statements}, Deadline.after(120))
    series = sum(answer for answer in answers.values() if isinstance(answer, int))
    assert series == expected, f"{series} series came"


def fetch_all(provider: InfluxDbProvider, windows: list[Window], expected: int) -> None:
    """Fetch the windows in parallel by the provider, as the watcher does; check the number of metrics."""
    deadline = Deadline.after(120)
    answers = gather({window: partial(provider.fetch, window, deadline) for window in windows}, deadline)
    metrics = 0
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
        metrics += sum(len(node.metrics) for node in answer.nodes.values())
    assert metrics == expected, f"{metrics} metrics came"


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, runs=5)
    with tempfile.TemporaryDirectory() as folder, run_influxdb(Path(folder)) as server:
        now = int(time.time())
        fill(server, size.nodes, now)
        windows = [Window(f"{minutes}m", now - minutes * 60, now) for minutes in MINUTES]
        statements = [
            influxql(alternatives[0], (Operator.AVG, Operator.STD), window, bounded=False)
            for alternatives in queries(InfluxDbSettings()).values()
            for window in windows
        ]
        provider = InfluxDbProvider(Settings(provider=ProviderSettings(name="InfluxDB", address=server.url)))
        title = f"InfluxDB: {size.nodes:,} hosts, 3 windows, CPU and memory, AVG and STD, median of {size.runs}"
        calls = {
            "bare parallel queries, orjson": lambda: query_all(server.url, statements, 6 * size.nodes),
            "provider, to NodeMetrics": lambda: fetch_all(provider, windows, 12 * size.nodes),
        }
        compare_fetches(Table(title, FETCH_COLUMNS), calls, size.runs)
        provider.close()


if __name__ == "__main__":
    main()
