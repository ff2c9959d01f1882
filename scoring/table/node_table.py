"""Nodes as a struct of arrays, with the sums of the pods on them.

One row a node. Per-resource columns are int64: millicores for ``cpu``, bytes or pieces for the rest. Sums follow pods
as they come and go, rows follow nodes; a transaction tries placements and keeps all of them or none.

What a table holds is one value in two parts: rows, which are frozen and replaced (:mod:`scoring.table.node_rows`),
and what is on them, which is copied (:mod:`scoring.table.occupancy`). A transaction's plan is a table with a copy of
that value, and keeping it is one assignment. Neither costs anything by pod.

Rows: a node keeps its row while nobody leaves. A node that joins gets the last row; the rows below one that leaves move
up. ``names`` and ``nodes`` are replaced then, so hold on to names rather than to row numbers. Prepared plugins and
profiles, their metrics and judgments, follow by themselves.

Threads: any number may read a table while none writes; to begin a transaction and to copy is to read. Writing (``add``,
``remove``, ``assume``, ``nominate``, ``add_nodes``, ``remove_nodes``, leaving a transaction) needs the caller's lock. A
plan, or a copy, is its thread's own: to score while others write, copy under the lock and score on that without.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import Node, Owner, Pod
from scoring.arrays import Bools, Float64s, Int64s
from scoring.table.feasibility import feasible
from scoring.table.node_rows import NodeRows
from scoring.table.occupancy import DEPARTED_SECONDS, DepartedPod, Occupancy, OwnedPods, PlacedPod

Number = TypeVar("Number", np.int64, np.float64)


class NodeTable:
    """Nodes and what their pods ask for, as arrays.

    Args:
        nodes: one row each, in this order; or the occupancy of another table, which then must not write to it.
        pods: pods that run on these nodes. Pending and finished ones, and those on other nodes, are left out; a pending
            pod that is nominated to a node counts as nominated there.

    Raises:
        ValueError: two nodes have one name.

    Attributes:
        occupancy: all that the table holds.
    """

    def __init__(self, nodes: Iterable[Node] | Occupancy, pods: Iterable[Pod] = ()) -> None:
        self.occupancy = nodes if isinstance(nodes, Occupancy) else Occupancy.empty(NodeRows.of(nodes))
        for pod in pods:
            if pod.node_name in self:
                self.add(pod)
            elif not pod.node_name and not pod.finished and pod.nominated_node_name in self:
                self.nominate(pod)

    @classmethod
    def from_k8s(cls, nodes: Any, pods: Any = ()) -> Self:
        """Read v1 Nodes and Pods.

        Args:
            nodes: dicts or kubernetes-client objects: an iterable of them, or a list object with ``items``.
            pods: the same, of pods.

        Raises:
            ValueError: a name is missing, or a quantity is unreadable or negative; the message says which.
        """
        return cls(map(Node.from_k8s, _items(nodes)), map(Pod.from_k8s, _items(pods)))

    def __len__(self) -> int:
        return len(self.occupancy.rows.names)

    def __contains__(self, node_name: str) -> bool:
        return node_name in self.occupancy.rows.row_by_name

    @property
    def rows(self) -> NodeRows:
        """The nodes, as a frozen value: the same object until one joins, leaves or changes."""
        return self.occupancy.rows

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes, by row."""
        return self.occupancy.rows.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, by row: the same object until a node joins or leaves."""
        return self.occupancy.rows.names

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that have columns: cpu, memory, ephemeral-storage and whatever the nodes list."""
        return tuple(self.occupancy.rows.column)

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        return self.occupancy.version

    def row(self, node_name: str) -> int:
        """Return the row of a node.

        Raises:
            KeyError: no such node.
        """
        row = self.occupancy.rows.row_by_name.get(node_name)
        if row is None:
            raise KeyError(f"no node {node_name!r} in this table")
        return row

    def rows_of(self, node_names: Iterable[str]) -> Int64s:
        """Return the rows of some nodes, in that order, shape (k,).

        Raises:
            KeyError: no such node.
        """
        try:
            names = node_names if isinstance(node_names, tuple | list) else tuple(node_names)
            return self.occupancy.rows.row_by_name.rows_of(names)
        except KeyError as error:
            raise KeyError(f"no node {error.args[0]!r} in this table") from None

    def known_rows(self, node_names: Sequence[str]) -> tuple[Sequence[str], Int64s]:
        """Return those of some nodes that are in this table, in that order, with their rows, shape (k,)."""
        try:
            return node_names, self.rows_of(node_names)  # nearly always it has them all
        except KeyError:
            there = tuple(filter(self.rows.row_by_name.__contains__, node_names))
            return there, self.rows_of(there)

    def capacity(self, resource: str) -> Int64s:
        """Return ``status.capacity`` of every node, shape (nodes,), read-only; zeros for an unknown resource."""
        return self._view(self.rows.capacity, resource)

    def allocatable(self, resource: str) -> Int64s:
        """Return ``status.allocatable`` of every node, shape (nodes,), read-only; zeros for an unknown resource."""
        return self._view(self.rows.allocatable, resource)

    def requests(self, resource: str) -> Int64s:
        """Return the pods' requests as Trimaran counts them, summed by node, shape (nodes,), read-only."""
        return self._view(self.occupancy.sums.requests, resource)

    def limits(self, resource: str) -> Int64s:
        """Return the pods' limits, each at least its request, summed by node, shape (nodes,), read-only."""
        return self._view(self.occupancy.sums.limits, resource)

    def in_tree_requests(self, resource: str, *, non_zero: bool = False) -> Int64s:
        """Return the pods' requests as kube-scheduler counts them, summed by node, shape (nodes,), read-only.

        Args:
            resource: the resource's name.
            non_zero: containers without a request count as 100m CPU and 200 MiB.
        """
        sums = self.occupancy.sums
        if not non_zero:
            return self._view(sums.in_tree_requests, resource)
        column = self.rows.column.get(resource, -1)
        if 0 <= column < len(sums.in_tree_non_zero):  # cpu and memory come first
            return _read_only(sums.in_tree_non_zero[column])
        return _read_only(np.zeros(len(self), np.int64))

    @property
    def pod_counts(self) -> Int64s:
        """How many pods each node has, shape (nodes,), read-only."""
        return _read_only(self.occupancy.sums.pods)

    @property
    def terminating_counts(self) -> Int64s:
        """How many of each node's pods are terminating, shape (nodes,), read-only."""
        return _read_only(self.occupancy.sums.terminating)

    @property
    def nominated_counts(self) -> Int64s:
        """How many pending pods are nominated to each node, shape (nodes,), read-only."""
        return _read_only(self.occupancy.sums.nominated)

    @property
    def newest(self) -> Float64s:
        """When each node's last pod was placed, unix seconds, shape (nodes,), read-only; -infinity without pods."""
        return _read_only(self.occupancy.newest)

    def image(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the rows of the nodes that have an image, and its size on each in bytes; both of shape (k,).

        An index of all images is made at the first call and follows the nodes from then on.
        """
        return self.occupancy.rows.image(name)

    def pods(self, node_name: str) -> tuple[Pod, ...]:
        """Return the pods on a node, in the order they were placed in.

        Raises:
            KeyError: no such node.
        """
        return tuple(placed.pod for placed in self.occupancy.pods[self.row(node_name)].values())

    def feasible(self, pod: Pod) -> Bools:
        """Say on which nodes the pod may run, shape (nodes,): where it fits and its constraints allow it.

        Looked at are free resources, with pods of the same or a higher priority that are nominated; cordons; taints;
        the node selector; required node affinity. Not looked at: ports, volumes, topology spread, other pods' affinity.
        """
        return feasible(pod, self.occupancy)

    def find(self, pod: Pod) -> tuple[str, PlacedPod] | None:
        """Return the node that a pod, told by its uid, is counted on, and how; None when it is on none."""
        found = self.occupancy.find(pod.uid)
        return None if found is None else (self.names[found[0]], found[1])

    def placed_on(self, row: int) -> Collection[PlacedPod]:
        """Return the pods in a row, with the times they were placed at, in their order."""
        return self.occupancy.pods[row].values()

    def owners_on(self, row: int) -> Mapping[Owner, OwnedPods]:
        """Return which of a row's pods each controller made."""
        return self.occupancy.owners[row]

    def placed_pods(self) -> Iterator[tuple[int, PlacedPod]]:
        """Yield every pod with its row."""
        return self.occupancy.placed_pods()

    def placed_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, PlacedPod]]:
        """Yield the pods that were placed at some time or later, with their rows, without a look at the others.

        Args:
            since: unix seconds by row, shape (nodes,).
            rows: the only rows to look at; all by default.
        """
        return self.occupancy.placed_since(since, rows)

    def changed_rows(self, since_version: int) -> Int64s:
        """Return the rows that changed after ``version`` was ``since_version``, ascending; rows that moved did not."""
        return (self.occupancy.row_version > since_version).nonzero()[0]

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Add nodes, each in a row at the end; one that is there already is renewed, and keeps row and pods.

        So an update of a node may be added as it comes: with other amounts, images or resources.
        """
        self.occupancy.add_nodes(tuple(nodes))

    def remove_nodes(self, node_names: Iterable[str]) -> None:
        """Take nodes away; their pods, and those nominated to them, are no longer counted.

        Raises:
            KeyError: no such node; then nothing is taken away.
        """
        names = tuple(dict.fromkeys(node_names))
        self.rows_of(names)
        self.occupancy.remove_nodes(names)

    def add(self, pod: Pod, node_name: str | None = None, placed_at: float | None = None) -> None:
        """Count a pod on a node; a pod that is already counted, here or elsewhere, is moved and renewed.

        So an update of a pod may be added as it comes. A finished pod uses nothing: it only stops being counted.

        Args:
            pod: the pod.
            node_name: the node; by default the one that the pod is bound to.
            placed_at: when it was placed, unix seconds; by default ``pod.scheduled_at``, else long ago.

        Raises:
            KeyError: no such node.
            ValueError: the pods of the node ask for more than can be counted; then this one is counted nowhere.
        """
        row = self.row(pod.node_name if node_name is None else node_name)
        self.occupancy.end_nomination(pod.uid)
        self.occupancy.drop(pod.uid)
        if pod.finished:
            return
        if placed_at is None:
            placed_at = float("-inf") if pod.scheduled_at is None else pod.scheduled_at
        self.occupancy.put(row, pod, placed_at)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node as just placed: no measurement can have seen it yet.

        It stays so until :meth:`add` counts the bound pod under the same uid.

        Raises:
            KeyError: no such node.
        """
        self.add(pod, node_name, placed_at=float("inf"))

    def left_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, DepartedPod]]:
        """Yield the pods that left after some time and are remembered, with their rows; see :meth:`remove`.

        Args:
            since: unix seconds by row, shape (nodes,).
            rows: the only rows to look at; all by default.
        """
        return self.occupancy.left_since(since, rows)

    def remove(self, pod: Pod, *, left_at: float | None = None, keep_seconds: float = DEPARTED_SECONDS) -> None:
        """Stop counting a pod, told by its uid.

        Args:
            pod: the pod.
            left_at: when it stopped running, unix seconds: remembered, as metrics show it for a window more. By default
                it is as if it never was.
            keep_seconds: how long that is remembered after it; until the next pod leaves the node at least.

        Raises:
            KeyError: the pod is not counted.
        """
        if left_at is not None:
            self.occupancy.depart(pod.uid, left_at, keep_seconds)
        if not self.occupancy.drop(pod.uid) and not self.occupancy.end_nomination(pod.uid):
            raise KeyError(f"pod {pod.namespace}/{pod.name} is on no node of this table")

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Count a pending pod as nominated to a node, until it is counted on a node or removed.

        Args:
            pod: the pending pod.
            node_name: the node that preemption made room on; by default the one that the pod names.

        Raises:
            KeyError: no such node.
        """
        row = self.row(pod.nominated_node_name if node_name is None else node_name)
        self.occupancy.end_nomination(pod.uid)
        self.occupancy.nominate(row, pod)

    @contextmanager
    def transaction(self) -> Iterator["NodePlan"]:
        """Try placements: all of them are kept when the block ends, none when it raises.

        Yields:
            A plan: a table of its own that starts equal to this one. This one does not change before the block ends.

        Raises:
            RuntimeError: the table was changed by someone else meanwhile; nothing is kept.
        """
        plan, version = self.copy(), self.version
        yield plan
        if self.version != version:
            raise RuntimeError("the table changed during the transaction; nothing of it was kept")
        self.occupancy = plan.occupancy.copy()  # whoever still holds the plan must not reach into the table

    def copy(self) -> "NodeTable":
        """Return a table that is equal now, and apart from now on. It costs some arrays by row, and nothing by pod."""
        return NodeTable(self.occupancy.copy())

    def take(self, rows: Int64s) -> "NodeTable":
        """Return a table of some rows, in that order, as they are now.

        Args:
            rows: row numbers, shape (k,).
        """
        return NodeTable(self.occupancy.take(rows))

    def _view(self, amounts: Int64s, resource: str) -> Int64s:
        column = self.rows.column.get(resource)
        return _read_only(np.zeros(len(self), np.int64) if column is None else amounts[column])


NodePlan = NodeTable
"""What a transaction yields: a table like any other."""


def _items(listed: Any) -> Iterable[Any]:
    if isinstance(listed, Mapping):
        return listed.get("items") or ()
    items: Iterable[Any] = getattr(listed, "items", listed)
    return items


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    view = array.view()
    view.flags.writeable = False
    return view
