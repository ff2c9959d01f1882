"""Free amounts of all NUMA zones as arrays of shape (nodes, zones); the columns are the zones by number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY
from scoring.arrays import Bools, Int64s
from scoring.plugins.base import Rows
from trimaran.scheduler.plugins.numa.node_topology import POD, SINGLE_NUMA_NODE, NodeTopology

UNKNOWN_DISTANCE = 255
_HUGE_PAGES = "hugepages-"


def is_affine(resource: str) -> bool:
    """Return whether a resource is CPU, memory or huge pages, which only Guaranteed pods get exclusively."""
    return resource in {CPU, MEMORY} or resource.startswith(_HUGE_PAGES)


def is_extended(resource: str) -> bool:
    """Return whether a resource is an extended resource, not one of Kubernetes. Source: ``IsNativeResource``."""
    return "/" in resource and "kubernetes.io/" not in resource


@dataclass
class Zones:
    """NUMA zones of the nodes.

    Attributes:
        known: whether a node has a topology, shape (nodes,).
        aligns: whether a node's policy is ``single-numa-node``, shape (nodes,).
        by_pod: whether a node's scope is ``pod``, shape (nodes,).
        most: largest number of zones that kubelet supports, shape (nodes,).
        exists: which zones exist, shape (nodes, zones).
        costs: distance between zones, shape (nodes, zones, zones).
        amounts: free amounts by resource, shape (nodes, zones).
        has: which zones have a resource, by resource, shape (nodes, zones).
    """

    known: Bools
    aligns: Bools
    by_pod: Bools
    most: Int64s
    exists: Bools
    costs: Int64s
    amounts: dict[str, Int64s] = field(default_factory=dict)
    has: dict[str, Bools] = field(default_factory=dict)

    @classmethod
    def empty(cls, nodes: int, zones: int) -> "Zones":
        """Return zones of nodes without a topology."""
        return cls(
            known=np.zeros(nodes, np.bool_),
            aligns=np.zeros(nodes, np.bool_),
            by_pod=np.zeros(nodes, np.bool_),
            most=np.ones(nodes, np.int64),
            exists=np.zeros((nodes, zones), np.bool_),
            costs=np.full((nodes, zones, zones), UNKNOWN_DISTANCE, np.int64),
        )

    def set(self, row: int, topology: NodeTopology | None, taken: Mapping[str, int]) -> None:
        """Replace the zones of a node.

        Args:
            row: row of the node.
            topology: topology of the node; None if it has none.
            taken: amounts by resource of pods that the topology does not include yet; subtracted from each zone.
        """
        self.exists[row], self.costs[row] = False, UNKNOWN_DISTANCE
        for resource, has in self.has.items():
            has[row], self.amounts[resource][row] = False, 0
        self.known[row] = topology is not None
        self.aligns[row] = topology is not None and topology.policy == SINGLE_NUMA_NODE
        if topology is None:
            return
        self.by_pod[row], self.most[row] = topology.scope == POD, topology.max_zones
        places = {zone.number: place for place, zone in enumerate(topology.zones)}
        for place, zone in enumerate(topology.zones):
            self.exists[row, place] = True
            for number, cost in zone.costs.items():
                if number in places:
                    self.costs[row, place, places[number]] = cost
            for resource, amount in zone.available.items():
                self._column(resource)[row, place] = max(0, amount - taken.get(resource, 0))
                self.has[resource][row, place] = True

    def take(self, rows: Rows) -> "Zones":
        """Return a copy of the given rows."""
        return Zones(
            self.known[rows].copy(),
            self.aligns[rows].copy(),
            self.by_pod[rows].copy(),
            self.most[rows].copy(),
            self.exists[rows].copy(),
            self.costs[rows].copy(),
            {name: each[rows].copy() for name, each in self.amounts.items()},
            {name: each[rows].copy() for name, each in self.has.items()},
        )

    def of(self, resource: str) -> Int64s:
        """Return the free amounts of a resource, shape (nodes, zones); 0 where a zone does not have it."""
        return self.amounts.get(resource, np.zeros(self.exists.shape, np.int64))

    def having(self, resource: str) -> Bools:
        """Return which zones have a resource, shape (nodes, zones)."""
        return self.has.get(resource, np.zeros(self.exists.shape, np.bool_))

    def has_any(self, resources: Iterable[str]) -> Bools:
        """Return which nodes have a zone with at least one of the resources, shape (nodes,)."""
        found = np.zeros(len(self.known), np.bool_)
        for resource in resources:
            found |= self.having(resource).any(axis=1)
        return found

    def _column(self, resource: str) -> Int64s:
        if resource not in self.amounts:
            self.amounts[resource] = np.zeros(self.exists.shape, np.int64)
            self.has[resource] = np.zeros(self.exists.shape, np.bool_)
        return self.amounts[resource]
