"""The live cluster, kept equal to the API server's by two reflectors, each in a thread of its own.

Objects are turned into scoring's as they come and dropped, so that what is kept is what scores need.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from runtime.kubernetes.pod_demand import CountedOnce
from runtime.kubernetes.reflector import ListWatch, Object, Reflector
from scoring import Node, NodeTable, Pod
from scoring.table.occupancy import DEPARTED_SECONDS
from trimaran.cluster.assumptions import Outcomes
from trimaran.cluster.interner import Shared
from trimaran.cluster.state import ClusterState

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_OF_ONE_POD = frozenset({"name", "uid", "scheduled_at", "known_requests"})
_AT_ONCE = 200  # pods, while which scores wait
Kind = TypeVar("Kind")
_log = logging.getLogger(__name__)


class ClusterView:
    """Nodes and pods as one table that follows the cluster.

    Threads: all methods may be called from any; :meth:`reading` gives the table to one at a time.

    Args:
        api: the API server, for this view alone: :meth:`close` ends what it is asked, but does not close it.
        assume_seconds: how long a placement that was advised is believed without a word of the API server.
        departed_seconds: how long a pod that left its node is remembered, as metrics still show it: the longest window
            and how old its metrics may be.
        monotonic: a clock that is never set.
        clock: unix seconds, as those of metrics.
    """

    def __init__(
        self,
        api: ListWatch,
        *,
        assume_seconds: float = 30.0,
        departed_seconds: float = DEPARTED_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lock = threading.Lock()
        self._state = ClusterState(assume_seconds, departed_seconds)
        self._monotonic = monotonic
        nodes, pods = _NodeMirror(self._lock, self._state), _PodMirror(self._lock, self._state, clock)
        self._readers: tuple[_Reader[Any], ...] = (nodes.reader, pods.reader)
        self._reflectors = (Reflector(api, NODES, nodes), Reflector(api, PODS, pods, fieldSelector=_RUNNING))

    def start(self) -> Self:
        """Begin to list and watch in the background; :meth:`wait` waits for the first whole copy."""
        for reflector in self._reflectors:
            reflector.start()
        return self

    def close(self) -> None:
        """Stop, and end every request of the API that is under way. The table stays as it is."""
        for reflector in self._reflectors:
            reflector.stop()
        for reflector in self._reflectors:
            reflector.join()

    def wait(self, seconds: float) -> bool:
        """Wait for the first whole copy; return whether it is there."""
        until = time.monotonic() + seconds
        return all(each.synced.wait(max(0.0, until - time.monotonic())) for each in self._reflectors)

    @property
    def is_synced(self) -> bool:
        """Whether the first whole copy is there."""
        return all(each.synced.is_set() for each in self._reflectors)

    @property
    def age_seconds(self) -> float:
        """How long nothing has come from the API server, about nodes or about pods: the longer of the two."""
        return max(each.age_seconds for each in self._reflectors)

    @property
    def lists(self) -> int:
        """How often a whole list was read: beyond the first of nodes and pods, for watches that could not go on."""
        return sum(each.lists for each in self._reflectors)

    @property
    def outcomes(self) -> Outcomes:
        """What became of the placements that were advised."""
        with self._lock:
            return self._state.assumptions.outcomes

    @property
    def in_flight(self) -> int:
        """How many pods are assumed on nodes: advised, and not known to be bound."""
        with self._lock:
            return len(self._state.assumptions)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Why some objects are not counted, by their names."""
        return {name: why for reader in self._readers for name, why in reader.unreadable.items()}

    @contextmanager
    def reading(self, asked: Pod | None = None, *, wait: bool = True) -> Iterator[NodeTable]:
        """Yield the table, which does not change until the block ends. Keep it short: events wait for its end.

        To score for longer, take ``table.copy()`` in it.

        Args:
            asked: a pod that is to be scored: what was assumed of it before is given up first.
            wait: until others have read or written.

        Raises:
            BlockingIOError: others read or write just now, and nobody waits.
        """
        if not self._lock.acquire(blocking=wait):
            raise BlockingIOError
        try:
            self._state.expire(self._monotonic())
            if asked is not None:
                self._state.retry(asked.uid)
            yield self._state.table
        finally:
            self._lock.release()

    def remember_departed(self, seconds: float) -> None:
        """Remember pods that leave their nodes from now on for so long, but no shorter than before.

        May be called while reading.
        """
        self._state.departed_seconds = max(self._state.departed_seconds, seconds)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pod that is about to be bound, in place of what was assumed of it before.

        It stays until the API server tells that the pod is bound, refused or gone, or for ``assume_seconds``.
        """
        with self._lock:
            self._state.assume(pod, node_name, self._monotonic())

    def pending(self) -> tuple[Pod, ...]:
        """Return the pods that are bound to no node, oldest first."""
        with self._lock:
            return tuple(self._state.pending.values())


class _NodeMirror:
    """Keeps the nodes of a state."""

    def __init__(self, lock: threading.Lock, state: ClusterState) -> None:
        self._lock, self._state = lock, state
        self.reader = _Reader(Node.from_k8s)

    def replace(self, objects: Iterable[Object]) -> None:
        self.reader.unreadable = {}
        nodes = [node for node in map(self.reader.read, objects) if node is not None]
        with self._lock:
            self._state.replace_nodes(nodes)

    def put(self, changed: Object) -> None:
        node = self.reader.read(changed)
        if node is None:
            self._forget(changed)
            return
        with self._lock:
            self._state.put_node(node)

    def drop(self, deleted: Object) -> None:
        self.reader.forget(deleted)
        self._forget(deleted)

    def _forget(self, gone: Object) -> None:
        with self._lock:
            self._state.drop_node(str(_metadata(gone).get("name")))


class _PodMirror:
    """Keeps the pods of a state. What pods have in common is kept once."""

    def __init__(self, lock: threading.Lock, state: ClusterState, clock: Callable[[], float]) -> None:
        self._lock, self._state, self._clock = lock, state, clock
        self._shared, self._counted = Shared(), CountedOnce()
        self.reader = _Reader(self._from_k8s)

    def replace(self, objects: Iterable[Object]) -> None:
        """Take the pods some at a time, so that neither the list is kept nor scores wait for all of it."""
        self.reader.unreadable = {}
        there: set[str] = set()
        objects = iter(objects)
        while some := list(islice(objects, _AT_ONCE)):
            read = [(each, pod) for each in some if (pod := self.reader.read(each)) is not None]
            there.update(pod.uid for _, pod in read)
            with self._lock:
                for each, pod in read:
                    self._put(each, pod)
        with self._lock:
            self._state.drop_other_pods(there, self._clock())

    def put(self, changed: Object) -> None:
        pod = self.reader.read(changed)
        if pod is None:
            self._forget(changed, None)  # for all that is known it still runs
            return
        with self._lock:
            self._put(changed, pod)

    def drop(self, deleted: Object) -> None:
        self.reader.forget(deleted)
        self._forget(deleted, self._clock())

    def _put(self, changed: Object, pod: Pod) -> None:
        try:
            self._state.put_pod(pod, refused=_is_refused(changed), at=self._clock())
        except ValueError as error:  # together with the others on its node it asks for more than can be counted
            self.reader.refuse(changed, error)
            self._state.drop_pod(pod.uid)

    def _forget(self, gone: Object, left_at: float | None) -> None:
        with self._lock:
            self._state.drop_pod(str(_metadata(gone).get("uid")), left_at)

    def _from_k8s(self, each: Object) -> Pod:
        return self._shared.within(Pod.from_k8s(each, self._counted.of), apart=_OF_ONE_POD)


class _Reader(Generic[Kind]):
    """Reads objects; says once of each that cannot be read why.

    Attributes:
        unreadable: why, by the object's name. Replaced, never changed, so any thread may look at it.
    """

    def __init__(self, from_k8s: Callable[[Object], Kind]) -> None:
        self._from_k8s = from_k8s
        self.unreadable: Mapping[str, str] = {}

    def read(self, each: Object) -> Kind | None:
        """Return an object as scores see it; None where it cannot be read."""
        try:
            found = self._from_k8s(each)
        except ValueError as error:
            self.refuse(each, error)
            return None
        self.forget(each)
        return found

    def refuse(self, each: Object, error: ValueError) -> None:
        """Note why an object is not counted."""
        name, why = _name(each), str(error)
        if self.unreadable.get(name) != why:
            _log.warning("an object cannot be read and is not counted", extra={"error": why})
        self.unreadable = {**self.unreadable, name: why}

    def forget(self, gone: Object) -> None:
        """Take away what was said of an object."""
        if self.unreadable and (name := _name(gone)) in self.unreadable:
            self.unreadable = {other: why for other, why in self.unreadable.items() if other != name}


def _name(each: Object) -> str:
    metadata = _metadata(each)
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))


def _metadata(each: Object) -> Mapping[str, Any]:
    found = each.get("metadata")
    return found if isinstance(found, dict) else {}


def _is_refused(pod: Object) -> bool:
    """Return whether the scheduler found no place for a pod when it tried last."""
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(
        isinstance(each, dict) and each.get("type") == "PodScheduled" and each.get("status") == "False"
        for each in conditions or ()
    )
