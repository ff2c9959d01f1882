"""How long does kube-scheduler wait for the extender? The whole HTTP call, over one keep-alive connection.

5,000 nodes with 20 pods each, LoadVariationRiskBalancing, every pod bound where it was assumed, and every decision
recorded, as in a real extender. The baseline is the same process asked about pods of another scheduler, which it gives
a constant. The calls of both kinds take turns: first 5 ms apart, as a kube-scheduler at its fastest asks, which has
other work between two calls; then without a pause, so that a call waits for what follows the answer before it (where
that pod will likely go is computed and counted). A scheduler asks for about as many candidates each time, so those for
500 and for 5,000 nodes come one after the other.

    python benchmarks/prioritizing.py
"""

import http.client
import os
import platform
import random
import re
import socket
import sys
import time
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.extending import HeldMetrics, StillView, asked, profiles
from support.servers import free_port, wait_until

from runtime.server import serving
from runtime.server.fast_path import Front
from scoring import Container, Pod, ResourceList
from trimaran.extender.app import create_app
from trimaran.extender.decisions.record import Record
from trimaran.extender.prioritizer import Options, Prioritizer
from trimaran.extender.telemetry import Telemetry

NODES, PODS_A_NODE, CALLS = 5_000, 20, 1_000
ASKED = (500, 5_000)
KINDS = ("constant", "scored")
PAUSES = {"5 ms apart": 0.005, "without a pause": 0.0}
HEAD = b"POST /prioritize HTTP/1.1\r\nHost: me\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class BindingView(StillView):
    """A cluster in which each pod is bound at once where it was assumed."""

    def assume(self, pod: Pod, node_name: str) -> None:
        """Bind a pod."""
        super().assume(pod, node_name)
        with self.lock:
            self.state.put_pod(replace(pod, node_name=node_name, scheduled_at=time.time()))


def cluster() -> StillView:
    view = BindingView(*(f"node-{number}" for number in range(NODES)))
    requests = (Container(ResourceList({"cpu": 50, "memory": 1 << 26})),)
    for number in range(NODES * PODS_A_NODE):
        name = f"old-{number}"
        node_name = f"node-{number % NODES}"
        view.state.put_pod(Pod(name, uid=name, containers=requests, node_name=node_name, scheduled_at=0.0))
    return view


def start() -> Front:
    dice = random.Random(1)
    metrics = HeldMetrics({f"node-{n}": dice.uniform(0, 100) for n in range(NODES)})
    view, telemetry = cluster(), Telemetry()
    record = Record(view, metrics, telemetry)
    record.start()
    prioritizer = Prioritizer(profiles(), view, metrics, Options(deadline_seconds=5), record=record.note)
    return create_app(prioritizer, telemetry, lambda: True)


def serve(port: int) -> None:
    serving.serve(start, [serving.Listener(serving.listen("127.0.0.1", port))], threads=8)


def call(connection: socket.socket, body: bytes) -> tuple[float, bytes]:
    """Return how many milliseconds an answer took, and it; by a plain socket: Python's client is slower than Go's."""
    began = time.perf_counter()
    connection.sendall(HEAD % len(body) + body)
    received = connection.recv(1 << 16)
    head, _, answer = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head, re.IGNORECASE)[1])
    while len(answer) < length:
        answer += connection.recv(1 << 20)
    took = 1000 * (time.perf_counter() - began)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return took, answer


def main() -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    port = free_port()
    process = get_context("spawn").Process(target=serve, args=(port,))
    process.start()
    try:
        wait_until(lambda: _is_up(port), "the extender answers", 120)
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        dice = random.Random(2)
        took: dict[tuple[str, int, str], list[float]] = {kept: [] for kept in product(PAUSES, ASKED, KINDS)}
        for pause, count in product(PAUSES, ASKED):
            for number in range(CALLS + 20):
                for kind in KINDS:
                    names = [f"node-{n}" for n in dice.sample(range(NODES), count)]
                    scheduler = "load-aware" if kind == "scored" else "another"
                    body = orjson.dumps(asked(*names, pod=f"pod-{number}-{count}", scheduler=scheduler))
                    time.sleep(PAUSES[pause])
                    milliseconds, answer = call(connection, body)
                    scores = {each["Score"] for each in orjson.loads(answer)}
                    assert (len(scores) > 1) == (kind == "scored")
                    if number >= 20:
                        took[pause, count, kind].append(milliseconds)
    finally:
        process.terminate()
        process.join()
    print(f"load {os.getloadavg()[0]:.1f} at the end; {CALLS} calls of each kind\n")
    print("| calls | candidates of 5,000 nodes | p50 | p99 | p50 beside a constant |")
    print("|---|---|---:|---:|---:|")
    for (pause, count, kind), times in took.items():
        p50, p99 = np.percentile(times, (50, 99))
        ratio = p50 / np.percentile(took[pause, count, "constant"], 50)
        print(f"| {pause} | {count}, {kind} | {p50:.2f} ms | {p99:.2f} ms | {ratio:.2f} |")


def _is_up(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False


if __name__ == "__main__":
    main()
