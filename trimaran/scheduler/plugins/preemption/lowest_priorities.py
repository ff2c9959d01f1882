"""Lowest priority of the pods on each node, which rules out preemption on most nodes without a search."""

from weakref import ReferenceType, ref

import numpy as np

from scoring.arrays import Bools, Int64s
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.preemption.shared_nodes import is_of_daemon_set

_NO_POD = np.iinfo(np.int64).max


class LowestPriorities:
    """Lowest priority of the pods on each node; after a change of the table only the changed rows are read again.

    In a cluster full of pods of one priority, this rules out preemption in microseconds.

    Attributes:
        others: mask of the nodes with pods that :meth:`of` did not count, without pods of DaemonSets, shape (nodes,).
    """

    def __init__(self) -> None:
        self._table: ReferenceType[NodeTable] | None = None
        self._names: tuple[str, ...] = ()
        self._scheduler_name: str | None = None
        self._version = -1
        self._lowest: Int64s = np.zeros(0, np.int64)
        self.others: Bools = np.zeros(0, np.bool_)

    def of(self, nodes: NodeTable, scheduler_name: str | None) -> Int64s:
        """Return the lowest priority on each node, shape (nodes,); the largest int64 for a node without pods.

        Args:
            nodes: node table.
            scheduler_name: count only the pods of this scheduler; None for all.
        """
        is_same = self._table is not None and self._table() is nodes and self._names is nodes.names
        if is_same and self._scheduler_name == scheduler_name:
            changed = nodes.changed_rows(self._version)
        else:
            changed = np.arange(len(nodes))
            self._lowest, self.others = np.full(len(nodes), _NO_POD), np.zeros(len(nodes), np.bool_)
            self._table, self._names, self._scheduler_name = ref(nodes), nodes.names, scheduler_name
        for row in changed.tolist():
            lowest, has_others = int(_NO_POD), False
            for placed in nodes.placed_on(row):
                pod = placed.pod
                if scheduler_name is None or pod.scheduler_name == scheduler_name:
                    lowest = min(lowest, pod.priority)
                elif not is_of_daemon_set(pod):
                    has_others = True
            self._lowest[row], self.others[row] = lowest, has_others
        self._version = nodes.version
        return self._lowest
