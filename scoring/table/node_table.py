"""Nodes as a structure of arrays, with the sums of the pods on them.

Each node has one row. Per-resource columns are int64: millicores for ``cpu``, bytes or pieces for the rest. The sums
are updated as pods come and go, the rows as nodes do. A transaction tries placements and commits all of them or none.

A table's contents have two parts: the rows, which are immutable and replaced (:mod:`scoring.table.node_rows`), and the
pods on them, which are copied (:mod:`scoring.table.occupancy`). A transaction's plan is a table with a copy of both,
and a commit is one assignment. The cost of neither depends on the number of pods.

Rows: a node keeps its row until some node leaves. A node that joins gets the last row; when a node leaves, the rows
below it move up and ``names`` and ``nodes`` are replaced, so keep names rather than row numbers. Prepared plugins and
profiles, their metrics and judgments, follow the table automatically.

Threads: any number of threads may read a table while none writes; starting a transaction and copying count as reads.
Writes (``add``, ``remove``, ``assume``, ``nominate``, ``add_nodes``, ``remove_nodes``, the end of a transaction) need
the caller's lock. A plan or a copy belongs to one thread: to score while other threads write, copy under the lock and
score on the copy without it.
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
    """Nodes and the resource requests of their pods, as arrays.

    Args:
        nodes: the nodes, one row each, in this order; or the occupancy of another table, which must no longer write to
            it.
        pods: pods that run on these nodes. Pending pods, finished pods and pods on other nodes are left out; a pending
            pod that is nominated to one of the nodes counts as nominated.

    Raises:
        ValueError: two nodes have the same name.

    Attributes:
        occupancy: the contents of the table.
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
            nodes: dicts or kubernetes-client objects: an iterable, or a list object with ``items``.
            pods: pods in the same forms.

        Raises:
            ValueError: a name is missing, or a quantity is unreadable or negative; the message names the field.
        """
        return cls(map(Node.from_k8s, _items(nodes)), map(Pod.from_k8s, _items(pods)))

    def __len__(self) -> int:
        return len(self.occupancy.rows.names)

    def __contains__(self, node_name: str) -> bool:
        return node_name in self.occupancy.rows.row_by_name

    @property
    def rows(self) -> NodeRows:
        """The nodes, as an immutable value: the same object until a node joins, leaves or changes."""
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
        """Resources that have columns: cpu, memory, ephemeral-storage and all others that the nodes list."""
        return tuple(self.occupancy.rows.column)

    @property
    def version(self) -> int:
        """Version number that grows with every change."""
        return self.occupancy.version

    def row(self, node_name: str) -> int:
        """Return the row of a node.

        Raises:
            KeyError: the node is not in the table.
        """
        row = self.occupancy.rows.row_by_name.get(node_name)
        if row is None:
            raise KeyError(f"no node {node_name!r} in this table")
        return row

    def rows_of(self, node_names: Iterable[str]) -> Int64s:
        """Return the rows of some nodes, in the given order, shape (k,).

        Raises:
            KeyError: a node is not in the table.
        """
        try:
            names = node_names if isinstance(node_names, tuple | list) else tuple(node_names)
            return self.occupancy.rows.row_by_name.rows_of(names)
        except KeyError as error:
            raise KeyError(f"no node {error.args[0]!r} in this table") from None

    def known_rows(self, node_names: Sequence[str]) -> tuple[Sequence[str], Int64s]:
        """Return the given names that are in the table, in the given order, and their rows, shape (k,)."""
        try:
            return node_names, self.rows_of(node_names)  # usually all names are in the table
        except KeyError:
            present = tuple(filter(self.rows.row_by_name.__contains__, node_names))
            return present, self.rows_of(present)

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
            non_zero: count a container without a request as 100m CPU and 200 MiB.
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
        """Number of pods on each node, shape (nodes,), read-only."""
        return _read_only(self.occupancy.sums.pods)

    @property
    def terminating_counts(self) -> Int64s:
        """Number of terminating pods on each node, shape (nodes,), read-only."""
        return _read_only(self.occupancy.sums.terminating)

    @property
    def nominated_counts(self) -> Int64s:
        """Number of pending pods nominated to each node, shape (nodes,), read-only."""
        return _read_only(self.occupancy.sums.nominated)

    @property
    def newest(self) -> Float64s:
        """Latest placement time on each node, Unix seconds, shape (nodes,), read-only; -infinity without pods."""
        return _read_only(self.occupancy.newest)

    def image(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the rows of the nodes that have an image, and its size on each in bytes; both of shape (k,).

        The first call builds an index of all images, which is then updated with the nodes.
        """
        return self.occupancy.rows.image(name)

    def pods(self, node_name: str) -> tuple[Pod, ...]:
        """Return the pods on a node, in order of placement.

        Raises:
            KeyError: the node is not in the table.
        """
        return tuple(placed.pod for placed in self.occupancy.pods[self.row(node_name)].values())

    def feasible(self, pod: Pod) -> Bools:
        """Return a mask of the nodes where the pod fits and its constraints are met, shape (nodes,).

        Checked are free resources (with nominated pods of the same or a higher priority), cordons, taints, the node
        selector and required node affinity. Ports, volumes, topology spread and affinity to other pods are not checked.
        """
        return feasible(pod, self.occupancy)

    def find(self, pod: Pod) -> tuple[str, PlacedPod] | None:
        """Return a counted pod's node and placement; None if the pod, identified by its uid, is on no node."""
        row_and_pod = self.occupancy.find(pod.uid)
        return None if row_and_pod is None else (self.names[row_and_pod[0]], row_and_pod[1])

    def placed_on(self, row: int) -> Collection[PlacedPod]:
        """Return the pods of a row with their placement times, in order of placement."""
        return self.occupancy.pods[row].values()

    def owners_on(self, row: int) -> Mapping[Owner, OwnedPods]:
        """Return the pods of a row summed up by owner, the controller that created them."""
        return self.occupancy.owners[row]

    def placed_pods(self) -> Iterator[tuple[int, PlacedPod]]:
        """Yield every pod with its row."""
        return self.occupancy.placed_pods()

    def placed_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, PlacedPod]]:
        """Yield the pods placed at or after some time, with their rows, without visiting older pods.

        Args:
            since: Unix seconds by row, shape (nodes,).
            rows: the only rows to search; all by default.
        """
        return self.occupancy.placed_since(since, rows)

    def changed_rows(self, since_version: int) -> Int64s:
        """Return the rows that changed after version ``since_version``, ascending; moving up is not a change."""
        return (self.occupancy.row_version > since_version).nonzero()[0]

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Add nodes, each in a row at the end; a node that is already present is updated and keeps its row and pods.

        An update of a node from the API server can be added directly, with other amounts, images or resources.
        """
        self.occupancy.add_nodes(tuple(nodes))

    def remove_nodes(self, node_names: Iterable[str]) -> None:
        """Remove nodes; their pods, and pods nominated to them, are no longer counted.

        Raises:
            KeyError: a node is not in the table; no node is removed.
        """
        names = tuple(dict.fromkeys(node_names))
        self.rows_of(names)
        self.occupancy.remove_nodes(names)

    def add(self, pod: Pod, node_name: str | None = None, placed_at: float | None = None) -> None:
        """Count a pod on a node; a pod that is already counted, on this or another node, is moved and updated.

        An update of a pod from the API server can be added directly. A finished pod uses nothing and is only removed.

        Args:
            pod: the pod.
            node_name: the node; by default the node that the pod is bound to.
            placed_at: time of placement, Unix seconds; by default ``pod.scheduled_at``, or -infinity if that is
                unknown.

        Raises:
            KeyError: the node is not in the table.
            ValueError: the requests of the node's pods would overflow; the pod is counted nowhere.
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
        """Count a pod on a node as just placed, before any measurement can include it.

        The assumption lasts until :meth:`add` counts the bound pod under the same uid.

        Raises:
            KeyError: the node is not in the table.
        """
        self.add(pod, node_name, placed_at=float("inf"))

    def left_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, DepartedPod]]:
        """Yield the remembered pods that left after some time, with their rows; see :meth:`remove`.

        Args:
            since: Unix seconds by row, shape (nodes,).
            rows: the only rows to search; all by default.
        """
        return self.occupancy.left_since(since, rows)

    def remove(self, pod: Pod, *, left_at: float | None = None, keep_seconds: float = DEPARTED_SECONDS) -> None:
        """Stop counting a pod, identified by its uid.

        Args:
            pod: the pod.
            left_at: time when the pod stopped running, Unix seconds; it is remembered because metrics include the pod
                for one more window. By default the pod is forgotten entirely.
            keep_seconds: time to remember the pod after that; it is dropped at the earliest when the next pod leaves
                the node.

        Raises:
            KeyError: the pod is not counted.
        """
        if left_at is not None:
            self.occupancy.depart(pod.uid, left_at, keep_seconds)
        if not self.occupancy.drop(pod.uid) and not self.occupancy.end_nomination(pod.uid):
            raise KeyError(f"pod {pod.namespace}/{pod.name} is on no node of this table")

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Count a pending pod as nominated to a node until it is counted on a node or removed.

        Args:
            pod: the pending pod.
            node_name: the node that preemption made room on; by default the nominated node in the pod's status.

        Raises:
            KeyError: the node is not in the table.
        """
        row = self.row(pod.nominated_node_name if node_name is None else node_name)
        self.occupancy.end_nomination(pod.uid)
        self.occupancy.nominate(row, pod)

    @contextmanager
    def transaction(self) -> Iterator["NodePlan"]:
        """Try placements: commit all of them when the block ends, none when it raises.

        Yields:
            A plan: a separate table that starts equal to this one. This table does not change before the block ends.

        Raises:
            RuntimeError: another caller changed the table during the transaction; nothing is committed.
        """
        plan, version = self.copy(), self.version
        yield plan
        if self.version != version:
            raise RuntimeError("the table changed during the transaction; nothing was committed")
        self.occupancy = plan.occupancy.copy()  # a caller that still has the plan must not write to the table

    def copy(self) -> "NodeTable":
        """Return an independent copy. It costs a few arrays of one value per row, regardless of the number of pods."""
        return NodeTable(self.occupancy.copy())

    def take(self, rows: Int64s) -> "NodeTable":
        """Return a table of some rows in their current state, in the given order.

        Args:
            rows: row numbers, shape (k,).
        """
        return NodeTable(self.occupancy.take(rows))

    def _view(self, amounts: Int64s, resource: str) -> Int64s:
        column = self.rows.column.get(resource)
        return _read_only(np.zeros(len(self), np.int64) if column is None else amounts[column])


NodePlan = NodeTable
"""Table that a transaction yields; it has no special behavior."""


def _items(listed: Any) -> Iterable[Any]:
    if isinstance(listed, Mapping):
        return listed.get("items") or ()
    items: Iterable[Any] = getattr(listed, "items", listed)
    return items


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    view = array.view()
    view.flags.writeable = False
    return view
