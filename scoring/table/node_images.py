"""Index from container image to the nodes that have it, updated incrementally when a node changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Node
from scoring.arrays import Int64s

_NOWHERE: tuple[Int64s, Int64s] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class NodeImages:
    """Index from container image to the nodes that have it.

    Attributes:
        by_name: for each image name, the ids of the nodes that have the image, ascending, and its size in bytes on each
            node; both arrays of shape (k,).
    """

    by_name: Mapping[str, tuple[Int64s, Int64s]]

    @classmethod
    def of(cls, nodes: Iterable[tuple[int, Node]]) -> "NodeImages":
        """Create the index of the given nodes.

        Args:
            nodes: pairs of id and node, in ascending order of the ids.
        """
        by_name: dict[str, tuple[list[int], list[int]]] = {}
        for node_id, node in nodes:
            for name, size in node.images.items():
                ids, sizes = by_name.setdefault(name, ([], []))
                ids.append(node_id)
                sizes.append(size)
        return cls({name: (np.array(ids), np.array(sizes)) for name, (ids, sizes) in by_name.items()})

    def find(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the ids of the nodes that have an image, and its size in bytes on each node; empty if none do."""
        return self.by_name.get(name, _NOWHERE)

    def changed(self, went: Iterable[tuple[int, Node]], came: Iterable[tuple[int, Node]]) -> "NodeImages":
        """Return the index with some nodes removed and some added.

        Args:
            went: removed nodes, with their ids.
            came: added nodes, with their ids.
        """
        by_name = dict(self.by_name)
        for node_id, node in went:
            for name in node.images:
                ids, sizes = by_name[name]
                others = ids != node_id
                if others.any():
                    by_name[name] = ids[others], sizes[others]
                else:
                    del by_name[name]
        for node_id, node in came:
            for name, size in node.images.items():
                ids, sizes = by_name.get(name, _NOWHERE)
                place = int(np.searchsorted(ids, node_id))
                by_name[name] = np.insert(ids, place, node_id), np.insert(sizes, place, size)
        return NodeImages(by_name)
