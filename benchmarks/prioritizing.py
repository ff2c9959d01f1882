"""Time that kube-scheduler waits for the extender: the whole HTTP call, over one keep-alive connection.

There are 5,000 nodes with 20 pods each, of 8,000 workloads. The plugin is LoadVariationRiskBalancing, CongestionCost by
requests, or CongestionCost by the learned use of the workloads (``extender.learned_use``). Every pod is bound to the
node where it was assumed, and every decision is recorded, as in a real extender. The baseline is the same process,
which gives a constant answer for pods of another scheduler. Calls of all kinds take turns: first 5 ms apart, like a
kube-scheduler at full speed, which has other work between two calls. Then without a pause: such a call competes with
the record of the previous decision. A kube-scheduler sends about the same number of candidates in each call. So calls
with 500 nodes and calls with 5,000 nodes are measured separately. A second table has the processor time of scoring
alone, without HTTP and the record; on a busy machine its ratios say most.

    python benchmarks/prioritizing.py [--nodes 5000] [--workloads 8000] [--calls 1000]
"""

import http.client
import itertools
import random
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from types import SimpleNamespace

import numpy as np
import orjson
from common import Table, options
from support.extending import CONFIGURATION, SettableMetrics, StaticView, extender_args, profiles
from support.ports import free_port
from support.servers import wait_until

from runtime.kubernetes.workloads import Workload
from runtime.server import serving
from runtime.server.fast_path import FastPath
from scoring import Container, Pod, ResourceList, UseLevels
from trimaran.extender.answer import ScoredCandidates
from trimaran.extender.app import create_app
from trimaran.extender.decisions.record import DecisionRecord
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import ExtenderArgs
from watcher.workload_table import WorkloadTable

PODS_A_NODE = 20
LEARNED = "learned-use"
SCHEDULERS = {
    "constant": "another", "scored": "load-aware", "CongestionCost": "by-requests", "by learned use": LEARNED,
}  # fmt: skip
CONGESTION = {"score": {"enabled": [{"name": "CongestionCost", "weight": 1}]}}
PAUSES = {"5 ms apart": 0.005, "without a pause": 0.0}
HEAD = b"POST /prioritize HTTP/1.1\r\nHost: me\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class BindingView(StaticView):
    """View of a cluster that binds each pod at once to the node on which the pod is assumed."""

    def assume(self, pod: Pod, node_name: str) -> None:
        """Assume a pod on a node, and bind the pod there at once."""
        super().assume(pod, node_name)
        with self.lock:
            self.state.put_pod(replace(pod, node_name=node_name, scheduled_at=time.time()))


class TwoPrioritizers:
    """Prioritizer that scores the pods of one scheduler by learned use, and all others by requests.

    Args:
        view: the cluster.
        metrics: loads of the nodes.
        levels: learned use.
        record: record of the decisions.
    """

    def __init__(self, view: StaticView, metrics: SettableMetrics, levels: UseLevels, record: DecisionRecord) -> None:
        options = PrioritizerOptions(deadline_seconds=60)  # the first preparation is not measured
        plain = {**CONFIGURATION, "profiles": [*CONFIGURATION["profiles"], profile("by-requests")]}
        learned = {**CONFIGURATION, "profiles": [profile(LEARNED)]}
        self._by_requests = Prioritizer(profiles(plain), view, metrics, options, record=record.add)
        self._by_use = Prioritizer(profiles(learned), view, metrics, options, levels=lambda: levels, record=record.add)
        self.is_alive = self._by_requests.is_alive

    def answer(self, args: ExtenderArgs) -> ScoredCandidates:
        """Return a score for every candidate."""
        return (self._by_use if args.scheduler_name == LEARNED else self._by_requests).answer(args)


def profile(name: str) -> dict[str, object]:
    """Return a profile with CongestionCost."""
    return {"schedulerName": name, "plugins": CONGESTION}


def workload(number: int) -> Workload:
    return Workload("default", "StatefulSet", f"web-{number}")


def learned_use(workloads: int) -> UseLevels:
    """Return the learned use of all workloads."""
    dice, now = np.random.default_rng(4), time.time()
    use = np.stack([dice.gamma(2, 0.02, workloads), dice.uniform(0.2, 0.8, workloads) * 2**26])
    rest = np.full((4, workloads), now)
    names = tuple(workload(number) for number in range(workloads))
    return UseLevels.of_workloads(WorkloadTable(now, names, use, use / 4, np.full(2, 0.6), np.full(2, 0.2), *rest))


def cluster(nodes: int, workloads: int) -> StaticView:
    view = BindingView(*(f"node-{number}" for number in range(nodes)))
    requests = (Container(ResourceList({"cpu": 50, "memory": 1 << 26})),)
    for number in range(nodes * PODS_A_NODE):
        name = f"old-{number}"
        node_name = f"node-{number % nodes}"
        view.state.put_pod(
            Pod(
                name, uid=name, containers=requests, node_name=node_name, scheduled_at=0.0,
                workload=workload(number % workloads),
            )
        )  # fmt: skip
    return view


def loads(nodes: int) -> SettableMetrics:
    dice = random.Random(1)
    return SettableMetrics({f"node-{n}": dice.uniform(0, 100) for n in range(nodes)})


def start(nodes: int, workloads: int) -> FastPath:
    metrics, telemetry = loads(nodes), ExtenderTelemetry()
    view = cluster(nodes, workloads)
    record = DecisionRecord(view, metrics, telemetry)
    record.start()
    prioritizer = TwoPrioritizers(view, metrics, learned_use(workloads), record)
    return create_app(prioritizer, telemetry, str)


def serve(port: int, nodes: int, workloads: int) -> None:
    serving.serve(lambda: start(nodes, workloads), [serving.Listener(serving.listen("127.0.0.1", port))], threads=8)


def call(connection: socket.socket, body: bytes) -> tuple[float, bytes]:
    """Send a prioritize request; return its time in milliseconds and the body of the answer.

    The request goes over a plain socket, because Python's HTTP client is slower than Go's.
    """
    start = time.perf_counter()
    connection.sendall(HEAD % len(body) + body)
    received = connection.recv(1 << 16)
    head, _, answer = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head, re.IGNORECASE)[1])
    while len(answer) < length:
        answer += connection.recv(1 << 20)
    took = 1000 * (time.perf_counter() - start)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return took, answer


def is_up(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False


def request(dice: random.Random, number: int, scheduler: str, names: list[str], workloads: int) -> bytes:
    """Return the body of a request for a new pod of a random workload."""
    arguments = extender_args(*names, pod=f"pod-{number}-{len(names)}-{scheduler}", scheduler=scheduler)
    owner = {"kind": "StatefulSet", "name": f"web-{dice.randrange(workloads)}", "controller": True}
    arguments["Pod"]["metadata"]["ownerReferences"] = [owner]
    return orjson.dumps(arguments)


def scoring(nodes: int, workloads: int, count: int) -> Callable[[str], float]:
    """Return a function that scores a new pod for a kind of answer, and returns its processor time in milliseconds."""
    dice, record, numbers = random.Random(2), SimpleNamespace(add=lambda *_: None), itertools.count()
    view, levels = cluster(nodes, workloads), learned_use(workloads)
    prioritizer = TwoPrioritizers(view, loads(nodes), levels, record)  # fresh metrics, so after the slow part

    def score(kind: str) -> float:
        names = [f"node-{n}" for n in dice.sample(range(nodes), count)]
        arguments = ExtenderArgs.decode(request(dice, next(numbers), SCHEDULERS[kind], names, workloads))
        start = time.thread_time()
        answer = prioritizer.answer(arguments)
        took = 1000 * (time.thread_time() - start)
        assert answer.details is not None, answer.outcome
        return took

    return score


def processor_times(nodes: int, workloads: int, count: int, calls: int) -> dict[str, list[float]]:
    """Return the processor times of all scorings in milliseconds, by kind of answer; kinds take turns."""
    score = scoring(nodes, workloads, count)
    times: dict[str, list[float]] = {kind: [] for kind in SCHEDULERS if kind != "constant"}
    for number in range(calls + 20):
        for kind, scored in times.items():
            took = score(kind)
            if number >= 20:  # the first calls warm up
                scored.append(took)
    return times


def measure(
    port: int, nodes: int, workloads: int, counts: tuple[int, int], calls: int
) -> dict[tuple[str, int, str], list[float]]:
    """Return the times of all calls in milliseconds, by pause, number of candidates and kind of answer.

    Args:
        port: port of the extender.
        nodes: number of nodes of the cluster.
        workloads: number of workloads.
        counts: numbers of candidates in a call.
        calls: number of calls to measure, for each pause, number and kind.
    """
    connection = socket.create_connection(("127.0.0.1", port), timeout=90)
    dice = random.Random(2)
    times: dict[tuple[str, int, str], list[float]] = {key: [] for key in itertools.product(PAUSES, counts, SCHEDULERS)}
    for pause, count in itertools.product(PAUSES, counts):
        for number in range(calls + 20):
            for kind, scheduler in SCHEDULERS.items():
                names = [f"node-{n}" for n in dice.sample(range(nodes), count)]
                body = request(dice, number, scheduler, names, workloads)
                time.sleep(PAUSES[pause])
                milliseconds, answer = call(connection, body)
                scores = {entry["Score"] for entry in orjson.loads(answer)}
                assert (len(scores) > 1) == (kind != "constant")
                if number >= 20:  # the first calls warm up
                    times[pause, count, kind].append(milliseconds)
    return times


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, workloads=8_000, calls=1_000)
    port = free_port()
    process = get_context("spawn").Process(target=serve, args=(port, size.nodes, size.workloads))
    process.start()
    try:
        wait_until(lambda: is_up(port), "the extender answers", 120)
        times = measure(port, size.nodes, size.workloads, (size.nodes // 10, size.nodes), size.calls)
    finally:
        process.terminate()
        process.join()
    columns = (
        "calls", f"candidates of {size.nodes:,} nodes", "p50, ms", "p99, ms", "p50, times a constant answer",
        "p50 and p99, times by requests",
    )  # fmt: skip
    table = Table(f"{size.calls:,} calls of each kind, {PODS_A_NODE} pods a node", columns, text_columns=2)
    for (pause, count, kind), milliseconds in times.items():
        p50, p99 = np.percentile(milliseconds, (50, 99))
        ratio = p50 / np.percentile(times[pause, count, "constant"], 50)
        same = ""
        if kind == "by learned use":
            by_requests = np.percentile(times[pause, count, "CongestionCost"], (50, 99))
            same = f"{p50 / by_requests[0]:.2f}, {p99 / by_requests[1]:.2f}"
        table.row(pause, f"{count:,}, {kind}", f"{p50:.2f}", f"{p99:.2f}", f"{ratio:.2f}", same)
    print()
    columns = ("plugin", "p50, ms", "p99, ms", "p50, times LoadVariationRiskBalancing")
    table = Table(f"Processor time of a scoring of {size.nodes // 10:,} candidates", columns)
    processor = processor_times(size.nodes, size.workloads, size.nodes // 10, size.calls)
    for kind, milliseconds in processor.items():
        p50, p99 = np.percentile(milliseconds, (50, 99))
        table.row(kind, f"{p50:.2f}", f"{p99:.2f}", f"{p50 / np.percentile(processor['scored'], 50):.2f}")


if __name__ == "__main__":
    main()
