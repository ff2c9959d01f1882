"""The cluster of a replay: nodes and pods as a scheduler sees them, beside what they really use."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY, Container, KnownRequests, Node, Owner, Pod, ResourceList
from scoring.arrays import Bools, Float64s, Int64s
from scoring.table.node_table import NodeTable
from trimaran.simulator.ledger import UseLedger
from trimaran.simulator.windows import unix_seconds
from trimaran.traces.events import Amounts
from trimaran.traces.trace import NO_LIMIT, Trace

JOB = "Job"


@dataclass(slots=True)
class PodRun:
    """A pod's time on one node.

    Attributes:
        pod: its number.
        node: the ledger's number.
        start: the first minute.
        end: the minute after the last one.
        asks: the millicores and bytes that the pod requests, as it was admitted.
    """

    pod: int
    node: int
    start: int
    end: int
    requests: Amounts


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A pod that waits for a node.

    Attributes:
        pod: as it was admitted.
        asks: the millicores and bytes that it requests.
        ready: from which minute on it may have a node.
        until: the minute from which on it is too late for it.
    """

    pod: Pod
    requests: Amounts
    ready: int
    until: int


class Cluster:
    """What a policy may look at; all but ``ledger``'s future is known in a real cluster.

    Args:
        trace: what is replayed.
        overcommit: what every pod's requests are divided by, as an admission webhook does: of CPU and of memory.

    Attributes:
        nodes: the scheduler's table.
        ledger: what is really used.
        numbers: each row's number in the ledger, shape (nodes,).
        minute: now.
        running: the stays of the pods that run, by the pod's number.
        stays: all of them, in the order of their start.
        pods: the running ones as the scheduler sees them, by their numbers.
        waiting: the pods that wait for a node, by their numbers.
        replicas: how many pods of an owner each node has, by owner and node name; zeros are left out.
        jobs: which of the trace's pods run to their end, however late they begin; services end by the clock.
        first_start: the minute in which each of the trace's pods first had a node; -1 while it had none.
    """

    def __init__(self, trace: Trace, overcommit: tuple[float, float]) -> None:
        self.trace = trace
        self.overcommit = overcommit
        self.minute = 0
        capacity = np.array([trace.cpu_capacity_milli, trace.memory_capacity_bytes], np.float64)
        self.ledger = UseLedger(capacity, trace.minutes)
        self.running: dict[int, PodRun] = {}
        self.pod_runs: list[PodRun] = []
        self.pods: dict[int, Pod] = {}
        self.waiting: dict[int, QueuedPod] = {}
        self.replicas: dict[Owner, Counter[str]] = defaultdict(Counter)
        self.jobs: Bools = np.array([kind == JOB for kind in trace.owner_kinds], np.bool_)
        self.first_start: Int64s = np.full(len(trace.pods), -1, np.int64)
        self._names = list(trace.nodes)
        self._numbers = {name: number for number, name in enumerate(trace.nodes)}
        self._owners: dict[tuple[str, str], Owner] = {}
        self._containers: dict[tuple[int, ...], tuple[Container, ...]] = {}
        self._known_requests: dict[tuple[int, ...], KnownRequests] = defaultdict(KnownRequests)
        self.nodes = NodeTable(
            node(name, cpu, memory)
            for name, cpu, memory in zip(
                trace.nodes, trace.cpu_capacity_milli.tolist(), trace.memory_capacity_bytes.tolist(), strict=True
            )
        )
        self._known: tuple[str, ...] = ()
        self._follow_nodes()

    @property
    def numbers(self) -> Int64s:
        """Each row's number in the ledger, shape (nodes,)."""
        self._follow_nodes()
        return self._rows_numbers

    @property
    def capacity(self) -> Float64s:
        """Millicores and bytes of each row, shape (2, nodes)."""
        self._follow_nodes()
        return self._capacity

    @property
    def now(self) -> float:
        """The time, in unix unix_seconds."""
        return float(unix_seconds(self.minute))

    @property
    def free(self) -> Float64s:
        """What no pod requests of each row, millicores and bytes, shape (2, nodes)."""
        requested = [self.nodes.in_tree_requests(CPU), self.nodes.in_tree_requests(MEMORY)]
        free: Float64s = self.capacity - np.array(requested)
        return free

    def runs_since(self, minute: int) -> Iterator[PodRun]:
        """Yield the pod_runs that began in a minute or later, the last one first."""
        return takewhile(lambda run: run.start >= minute, reversed(self.pod_runs))

    def is_fragmented(self) -> bool:
        """Say whether a pod waits that all nodes together have room for; no node alone has, or it would not wait."""
        ready = [waiting.requests for waiting in self.waiting.values() if waiting.ready <= self.minute]
        if not ready:
            return False
        free = self.free.sum(axis=1)
        return bool((np.array(ready) <= free).all(axis=1).any())

    def is_job(self, number: int) -> bool:
        """Say whether a pod is one of :attr:`jobs`."""
        return bool(self.jobs[number])

    def requests(self, number: int) -> tuple[int, int]:
        """Return a pod's requests after overcommit: millicores and bytes, each at least 1 where it asks for any."""
        trace = self.trace
        asked = (int(trace.cpu_request_milli[number]), int(trace.memory_request_bytes[number]))
        cpu, memory = (
            max(round(amount / factor), 1) if amount else 0
            for amount, factor in zip(asked, self.overcommit, strict=True)
        )
        return cpu, memory

    def owner(self, kind: str, name: str) -> Owner:
        """Return an owner: the same object each time, as that is soon told to be equal."""
        known = self._owners.get((kind, name))
        if known is None:
            known = self._owners[kind, name] = Owner(kind, name)
        return known

    def pod(self, number: int, requests: tuple[int, int] | None = None) -> Pod:
        """Return a pod as the scheduler sees it.

        Args:
            number: of the pod in the trace.
            requests: others than :meth:`requests`.
        """
        trace = self.trace
        cpu, memory = self.requests(number) if requests is None else requests
        key = (cpu, memory, int(trace.cpu_limit_milli[number]), int(trace.memory_limit_bytes[number]))
        containers = self._containers.get(key)
        if containers is None:
            limits = {CPU: key[2], MEMORY: key[3]}
            containers = self._containers[key] = (
                Container(
                    requests=ResourceList({CPU: cpu, MEMORY: memory}),
                    limits=ResourceList({name: limit for name, limit in limits.items() if limit != NO_LIMIT}),
                ),
            )
        return Pod(
            name=trace.pods[number],
            containers=containers,
            owner=self.owner(trace.owner_kinds[number], trace.owners[number]),
            known_requests=self._known_requests[key],  # pods of one kind ask for the same
        )

    def series(self, number: int, start: int) -> Float64s:
        """Return what a pod that starts in some minute uses until it ends, shape (2, minutes).

        A job begins with its first minute; a service is where it would be had it begun on its arrival.
        """
        skipped = 0 if self.is_job(number) else start - int(self.trace.arrival_minute[number])
        life = int(self.trace.end_minute[number] - self.trace.arrival_minute[number])
        return self.trace.used(number, skipped, life)

    def use_origin(self, run: PodRun) -> int:
        """Return the minute that a pod's use is counted from: a job's start, a service's arrival."""
        return run.start if self.is_job(run.pod) else int(self.trace.arrival_minute[run.pod])

    def place(self, number: int, pod: Pod, row: int) -> PodRun:
        """Bind a pod to a row's node now."""
        series = self.series(number, self.minute)
        node_number = int(self.numbers[row])
        self.nodes.add(pod, self.nodes.names[row], placed_at=self.now)
        self.ledger.add(node_number, self.minute, series)
        end = min(self.minute + series.shape[1], self.trace.minutes)
        run = PodRun(number, node_number, self.minute, end, requested(pod))
        if self.first_start[number] < 0:
            self.first_start[number] = self.minute
        self.running[number] = run
        self.pods[number] = pod
        if pod.owner is not None:
            self.replicas[pod.owner][self.nodes.names[row]] += 1
        self.pod_runs.append(run)
        return run

    def end(self, number: int) -> None:
        """Let a pod end: at its time, or before it, when the rest of its use is taken back."""
        run = self.running.pop(number)
        pod = self.pods.pop(number)
        if pod.owner is not None:
            on_nodes, name = self.replicas[pod.owner], self._names[run.node]
            on_nodes[name] -= 1
            if not on_nodes[name]:
                del on_nodes[name]
        self.nodes.remove(pod, left_at=self.now)
        if run.end > self.minute:
            rest = self.series(number, run.start)[:, self.minute - run.start :]
            self.ledger.add(run.node, self.minute, -rest)
            run.end = self.minute

    def join(self, name: str, amounts: Amounts | None = None) -> None:
        """Let a node join now.

        Args:
            name: one that is not there.
            amounts: millicores and bytes; None is what the node of this name had before.
        """
        if amounts is None:
            cpu, memory = self.ledger.capacity[:, self._numbers[name]].astype(np.int64).tolist()
            amounts = (cpu, memory)
        self._numbers[name] = self.ledger.join(self.minute, *amounts)
        self._names.append(name)
        self.nodes.add_nodes([node(name, *amounts, created_at=self.now)])

    def pods_on(self, name: str) -> list[int]:
        """Return the pods that run on a node, in the order of their start."""
        number = self._numbers[name]
        return [run.pod for run in self.running.values() if run.node == number]

    def leave(self, name: str) -> list[int]:
        """Let a node leave now, and return the pods that ran on it, in the order of their start."""
        pods = self.pods_on(name)
        for pod in pods:
            self.end(pod)
        self.nodes.remove_nodes([name])
        self.ledger.leave(self._numbers[name], self.minute)
        return pods

    def _follow_nodes(self) -> None:
        names = self.nodes.names
        if names is not self._known:
            self._known = names
            self._rows_numbers = np.array([self._numbers[name] for name in names], np.int64)
            self._capacity = self.ledger.capacity[:, self._rows_numbers]


def requested(pod: Pod) -> Amounts:
    """Return the millicores and bytes that a pod requests; pods here have one container."""
    requests = pod.containers[0].requests
    return requests.amount(CPU), requests.amount(MEMORY)


def node(name: str, cpu_milli: int, memory_bytes: int, created_at: float | None = None) -> Node:
    """Return a node whose allocatable is its capacity; without a time it has long been there."""
    amounts = ResourceList({CPU: cpu_milli, MEMORY: memory_bytes})
    return Node(name, amounts, amounts, created_at=created_at)
