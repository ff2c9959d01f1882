"""NetworkOverhead: nodes that are near to the pods that a pod communicates with.

For each placed pod of the same AppGroup and each dependency of the pod on its workload:

    same node                                  satisfied   cost 0
    placed pod's node without region and zone  violated    cost 100
    same region and zone                       satisfied   cost 1
    same region, or else between regions       cost of the NetworkTopology, satisfied up to maxNetworkCost

A pair that the topology lacks costs 100, and is neither satisfied nor violated. A node is refused if more pairs are
violated than satisfied. The node with the least sum of costs scores 100, the node with the highest sum 0.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/networkaware.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np

from runtime.errors import quoted
from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import CLUSTER_CHANGES, ClusterEvent, FilterPlugin, FilterVerdict
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import PreFilterPlugin, Rejection
from trimaran.scheduler.plugins.arguments import finish, text
from trimaran.scheduler.plugins.network.objects import (
    REGION,
    ZONE,
    AppGroup,
    Dependency,
    NetworkTopology,
    group_of,
    workload_of,
)
from trimaran.scheduler.plugins.network.placed_workloads import PlacedWorkloads

_UNKNOWN_COST: Final = 100
_SAME_ZONE_COST: Final = 1
_NEAR, _NOWHERE, _NO_COST = -1, -2, -3  # in the table of costs: pairs that have no cost in the topology
Place = tuple[str, str]
"""Region and zone of a node; empty without the label."""


class NetworkObjects(Protocol):
    """AppGroups and NetworkTopologies of the cluster."""

    def app_group(self, namespaces: Sequence[str], name: str) -> AppGroup | None:
        """Return the AppGroup with a name in the first namespace that has one; None if it does not exist."""
        ...

    def network_topology(self, namespaces: Sequence[str], name: str) -> NetworkTopology | None:
        """Return the NetworkTopology with a name in the first namespace that has one; None if it does not exist."""
        ...


@dataclass(frozen=True)
class NetworkOverheadArgs:
    """Arguments of the plugin, by upstream's names.

    Attributes:
        namespaces: namespaces in which the objects are searched, in this order.
        weights_name: name of the weights in the NetworkTopology.
        topology_name: name of the NetworkTopology.
    """

    namespaces: tuple[str, ...] = ("default",)
    weights_name: str = "UserDefined"
    topology_name: str = "nt-default"

    @classmethod
    def from_config(cls, reader: FieldReader) -> Self:
        """Read ``NetworkOverheadArgs``.

        Raises:
            ValueError: an argument is invalid or unknown; the message begins with its path.
        """
        namespaces = read_namespaces(reader)
        names = [
            text(reader, key, default)
            for key, default in (("weightsName", cls.weights_name), ("networkTopologyName", cls.topology_name))
        ]
        finish(reader)
        return cls(namespaces, *names)


def read_namespaces(reader: FieldReader) -> tuple[str, ...]:
    """Read the argument ``namespaces``.

    Raises:
        ValueError: the argument is not a list of names; the message begins with its path.
    """
    value = reader.value("namespaces", ["default"])
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise reader.error("namespaces", f"must be a list of at least one name, got {quoted(value)}")
    return tuple(value)


class _CostTables:
    """Costs between the places of the nodes, which are computed once for a topology and a set of nodes."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._of_node: Int64s = np.zeros(0, np.int64)
        self._table: Int64s = np.zeros((0, 0), np.int64)

    def of(self, nodes: NodeTable, topology: NetworkTopology, weights: str) -> tuple[Int64s, Int64s]:
        """Return the place of each node, shape (nodes,), and the costs from place to place, shape (places, places)."""
        key = nodes.rows, topology, weights
        if len(self._key) != len(key) or any(a is not b for a, b in zip(self._key, key, strict=True)):
            places: dict[Place, int] = {}
            found = ((each.labels.get(REGION, ""), each.labels.get(ZONE, "")) for each in nodes.nodes)
            self._of_node = np.array([places.setdefault(place, len(places)) for place in found], np.int64)
            self._table = np.array(
                [[_cost(topology, weights, origin, other) for other in places] for origin in places], np.int64
            )
            self._key = key
        return self._of_node, self._table


@dataclass(frozen=True)
class NetworkOverhead(WithoutNodeTerms, FilterPlugin, PreFilterPlugin):
    """Filter and score plugin for the network costs between a pod and the pods that it depends on.

    Attributes:
        objects: AppGroups and NetworkTopologies.
        arguments: arguments of the plugin.
    """

    objects: NetworkObjects
    arguments: NetworkOverheadArgs = NetworkOverheadArgs()
    _placed: PlacedWorkloads = field(init=False, repr=False, compare=False, default_factory=PlacedWorkloads)
    _costs: _CostTables = field(init=False, repr=False, compare=False, default_factory=_CostTables)

    name: ClassVar[str] = "NetworkOverhead"
    normalizes: ClassVar[bool] = True
    requeued_by: ClassVar[frozenset[ClusterEvent]] = CLUSTER_CHANGES - {ClusterEvent.VOLUME_CHANGED}

    def pre_filter(self, pod: Pod, nodes: NodeTable, now: float) -> Rejection | None:  # noqa: ARG002
        """Refuse a pod whose AppGroup or NetworkTopology is missing."""
        group = group_of(pod)
        if not group:
            return None
        where = f"in the namespaces {', '.join(self.arguments.namespaces)}"
        if self._group(pod) is None:
            return Rejection(f"AppGroup {group} does not exist, or cannot be read, {where}")
        if self._topology() is None:
            name = self.arguments.topology_name
            return Rejection(f"NetworkTopology {name} does not exist, or cannot be read, {where}")
        return None

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes where no more dependencies are violated than satisfied; None without dependencies."""
        sums = self._sums(pod, nodes)
        if sums is None:
            return None
        satisfied, violated = sums[0][rows], sums[1][rows]
        names = [nodes.names[row] for row in np.arange(len(nodes))[rows]]

        def reasons(index: int) -> tuple[str]:
            counts = f"Satisfied: {satisfied[index]} Violated: {violated[index]}"
            needs = "several network requirements from Workload dependencies"
            return (f"Node {names[index]} does not meet {needs}: {counts}",)

        return FilterVerdict(violated <= satisfied, reasons)

    def skips(self, pod: Pod) -> bool:
        """Return true for a pod without dependencies, which scores 0 everywhere."""
        return not self._dependencies(pod)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the sum of the costs to each node."""
        sums = (self._sums(pod, nodes) for pod in pods)
        costs = [np.zeros(len(nodes), np.int64) if each is None else each[2] for each in sums]
        return {"score": np.array(costs)[:, rows]}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return 100 for the least cost down to 0 for the highest; 0 for all nodes if all costs are 0."""
        if not scores.any():
            return scores
        lowest, spread = scores.min(), max(1, scores.max() - scores.min())
        return np.asarray(MAX_NODE_SCORE - MAX_NODE_SCORE * (scores - lowest) // spread)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the cost as a sentence."""
        return f"network cost {terms['score']} to the pods of the workloads that the pod depends on"

    def _group(self, pod: Pod) -> AppGroup | None:
        group = group_of(pod)
        return self.objects.app_group(self.arguments.namespaces, group) if group else None

    def _topology(self) -> NetworkTopology | None:
        return self.objects.network_topology(self.arguments.namespaces, self.arguments.topology_name)

    def _dependencies(self, pod: Pod) -> Sequence[Dependency]:
        group = self._group(pod)
        return () if group is None else group.dependencies.get(workload_of(pod), ())

    def _sums(self, pod: Pod, nodes: NodeTable) -> tuple[Int64s, Int64s, Int64s] | None:
        """Return by node the numbers of satisfied and violated pairs and the cost, shape (nodes,); None without any."""
        dependencies, topology = self._dependencies(pod), self._topology()
        placed = self._placed.of(nodes, group_of(pod)) if dependencies and topology is not None else {}
        if not placed or topology is None:
            return None
        of_node, table = self._costs.of(nodes, topology, self.arguments.weights_name)
        result = np.zeros((3, len(nodes)), np.int64)
        for dependency in dependencies:
            counts = np.zeros(len(nodes), np.int64)
            for name, workloads in placed.items():
                counts[nodes.row(name)] = workloads.get(dependency.workload, 0)
            if not counts.any():
                continue
            by_place = np.bincount(of_node, counts, len(table)).astype(np.int64)
            values = _values(table, dependency.most_cost)
            # Count all pods by place; then correct for pods on the node itself, which are satisfied and cost nothing.
            result += (values @ by_place)[:, of_node] - values[:, of_node, of_node] * counts
            result[0] += counts
        return result[0], result[1], result[2]


def _values(table: Int64s, most_cost: int) -> Int64s:
    """Return, for pairs of zones or regions, if the cost is up to ``most_cost``, if it is higher, and the cost.

    The shape is (3, places, places).
    """
    known = table >= 0
    satisfied = (table == _NEAR) | (known & (table <= most_cost))
    violated = (table == _NOWHERE) | (known & (table > most_cost))
    cost = np.where(known, table, np.where(table == _NEAR, _SAME_ZONE_COST, _UNKNOWN_COST))
    return np.stack([satisfied.astype(np.int64), violated.astype(np.int64), cost])


def _cost(topology: NetworkTopology, weights: str, origin: Place, other: Place) -> int:
    """Return the cost from a node's place to that of a placed pod, or one of the constants for pairs without cost."""
    if other == ("", ""):
        return _NOWHERE
    if origin == other:
        return _NEAR
    level = ZONE if origin[0] == other[0] else REGION
    part = 1 if level == ZONE else 0
    return topology.costs.get((weights, level, origin[part], other[part]), _NO_COST)
