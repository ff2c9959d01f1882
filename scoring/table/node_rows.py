"""Nodes of a table as arrays, one row per node, in an immutable value.

Adding, removing or changing nodes creates a new value. Unchanged parts are shared, or copied as whole arrays, so that a
change of one node does not take time in Python code for every other node.

Rows keep their order. A node that joins gets the last row; when a node leaves, the rows below it move up. So a row
number identifies a node only until a node leaves. An id identifies a node for the lifetime of the table: ids ascend
from row to row, and a node that leaves and comes back gets a new id. Code that keeps arrays by row calls
:meth:`NodeRows.surviving` to find the rows that are still present.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress

import numpy as np

from runtime.kubernetes.objects import CPU, EPHEMERAL_STORAGE, MEMORY, Node, ResourceList
from scoring.arrays import Int64s
from scoring.table.node_constraints import NodeConstraints
from scoring.table.node_images import NodeImages
from scoring.table.row_by_name import RowByName
from scoring.table.topology import Topology

# Every table begins with these columns.
ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True, eq=False)
class NodeRows:
    """Nodes of a table as arrays, one row per node.

    Attributes:
        nodes: the nodes, by row.
        names: names of the nodes, by row.
        row_by_name: row of each node name.
        column: index of each resource in ``capacity`` and ``allocatable``: cpu, memory, ephemeral-storage and all
            others that the nodes list.
        capacity: ``status.capacity`` of each node, shape (resources, nodes).
        allocatable: ``status.allocatable`` of each node, shape (resources, nodes).
        ids: unique ids of the nodes, ascending, shape (nodes,).
        next_id: id of the next node that joins.
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    row_by_name: RowByName = field(repr=False)
    column: Mapping[str, int]
    capacity: Int64s
    allocatable: Int64s
    ids: Int64s
    next_id: int

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> "NodeRows":
        """Create the value with one row per node, in the given order.

        Raises:
            ValueError: two nodes have the same name.
        """
        nodes = tuple(nodes)
        names = tuple(node.name for node in nodes)
        row_by_name = _rows_by(names)
        if len(row_by_name) < len(names):
            duplicate = next(name for row, name in enumerate(names) if row_by_name[name] != row)
            raise ValueError(f"two nodes are named {duplicate!r}")
        column = _columns(_listed(nodes))
        return cls(
            nodes, names, row_by_name, column,
            _amounts([node.capacity for node in nodes], column),
            _amounts([node.allocatable for node in nodes], column),
            np.arange(len(nodes)), len(nodes),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def constraints(self) -> NodeConstraints:
        """Constraints of the nodes, such as taints, that exclude pods; computed on first access."""
        return NodeConstraints(self.nodes, self.row_by_name)

    @cached_property
    def images(self) -> NodeImages:
        """Index from container image to nodes, computed on first access; later values update it incrementally."""
        return NodeImages.of(zip(self.ids.tolist(), self.nodes, strict=True))

    @cached_property
    def _topologies(self) -> dict[str, Topology]:
        return {}

    def topology(self, key: str) -> Topology:
        """Return the domains of the nodes by a label; computed on first access."""
        topology = self._topologies.get(key)
        if topology is None:
            topology = self._topologies[key] = Topology.of(self.nodes, key)
        return topology

    @cached_property
    def _image_rows(self) -> dict[str, tuple[Int64s, Int64s]]:
        return {}

    def image(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the rows of the nodes that have an image, and its size in bytes on each node; both of shape (k,)."""
        rows_and_sizes = self._image_rows.get(name)
        if rows_and_sizes is None:
            ids, sizes = self.images.find(name)
            rows_and_sizes = self._image_rows[name] = np.searchsorted(self.ids, ids), sizes
        return rows_and_sizes

    def surviving(self, earlier: "NodeRows") -> Int64s:
        """Return the rows, in ``earlier``, of the nodes that are still present, ascending.

        These nodes have the first rows of this value, in the same order. The nodes that joined later follow.

        Args:
            earlier: earlier value of the same table.
        """
        if not len(self) or not len(earlier):
            return np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(self.ids, earlier.ids), len(self) - 1)
        return np.flatnonzero(self.ids[place] == earlier.ids)

    def added(self, nodes: Iterable[Node]) -> "NodeRows":
        """Return the value with more nodes; a node with the name of a present node replaces it in its row."""
        # Split the nodes into those that replace a row and those that join.
        by_name = {node.name: node for node in nodes}
        replaced = {self.row_by_name[name]: node for name, node in by_name.items() if name in self.row_by_name}
        joined = tuple(node for name, node in by_name.items() if name not in self.row_by_name)
        all_nodes = list(self.nodes)
        for row, node in replaced.items():
            all_nodes[row] = node
        all_nodes += joined
        # Copy the arrays, then fill in the changed rows only.
        size = len(self)
        changed = {**replaced, **{size + index: node for index, node in enumerate(joined)}}
        column = self._columns_of(all_nodes, came=changed.values(), went=[self.nodes[row] for row in replaced])
        capacity, allocatable = (
            self._amounts_of(column, amounts, len(all_nodes)) for amounts in (self.capacity, self.allocatable)
        )
        for row, node in changed.items():
            capacity[:, row] = [node.capacity.amount(name) for name in column]
            allocatable[:, row] = [node.allocatable.amount(name) for name in column]
        names, row_by_name = self.names, self.row_by_name
        if joined:  # otherwise keep the objects: callers compare names by identity first
            names = names + tuple(node.name for node in joined)
            row_by_name = _rows_by(names)
        next_id = self.next_id + len(joined)
        ids = np.concatenate([self.ids, np.arange(self.next_id, next_id)])
        after = NodeRows(tuple(all_nodes), names, row_by_name, column, capacity, allocatable, ids, next_id)
        went = [(self.ids.item(row), self.nodes[row]) for row in replaced]
        if not joined and all(_same_placement(node, self.nodes[row]) for row, node in replaced.items()):
            # A heartbeat changes neither labels nor taints, so the indexes of these remain valid.
            vars(after).update(
                {name: vars(self)[name] for name in ("constraints", "_topologies") if name in vars(self)}
            )
        return self._carry_images(after, went, [(ids.item(row), node) for row, node in changed.items()])

    def without(self, names: Iterable[str]) -> "NodeRows":
        """Return the value without the named nodes.

        Raises:
            KeyError: a name is not in the table.
        """
        removed = [self.row_by_name[name] for name in names]
        remains = np.ones(len(self), np.bool_)
        remains[removed] = False
        rows = np.flatnonzero(remains)
        nodes, remaining_names = tuple(compress(self.nodes, remains)), tuple(compress(self.names, remains))
        went = [self.nodes[row] for row in removed]
        column = self._columns_of(nodes, came=(), went=went)
        after = replace(
            self,
            nodes=nodes,
            names=remaining_names,
            row_by_name=_rows_by(remaining_names),
            column=column,
            capacity=self._amounts_of(column, self.capacity, len(self))[:, rows],
            allocatable=self._amounts_of(column, self.allocatable, len(self))[:, rows],
            ids=self.ids[rows],
        )
        return self._carry_images(after, list(zip(self.ids[removed].tolist(), went, strict=True)), ())

    def take(self, rows: Int64s) -> "NodeRows":
        """Return the given rows, in their order, as the rows of a separate table, with new ids."""
        numbers = rows.tolist()
        names = tuple(self.names[row] for row in numbers)
        return NodeRows(
            tuple(self.nodes[row] for row in numbers), names, _rows_by(names),
            self.column, self.capacity[:, rows], self.allocatable[:, rows], np.arange(len(names)), len(names),
        )  # fmt: skip

    def _amounts_of(self, column: Mapping[str, int], amounts: Int64s, size: int) -> Int64s:
        """Return amounts rearranged to other resources and padded with zeros, shape (resources, size).

        Args:
            column: index of each resource in the result.
            amounts: amounts of these nodes, shape (resources, nodes).
            size: number of nodes in the result, at least the present number.
        """
        rearranged = np.zeros((len(column), size), np.int64)
        for name, place in column.items():
            if name in self.column:
                rearranged[place, : len(self)] = amounts[self.column[name]]
        return rearranged

    def _columns_of(self, nodes: Sequence[Node], came: Iterable[Node], went: Iterable[Node]) -> Mapping[str, int]:
        """Return the index of each resource after a change of the nodes; the same object if the resources are the same.

        All nodes are scanned only for resources that a removed node listed.

        Args:
            nodes: all nodes after the change.
            came: nodes that were added or are the new versions of changed nodes.
            went: nodes that were removed or are the old versions of changed nodes.
        """
        listed = _listed(came)
        dropped = _listed(went) - listed
        still_listed = {
            name for name in dropped if any(name in node.allocatable or name in node.capacity for node in nodes)
        }
        resources = (self.column.keys() - dropped) | still_listed | listed | set(ALWAYS)
        return self.column if resources == self.column.keys() else _columns(resources)

    def _carry_images(
        self, after: "NodeRows", went: Sequence[tuple[int, Node]], came: Sequence[tuple[int, Node]]
    ) -> "NodeRows":
        if "images" in vars(self):  # the index is in use, so update it instead of rebuilding it later
            vars(after)["images"] = self.images.changed(went, came)
        return after


def _same_placement(node: Node, earlier: Node) -> bool:
    """Return whether two versions of a node have the same labels, taints and cordon."""
    return (node.labels, node.taints, node.unschedulable) == (earlier.labels, earlier.taints, earlier.unschedulable)


def _listed(nodes: Iterable[Node]) -> set[str]:
    return {name for node in nodes for amounts in (node.capacity, node.allocatable) for name in amounts}


def _columns(listed: set[str]) -> Mapping[str, int]:
    return {name: place for place, name in enumerate((*ALWAYS, *sorted(listed.difference(ALWAYS))))}


def _amounts(listed: Sequence[ResourceList], resources: Iterable[str]) -> Int64s:
    columns = [[amounts.amount(name) for amounts in listed] for name in resources]
    return np.array(columns, dtype=np.int64).reshape(len(columns), len(listed))


def _rows_by(names: Sequence[str]) -> RowByName:
    return RowByName(zip(names, range(len(names)), strict=True))
