"""Latency of ``GET /watcher`` while the watcher measures pods, learns from them, and serves ``/workloads``.

One process serves 5,000 nodes and measures 100,000 pods of 8,000 workloads, by answers of the metrics API of this size.
One client requests ``/watcher`` every few milliseconds over one connection: first at rest (the baseline), then during
rounds of pod use, and then while another client reads pages and the compact form of ``/workloads`` without a pause.

A second table says why requests wait: how long a round holds Python's global interpreter lock (GIL) before another
thread gets it. It is measured in processor time of the round, so that other programs do not count, in further rounds.

    python benchmarks/serving_workloads.py [--nodes 5000] [--pods 100000] [--seconds 8]
"""

import http.client
import multiprocessing
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import numpy as np
from common import Table, options
from pod_use import pod_metrics, running_pods
from support.ports import free_port
from support.servers import reply, serving, wait_until

from runtime.http.gather import Deadline
from runtime.server import serving as gunicorn
from runtime.server.fast_path import FastPath
from watcher.api.app import create_app
from watcher.pipeline.factory import open_watcher
from watcher.pipeline.pod_use import PodUseRounds
from watcher.providers.base import open_provider
from watcher.settings import FakeSettings, ProviderSettings, Settings, WorkloadSettings
from watcher.telemetry import WatcherTelemetry
from watcher.wire import COLUMNS_TYPE
from watcher.workloads.pods import RunningPods
from watcher.workloads.sources import FirstWorking, PodUseSources

ROUNDS, PAUSE_SECONDS = 3, 0.003
LONGEST = 5


class GivenPods:
    """Source of pods that are known already, as from a watch."""

    problems = ()

    def __init__(self, pods: int) -> None:
        self._running = running_pods(pods)

    def running(self, _deadline: Deadline) -> RunningPods:
        """Return a copy, as the source that follows the API server does."""
        return dict(self._running)

    def capacity(self, _deadline: Deadline) -> None:
        """Return None: the capacity is not known."""

    def close(self) -> None:
        """Do nothing."""


class LockProbe(threading.Thread):
    """Thread that gives the GIL away and takes it again, to measure how long another thread holds it in between.

    Args:
        measured: identifier of the other thread, which runs until ``stop`` is set.
    """

    def __init__(self, measured: int) -> None:
        super().__init__(daemon=True)
        self._clock = time.pthread_getcpuclockid(measured)
        self.stop = threading.Event()
        self.milliseconds: list[float] = []

    def run(self) -> None:
        """Measure until ``stop`` is set."""
        while not self.stop.is_set():
            before = time.clock_gettime(self._clock)
            time.sleep(0)
            self.milliseconds.append(1000 * (time.clock_gettime(self._clock) - before))


def serve(
    port: int, nodes: int, pods: int, metrics_api: str, begin: Event, done: Event, probed: Event, held: Connection
) -> None:
    """Serve a watcher that runs a round of pod use for each time that ``begin`` is set, and then sets ``done``.

    If ``probed`` is set, the longest times that the round held the GIL are sent, and its processor time in seconds.
    """

    def start() -> FastPath:
        settings = Settings(
            provider=ProviderSettings(name="KubernetesMetricsServer", address=metrics_api),
            workloads=WorkloadSettings(timeout_seconds=600),
        )
        made_up = Settings(provider=ProviderSettings(name="Fake"), fake=FakeSettings(nodes=nodes))
        watcher, telemetry = open_watcher(made_up, None), WatcherTelemetry()
        watcher.start()
        clock = [time.time()]
        sources = PodUseSources("", open_provider(settings), FirstWorking([GivenPods(pods)]))
        observers = [watcher.workloads, watcher.pod_use]
        rounds = PodUseRounds(settings, observers, lambda _settings: sources, clock=lambda: clock[0])

        def measure() -> None:
            while True:
                begin.wait()
                begin.clear()
                clock[0] += 300
                probe = LockProbe(threading.get_ident())
                if probed.is_set():
                    probe.start()
                used = time.thread_time()
                assert rounds.run_once(), rounds.state.failure
                used = time.thread_time() - used
                if probed.is_set():
                    probe.stop.set()
                    probe.join()
                    held.send((sorted(probe.milliseconds, reverse=True)[:LONGEST], used))
                done.set()

        threading.Thread(target=measure, daemon=True).start()
        application = create_app(watcher, telemetry).wsgi_app
        assert isinstance(application, FastPath)
        return application

    gunicorn.serve(start, [gunicorn.Listener(gunicorn.listen("127.0.0.1", port))], threads=8)


def read(connection: http.client.HTTPConnection, path: str, accept: str) -> int:
    """Read a path; return the status."""
    connection.request("GET", path, headers={"Accept": accept, "Accept-Encoding": "gzip"})
    response = connection.getresponse()
    response.read()
    return response.status


def latencies(port: int, goes_on: Callable[[float], bool]) -> list[float]:
    """Request ``/watcher`` again and again; return the time of each request in milliseconds."""
    connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    began = time.monotonic()
    while goes_on(time.monotonic() - began):
        start = time.perf_counter()
        status = read(connection, "/watcher", COLUMNS_TYPE)
        times.append(1000 * (time.perf_counter() - start))
        assert status == 200, status
        time.sleep(PAUSE_SECONDS)
    return times


def read_workloads(port: int, stop: threading.Event, counts: list[int]) -> None:
    """Read pages of workloads and the compact form in turns until ``stop`` is set."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not stop.is_set():
        for accept in (COLUMNS_TYPE, "application/json"):
            assert read(connection, "/workloads", accept) == 200
            counts.append(1)


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, pods=100_000, seconds=8.0)
    body, port = pod_metrics(size.pods), free_port()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, body)

    begin, done, probed = multiprocessing.Event(), multiprocessing.Event(), multiprocessing.Event()
    held, send_held = multiprocessing.Pipe(duplex=False)
    phases: dict[str, list[float]] = {}
    with serving(answer) as metrics_api:
        arguments = (port, size.nodes, size.pods, metrics_api.url, begin, done, probed, send_held)
        process = multiprocessing.get_context("fork").Process(target=serve, args=arguments)
        process.start()
        try:
            wait_until(lambda: latencies(port, lambda passed: passed == 0) or True, "the watcher answers", 300)
            holds = {}
            probed.set()
            for name in ("the first", "the second"):
                done.clear()
                begin.set()
                assert done.wait(900)
                holds[name] = held.recv()
            probed.clear()
            phases["at rest"] = latencies(port, lambda passed: passed < size.seconds)
            phases["rounds of pod use"] = []
            for _ in range(ROUNDS):
                done.clear()
                begin.set()
                phases["rounds of pod use"] += latencies(port, lambda _passed: not done.is_set())
            stop, counts = threading.Event(), list[int]()
            reader = threading.Thread(target=read_workloads, args=(port, stop, counts))
            reader.start()
            phases["/workloads is read"] = latencies(port, lambda passed: passed < size.seconds)
            stop.set()
            reader.join()
        finally:
            process.terminate()
            process.join()
    columns = ("meanwhile", "requests", "p50, ms", "p99, ms", "p99, times at rest")
    table = Table(f"{size.nodes:,} nodes, {size.pods:,} pods, {len(counts)} reads of /workloads", columns)
    base = np.percentile(phases["at rest"], 99)
    for phase, times in phases.items():
        p50, p99 = np.percentile(times, (50, 99))
        table.row(phase, f"{len(times):,}", f"{p50:.2f}", f"{p99:.2f}", f"{p99 / base:.2f}")
    print()
    columns = ("round", "processor, s", "longest", "second", "third", "fifth")
    table = Table("Longest times that a round holds the GIL, ms of its processor time", columns)
    for name, (longest, used) in holds.items():
        table.row(name, f"{used:.2f}", *(f"{longest[place]:.1f}" for place in (0, 1, 2, 4)))


if __name__ == "__main__":
    main()
