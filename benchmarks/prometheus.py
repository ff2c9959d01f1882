"""How long three windows of 5,000 nodes take from a real Prometheus, against the bare queries.

    python benchmarks/prometheus.py [--nodes 5000] [--runs 5]

The baseline sends the same queries in parallel with requests and parses the answers with orjson, and does nothing with
them. Both run in this process, in turn. Needs the binaries prometheus and promtool.
"""

import argparse
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests

from runtime import duration
from runtime.http.gather import Deadline, gather
from runtime.server.serving import tune_interpreter
from watcher.model import Operator, Window
from watcher.providers.prometheus.provider import PrometheusProvider
from watcher.settings import ProviderSettings, Settings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.servers import run_prometheus  # the tests' way to start a real one

RULES = ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio")
WINDOWS = ("15m", "10m", "5m")
FUNCTIONS = {Operator.AVG: "avg_over_time", Operator.STD: "stddev_over_time"}


def history(nodes: int, now: int) -> Iterator[str]:
    """Yield 20 minutes of both rules at a sample every 15 seconds, and some ahead, as OpenMetrics text."""
    random = np.random.default_rng(903)
    times = np.arange(now - 1200, now + 900, 15)
    for rule in RULES:
        yield f"# TYPE {rule} gauge\n"
        for node in range(nodes):
            values = np.clip(random.uniform(0.05, 0.9) + random.normal(0, 0.05, len(times)), 0, 1)
            labels = f'{rule}{{instance="node-{node}.example.com:9100",job="node-exporter"}}'
            yield "".join(f"{labels} {value:.6f} {at}\n" for at, value in zip(times.tolist(), values, strict=True))


def fetch_all(provider: PrometheusProvider, end: int) -> int:
    """Fetch all windows side by side, as the watcher does; return the number of node entries."""
    deadline = Deadline.after(30)
    windows = [Window(name, end - duration.seconds(name), end) for name in WINDOWS]
    answers = gather({each.duration: partial(provider.fetch, each, deadline) for each in windows}, deadline)
    return sum(len(answer.nodes) for answer in answers.values() if not isinstance(answer, Exception))


def query_all(url: str, end: int, session: requests.Session, pool: ThreadPoolExecutor) -> int:
    """Send the same queries in parallel and parse the answers; return the number of series."""

    def ask(query: str) -> int:
        answer = session.get(f"{url}/api/v1/query", params={"query": query, "time": str(end)}, timeout=30)
        return len(orjson.loads(answer.content)["data"]["result"])

    asked = [f"{function}({rule}[{name}])" for name in WINDOWS for rule in RULES for function in FUNCTIONS.values()]
    asked += [f"count_over_time({rule}[{name}:30s]) / 30 < 0" for name in WINDOWS for rule in RULES]  # which have gaps
    return sum(pool.map(ask, asked))


def timed(call: Callable[[], int]) -> tuple[float, int]:
    """Return seconds and result."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    now = int(time.time())
    tune_interpreter()  # as the service does
    with tempfile.TemporaryDirectory() as folder, run_prometheus(Path(folder), history(options.nodes, now)) as url:
        provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))
        session = requests.Session()
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=32))
        with ThreadPoolExecutor(12) as pool:
            first, found = timed(lambda: fetch_all(provider, now))
            query_all(url, now, session, pool)
            ours, bare = [], []
            for _ in range(options.runs):
                ours.append(timed(lambda: fetch_all(provider, now))[0])
                bare.append(timed(lambda: query_all(url, now, session, pool))[0])
            tracemalloc.start()
            fetch_all(provider, now)
            our_peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            query_all(url, now, session, pool)
            bare_peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        provider.close()
    assert found == 3 * options.nodes, found
    our_median, bare_median = statistics.median(ours), statistics.median(bare)
    print(f"prometheus: {options.nodes} nodes, 3 windows, CPU and Memory, AVG and STD, median of {options.runs}")
    print(f"  bare parallel queries, orjson    {bare_median * 1000:8.0f} ms   peak {bare_peak / 1e6:6.0f} MB")
    print(f"  provider, to NodeMetrics         {our_median * 1000:8.0f} ms   peak {our_peak / 1e6:6.0f} MB")
    print(f"  provider, first fetch            {first * 1000:8.0f} ms   (looks for every optional metric, and names)")
    print(f"  ratio                            {our_median / bare_median:8.2f}")


if __name__ == "__main__":
    main()
