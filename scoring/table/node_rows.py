"""The nodes of a table as arrays: one row a node. A frozen value: nodes that come, go or change make a new one.

What does not change is shared or copied as whole arrays, so a change of one node costs no Python step for the others.

Rows keep their order; a node that joins gets the last row, and the rows below one that leaves move up. So a row's
number tells a node as long as nobody leaves, and its id for ever: ids ascend, and a node that comes back has a new one.
Whoever keeps arrays by row asks :meth:`NodeRows.surviving` which of them are still there.
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

# Every table has columns for these, in this order.
ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True, eq=False)
class NodeRows:
    """Nodes as arrays.

    Attributes:
        nodes: the nodes, by row.
        names: their names.
        row_by_name: the way back.
        column: the resources that have columns, each with its number: cpu, memory, ephemeral-storage and whatever the
            nodes list.
        capacity: ``status.capacity``, shape (resources, nodes).
        allocatable: ``status.allocatable``, shape (resources, nodes).
        ids: tell nodes apart for as long as the table lives, ascending, shape (nodes,).
        next_id: what the next node that joins will have.
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
        """Make one row a node, in this order.

        Raises:
            ValueError: two nodes have one name.
        """
        nodes = tuple(nodes)
        names = tuple(node.name for node in nodes)
        row_by_name = _rows_by(names)
        if len(row_by_name) < len(names):
            twice = next(name for row, name in enumerate(names) if row_by_name[name] != row)
            raise ValueError(f"two nodes are named {twice!r}")
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
        """What keeps pods off the nodes. Made when first asked for."""
        return NodeConstraints(self.nodes, self.row_by_name)

    @cached_property
    def images(self) -> NodeImages:
        """Which node has which image. Made when first asked for, then carried on from change to change."""
        return NodeImages.of(zip(self.ids.tolist(), self.nodes, strict=True))

    @cached_property
    def _image_rows(self) -> dict[str, tuple[Int64s, Int64s]]:
        return {}

    def image(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the rows of the nodes that have an image, and its size on each in bytes; both of shape (k,)."""
        found = self._image_rows.get(name)
        if found is None:
            ids, sizes = self.images.find(name)
            found = self._image_rows[name] = np.searchsorted(self.ids, ids), sizes
        return found

    def surviving(self, earlier: "NodeRows") -> Int64s:
        """Return which rows of earlier ones are still there, ascending: here they are the first, and others follow."""
        if not len(self) or not len(earlier):
            return np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(self.ids, earlier.ids), len(self) - 1)
        return np.flatnonzero(self.ids[place] == earlier.ids)

    def added(self, nodes: Iterable[Node]) -> "NodeRows":
        """Return rows with more nodes; one that is there already is replaced and keeps its row."""
        by_name = {node.name: node for node in nodes}
        replaced = {self.row_by_name[name]: node for name, node in by_name.items() if name in self.row_by_name}
        joined = tuple(node for name, node in by_name.items() if name not in self.row_by_name)
        all_nodes = list(self.nodes)
        for row, node in replaced.items():
            all_nodes[row] = node
        all_nodes += joined
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
        if joined:  # else whoever compares names by identity sees at once that they are the same
            names = names + tuple(node.name for node in joined)
            row_by_name = _rows_by(names)
        next_id = self.next_id + len(joined)
        ids = np.concatenate([self.ids, np.arange(self.next_id, next_id)])
        after = NodeRows(tuple(all_nodes), names, row_by_name, column, capacity, allocatable, ids, next_id)
        went = [(self.ids.item(row), self.nodes[row]) for row in replaced]
        return self._carry_images(after, went, [(ids.item(row), node) for row, node in changed.items()])

    def without(self, names: Iterable[str]) -> "NodeRows":
        """Return rows without some nodes.

        Raises:
            KeyError: no such node.
        """
        gone = [self.row_by_name[name] for name in names]
        stays = np.ones(len(self), np.bool_)
        stays[gone] = False
        rows = np.flatnonzero(stays)
        nodes, kept_names = tuple(compress(self.nodes, stays)), tuple(compress(self.names, stays))
        went = [self.nodes[row] for row in gone]
        column = self._columns_of(nodes, came=(), went=went)
        after = replace(
            self,
            nodes=nodes,
            names=kept_names,
            row_by_name=_rows_by(kept_names),
            column=column,
            capacity=self._amounts_of(column, self.capacity, len(self))[:, rows],
            allocatable=self._amounts_of(column, self.allocatable, len(self))[:, rows],
            ids=self.ids[rows],
        )
        return self._carry_images(after, list(zip(self.ids[gone].tolist(), went, strict=True)), ())

    def take(self, rows: Int64s) -> "NodeRows":
        """Return some rows, in that order, as rows of a table of their own."""
        chosen = rows.tolist()
        names = tuple(self.names[row] for row in chosen)
        return NodeRows(
            tuple(self.nodes[row] for row in chosen), names, _rows_by(names),
            self.column, self.capacity[:, rows], self.allocatable[:, rows], np.arange(len(names)), len(names),
        )  # fmt: skip

    def _amounts_of(self, column: Mapping[str, int], amounts: Int64s, size: int) -> Int64s:
        """Return amounts under other columns, and zeros at the end up to a number of rows."""
        wanted = np.zeros((len(column), size), np.int64)
        for name, place in column.items():
            if name in self.column:
                wanted[place, : len(self)] = amounts[self.column[name]]
        return wanted

    def _columns_of(self, nodes: Sequence[Node], came: Iterable[Node], went: Iterable[Node]) -> Mapping[str, int]:
        """Return the columns for all nodes, after some came and some went; look through all for lost resources only."""
        listed = _listed(came)
        lost = _listed(went) - listed
        left = {name for name in lost if any(name in node.allocatable or name in node.capacity for node in nodes)}
        wanted = (self.column.keys() - lost) | left | listed | set(ALWAYS)
        return self.column if wanted == self.column.keys() else _columns(wanted)

    def _carry_images(
        self, after: "NodeRows", went: Sequence[tuple[int, Node]], came: Sequence[tuple[int, Node]]
    ) -> "NodeRows":
        if "images" in vars(self):  # someone asked: so they will again
            vars(after)["images"] = self.images.changed(went, came)
        return after


def _listed(nodes: Iterable[Node]) -> set[str]:
    return {name for node in nodes for amounts in (node.capacity, node.allocatable) for name in amounts}


def _columns(listed: set[str]) -> Mapping[str, int]:
    return {name: place for place, name in enumerate((*ALWAYS, *sorted(listed.difference(ALWAYS))))}


def _amounts(listed: Sequence[ResourceList], resources: Iterable[str]) -> Int64s:
    columns = [[amounts.amount(name) for amounts in listed] for name in resources]
    return np.array(columns, dtype=np.int64).reshape(len(columns), len(listed))


def _rows_by(names: Sequence[str]) -> RowByName:
    return RowByName(zip(names, range(len(names)), strict=True))
