"""Requests per second and latency of a watcher with 5,000 nodes, and its time to the first answer after a crash.

One gunicorn, configured as ``trimaran watch`` configures it, serves the API and a bare Flask application with two
baselines. ``/naive`` encodes all nodes for every request with ``jsonify``; ``/constant`` returns the bytes of one
node's answer and does nothing else. The routes are requested in turn, and a ratio is the median over rounds. The
requests come from wrk if it is installed (Debian: apt-get install wrk), otherwise from threads of a Python process.
These are slower than the server, so the ratios are then too small.

The latency while the watcher publishes is compared with the latency at rest. The watcher then fetches every second from
a provider whose answers are prepared, so that only its own work disturbs: cleaning, judging, encoding and storing three
windows. For the crashes, the real service is killed while its provider is down. The script fails if an aim of the table
is missed.

    python benchmarks/serving.py [--nodes 5000] [--seconds 3]
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
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson
import psutil
import requests
from common import TYPES, Table, median_ratio, process_memory, snapshot
from flask import Flask, Response, jsonify
from support.ports import free_port
from support.servers import Service, wait_until

from runtime.http.gather import Deadline
from runtime.server.fast_path import FastPath
from runtime.server.serving import Listener, listen
from runtime.server.serving import serve as serve_with_gunicorn
from watcher.api.app import create_app
from watcher.model import Window
from watcher.pipeline.factory import open_watcher
from watcher.providers.base import Check, Fetched
from watcher.settings import FakeSettings, StoreSettings, WatcherServerSettings, WatcherSettings, WatchSettings
from watcher.telemetry import WatcherTelemetry

HOST = "node-17.eu-west-1.compute.internal"


# -- the server -------------------------------------------------------------------------------------------------------


class PreparedProvider:
    """Provider with prepared answers: it returns two different answers alternately."""

    def __init__(self, nodes: int, windows: list[str]) -> None:
        self._answers = {(name, turn): snapshot(nodes, name, turn=turn).data for name in windows for turn in (0, 1)}

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:  # noqa: ARG002
        """Return the prepared metrics of a window."""
        return Fetched(self._answers[window.duration, window.end % 2])

    def check(self) -> Iterator[Check]:
        """Yield nothing: this provider has no checks."""
        yield from ()


def settings_of(nodes: int, store: Path, port: int = 0) -> WatcherSettings:
    """Return the settings of a watcher with a number of nodes and a store."""
    return WatcherSettings(
        fake=FakeSettings(nodes=nodes),
        watch=WatchSettings(expiry_seconds=4000),
        store=StoreSettings(path=store),
        server=WatcherServerSettings(port=port),
    )


def start_application(settings: WatcherSettings) -> FastPath:
    """Return the watcher's API with a prepared provider, and with the routes of the baselines."""
    telemetry = WatcherTelemetry()
    provider = PreparedProvider(settings.fake.nodes, settings.watch.windows)
    watcher = open_watcher(settings, settings.store.path, telemetry, provider)
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
    one_node = app.test_client().get(f"/watcher/{HOST}").data

    @bare.get("/naive")
    def naive() -> Response:
        return jsonify(document)

    @bare.get("/constant")
    def constant() -> Response:
        return Response(one_node, mimetype="application/json")

    @bare.get("/publish/<switch>")
    def switch_publishing(switch: str) -> Response:
        publishing.set() if switch == "on" else publishing.clear()
        return Response("")

    fast_path: Any = app.wsgi_app
    api = fast_path._application  # noqa: SLF001  the baselines stand behind the same fast path as the API

    def either(environ: dict[str, Any], start_response: Any) -> Any:
        is_bare = environ["PATH_INFO"].startswith(("/naive", "/constant", "/publish"))
        return (bare if is_bare else api)(environ, start_response)

    fast_path._application = either  # noqa: SLF001
    return cast("FastPath", fast_path)


def serve(nodes: int, port: int, store: Path) -> None:
    """Serve the API and the baselines until the process is killed.

    Args:
        nodes: number of nodes.
        port: port to listen on.
        store: path of the watcher's store.
    """
    settings = settings_of(nodes, store, port)
    listener = Listener(listen("127.0.0.1", port))
    serve_with_gunicorn(lambda: start_application(settings), [listener], threads=settings.server.threads)


@contextmanager
def run_server(nodes: int) -> Iterator[tuple[str, psutil.Process]]:
    """Run the API and the baselines in a separate process; yield the server's URL and the process."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [sys.executable, __file__, "--nodes", str(nodes), "--serve", f"{port},{folder}/s.sqlite"]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            wait_until(lambda: process.poll() is None and is_ready(port), "the server is ready")
            time.sleep(2)
            yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_ready(port: int) -> bool:
    """Return whether a server's readiness probe succeeds."""
    try:
        return requests.get(f"http://127.0.0.1:{port}/readyz", timeout=10).ok
    except requests.RequestException:
        return False


# -- load -------------------------------------------------------------------------------------------------------------


class Load(NamedTuple):
    """Result of a load test: requests per second, and median and 99th percentile of the latency in milliseconds."""

    rate: float
    p50: float
    p99: float


def load(url: str, connections: int, seconds: int, *headers: str) -> Load:
    """Send requests over some connections for some seconds; each connection waits for its answer before the next one.

    Args:
        url: URL to request.
        connections: number of connections.
        seconds: duration.
        headers: lines of HTTP headers, such as "Accept-Encoding: gzip".
    """
    send = load_with_wrk if shutil.which("wrk") else load_with_threads
    return send(url, connections, seconds, *headers)


def load_with_wrk(url: str, connections: int, seconds: int, *headers: str) -> Load:
    """Send requests with wrk, from one thread; arguments as for :func:`load`."""
    options = [option for header in headers for option in ("-H", header)]
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout=30s", "--latency", *options, url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"{url} did not answer well:\n{text}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    percentiles = {
        percent: float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
        for percent, number, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", text)
    }
    assert rate
    return Load(float(rate[1]), percentiles["50"], percentiles["99"])


def load_with_threads(url: str, connections: int, seconds: int, *headers: str) -> Load:
    """Send requests from Python, with a thread for each connection; arguments as for :func:`load`."""
    host, _, path = url.removeprefix("http://").partition("/")
    sent = dict(header.split(": ", 1) for header in headers)
    times: list[float] = []
    end = time.perf_counter() + seconds

    def send() -> None:
        connection = http.client.HTTPConnection(host, timeout=30)
        while (start := time.perf_counter()) < end:
            connection.request("GET", f"/{path}", headers=sent)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            times.append(time.perf_counter() - start)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    percentiles = statistics.quantiles(times, n=100)
    return Load(len(times) / seconds, percentiles[49] * 1000, percentiles[98] * 1000)


# -- measurements -----------------------------------------------------------------------------------------------------


def compare_rates(table: Table, url: str, paths: Mapping[str, float], seconds: int, rounds: int) -> bool:
    """Print the requests per second of some paths, which take turns; return whether all aims are met.

    Args:
        table: table to print to.
        url: URL of the server.
        paths: aim of each path: its requests per second, as a multiple of those of the first path (the baseline); 0 for
            no aim.
        seconds: duration of each load test.
        rounds: number of rounds.
    """
    runs: dict[str, list[float]] = {path: [] for path in paths}
    for _ in range(rounds):
        for path, rates in runs.items():
            headers = ("Accept-Encoding: gzip",) if path.endswith(" gzip") else ()
            rates.append(load(url + path.partition(" ")[0], 8, seconds, *headers).rate)
    met, (name, baseline) = True, next(iter(runs.items()))
    for path, rates in runs.items():
        ratio = median_ratio(rates, baseline)
        met = met and ratio >= paths[path]
        figures = f"{statistics.median(rates):,.0f}", f"{ratio:.2f}", paths[path] or ""
        table.row(path.replace(HOST, "<host>"), "requests/s, 8 connections", name, *figures)
    return met


def compare_latencies(table: Table, url: str, process: psutil.Process, seconds: int, rounds: int = 7) -> bool:
    """Print the latency at rest and while the watcher publishes every second; return whether the aim is met.

    Args:
        table: table to print to.
        url: URL of the server.
        process: master process of the server.
        seconds: duration of each load test.
        rounds: number of rounds.
    """
    paths = ("/watcher", f"/watcher/{HOST}")
    runs: dict[tuple[str, str], list[Load]] = {(path, switch): [] for path in paths for switch in ("off", "on")}
    worker = process.children()[0]
    for _ in range(rounds):
        for (path, switch), loads in runs.items():
            requests.get(f"{url}/publish/{switch}", timeout=10)
            loads.append(load(url + path, 4, seconds))
    used = sum(worker.cpu_times()[:2])
    time.sleep(5)
    share = (sum(worker.cpu_times()[:2]) - used) / 5
    met = True
    for path in paths:
        for number, aim in (("p50", 0), ("p99", 2)):
            quiet, busy = (
                statistics.median(getattr(run, number) for run in runs[path, switch]) for switch in ("off", "on")
            )
            met = met and not (aim and busy / quiet > aim)
            baseline = f"at rest: {quiet:.2f}"
            name = f"{path.replace(HOST, '<host>')}, publishing every second"
            table.row(name, f"{number}, ms, 4 connections", baseline, f"{busy:.2f}", f"{busy / quiet:.2f}", aim or "")
    table.row("publishing three windows every second", "% of a processor", "", f"{100 * share:.0f}", "", "")
    return met


def print_memory(table: Table, when: str, master: psutil.Process) -> None:
    """Print the resident memory of master and worker, and the memory of both with shared pages counted once (PSS)."""
    resident = [f"{process.memory_info().rss / 2**20:.0f}" for process in (master, *master.children())]
    total = f"{' + '.join(resident)}; PSS of both {process_memory(master):.0f}"
    table.row(f"memory {when}: master + worker", "MiB", "", total, "", "")


def time_restarts(table: Table, nodes: int) -> bool:
    """Print the time from killing the watcher's processes to the first answer, while its provider is down.

    Returns:
        Whether the aim is met: less than 1 s after a killed worker.
    """
    with tempfile.TemporaryDirectory() as folder:
        store, described = Path(folder) / "s.sqlite", Path(folder) / "nodes.json"
        loads = {kind.lower(): {"average": 20.123456789, "deviation": 3.0123456789} for kind in TYPES}
        described.write_bytes(
            orjson.dumps({f"node-{number}.eu-west-1.compute.internal": loads for number in range(nodes)})
        )
        options = ("--provider", "Fake", "--set", f"fake.file={described}", "--set", "watch.expiry_seconds=4000")
        service = Service(store, Path(folder) / "log", *options)

        def row(what: str, times: list[float], aim: object = "") -> None:
            figures = f"{statistics.median(times):.2f} (largest {max(times):.2f})"
            table.row(f"{what}, {nodes:,} nodes", "s", "", figures, "", aim)

        def kill_worker(path: str) -> float:
            (worker,) = service.workers()
            start = time.perf_counter()
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: worker not in service.workers(), "the worker is gone")
            wait_until(lambda: service.get(path).ok, "it answers again")
            return time.perf_counter() - start

        try:
            wait_until(lambda: service.get("/watcher/health").ok, "the first fetch is done")
            described.unlink()  # from here on every answer comes from the store
            first = [kill_worker("/watcher") for _ in range(5)]
            row("worker killed, first /watcher", first, 1)
            row("worker killed, first /watcher?window=5m", [kill_worker("/watcher?window=5m") for _ in range(5)])
            times = []
            for _ in range(10):
                service.kill()
                start = time.perf_counter()
                service = Service(store, Path(folder) / "log", *options)
                wait_until(lambda: service.get("/watcher").ok, "it answers again")  # noqa: B023
                times.append(time.perf_counter() - start)
            row("all killed and restarted, first /watcher", times)
            print_memory(table, f"after a restart, {nodes:,} nodes", psutil.Process(service.process.pid))
        finally:
            service.kill()
    return max(first) < 1


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=3, help="duration of each load")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    nodes, seconds = arguments.nodes, arguments.seconds
    if arguments.serve:
        port, store = arguments.serve.split(",")
        serve(nodes, int(port), Path(store))
    source = "wrk" if shutil.which("wrk") else "Python threads, as wrk is not there"
    columns = ("measurement", "unit", "baseline", "measured", "times the baseline", "aim")
    table = Table(f"{nodes:,} nodes x {2 * len(TYPES)} metrics, load from {source}", columns, text_columns=3)
    met = [time_restarts(table, 100), time_restarts(table, nodes)]
    with run_server(nodes) as (url, process):
        met.append(compare_rates(table, url, {"/naive": 0, "/watcher": 20, "/watcher gzip": 0}, seconds, 3))
        met.append(compare_rates(table, url, {"/constant": 0, f"/watcher/{HOST}": 2}, seconds, 7))
        print_memory(table, "at rest", process)
    with run_server(nodes) as (url, process):
        met.append(compare_latencies(table, url, process, seconds))
        print_memory(table, "publishing every second", process)
    sys.exit(0 if all(met) else "an aim is not met: see above")


if __name__ == "__main__":
    main()
