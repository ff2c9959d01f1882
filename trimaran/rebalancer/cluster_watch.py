"""Live state of the cluster for the rebalancer, by watches of nodes, pods, workloads, budgets and autoscalers."""

import logging
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.paths import LISTS
from runtime.kubernetes.reflector import ListWatch, Object, Reflector
from runtime.kubernetes.reflector_group import ReflectorGroup
from runtime.kubernetes.workloads import Workload
from scoring import NodeTable
from trimaran.cluster.object_reader import ObjectReader, metadata_of
from trimaran.cluster.view import ClusterView
from trimaran.rebalancer.eligibility import WorkloadState
from trimaran.rebalancer.facts import NodeBarrier, NodeFacts, PodBarrier, PodFacts, ScalerFacts, WorkloadFacts
from trimaran.rebalancer.look import ClusterLook
from watcher.pod_use_table import PodUseTable

WORKLOADS: Final = {kind: LISTS[kind] for kind in ("Deployment", "StatefulSet")}
BUDGETS: Final = LISTS["PodDisruptionBudget"]
SCALERS: Final = LISTS["HorizontalPodAutoscaler"]
Facts = TypeVar("Facts")
_log = logging.getLogger(__name__)


class _SharedFacts(Generic[Facts]):
    """Facts by key, written by a reflector's thread and read by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Facts] = {}

    def set(self, key: str, facts: Facts) -> None:
        with self._lock:
            self._facts[key] = facts

    def drop(self, key: str) -> None:
        with self._lock:
            self._facts.pop(key, None)

    def keep_only(self, keys: Container[str]) -> None:
        with self._lock:
            self._facts = {key: facts for key, facts in self._facts.items() if key in keys}

    def all(self) -> dict[str, Facts]:
        with self._lock:
            return dict(self._facts)


class _NodeObserver(_SharedFacts[NodeFacts]):
    """Facts about nodes by name."""

    def put(self, manifest: Object, read: Node) -> None:
        try:
            facts = NodeFacts.from_k8s(manifest)
        except ValueError as error:
            _log.warning("a node is neither source nor target: it cannot be read", extra={"error": str(error)})
            facts = NodeFacts(barriers=frozenset({NodeBarrier.NOT_READY}))
        self.set(read.name, facts)


class _PodObserver(_SharedFacts[PodFacts]):
    """Facts about pods by UID. Equal sets of barriers share one object to save memory."""

    def __init__(self) -> None:
        super().__init__()
        self._barriers: dict[Any, Any] = {}

    def put(self, manifest: Object, read: Pod) -> None:
        if read.finished:
            self.drop(read.uid)
            return
        try:
            facts = PodFacts.from_k8s(manifest, read)
        except ValueError as error:
            _log.warning("a pod does not move: it cannot be read", extra={"error": str(error)})
            facts = PodFacts(barriers=frozenset({PodBarrier.NOT_READY}))
        shared = self._barriers.setdefault(facts.barriers, facts.barriers)
        object.__setattr__(facts, "barriers", shared)
        self.set(read.uid, facts)


class _ListedFacts(_SharedFacts[Facts]):
    """Reflector store of the facts about one kind of objects, by namespace and name."""

    def __init__(self, read: Callable[[Object], Facts]) -> None:
        super().__init__()
        self._reader = ObjectReader(read)

    def replace(self, objects: Iterable[Object]) -> None:
        self._reader.forget_all()
        facts = {_key(each): read for each in objects if (read := self._reader.read(each)) is not None}
        with self._lock:
            self._facts = facts

    def put(self, changed: Object) -> None:
        facts = self._reader.read(changed)
        if facts is None:
            super().drop(_key(changed))
        else:
            self.set(_key(changed), facts)

    def drop(self, deleted: Any) -> None:
        self._reader.forget(deleted)
        super().drop(_key(deleted))


class ClusterWatch(ReflectorGroup):
    """Watches of everything that a plan of moves needs from the API server.

    Args:
        view_api: client for nodes and pods; :meth:`close` aborts its requests.
        api: client for the other objects; :meth:`close` aborts its requests.
    """

    def __init__(self, view_api: ListWatch, api: ListWatch) -> None:
        self._nodes, self._pods = _NodeObserver(), _PodObserver()
        self._view = ClusterView(view_api, node_observer=self._nodes, pod_observer=self._pods)
        self._workloads = {kind: _ListedFacts(WorkloadFacts.from_k8s) for kind in WORKLOADS}
        self._budgets, self._scalers = _ListedFacts(DisruptionBudget.from_k8s), _ListedFacts(ScalerFacts.from_k8s)
        super().__init__((
            *self._view.reflectors,
            *(Reflector(api, path, self._workloads[kind]) for kind, path in WORKLOADS.items()),
            Reflector(api, BUDGETS, self._budgets),
            Reflector(api, SCALERS, self._scalers),
        ))  # fmt: skip

    def node_names(self) -> tuple[str, ...]:
        """Return the names of all nodes."""
        with self._view.reading() as table:
            return table.names

    def noted_pods(self) -> list[Pod]:
        """Return the bound pods that have an annotation with a planned target."""
        noted = {uid for uid, facts in self._pods.all().items() if facts.is_noted}
        if not noted:
            return []
        return [placed.pod for _, placed in self._table().placed_pods() if placed.pod.uid in noted]

    def look(
        self, use: PodUseTable, measured: Mapping[str, float], window: tuple[float, float], now: float
    ) -> ClusterLook:
        """Return the state of the cluster.

        Args:
            use: use of the pods over the last day.
            measured: CPU load of each node with fresh metrics, percent.
            window: begin and end of the window over which ``measured`` is averaged, Unix seconds.
            now: Unix time.
        """
        version = self._view.pods.seen_version  # read first: the pods may be newer than this version, never older
        return ClusterLook(
            table=self._table(),
            pods=self._pods.all(),
            nodes=self._nodes.all(),
            pending=self._view.pending(),
            state=self._state(),
            use=use,
            measured=measured,
            window=window,
            now=now,
            unknown_nodes=self._view.unknown_nodes,
            version=version,
        )

    def _table(self) -> NodeTable:
        with self._view.reading() as table:
            return table.copy()

    def _state(self) -> WorkloadState:
        workloads = {
            Workload(namespace, kind, name): facts
            for kind, listed in self._workloads.items()
            for (namespace, _, name), facts in ((key.partition("/"), facts) for key, facts in listed.all().items())
        }
        return WorkloadState.of(workloads, self._budgets.all().values(), self._scalers.all().values())


def _key(each: Object) -> str:
    metadata = metadata_of(each)
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
