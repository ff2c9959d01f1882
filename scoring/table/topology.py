"""Topology domains: the nodes grouped by the value of a label, as arrays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runtime.kubernetes.objects import Node
from scoring.arrays import Bools, Int64s


@dataclass(frozen=True, eq=False)
class Topology:
    """Domains of the nodes by one label.

    Attributes:
        codes: number of each node's domain, shape (nodes,); :attr:`missing` for a node without the label.
        code_by_value: number of the domain of each value of the label, from 0 on. A domain may have no nodes left.
    """

    codes: Int64s
    code_by_value: Mapping[str, int]

    @classmethod
    def of(cls, nodes: Iterable[Node], key: str) -> "Topology":
        """Return the domains of nodes, given by row, for a label."""
        code_by_value: dict[str, int] = {}
        listed = []
        for node in nodes:
            value = node.labels.get(key)
            listed.append(-1 if value is None else code_by_value.setdefault(value, len(code_by_value)))
        codes = np.array(listed, np.int64)
        codes[codes < 0] = len(code_by_value)
        return cls(codes, code_by_value)

    @property
    def missing(self) -> int:
        """Number that stands for a node without the label: the number of domains."""
        return len(self.code_by_value)

    @cached_property
    def is_complete(self) -> bool:
        """True if every node has the label."""
        return not len(self.codes) or bool(self.codes.max() < self.missing)

    @cached_property
    def has_label(self) -> Bools:
        """Mask of the nodes that have the label, shape (nodes,), read-only."""
        mask = self.codes < self.missing
        mask.flags.writeable = False
        return mask

    @cached_property
    def is_one_node_each(self) -> bool:
        """True if every node is a domain of its own, as with host names."""
        return self.is_complete and self.missing == len(self.codes)

    def domains(self, codes: Int64s) -> int:
        """Return the number of domains of the given nodes; nodes without the label count as one more domain.

        Args:
            codes: domain numbers of the nodes; for all nodes pass :attr:`codes` itself, whose result is cached.
        """
        if self.is_one_node_each:
            return len(codes)
        return self._domains if codes is self.codes else self._count(codes)

    @cached_property
    def _domains(self) -> int:
        return self._count(self.codes)

    def _count(self, codes: Int64s) -> int:
        present = np.zeros(self.missing + 1, np.bool_)
        present[codes] = True
        return int(np.count_nonzero(present))

    def sums(self, counts: Int64s) -> Int64s:
        """Return the sum over each domain, shape (domains + 1,); the last, for nodes without the label, is 0.

        Args:
            counts: a count of each node, shape (nodes,).
        """
        # Most counts are 0, and adding up a few nodes takes a fraction of the time.
        rows = counts.nonzero()[0]
        result: Int64s = np.bincount(self.codes.take(rows), counts.take(rows), self.missing + 1).astype(np.int64)
        result[self.missing] = 0
        return result

    def on_nodes(self, counts: Int64s) -> Int64s:
        """Return the sum over each node's domain, shape (nodes,); 0 for a node without the label.

        Args:
            counts: a count of each node, shape (nodes,). The result may be this array itself.
        """
        return counts if self.is_one_node_each else self.sums(counts).take(self.codes)
