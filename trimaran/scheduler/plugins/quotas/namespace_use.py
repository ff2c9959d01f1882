"""Sums of the requests of pods on nodes by namespace, with assumed pods, kept up to date with the node table."""

from collections.abc import Collection, Mapping
from weakref import ReferenceType, ref

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.quotas.elastic_quota import Amounts, added

_NOTHING: Amounts = {}
_UNCOUNTED = "pods"


def amounts_of(pod: Pod) -> Amounts:
    """Return the requests of a pod as kube-scheduler counts them, without the number of pods."""
    return {name: amount for name, amount in pod_demand.filter_requests(pod) if name != _UNCOUNTED}


class NamespaceUse:
    """Sums of requests by namespace. After a change of the table only the changed nodes are read again.

    Args:
        with_leaving: whether terminating pods count.
        left_out: uids of pods that do not count.
    """

    def __init__(self, *, with_leaving: bool = True, left_out: Collection[str] = frozenset()) -> None:
        self._with_leaving, self._left_out = with_leaving, left_out
        self._table: ReferenceType[NodeTable] | None = None
        self._version = -1
        self._by_node: dict[str, Mapping[str, Amounts]] = {}
        self._totals: dict[str, Amounts] = {}

    def of(self, nodes: NodeTable, namespace: str) -> Amounts:
        """Return the requests of a namespace's pods on all nodes, by resource."""
        self._follow(nodes)
        return self._totals.get(namespace, _NOTHING)

    def without(self, nodes: NodeTable, uids: Collection[str]) -> "NamespaceUse":
        """Return the sums without the given pods; the copy follows the same table."""
        self._follow(nodes)
        reduced, index = NamespaceUse(with_leaving=self._with_leaving, left_out=uids), nodes.occupancy.pod_index()
        reduced._table, reduced._version = self._table, self._version
        reduced._by_node, reduced._totals = dict(self._by_node), dict(self._totals)
        for name in {name for uid in uids if (name := index.get(uid)) is not None}:
            reduced._read(nodes, nodes.row(name))
        return reduced

    def has_any(self, nodes: NodeTable, namespaces: Collection[str]) -> Bools:
        """Return a mask of the nodes that have pods of some namespaces, shape (nodes,)."""
        self._follow(nodes)
        return np.array([not self._by_node[name].keys().isdisjoint(namespaces) for name in nodes.names], np.bool_)

    def counts(self, pod: Pod) -> bool:
        """Return whether a pod that is on a node counts."""
        return pod.uid not in self._left_out and (self._with_leaving or not pod.terminating)

    def _follow(self, nodes: NodeTable) -> None:
        is_same = self._table is not None and self._table() is nodes
        if is_same and self._version == nodes.version:
            return
        if not is_same:
            self._table, self._version, self._by_node, self._totals = ref(nodes), -1, {}, {}
        for name in [name for name in self._by_node if name not in nodes]:
            self._change(self._by_node.pop(name), -1)
        for row in nodes.changed_rows(self._version).tolist():
            self._read(nodes, row)
        self._version = nodes.version

    def _read(self, nodes: NodeTable, row: int) -> None:
        name, sums = nodes.names[row], self._sums(nodes, row)
        self._change(self._by_node.get(name, {}), -1)
        self._change(sums, 1)
        self._by_node[name] = sums

    def _change(self, sums: Mapping[str, Amounts], sign: int) -> None:
        for namespace, amounts in sums.items():
            signed = {name: sign * amount for name, amount in amounts.items()}
            self._totals[namespace] = added(self._totals.get(namespace, _NOTHING), signed)

    def _sums(self, nodes: NodeTable, row: int) -> Mapping[str, Amounts]:
        sums: dict[str, dict[str, int]] = {}
        for placed in nodes.placed_on(row):
            if not self.counts(placed.pod):
                continue
            of_namespace = sums.setdefault(placed.pod.namespace, {})
            for name, amount in amounts_of(placed.pod).items():
                of_namespace[name] = of_namespace.get(name, 0) + amount
        return sums
