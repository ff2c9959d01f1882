"""Time to fetch three windows of 5,000 nodes from a real Prometheus, compared with bare queries.

The baseline sends the same queries in parallel by the requests library, parses the answers by orjson, and does nothing
else. Baseline and provider take turns in this process. The binaries prometheus and promtool are required.

    python benchmarks/prometheus.py [--nodes 5000] [--runs 5]
"""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests
from common import FETCH_COLUMNS, Table, clock_ms, compare_fetches, options
from support.servers import run_prometheus

from runtime import duration
from runtime.http.gather import Deadline, gather
from runtime.server.serving import tune_interpreter
from watcher.model import Window
from watcher.providers.prometheus.provider import PrometheusProvider
from watcher.settings import ProviderSettings, Settings

RULES = ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio")
WINDOWS = ("15m", "10m", "5m")
FUNCTIONS = ("avg_over_time", "stddev_over_time")


def history(nodes: int, now: int) -> Iterator[str]:
    """Yield 35 minutes of samples of both recording rules as OpenMetrics text, one every 15 s.

    15 of the 35 minutes are in the future, so that the samples last for the benchmark.

    Args:
        nodes: number of nodes.
        now: present time, Unix seconds.
    """
    random = np.random.default_rng(903)
    times = np.arange(now - 1200, now + 900, 15)
    for rule in RULES:
        yield f"# TYPE {rule} gauge\n"
        for node in range(nodes):
            values = np.clip(random.uniform(0.05, 0.9) + random.normal(0, 0.05, len(times)), 0, 1)
            labels = f'{rule}{{instance="node-{node}.example.com:9100",job="node-exporter"}}'
            yield "".join(f"{labels} {value:.6f} {at}\n" for at, value in zip(times.tolist(), values, strict=True))


def fetch_all(provider: PrometheusProvider, end: int, nodes: int) -> None:
    """Fetch all windows in parallel, as the watcher does."""
    deadline = Deadline.after(30)
    windows = [Window(name, end - duration.seconds(name), end) for name in WINDOWS]
    answers = gather({window.duration: partial(provider.fetch, window, deadline) for window in windows}, deadline)
    count = sum(len(answer.nodes) for answer in answers.values() if not isinstance(answer, Exception))
    assert count == len(WINDOWS) * nodes, f"{count} nodes came"


def query_all(url: str, end: int, session: requests.Session, pool: ThreadPoolExecutor) -> None:
    """Send the provider's queries in parallel and parse the answers: the baseline."""

    def send(query: str) -> int:
        answer = session.get(f"{url}/api/v1/query", params={"query": query, "time": str(end)}, timeout=30)
        return len(orjson.loads(answer.content)["data"]["result"])

    queries = [f"{function}({rule}[{name}])" for name in WINDOWS for rule in RULES for function in FUNCTIONS]
    # The provider asks which nodes have gaps, too.
    queries += [f"count_over_time({rule}[{name}:30s]) / 30 < 0" for name in WINDOWS for rule in RULES]
    assert sum(pool.map(send, queries))


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, runs=5)
    now = int(time.time())
    tune_interpreter()  # as the service does
    with tempfile.TemporaryDirectory() as folder, run_prometheus(Path(folder), history(size.nodes, now)) as url:
        provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))
        session = requests.Session()
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=32))
        title = f"Prometheus: {size.nodes:,} nodes, 3 windows, CPU and memory, AVG and STD, median of {size.runs}"
        table = Table(title, FETCH_COLUMNS)
        first = clock_ms(lambda: fetch_all(provider, now, size.nodes))
        table.row("provider, first fetch: looks for optional metrics and names", f"{first:,.0f}", "", "", "")
        with ThreadPoolExecutor(12) as pool:
            calls = {
                "bare parallel queries, orjson": lambda: query_all(url, now, session, pool),
                "provider, to NodeMetrics": lambda: fetch_all(provider, now, size.nodes),
            }
            compare_fetches(table, calls, size.runs)
        provider.close()


if __name__ == "__main__":
    main()
