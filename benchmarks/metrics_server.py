"""How long 5,000 nodes take from the metrics API, beside the same answers as bare requests.

    .venv/bin/python benchmarks/metrics_server.py [nodes]

The API server is the tests' fake in a process of its own, over TLS, with Nodes as large as real ones (50 images each).
Bare is the same GETs, the two lists side by side as we ask for them, by requests, read by orjson, and nothing else.
Both take turns. After that, 15 minutes of samples are taken at 15 s and every window is fetched.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import requests

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.fake_kubernetes import TOKEN, node, node_metrics, run_fake_kubernetes

from runtime.http.gather import Deadline, gather
from watcher.model import Window
from watcher.providers.base import Reading, Sample
from watcher.providers.kubernetes_metrics_server import METRICS, NODES, KubernetesMetricsServerProvider
from watcher.providers.sampled import Sampled
from watcher.settings import ProviderSettings, Settings
from watcher.store import Store

ROUNDS = 5
IMAGES = 50
MINUTES = (15, 10, 5)


def serve(folder: str, nodes: int) -> None:
    """Be the API server until standard input ends."""
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
def server(folder: str, nodes: int) -> Iterator[str]:
    """Run the API server in a process of its own; yield its URL."""
    command = [sys.executable, __file__, "--serve", folder, str(nodes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.stdin is not None
        process.stdin.close()


def bare(session: requests.Session, url: str, paths: tuple[str, ...]) -> int:
    """Get the lists side by side and parse them, page by page; return how many items came."""

    def get(path: str) -> int:
        count, position = 0, ""
        while True:
            answer = session.get(url + path, params={"limit": 500, "continue": position}, timeout=60)
            page = orjson.loads(answer.content)
            count += len(page["items"])
            position = page["metadata"].get("continue", "")
            if not position:
                return count

    answers = gather({path: partial(get, path) for path in paths}, Deadline.after(60))
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
    return sum(answer for answer in answers.values() if isinstance(answer, int))


def timed(call: Callable[[], int]) -> float:
    """Return how many seconds a call took."""
    began = time.perf_counter()
    assert call()
    return time.perf_counter() - began


def peak() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def samples(folder: str, url: str) -> dict[str, Sample]:
    """Measure samples against bare requests, print, and return one sample."""
    settings = Settings(
        provider=ProviderSettings(
            name="KubernetesMetricsServer", address=url, token=TOKEN, ca_file=Path(folder) / "ca.pem"
        )
    )
    session = requests.Session()
    session.trust_env = False  # REQUESTS_CA_BUNDLE would win over the line below
    session.headers.update({"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip"})
    session.verify = str(Path(folder) / "ca.pem")
    found: dict[str, Sample] = {}
    peaks = {}
    results: dict[str, list[float]] = {"bare both": [], "first sample": [], "bare metrics": [], "next sample": []}
    for turn in range(ROUNDS + 1):
        provider = KubernetesMetricsServerProvider(settings)

        def take(provider: KubernetesMetricsServerProvider = provider) -> int:
            found.update(provider.sample(Deadline.after(60)))
            return len(found)

        calls: dict[str, Callable[[], int]] = {
            "bare both": partial(bare, session, url, (METRICS, NODES)),
            "first sample": take,
            "bare metrics": partial(bare, session, url, (METRICS,)),
            "next sample": take,
        }
        for name, call in calls.items():
            seconds = timed(call)
            peaks.setdefault(name, peak())
            if turn:  # the first turn warms up
                results[name].append(seconds)
        provider.close()
    medians = {name: statistics.median(seconds) for name, seconds in results.items()}
    for name, seconds in medians.items():
        print(f"  {name:13} {seconds * 1000:6.0f} ms   peak after the first {peaks[name]:4.0f} MB")
    print(
        f"  ratio to bare: with the node list {medians['first sample'] / medians['bare both']:.2f}, "
        f"without {medians['next sample'] / medians['bare metrics']:.2f}"
    )
    return found


class Replay:
    """Gives the nodes of one sample other values every time."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.now = 1_700_000_000.0
        self._random = np.random.default_rng(5000)

    def sample(self, deadline: Deadline) -> dict[str, Sample]:
        """Return random values under the present time."""
        del deadline
        cpu, memory = self._random.uniform(1, 99, (2, len(self.names))).tolist()
        return {
            name: Sample(self.now, (Reading("cpu", "CPU", one), Reading("memory", "Memory", other)))
            for name, one, other in zip(self.names, cpu, memory, strict=True)
        }

    def check(self) -> Iterator[None]:
        """Have nothing to check."""
        yield from ()


def windows(names: list[str]) -> None:
    """Take 15 minutes of samples, fetch every window, print."""
    replay = Replay(names)
    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "watcher.sqlite")
        sampled = Sampled(replay, Settings().watch, store, "benchmark", clock=lambda: replay.now)
        rounds = []
        for _ in range(60):
            replay.now += 15
            rounds.append(timed(lambda: sampled.sample_once() is None))
        print(f"  keep a sample {statistics.median(rounds) * 1000:6.0f} ms, with the store   peak {peak():4.0f} MB")
        end = int(replay.now)
        for minutes in MINUTES:
            window = Window(f"{minutes}m", end - minutes * 60, end)
            seconds = timed(partial(lambda window: len(sampled.fetch(window, Deadline.after(0)).nodes), window))
            print(
                f"  fetch {window.duration:7} {seconds * 1000:6.0f} ms   peak {peak():4.0f} MB (before: {before:.0f})"
            )
        sampled.close()
        store.close()


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
        return
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as folder, server(folder, nodes) as url:
        print(f"metrics server: {nodes} nodes, median of {ROUNDS}")
        found = samples(folder, url)
    windows(list(found))


if __name__ == "__main__":
    main()
