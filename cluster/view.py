"""The live cluster, kept equal to the API server's by two reflectors, each in a thread of its own.

Objects are turned into scoring's as they come and dropped, so that what is kept is what scores need.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from cluster.assumptions import Outcomes
from cluster.reflector import ListWatch, Object, Reflector
from cluster.state import ClusterState
from scoring import Node, NodeTable, Pod

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
Kind = TypeVar("Kind")
_log = logging.getLogger(__name__)


class ClusterView:
    """Nodes and pods as one table that follows the cluster.

    Threads: all methods may be called from any; :meth:`reading` gives the table to one at a time.

    Args:
        api: the API server; the view does not close it.
        assume_seconds: how long a placement that was advised is believed without a word of the API server.
        monotonic: a clock that is never set.
    """

    def __init__(
        self, api: ListWatch, *, assume_seconds: float = 30.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = threading.Lock()
        self._state = ClusterState(assume_seconds)
        self._monotonic = monotonic
        nodes, pods = _NodeMirror(self._lock, self._state), _PodMirror(self._lock, self._state)
        self._mirrors = (nodes, pods)
        self._reflectors = (Reflector(api, NODES, nodes), Reflector(api, PODS, pods, fieldSelector=_RUNNING))

    def start(self) -> Self:
        """Begin to list and watch in the background; :meth:`wait` waits for the first whole copy."""
        for reflector in self._reflectors:
            reflector.start()
        return self

    def close(self) -> None:
        """Stop. Whoever owns the API ends its requests first, so that none is waited for."""
        for reflector in self._reflectors:
            reflector.stop()

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
    def unreadable(self) -> Mapping[str, str]:
        """Why some objects are not counted, by their names."""
        with self._lock:
            return {name: why for mirror in self._mirrors for name, why in mirror.unreadable.items()}

    @contextmanager
    def reading(self) -> Iterator[NodeTable]:
        """Yield the table, which does not change until the block ends. Keep it short: events wait for its end.

        To score for longer, take ``table.copy()`` in it.
        """
        with self._lock:
            self._state.expire(self._monotonic())
            yield self._state.table

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
    def __init__(self, lock: threading.Lock, state: ClusterState) -> None:
        self._lock, self._state = lock, state
        self.unreadable: dict[str, str] = {}

    def replace(self, objects: Iterable[Object]) -> None:
        self.unreadable = {}
        nodes = [node for each in objects for node in self._read(each)]
        with self._lock:
            self._state.replace_nodes(nodes)

    def put(self, changed: Object) -> None:
        for node in self._read(changed):
            with self._lock:
                self._state.put_node(node)

    def drop(self, deleted: Object) -> None:
        with self._lock:
            self._state.drop_node(str(_metadata(deleted).get("name")))

    def _read(self, each: Object) -> Iterator[Node]:
        return _readable(Node.from_k8s, each, self.unreadable)


class _PodMirror:
    def __init__(self, lock: threading.Lock, state: ClusterState) -> None:
        self._lock, self._state = lock, state
        self.unreadable: dict[str, str] = {}

    def replace(self, objects: Iterable[Object]) -> None:
        self.unreadable = {}
        pods = [(pod, _is_refused(each)) for each in objects for pod in self._read(each)]
        with self._lock:
            self._state.replace_pods(pods)

    def put(self, changed: Object) -> None:
        for pod in self._read(changed):
            with self._lock:
                self._state.put_pod(pod, refused=_is_refused(changed))

    def drop(self, deleted: Object) -> None:
        with self._lock:
            self._state.drop_pod(str(_metadata(deleted).get("uid")))

    def _read(self, each: Object) -> Iterator[Pod]:
        return _readable(Pod.from_k8s, each, self.unreadable)


def _readable(read: Callable[[Object], Kind], each: Object, unreadable: dict[str, str]) -> Iterator[Kind]:
    """Yield an object where it can be read; say once why it cannot."""
    name = "/".join(str(_metadata(each).get(key)) for key in ("namespace", "name") if _metadata(each).get(key))
    try:
        yield read(each)
    except ValueError as error:
        if unreadable.get(name) != str(error):
            _log.warning("an object cannot be read and is not counted", extra={"error": str(error)})
        unreadable[name] = str(error)
    else:
        unreadable.pop(name, None)


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
