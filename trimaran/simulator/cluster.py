"""Simulated cluster: nodes and pods as a scheduler sees them, and the pods' real use."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY, CachedRequests, Container, Node, Pod, ResourceList
from runtime.kubernetes.workloads import Owner, Workload
from scoring.arrays import Bools, Float64s, Int64s
from scoring.table.node_table import NodeTable
from trimaran.simulator.cluster_observer import ClusterObserver
from trimaran.simulator.ledger import UseLedger
from trimaran.simulator.windows import unix_seconds
from trimaran.traces.events import Amounts
from trimaran.traces.trace import JOB, NO_LIMIT, Trace

_NAMESPACE = "default"


@dataclass(slots=True)
class PodRun:
    """Time that a pod runs on one node.

    Attributes:
        pod: the pod's number in the trace.
        node: the node's number in the ledger.
        start: first minute.
        end: minute after the last one.
        requests: millicores and bytes that the pod requested on admission.
        works: first minute in which the pod works, after its start-up; before, it uses nothing.
        use: use in each past minute of the run, and demand in the others, millicores and bytes, shape (2, minutes);
            None if both are as recorded.
        lag_minutes: undone work of a job that has not delayed its end yet, in minutes; below 1.
        short_milli: CPU that the pod demanded and did not get, summed over the minutes after the warm-up, millicores.
    """

    pod: int
    node: int
    start: int
    end: int
    requests: Amounts
    works: int = 0
    use: Float64s | None = field(default=None, compare=False, repr=False)
    lag_minutes: float = 0.0
    short_milli: float = 0.0


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """Pod in the scheduling queue.

    Attributes:
        pod: the admitted pod.
        requests: millicores and bytes that the pod requests.
        ready: first minute in which the pod may be placed.
        until: minute in which the pod gives up.
    """

    pod: Pod
    requests: Amounts
    ready: int
    until: int


class Cluster:
    """State of the cluster that policies read. A real scheduler knows all of it except the future in ``ledger``.

    Args:
        trace: the trace to replay.
        overcommit: divisors of every pod's CPU and memory requests, as an admission webhook would apply them.

    Attributes:
        nodes: the scheduler's node table.
        ledger: real use of each node, past and future.
        numbers: number of each row's node in the ledger, shape (nodes,).
        minute: the current minute.
        running: the current runs, by pod number.
        pod_runs: all runs, in the order of their start.
        pods: the running pods as the scheduler sees them, by pod number.
        queue: the pods that wait for a node, by pod number.
        replicas: number of an owner's pods on each node, by owner and node name; zeros are left out.
        jobs: mask of the trace's pods that run to completion however late they start, shape (pods,). The other pods
            are services, which end at a fixed minute.
        observer: receives each change of nodes and pods.
        first_start: minute in which each of the trace's pods first got a node, -1 before that, shape (pods,).
    """

    def __init__(self, trace: Trace, overcommit: tuple[float, float]) -> None:
        self.trace = trace
        self.overcommit = overcommit
        self.minute = 0
        capacity = np.array([trace.cpu_capacity_milli, trace.memory_capacity_bytes], np.float64)
        self.ledger = UseLedger(capacity, trace.minutes)
        self.observer = ClusterObserver()
        self.running: dict[int, PodRun] = {}
        self.pod_runs: list[PodRun] = []
        self.pods: dict[int, Pod] = {}
        self.queue: dict[int, QueuedPod] = {}
        self.replicas: dict[Owner, Counter[str]] = defaultdict(Counter)
        self.jobs: Bools = np.array([kind == JOB for kind in trace.owner_kinds], np.bool_)
        self.first_start: Int64s = np.full(len(trace.pods), -1, np.int64)
        self._names = list(trace.nodes)
        self._numbers = {name: number for number, name in enumerate(trace.nodes)}
        self._owners: dict[tuple[str, str], Owner] = {}
        self._workloads: dict[tuple[str, str], Workload] = {}
        self._containers: dict[tuple[int, ...], tuple[Container, ...]] = {}
        self._known_requests: dict[tuple[int, ...], CachedRequests] = defaultdict(CachedRequests)
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
        """Number of each row's node in the ledger, shape (nodes,)."""
        self._follow_nodes()
        return self._rows_numbers

    @property
    def capacity(self) -> Float64s:
        """Capacity of each row's node, millicores and bytes, shape (2, nodes)."""
        self._follow_nodes()
        return self._capacity

    @property
    def now(self) -> float:
        """Current time, Unix seconds."""
        return float(unix_seconds(self.minute))

    @property
    def free(self) -> Float64s:
        """Capacity of each row's node that no pod requests, millicores and bytes, shape (2, nodes)."""
        requested = [self.nodes.in_tree_requests(CPU), self.nodes.in_tree_requests(MEMORY)]
        return np.asarray(self.capacity - np.array(requested))

    def runs_since(self, minute: int) -> Iterator[PodRun]:
        """Yield the runs that started in a minute or later, latest first."""
        return takewhile(lambda run: run.start >= minute, reversed(self.pod_runs))

    def is_fragmented(self) -> bool:
        """Return whether the free capacity of all nodes together would fit a queued pod that fits no single node."""
        ready = [queued.requests for queued in self.queue.values() if queued.ready <= self.minute]
        if not ready:
            return False
        free = self.free.sum(axis=1)
        return bool((np.array(ready) <= free).all(axis=1).any())

    def is_job(self, number: int) -> bool:
        """Return whether a pod is a job; see :attr:`jobs`."""
        return bool(self.jobs[number])

    def requests(self, number: int) -> tuple[int, int]:
        """Return a pod's requests after overcommit, millicores and bytes; a positive request stays at least 1."""
        trace = self.trace
        original = (int(trace.cpu_request_milli[number]), int(trace.memory_request_bytes[number]))
        cpu, memory = (
            max(round(amount / factor), 1) if amount else 0
            for amount, factor in zip(original, self.overcommit, strict=True)
        )
        return cpu, memory

    def owner(self, kind: str, name: str) -> Owner:
        """Return an owner; all of its pods share one object, because identical objects compare fast."""
        known = self._owners.get((kind, name))
        if known is None:
            known = self._owners[kind, name] = Owner(kind, name)
        return known

    def workload(self, kind: str, name: str) -> Workload:
        """Return the workload of an owner; all of its pods share one object. Owners in a trace are workloads."""
        known = self._workloads.get((kind, name))
        if known is None:
            known = self._workloads[kind, name] = Workload(_NAMESPACE, kind, name)
        return known

    def pod(self, number: int, requests: tuple[int, int] | None = None) -> Pod:
        """Return a pod as the scheduler sees it.

        Args:
            number: the pod's number in the trace.
            requests: millicores and bytes that replace :meth:`requests`.
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
        kind, owner = trace.owner_kinds[number], trace.owners[number]
        return Pod(
            name=trace.pods[number],
            containers=containers,
            owner=self.owner(kind, owner),
            workload=self.workload(kind, owner),
            cached_requests=self._known_requests[key],  # memoized per combination of requests and limits
        )

    def series(self, number: int, start: int) -> Float64s:
        """Return the use of a pod from a start minute to its end, millicores and bytes, shape (2, minutes).

        A job starts with the first minute of its recorded use. A service continues at the minute that it
        would have reached if it had started on arrival.
        """
        skipped = 0 if self.is_job(number) else start - int(self.trace.arrival_minute[number])
        life = int(self.trace.end_minute[number] - self.trace.arrival_minute[number])
        return self.trace.usage(number, skipped, life)

    def run_use(self, run: PodRun) -> Float64s:
        """Return the use of a run in each minute from its start, and its demand from the current minute on.

        The result has millicores and bytes, shape (2, minutes); it may be longer than the replay.
        """
        if run.use is not None:
            return run.use
        series = self.series(run.pod, run.start)
        series[:, : run.works - run.start] = 0
        return series

    def demand_milli(self, run: PodRun) -> float:
        """Return the CPU that a run demands in the current minute, millicores."""
        if run.use is not None:
            return float(run.use[0, self.minute - run.start])
        if self.minute < run.works:
            return 0.0
        trace = self.trace
        at = trace.use.offsets[run.pod] + self.minute - self.use_origin(run)
        return float(trace.use.cpu[at]) * float(trace.cpu_request_milli[run.pod])

    def use_origin(self, run: PodRun) -> int:
        """Return the minute of the replay in which a run's recorded use begins: a job's start, a service's arrival."""
        return run.start if self.is_job(run.pod) else int(self.trace.arrival_minute[run.pod])

    def place(self, number: int, pod: Pod, row: int, startup_minutes: int = 0) -> PodRun:
        """Bind a pod to the node of a row in the current minute.

        Args:
            number: the pod's number in the trace.
            pod: the admitted pod.
            row: row of the node.
            startup_minutes: minutes in which the pod does not work yet.
        """
        series = self.series(number, self.minute)
        series[:, :startup_minutes] = 0
        node_number = int(self.numbers[row])
        self.nodes.add(pod, self.nodes.names[row], placed_at=self.now)
        self.ledger.add(node_number, self.minute, series)
        end = min(self.minute + series.shape[1], self.trace.minutes)
        run = PodRun(number, node_number, self.minute, end, requested(pod), self.minute + startup_minutes)
        if self.first_start[number] < 0:
            self.first_start[number] = self.minute
        self.running[number] = run
        self.pods[number] = pod
        if pod.owner is not None:
            self.replicas[pod.owner][self.nodes.names[row]] += 1
        self.pod_runs.append(run)
        self.observer.placed(number, pod, self.nodes.names[row])
        return run

    def end(self, number: int) -> None:
        """End a pod now. If the trace has it end later, remove its use after now from the nodes' future use."""
        run = self.running.pop(number)
        pod = self.pods.pop(number)
        if pod.owner is not None:
            on_nodes, name = self.replicas[pod.owner], self._names[run.node]
            on_nodes[name] -= 1
            if not on_nodes[name]:
                del on_nodes[name]
        self.nodes.remove(pod, left_at=self.now)
        self.observer.ended(number, pod)
        if run.end > self.minute:
            self.ledger.add(run.node, self.minute, -self.run_use(run)[:, self.minute - run.start :])
            run.end = self.minute

    def join(self, name: str, amounts: Amounts | None = None) -> None:
        """Add a node to the cluster now.

        Args:
            name: a name that no current node has.
            amounts: capacity, millicores and bytes; None means the capacity that the node of this name had before.
        """
        if amounts is None:
            cpu, memory = self.ledger.capacity[:, self._numbers[name]].astype(np.int64).tolist()
            amounts = (cpu, memory)
        self._numbers[name] = self.ledger.join(self.minute, *amounts)
        self._names.append(name)
        joined = node(name, *amounts, created_at=self.now)
        self.nodes.add_nodes([joined])
        self.observer.joined(joined)

    def pods_on(self, name: str) -> list[int]:
        """Return the numbers of the pods that run on a node, in the order of their start."""
        number = self._numbers[name]
        return [run.pod for run in self.running.values() if run.node == number]

    def leave(self, name: str) -> list[int]:
        """Remove a node now, end its pods, and return their numbers in the order of their start."""
        pods = self.pods_on(name)
        for pod in pods:
            self.end(pod)
        self.nodes.remove_nodes([name])
        self.ledger.leave(self._numbers[name], self.minute)
        self.observer.left(name)
        return pods

    def _follow_nodes(self) -> None:
        names = self.nodes.names
        if names is not self._known:
            self._known = names
            self._rows_numbers = np.array([self._numbers[name] for name in names], np.int64)
            self._capacity = self.ledger.capacity[:, self._rows_numbers]


def requested(pod: Pod) -> Amounts:
    """Return the millicores and bytes that a pod requests; simulated pods have one container."""
    requests = pod.containers[0].requests
    return requests.amount(CPU), requests.amount(MEMORY)


def node(name: str, cpu_milli: int, memory_bytes: int, created_at: float | None = None) -> Node:
    """Return a node whose allocatable equals its capacity.

    Args:
        name: the node's name.
        cpu_milli: millicores.
        memory_bytes: bytes.
        created_at: Unix seconds; None for a node that existed before the replay.
    """
    amounts = ResourceList({CPU: cpu_milli, MEMORY: memory_bytes})
    return Node(name, amounts, amounts, created_at=created_at)
