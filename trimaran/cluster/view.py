"""View of the live cluster: nodes and pods that two reflectors, each in its own thread, read from the API server.

Kubernetes objects are converted to the pods and nodes of :mod:`scoring` on arrival, so that only the data that scoring
needs stays in memory.
"""

import math
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol, TypeVar

from runtime.kubernetes.k8s_fields import unix_seconds
from runtime.kubernetes.paths import NODES, PODS
from runtime.kubernetes.reflector import ListWatch, Object, Reflector
from runtime.kubernetes.reflector_group import ReflectorGroup
from runtime.kubernetes.workloads import Workload, workload_of
from scoring import Node, NodeTable, Pod
from scoring.table.occupancy import DEPARTED_SECONDS
from trimaran.cluster.assumptions import AssumptionOutcomes
from trimaran.cluster.object_reader import RUNNING, ObjectReader, metadata_of, pod_reader
from trimaran.cluster.state import ClusterState
from trimaran.cluster.unknown_requests import UnknownRequests

_BATCH_PODS = 200  # pods added while the lock is held once; scoring waits meanwhile
Read_contra = TypeVar("Read_contra", contravariant=True)
OnBound = Callable[[Pod, float | None], None]
"""Callback for a pending pod that got a node; the second argument is its creation time, Unix seconds, if known."""


class ObjectObserver(Protocol[Read_contra]):
    """Store of further facts about the objects of a view. The reflectors' threads call it."""

    def put(self, manifest: Object, read: Read_contra) -> None:
        """Add or update an object, given as the API server sent it and as scoring reads it."""
        ...

    def drop(self, key: str) -> None:
        """Remove an object: a node by its name, a pod by its UID."""
        ...

    def keep_only(self, keys: Container[str]) -> None:
        """Remove all other objects, after a full list."""
        ...


class ClusterView(ReflectorGroup):
    """Node table with the nodes and pods of a live cluster, updated in the background.

    Threads: all methods are thread-safe; :meth:`reading` gives the table to one thread at a time.

    Args:
        api: Kubernetes API client for this view alone: :meth:`close` aborts its requests, but does not close it.
        assume_seconds: time until an assumed placement expires without news from the API server.
        departed_seconds: time for which a pod is remembered after it has left its node, because metrics still include
            its use: the longest window plus the maximum age of the metrics.
        monotonic: monotonic clock.
        clock: Unix time.
        on_bound: called for each pending pod that gets a node, with its creation time in Unix seconds if known; must
            return at once.
        name_workload: names the workloads of the pods, as for :meth:`Pod.from_k8s`.
        node_observer: store of further facts about the nodes.
        pod_observer: store of further facts about the pods.
    """

    def __init__(
        self,
        api: ListWatch,
        *,
        assume_seconds: float = 30.0,
        departed_seconds: float = DEPARTED_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        on_bound: OnBound | None = None,
        name_workload: Callable[..., Workload] = workload_of,
        node_observer: ObjectObserver[Node] | None = None,
        pod_observer: ObjectObserver[Pod] | None = None,
    ) -> None:
        self._lock = threading.RLock()  # reentrant, so that a reader of the table can count a pod on a node
        self._state = ClusterState(assume_seconds, departed_seconds)
        self._monotonic = monotonic
        nodes = _NodeMirror(self._lock, self._state, node_observer)
        pods = _PodMirror(self._lock, self._state, clock, on_bound, name_workload, pod_observer)
        self._readers: tuple[ObjectReader[Any], ...] = (nodes.reader, pods.reader)
        self._unknown = pods.unknown
        super().__init__((Reflector(api, NODES, nodes), Reflector(api, PODS, pods, fieldSelector=RUNNING)))

    @property
    def pods(self) -> Reflector:
        """Reflector of all pods that have not finished; observers may be added before :meth:`start`."""
        return self.reflectors[1]

    @property
    def outcomes(self) -> AssumptionOutcomes:
        """Number of ended assumptions, by the reason for the end."""
        with self._lock:
            return replace(self._state.assumptions.outcomes)

    @property
    def in_flight(self) -> int:
        """Number of pods that are assumed on nodes and not known to be bound."""
        with self._lock:
            return len(self._state.assumptions)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Errors of the Kubernetes objects that could not be decoded and are therefore ignored, by object name."""
        return {name: why for reader in self._readers for name, why in reader.unreadable.items()}

    @property
    def unknown_nodes(self) -> Mapping[str, str]:
        """Reason for each node whose free CPU and memory are not known, because a pod on it cannot be counted."""
        return self._unknown.by_node()

    @contextmanager
    def reading(self, pod: Pod | None = None, *, timeout: float = math.inf) -> Iterator[NodeTable]:
        """Yield the node table, locked until the block ends; :meth:`assume` may be called in the block.

        Keep the block short, since updates from the API server wait for its end. For longer work, take
        ``table.copy()`` in the block.

        Args:
            pod: pod to score, whose earlier assumption is dropped first; None drops no assumption.
            timeout: longest time to wait for the lock, seconds.

        Raises:
            TimeoutError: another thread held the lock for that time.
        """
        if not self._lock.acquire(timeout=-1 if timeout == math.inf else max(0.0, timeout)):
            raise TimeoutError
        try:
            self._state.expire(self._monotonic())
            if pod is not None:
                self._state.retry(pod.uid)
            yield self._state.table
        finally:
            self._lock.release()

    def remember_departed(self, seconds: float) -> None:
        """Remember each pod for at least this time after it has left its node, because metrics still include its use.

        A longer time that was set before stays. The method may be called in a block of :meth:`reading`.
        """
        self._state.departed_seconds = max(self._state.departed_seconds, seconds)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pod on the node that it is expected to be bound to; replaces the pod's earlier assumption.

        The pod counts until the API server reports it bound, unschedulable or deleted, or for ``assume_seconds``.
        """
        with self._lock:
            self._state.assume(pod, node_name, self._monotonic())

    def pending(self) -> tuple[Pod, ...]:
        """Return the unbound pods, oldest first."""
        with self._lock:
            return tuple(self._state.pending.values())


class _NodeMirror:
    """Reflector handler that applies changes of nodes to a cluster state."""

    def __init__(self, lock: threading.RLock, state: ClusterState, observer: ObjectObserver[Node] | None) -> None:
        self._lock, self._state, self._observer = lock, state, observer
        self.reader = ObjectReader(Node.from_k8s)

    def replace(self, objects: Iterable[Object]) -> None:
        self.reader.forget_all()
        nodes = []
        for each in objects:
            node = self.reader.read(each)
            if node is not None:
                nodes.append(node)
                if self._observer is not None:
                    self._observer.put(each, node)
        if self._observer is not None:
            self._observer.keep_only({node.name for node in nodes})
        with self._lock:
            self._state.replace_nodes(nodes)

    def put(self, changed: Object) -> None:
        node = self.reader.read(changed)
        if node is None:
            self._forget(changed)
            return
        if self._observer is not None:
            self._observer.put(changed, node)
        with self._lock:
            self._state.put_node(node)

    def drop(self, deleted: Object) -> None:
        self.reader.forget(deleted)
        self._forget(deleted)

    def _forget(self, gone: Object) -> None:
        name = str(metadata_of(gone).get("name"))
        if self._observer is not None:
            self._observer.drop(name)
        with self._lock:
            self._state.drop_node(name)


class _PodMirror:
    """Reflector handler that applies changes of pods to a cluster state. Field values that pods share are interned."""

    def __init__(
        self,
        lock: threading.RLock,
        state: ClusterState,
        clock: Callable[[], float],
        on_bound: OnBound | None,
        name_workload: Callable[..., Workload],
        observer: ObjectObserver[Pod] | None,
    ) -> None:
        self._lock, self._state, self._clock, self._on_bound = lock, state, clock, on_bound
        self._observer = observer
        self.reader = pod_reader(name_workload)
        self.unknown = UnknownRequests()

    def replace(self, objects: Iterable[Object]) -> None:
        """Replace all pods with a full list, in batches.

        The whole list is therefore never in memory at once, and scoring waits for the lock of one batch at most.
        """
        self.reader.forget_all()
        there: set[str] = set()
        unread: set[str] = set()
        objects = iter(objects)
        while some := list(islice(objects, _BATCH_PODS)):
            read = []
            for each in some:
                pod = self._read(each)
                if pod is None:
                    unread.add(_uid(each))
                else:
                    read.append((each, pod))
            there.update(pod.uid for _, pod in read)
            with self._lock:
                for each, pod in read:
                    self._put(each, pod)
        self.unknown.keep_only(there | unread)
        if self._observer is not None:
            self._observer.keep_only(there)
        with self._lock:
            self._state.drop_other_pods(there, self._clock())

    def _read(self, each: Object) -> Pod | None:
        pod = self.reader.read(each)
        self.unknown.observe(each, pod)
        return pod

    def put(self, changed: Object) -> None:
        pod = self._read(changed)
        if pod is None:
            self._forget(changed, None)  # without a time: the pod may still be running
            return
        with self._lock:
            self._put(changed, pod)

    def drop(self, deleted: Object) -> None:
        self.reader.forget(deleted)
        self.unknown.forget(_uid(deleted))
        self._forget(deleted, self._clock())

    def _put(self, changed: Object, pod: Pod) -> None:
        if self._observer is not None:
            self._observer.put(changed, pod)
        if self._on_bound is not None and pod.node_name and pod.uid in self._state.pending:
            self._on_bound(pod, unix_seconds(metadata_of(changed).get("creationTimestamp"), "metadata"))
        self._state.put_pod(pod, refused=_is_refused(changed), at=self._clock())

    def _forget(self, gone: Object, left_at: float | None) -> None:
        uid = _uid(gone)
        if self._observer is not None:
            self._observer.drop(uid)
        with self._lock:
            self._state.drop_pod(uid, left_at)


def _uid(each: Object) -> str:
    return str(metadata_of(each).get("uid"))


def _is_refused(pod: Object) -> bool:
    """Return whether the scheduler found no node for a pod in its last attempt: PodScheduled is False."""
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(
        isinstance(each, dict) and each.get("type") == "PodScheduled" and each.get("status") == "False"
        for each in conditions or ()
    )
