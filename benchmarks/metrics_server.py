"""Time to read 5,000 nodes from the metrics API, compared with bare requests, and to compute windows of the samples.

The API server is the tests' fake in a separate process, over TLS, with Nodes as large as real ones (50 images each).
The baseline sends the same GET requests as the provider, both lists in parallel, parses the answers by orjson, and does
nothing else. Baseline and provider take turns. The provider's first sample also lists the capacities of the nodes;
later samples do not. Finally 15 minutes of samples are taken, one every 15 s, and every window is fetched.

    python benchmarks/metrics_server.py [--nodes 5000] [--rounds 5]
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests
from common import FETCH_COLUMNS, Table, clock_ms, compare_fetches, options
from support.fake_kubernetes import TOKEN, node, node_metrics, run_fake_kubernetes

from runtime.http.gather import Deadline, gather
from watcher.model import Window
from watcher.providers.base import Reading, Sample
from watcher.providers.kubernetes_metrics_server import METRICS, NODES, KubernetesMetricsServerProvider
from watcher.providers.sampled import Sampled
from watcher.settings import ProviderSettings, Settings
from watcher.store import Store

IMAGES = 50
MINUTES = (15, 10, 5)


def serve(folder: str, nodes: int) -> None:
    """Run the fake API server until standard input ends, and print its URL.

    Args:
        folder: folder for the server's certificates.
        nodes: number of nodes.
    """
    images = [
        {"names": [f"registry.example.com/team/image-{number}@sha256:{number:064x}"], "sizeBytes": 10**8 + number}
        for number in range(IMAGES)
    ]
    with run_fake_kubernetes(Path(folder)) as fake:
        now = time.time()
        for number in range(nodes):
            name = f"ip-10-{number // 256}-{number % 256}-7.eu-west-1.compute.internal"
            fake.nodes[name] = node(name)
            fake.nodes[name]["status"]["images"] = images
            fake.metrics[name] = node_metrics(name, f"{123456789 + 300007 * number}n", f"{4194304 + number}Ki", now)
        print(fake.url, flush=True)
        sys.stdin.read()


@contextmanager
def run_server(folder: str, nodes: int) -> Iterator[str]:
    """Run the fake API server in a separate process; yield its URL."""
    command = [sys.executable, __file__, "--serve", folder, str(nodes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin:  # the server ends with it
            yield process.stdout.readline().strip()


def read_lists(session: requests.Session, url: str, paths: tuple[str, ...]) -> None:
    """Get lists of objects in parallel, each page by page, and parse them: the baseline.

    Args:
        session: HTTP session.
        url: URL of the API server.
        paths: path of each list.
    """

    def get(path: str) -> None:
        position = None
        while position != "":
            answer = session.get(url + path, params={"limit": 500, "continue": position or ""}, timeout=60)
            position = orjson.loads(answer.content)["metadata"].get("continue", "")

    answers = gather({path: partial(get, path) for path in paths}, Deadline.after(60))
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer


def compare_samples(folder: str, url: str, nodes: int, rounds: int) -> tuple[Table, list[str]]:
    """Print the time of the provider's samples and of bare requests; return the table and the names of the nodes."""
    ca_file = Path(folder) / "ca.pem"
    provider = ProviderSettings(name="KubernetesMetricsServer", address=url, token=TOKEN, ca_file=ca_file)
    settings = Settings(provider=provider)
    session = requests.Session()
    session.trust_env = False  # REQUESTS_CA_BUNDLE would win over the next but one line
    session.headers.update({"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip"})
    session.verify = str(ca_file)
    names: set[str] = set()
    peaks: list[float] = []  # of the process, before peak_bytes() adds its own memory

    def first_sample() -> None:
        fresh = KubernetesMetricsServerProvider(settings)
        names.update(fresh.sample(Deadline.after(60)))
        fresh.close()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    lasting = KubernetesMetricsServerProvider(settings)
    lasting.sample(Deadline.after(60))
    table = Table(f"metrics server: {nodes:,} nodes, median of {rounds}", FETCH_COLUMNS)
    for kinds, (bare, calls) in {
        "metrics and nodes": ((METRICS, NODES), {"the first sample (capacities listed)": first_sample}),
        "metrics": ((METRICS,), {"each next sample": lambda: lasting.sample(Deadline.after(60))}),
    }.items():
        baseline = {f"bare requests of {kinds}, orjson": partial(read_lists, session, url, bare)}
        compare_fetches(table, {**baseline, **calls}, rounds)
    lasting.close()
    table.row("the process after the first sample", "", "", f"{peaks[0]:.0f}", "")
    return table, list(names)


class RandomProvider:
    """Provider whose samples have random values and the time ``now``, which a caller sets."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.now = names, 1_700_000_000.0
        self._random = np.random.default_rng(5000)

    def sample(self, deadline: Deadline) -> dict[str, Sample]:
        """Return a sample of each node with random CPU and memory values, by node name."""
        del deadline
        cpu, memory = self._random.uniform(1, 99, (2, len(self.names))).tolist()
        return {
            name: Sample(self.now, (Reading("cpu", "CPU", one), Reading("memory", "Memory", other)))
            for name, one, other in zip(self.names, cpu, memory, strict=True)
        }

    def check(self) -> Iterator[None]:
        """Yield nothing: this provider has no checks."""
        yield from ()


def time_windows(table: Table, names: list[str]) -> None:
    """Print the time to take and store a sample, and to compute each window from 15 minutes of samples."""
    provider = RandomProvider(names)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "watcher.sqlite")
        sampled = Sampled(provider, Settings().watch, store, "benchmark", clock=lambda: provider.now)
        times = []
        for _ in range(60):
            provider.now += 15
            times.append(clock_ms(sampled.sample_once))
        table.row("a sample kept, with the store", f"{statistics.median(times):,.0f}", "", "", "")
        end = int(provider.now)
        for minutes in MINUTES:
            window = Window(f"{minutes}m", end - minutes * 60, end)
            took = clock_ms(lambda window=window: sampled.fetch(window, Deadline.after(0)))
            table.row(f"a window of {minutes} minutes computed", f"{took:,.0f}", "", "", "")
        sampled.close()
        store.close()


def main() -> None:
    """Run the benchmark and print its table."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
        return
    size = options(__doc__, nodes=5_000, rounds=5)
    with tempfile.TemporaryDirectory() as folder, run_server(folder, size.nodes) as url:
        table, names = compare_samples(folder, url, size.nodes, size.rounds)
    time_windows(table, names)


if __name__ == "__main__":
    main()
