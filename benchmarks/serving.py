"""How fast 5,000 nodes are served, against handlers that do less or more for a request.

    python benchmarks/serving.py [--nodes 5000] [--seconds 3]

Everything runs in one gunicorn, set up as ``trimaran watch`` sets it up: the API, and beside it a bare Flask
application with the baselines. ``/naive`` encodes all nodes for every request, as ``jsonify`` does; ``/constant``
returns the bytes of one node's answer and does nothing else. Load comes from wrk where that is installed (Debian:
apt-get install wrk), else from threads of a Python process, which are slower than the server, so that the ratios come
out too small.

The publishing server fetches every second from a provider that costs nothing, so that cleaning, judging, encoding and
storing three windows is what disturbs the requests. The restarts are those of the real service.
"""

import argparse
import http.client
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson
import psutil
import requests
from flask import Flask, Response, jsonify

from runtime.http.gather import Deadline
from runtime.server import serving as serving_
from runtime.server.fast_path import Front
from runtime.server.serving import Listener
from watcher.api.app import create_app
from watcher.model import Metric, MetricType, NodeMetrics, Operator, Window
from watcher.pipeline.factory import open_watcher
from watcher.providers.base import Check, Fetched
from watcher.settings import FakeSettings, ServerSettings, Settings, StoreSettings, WatchSettings
from watcher.telemetry import Telemetry

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.servers import Service, free_port, wait_until

TYPES = (MetricType.CPU, MetricType.MEMORY, MetricType.BANDWIDTH, MetricType.STORAGE)
HOST = "node-17.eu-west-1.compute.internal"


# -- the server ---------------------------------------------------------------------------------------------------


class Prepared:
    """A provider that made all it will ever answer when it was built, two different answers in turn."""

    def __init__(self, nodes: int, windows: list[str]) -> None:
        self._answers = {
            (name, turn): {
                f"node-{number}.eu-west-1.compute.internal": NodeMetrics(
                    tuple(
                        Metric(f"instance:node_{type_.lower()}:ratio", type_, operator, name, percent)
                        for place, type_ in enumerate(TYPES)
                        for operator, percent in (
                            (Operator.AVG, 100 * ((number * 7919 + 31 * place + turn) % 9973) / 9973),
                            (Operator.STD, 10 * ((number * 104729 + 17 * place + turn) % 9973) / 9973),
                        )
                    ),
                    {"smoothing": "5m"},
                )
                for number in range(nodes)
            }
            for name in windows
            for turn in (0, 1)
        }

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:  # noqa: ARG002
        """Return what was prepared."""
        return Fetched(self._answers[window.duration, window.end % 2])

    def check(self) -> Iterator[Check]:
        """Yield nothing: there is nothing to try."""
        yield from ()


class Benchmarked:
    """The service over a prepared provider, with the baselines beside it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def start(self) -> Front:
        """Build the API over a watcher, and the bare application."""
        telemetry = Telemetry()
        provider = Prepared(self._settings.fake.nodes, self._settings.watch.windows)
        watcher = open_watcher(self._settings, self._settings.store.path, telemetry, provider)
        watcher.fetch_once()
        publishing = threading.Event()

        def publish() -> None:
            while publishing.wait():
                due = time.monotonic() + 1
                watcher.fetch_once()
                time.sleep(max(0.0, due - time.monotonic()))

        threading.Thread(target=publish, daemon=True).start()
        app, bare = create_app(watcher, telemetry), Flask("bare")
        document = orjson.loads(app.test_client().get("/watcher").data)
        constant = app.test_client().get(f"/watcher/{HOST}").data

        @bare.get("/naive")
        def naive() -> Response:
            return jsonify(document)

        @bare.get("/constant")
        def constant_bytes() -> Response:
            return Response(constant, mimetype="application/json")

        @bare.get("/publish/<switch>")
        def switch(switch: str) -> Response:
            publishing.set() if switch == "on" else publishing.clear()
            return Response("")

        front: Any = app.wsgi_app
        routes = front._application  # noqa: SLF001  the API keeps its front, which has the baselines behind it too

        def either(environ: dict[str, Any], start_response: Any) -> Any:
            chosen = bare if environ["PATH_INFO"].startswith(("/naive", "/constant", "/publish")) else routes
            return chosen(environ, start_response)

        front._application = either  # noqa: SLF001
        return cast("Front", front)


def serve(nodes: int, port: int, store: Path) -> None:
    """Serve until the process is ended."""
    settings = Settings(
        fake=FakeSettings(nodes=nodes),
        watch=WatchSettings(expiry_seconds=4000),
        store=StoreSettings(path=store),
        server=ServerSettings(port=port),
    )
    listener = Listener(serving_.listen("127.0.0.1", port))
    serving_.serve(Benchmarked(settings).start, [listener], threads=settings.server.threads)


@contextmanager
def serving(nodes: int) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server of its own; yields its address and process."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [sys.executable, __file__, "--nodes", str(nodes), "--serve", f"{port},{folder}/s.sqlite"]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            wait_until(lambda: process.poll() is None and answers(port, "/readyz"), "the server is ready", 60)
            time.sleep(2)
            yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(port: int, path: str) -> bool:
    """Return whether a path answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


# -- load ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """What a load found: requests in a second, and the latency's median and 99th percentile in milliseconds."""

    rate: float
    p50: float
    p99: float


def load(url: str, connections: int, seconds: int, *headers: str) -> Load:
    """Ask as fast as answers come, over so many connections."""
    if shutil.which("wrk"):
        return with_wrk(url, connections, seconds, *headers)
    return with_threads(url, connections, seconds, *headers)


def with_wrk(url: str, connections: int, seconds: int, *headers: str) -> Load:
    """Ask with wrk, in one thread."""
    options = [option for header in headers for option in ("-H", header)]
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout=30s", "--latency", *options, url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"{url} did not answer well:\n{text}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    shares = {
        share: float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
        for share, number, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", text)
    }
    assert rate
    return Load(float(rate[1]), shares["50"], shares["99"])


def with_threads(url: str, connections: int, seconds: int, *headers: str) -> Load:
    """Ask with a thread for each connection."""
    host, _, path = url.removeprefix("http://").partition("/")
    sent = dict(header.split(": ", 1) for header in headers)
    took: list[float] = []
    end = time.perf_counter() + seconds

    def ask() -> None:
        connection = http.client.HTTPConnection(host, timeout=30)
        while (began := time.perf_counter()) < end:
            connection.request("GET", f"/{path}", headers=sent)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            took.append(time.perf_counter() - began)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    percentiles = statistics.quantiles(took, n=100)
    return Load(len(took) / seconds, percentiles[49] * 1000, percentiles[98] * 1000)


# -- what is measured ---------------------------------------------------------------------------------------------


def in_turn(url: str, paths: Mapping[str, tuple[str, ...]], seconds: int, rounds: int) -> dict[str, list[Load]]:
    """Load each path in turn, several times, as the machine may have other work too; return the runs of each."""
    runs: dict[str, list[Load]] = {path: [] for path in paths}
    for _ in range(rounds):
        for path, found in runs.items():
            found.append(load(url + path.partition(" ")[0], 8, seconds, *paths[path]))
    return runs


def ratio(runs: list[Load], baseline: list[Load]) -> float:
    """Return the median of how many times as many requests were answered in each round."""
    return statistics.median(run.rate / base.rate for run, base in zip(runs, baseline, strict=True))


def throughput(nodes: int, seconds: int) -> bool:
    """Print how many requests a second are answered, against the baselines; return whether the aims are met."""
    one = f"/watcher/{HOST}"
    with serving(nodes) as (url, process):
        all_nodes = in_turn(
            url, {"/naive": (), "/watcher": (), "/watcher gzip": ("Accept-Encoding: gzip",)}, seconds, 3
        )
        one_node = in_turn(url, {"/constant": (), one: ()}, seconds, 7)
        print_memory("at rest", process)
    times, share = ratio(all_nodes["/watcher"], all_nodes["/naive"]), ratio(one_node[one], one_node["/constant"])
    print(f"\n{nodes} nodes x {2 * len(TYPES)} metrics, 8 connections | requests/s | times the baseline")
    for found in (all_nodes, one_node):
        baseline = next(iter(found.values()))
        for path, runs in found.items():
            rate = statistics.median(run.rate for run in runs)
            print(f"{path[:35]:>35} | {rate:10,.0f} | {ratio(runs, baseline):6.2f}")
    return times >= 20 and share >= 2


def latency(nodes: int, seconds: int, rounds: int = 7) -> bool:
    """Print the latency while nothing and while a snapshot a second is published; return whether the aim is met."""
    paths = ("/watcher", f"/watcher/{HOST}")
    found: dict[tuple[str, str], list[Load]] = {(path, switch): [] for path in paths for switch in ("off", "on")}
    with serving(nodes) as (url, process):
        worker = process.children()[0]
        for _ in range(rounds):
            for (path, switch), runs in found.items():
                requests.get(f"{url}/publish/{switch}", timeout=10)
                runs.append(load(url + path, 4, seconds))
        used = sum(worker.cpu_times()[:2])
        time.sleep(5)
        cpu = (sum(worker.cpu_times()[:2]) - used) / 5
        print_memory("publishing", process)
    print(f"\npublishing three windows every second takes {cpu:.0%} of a processor")
    print("4 connections, medians of the runs | quiet p50, p99 ms | publishing p50, p99 ms | p99 ratio")
    ratios = []
    for path in paths:
        quiet, busy = (
            [statistics.median(getattr(run, name) for run in found[path, switch]) for name in ("p50", "p99")]
            for switch in ("off", "on")
        )
        ratios.append(busy[1] / quiet[1])
        shown = f"{quiet[0]:8.2f} {quiet[1]:8.2f} | {busy[0]:12.2f} {busy[1]:9.2f} | {ratios[-1]:9.2f}"
        print(f"{path[:35]:>35} | {shown}")
    return max(ratios) <= 2


def print_memory(when: str, master: psutil.Process) -> None:
    """Print what master and worker hold: resident, and in all with what they share counted once (PSS)."""
    resident = [process.memory_info().rss / 2**20 for process in (master, *master.children())]
    in_all = sum(process.memory_full_info().pss for process in (master, *master.children())) / 2**20
    print(f"memory {when}: master {resident[0]:.0f} MiB, worker {resident[1]:.0f} MiB; in all {in_all:.0f} MiB")


def restarts(nodes: int) -> bool:
    """Print how long after a kill the first answer comes, with the provider down; return whether a worker's is 1 s."""
    with tempfile.TemporaryDirectory() as folder:
        store, described = Path(folder) / "s.sqlite", Path(folder) / "nodes.json"
        loads = {type_.lower(): {"average": 20.123456789, "deviation": 3.0123456789} for type_ in TYPES}
        described.write_bytes(
            orjson.dumps({f"node-{number}.eu-west-1.compute.internal": loads for number in range(nodes)})
        )
        options = ("--provider", "Fake", "--set", f"fake.file={described}", "--set", "watch.expiry_seconds=4000")
        log = Path(folder) / "log"
        service = Service(store, log, free_port(), *options)
        try:
            wait_until(lambda: service.get("/watcher/health").ok, "the first fetch is done", 60)
            described.unlink()  # from here on nothing comes but from the store
            for path in ("/watcher", "/watcher?window=5m"):
                took = []
                for _ in range(5):
                    (worker,) = service.workers()
                    began = time.perf_counter()
                    os.kill(worker, signal.SIGKILL)
                    wait_until(lambda: worker not in service.workers(), "the worker is gone")  # noqa: B023
                    wait_until(lambda: service.get(path).ok, "it answers again")  # noqa: B023
                    took.append(time.perf_counter() - began)
                print(f"worker killed, first {path}: median {statistics.median(took):.2f} s, most {max(took):.2f} s")
                if path == "/watcher":
                    good = max(took) < 1
            took = []
            for _ in range(10):
                service.kill()
                began = time.perf_counter()
                service = Service(store, log, free_port(), *options)
                wait_until(lambda: service.get("/watcher").ok, "it answers again")  # noqa: B023
                took.append(time.perf_counter() - began)
            print(f"all killed and started anew, {nodes} nodes: median {statistics.median(took):.2f} s of ten")
            print_memory("after that", psutil.Process(service.process.pid))
        finally:
            service.kill()
    return good


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=3, help="of each load")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        port, store = arguments.serve.split(",")
        serve(arguments.nodes, int(port), Path(store))
    print(f"load from {'wrk' if shutil.which('wrk') else 'Python threads, as wrk is not installed'}")
    met = [
        restarts(100),
        restarts(arguments.nodes),
        throughput(arguments.nodes, arguments.seconds),
        latency(arguments.nodes, arguments.seconds),
    ]
    sys.exit(0 if all(met) else "an aim is not met: see above")


if __name__ == "__main__":
    main()
