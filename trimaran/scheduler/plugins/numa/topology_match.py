"""NodeResourceTopologyMatch: nodes whose NUMA nodes can hold a pod as kubelet's topology manager requires.

The filter acts on nodes with the policy ``single-numa-node``; the score prefers nodes by the free resources of their
NUMA nodes. An agent writes these into a NodeResourceTopology, with a delay. If ``cacheResyncPeriodSeconds`` is above 0,
requests of pods that the object does not include yet are subtracted from every NUMA node.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/noderesourcetopology.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np

from runtime.errors import quoted
from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import PostBindPlugin, ReservePlugin
from trimaran.scheduler.plugins.arguments import finish, whole_number, word
from trimaran.scheduler.plugins.numa.alignment import ALIGNED, REASONS, align
from trimaran.scheduler.plugins.numa.known_pods import ALL, AUTODETECT, ONLY_EXCLUSIVE, KnownPods
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology, TopologySource
from trimaran.scheduler.plugins.numa.requests import NumaRequests
from trimaran.scheduler.plugins.numa.strategies import STRATEGIES, fewest_zones, zone_scores
from trimaran.scheduler.plugins.numa.zones import Zones

KIND: Final = "NodeResourceTopology"
FEWEST_ZONES: Final = "LeastNUMANodes"
# Valid values of the keys of ``cache`` that have no effect here, the default first.
_UNUSED_WORDS: Final = {
    "foreignPodsDetect": ("All", "None", "OnlyExclusiveResources"),
    "informerMode": ("Dedicated", "Shared"),
    "resyncScope": ("All", "OnlyResources"),
}
_STALE: Final = "invalid node topology data"


@dataclass(frozen=True)
class TopologyMatchArgs:
    """Arguments of the plugin, by upstream's names.

    Attributes:
        strategy: name of the strategy that scores NUMA nodes.
        weights: weights by resource; 1 for resources that are not listed.
        resync_seconds: time for which a pod that has started may be missing in a topology without fingerprint; 0
            assumes that no pod is missing.
        resync_method: pods in a fingerprint, as in :class:`KnownPods`.
        discards_reserved: whether to refuse nodes with a pod that is placed and not bound yet.
    """

    strategy: str = "LeastAllocated"
    weights: Mapping[str, int] = field(default_factory=dict, hash=False)
    resync_seconds: int = 0
    resync_method: str = AUTODETECT
    discards_reserved: bool = False

    @classmethod
    def from_config(cls, reader: FieldReader) -> Self:
        """Read ``NodeResourceTopologyMatchArgs``.

        Of ``cache``, only ``resyncMethod`` has an effect: pods of all schedulers count alike here.

        Raises:
            ValueError: an argument is invalid or unknown; the message begins with its path.
        """
        strategy, weights = cls.strategy, dict[str, int]()
        scoring = reader.nested("scoringStrategy")
        if scoring is not None:
            strategy = word(scoring, "type", (*STRATEGIES, FEWEST_ZONES))
            for entry in scoring.entries("resources"):
                weights[str(entry.value("name", ""))] = whole_number(entry, "weight", 1, 1)
                finish(entry)
            finish(scoring)
        method, cache = cls.resync_method, reader.nested("cache")
        if cache is not None:
            method = word(cache, "resyncMethod", (AUTODETECT, ALL, ONLY_EXCLUSIVE))
            for key, words in _UNUSED_WORDS.items():
                word(cache, key, words)
            finish(cache)
        seconds = whole_number(reader, "cacheResyncPeriodSeconds", cls.resync_seconds)
        discards = reader.value("discardReservedNodes", cls.discards_reserved)
        if not isinstance(discards, bool):
            raise reader.error("discardReservedNodes", f"must be true or false, got {quoted(discards)}")
        finish(reader)
        return cls(strategy, weights, seconds, method, discards)


class NodeZones:
    """Zones of all nodes of a table; after a change only the changed nodes are read again.

    Args:
        objects: topologies.
        known_pods: finds the pods that a topology includes; None assumes that it includes all pods.
    """

    def __init__(self, objects: TopologySource, known_pods: KnownPods | None) -> None:
        self._objects, self._known_pods = objects, known_pods
        self._rows: object = None
        self._version = self._objects_version = -1
        self._topologies: list[NodeTopology | None] = []
        self._zones = Zones.empty(0, 0)

    def of(self, nodes: NodeTable) -> Zones:
        """Return the zones of the nodes, which callers must not change."""
        version = self._objects.version(KIND)
        if nodes.rows is not self._rows:
            self._rows, self._version, self._objects_version = nodes.rows, -1, -1
            self._topologies = [None] * len(nodes)
            self._zones = Zones.empty(len(nodes), 0)
            if self._known_pods is not None:
                self._known_pods.keep(nodes.names)
        changed: set[int] = set()
        if version != self._objects_version:
            self._objects_version = version
            changed = self._changed_topologies(nodes)
        if self._known_pods is not None and nodes.version != self._version:
            changed.update(nodes.changed_rows(self._version).tolist())
        self._version = nodes.version
        for row in changed:
            self._zones.set(row, self._topologies[row], self._taken(nodes, row))
        return self._zones

    def _changed_topologies(self, nodes: NodeTable) -> set[int]:
        """Apply the topologies that changed; return their rows, or all rows if the arrays got more zones."""
        found = [self._objects.node_topology(name) for name in nodes.names]
        changed = {row for row, each in enumerate(found) if each is not self._topologies[row]}
        self._topologies = found
        zones = max((len(each.zones) for each in found if each is not None), default=0)
        if zones > self._zones.exists.shape[1]:
            self._zones = Zones.empty(len(nodes), zones)
            return set(range(len(nodes)))
        return changed

    def _taken(self, nodes: NodeTable, row: int) -> Mapping[str, int]:
        """Return the amounts by resource that the pods request which the topology does not include yet."""
        topology, taken = self._topologies[row], dict[str, int]()
        if self._known_pods is None or topology is None:
            return taken
        for pod in self._known_pods.unknown(topology, [placed.pod for placed in nodes.placed_on(row)]):
            for name, amount in pod_demand.requested(pod).items():
                taken[name] = taken.get(name, 0) + amount
        return taken


@dataclass(frozen=True)
class NodeResourceTopologyMatch(WithoutNodeTerms, FilterPlugin, ReservePlugin, PostBindPlugin):
    """Filter and score plugin for the free resources of NUMA nodes.

    Attributes:
        objects: topologies.
        arguments: arguments of the plugin.
    """

    objects: TopologySource
    arguments: TopologyMatchArgs = TopologyMatchArgs()
    _zones: NodeZones = field(init=False, repr=False, compare=False)
    _reserved: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)

    name: ClassVar[str] = "NodeResourceTopologyMatch"
    depends_on: ClassVar[Dependence] = Dependence.NODES
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset({
        ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_GONE, ClusterEvent.OTHER_CHANGED,
    })  # fmt: skip

    def __post_init__(self) -> None:
        seconds = self.arguments.resync_seconds
        known_pods = KnownPods(seconds, self.arguments.resync_method) if seconds else None
        object.__setattr__(self, "_zones", NodeZones(self.objects, known_pods))

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes whose NUMA nodes can hold the pod; None if the pod needs none or no node has a topology."""
        requests, zones = NumaRequests.of(pod), self._zones.of(nodes)
        stale = self._stale(nodes)[rows]
        if requests.ignored or not (zones.known.any() or stale.any()):
            return None
        names = {name for each in (requests.pod, *requests.init, *requests.app) for name in each}
        allocatable = {name: nodes.allocatable(name)[rows] for name in names}
        result = align(requests, zones.take(rows), allocatable)
        return FilterVerdict(
            (result == ALIGNED) & ~stale, lambda index: (_STALE if stale[index] else REASONS[result[index]],)
        )

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score of each node."""
        return {"score": np.array([self._score(pod, nodes, rows) for pod in pods])}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the score with the strategy as a sentence."""
        return f"{self.arguments.strategy} in the NUMA nodes: {terms['score']}"

    def reserve(self, pod: Pod, node_name: str) -> None:
        """Record that a pod is placed and not bound yet."""
        if self.arguments.discards_reserved:
            self._reserved[pod.uid] = node_name

    def unreserve(self, pod: Pod, node_name: str) -> None:  # noqa: ARG002
        """Forget a pod that is no longer placed."""
        self._reserved.pop(pod.uid, None)

    def post_bind(self, pod: Pod, node_name: str) -> None:  # noqa: ARG002
        """Forget a pod that is bound."""
        self._reserved.pop(pod.uid, None)

    def _score(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Int64s:
        requests, zones = NumaRequests.of(pod), self._zones.of(nodes).take(rows)
        if not requests.guaranteed:
            return np.full(len(zones.known), MAX_NODE_SCORE)
        strategy = STRATEGIES.get(self.arguments.strategy)
        if strategy is None:
            scores = fewest_zones(requests, zones)
        else:
            scores = zone_scores(requests, zones, strategy, self.arguments.weights)
        return np.where(self._stale(nodes)[rows], 0, scores)

    def _stale(self, nodes: NodeTable) -> Bools:
        """Return which nodes to refuse, because they have a pod that is placed and not bound yet, shape (nodes,)."""
        stale = np.zeros(len(nodes), np.bool_)
        for name in self._reserved.values():
            if name in nodes:
                stale[nodes.row(name)] = True
        return stale
