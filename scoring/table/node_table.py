"""Table of nodes as arrays, with the sums of the pods on each node.

Each node has one row. Amounts of resources are int64: millicores for ``cpu``, bytes or pieces for the others. The sums,
which saturate, are updated when pods come and go, and the rows when nodes do. A transaction tries placements, and
commits all of them or none.

A table has two parts: the rows (:mod:`scoring.table.node_rows`), which are immutable and replaced when nodes change,
and the pods on them (:mod:`scoring.table.occupancy`). A transaction works on a copy of the pods and shares the rows. A
commit replaces the table's pods and rows by those of the transaction's plan, with the pods copied once more. The time
of both depends on the number of nodes, not of pods: copies share the pods of a row until they change.

Rows: a node keeps its row until a node leaves. A node that joins gets the last row; when a node leaves, the rows below
it move up, and ``names`` and ``nodes`` are replaced. So keep names rather than row numbers. Prepared plugins and
profiles, their metrics and judgments, follow the table automatically.

Threads: any number of threads may read a table while none writes; starting a transaction and copying count as reads.
Writes (``add``, ``remove``, ``assume``, ``nominate``, ``add_nodes``, ``remove_nodes``, the end of a transaction) need
the caller's lock. A plan or a copy belongs to one thread: to score while other threads write, copy under the lock and
score on the copy without it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.kinds import items_of
from runtime.kubernetes.objects import Kin, Node, Pod
from scoring.arrays import Bools, Float64s, Int64s
from scoring.table.feasibility import feasible
from scoring.table.node_rows import NodeRows
from scoring.table.occupancy import DEPARTED_SECONDS, Occupancy, OwnedPods
from scoring.table.placed_pods import DepartedPod, PlacedPod
from scoring.table.placed_rules import PlacedRules, SelectorSources

Number = TypeVar("Number", np.int64, np.float64)
Kind = TypeVar("Kind")


class NodeTable:
    """Nodes and the resource requests of their pods, as arrays.

    Args:
        nodes: nodes, one row each, in this order. Or the occupancy of another table, if that table is no longer used.
        pods: pods on these nodes. Finished pods, pods on other nodes and pending pods are left out, but a pending pod
            that is nominated to one of the nodes counts as nominated.

    Raises:
        ValueError: two nodes have the same name.
        TypeError: an object is not a Node or Pod, but for example a manifest.

    Attributes:
        occupancy: contents of the table: the nodes and the pods on them.
    """

    def __init__(self, nodes: Iterable[Node] | Occupancy, pods: Iterable[Pod] = ()) -> None:
        self.occupancy = nodes if isinstance(nodes, Occupancy) else Occupancy.empty(NodeRows.of(_checked(nodes, Node)))
        for pod in _checked(pods, Pod):
            if pod.node_name in self:
                self.add(pod)
            elif not pod.node_name and not pod.finished and pod.nominated_node_name in self:
                self.nominate(pod)

    @classmethod
    def from_k8s(cls, nodes: Any, pods: Any = ()) -> Self:
        """Create a table from v1 Nodes and v1 Pods.

        Args:
            nodes: dicts or objects of the Python Kubernetes client, in an iterable or in a list object with ``items``;
                or a single node.
            pods: pods in the same forms.

        Raises:
            ValueError: an object has another kind, a name is missing, or a quantity is unreadable or negative; the
                message names the field.
        """
        return cls(map(Node.from_k8s, items_of(nodes, "Node")), map(Pod.from_k8s, items_of(pods, "Pod")))

    def __len__(self) -> int:
        return len(self.occupancy.rows.names)

    def __contains__(self, node_name: str) -> bool:
        return node_name in self.occupancy.rows.row_by_name

    @property
    def rows(self) -> NodeRows:
        """Nodes as arrays, in an immutable value: the same object until a node joins, leaves or changes."""
        return self.occupancy.rows

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes, by row."""
        return self.occupancy.rows.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, by row: the same object until a node joins or leaves."""
        return self.occupancy.rows.names

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the table's resources: cpu, memory, ephemeral-storage and all others that the nodes list."""
        return tuple(self.occupancy.rows.column)

    @property
    def version(self) -> int:
        """Version number of the table, which grows with every change."""
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
        """Return the rows of the named nodes, in their order, shape (k,).

        Raises:
            KeyError: a node is not in the table.
        """
        try:
            names = node_names if isinstance(node_names, tuple | list) else tuple(node_names)
            return self.occupancy.rows.row_by_name.rows_of(names)
        except KeyError as error:
            raise KeyError(f"no node {error.args[0]!r} in this table") from None

    def known_rows(self, node_names: Sequence[str]) -> tuple[Sequence[str], Int64s]:
        """Return those of the given names that are in the table, in the given order, and their rows, shape (k,)."""
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
        """Return the sum of the pods' requests on each node, as Trimaran counts them, shape (nodes,), read-only."""
        return self._view(self.occupancy.sums.requests, resource)

    def limits(self, resource: str) -> Int64s:
        """Return the sum of the pods' limits on each node, shape (nodes,), read-only.

        A pod counts with at least its request.
        """
        return self._view(self.occupancy.sums.limits, resource)

    def in_tree_requests(self, resource: str, *, non_zero: bool = False) -> Int64s:
        """Return the sum of the pods' requests on each node, as kube-scheduler counts them, shape (nodes,), read-only.

        Args:
            resource: name of the resource.
            non_zero: count a container without a request as 100m CPU or 200 MiB; the sum of other resources is then 0.
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
        """Time of the latest placement of a pod on each node, Unix seconds, shape (nodes,), read-only.

        The time is -infinity for a node without pods, and infinity while a pod is assumed on the node.
        """
        return _read_only(self.occupancy.newest)

    @property
    def placed_rules(self) -> PlacedRules:
        """Index of the pods by labels, affinity terms and host ports, up to date.

        The first call builds the index, and later calls update it for the rows that changed.
        """
        return self.occupancy.placed_rules()

    @property
    def selector_sources(self) -> SelectorSources:
        """Services and other objects that select pods; replace the value as a whole when they change."""
        return self.occupancy.selector_sources

    @selector_sources.setter
    def selector_sources(self, sources: SelectorSources) -> None:
        self.occupancy.selector_sources = sources

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of each namespace, for terms with a namespace selector; replace the mapping as a whole."""
        return self.occupancy.selector_sources.namespace_labels

    @namespace_labels.setter
    def namespace_labels(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self.occupancy.selector_sources = replace(self.occupancy.selector_sources, namespace_labels=labels)

    def image(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the rows of the nodes that have an image, and its size in bytes on each node; both of shape (k,).

        The first call builds an index of all images, which is later updated when nodes change.
        """
        return self.occupancy.rows.image(name)

    def pods(self, node_name: str) -> tuple[Pod, ...]:
        """Return the pods on a node, in order of placement.

        Raises:
            KeyError: the node is not in the table.
        """
        return tuple(placed.pod for placed in self.occupancy.pods[self.row(node_name)].values())

    def feasible(self, pod: Pod) -> Bools:
        """Return a mask of the nodes with enough free resources that the pod's constraints allow, shape (nodes,).

        Nominated pods of the same or a higher priority use resources of their node. The constraints are cordons,
        taints, the node selector and required node affinity. Ports, volumes, topology spread and affinity to other pods
        are not checked.
        """
        return feasible(pod, self.occupancy)

    def find(self, pod: Pod) -> tuple[str, PlacedPod] | None:
        """Return the name of a pod's node, and the pod with its placement time; None if the pod is on no node.

        The pod is identified by its uid.
        """
        row_and_pod = self.occupancy.find(pod.uid)
        return None if row_and_pod is None else (self.names[row_and_pod[0]], row_and_pod[1])

    def placed_on(self, row: int) -> Collection[PlacedPod]:
        """Return the pods of a row with their placement times, in order of placement."""
        return self.occupancy.pods[row].values()

    def owners_on(self, row: int) -> Mapping[Kin, OwnedPods]:
        """Return the sums of the pods of a row by workload, or by owner (controller) if the workload is not known."""
        return self.occupancy.owners[row]

    def rows_with(self, owner: Kin) -> Int64s:
        """Return the rows that have pods of a workload, or of an owner if the workload is not known, shape (k,)."""
        return self.rows_of(self.occupancy.node_names_of(owner))

    def placed_pods(self) -> Iterator[tuple[int, PlacedPod]]:
        """Yield every pod with its row."""
        return self.occupancy.placed_pods()

    def placed_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, PlacedPod]]:
        """Yield the row and the pod for all pods placed at or after a time, without visiting older pods.

        Args:
            since: time for each row of the table, Unix seconds, shape (nodes,).
            rows: rows to search, shape (k,); None searches all rows.
        """
        return self.occupancy.placed_since(since, rows)

    def changed_rows(self, since_version: int) -> Int64s:
        """Return the rows that changed after version ``since_version``, ascending.

        A row that only moved up because another node left has not changed.
        """
        return (self.occupancy.row_version > since_version).nonzero()[0]

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Add nodes, each in a row at the end; a node that is already present is updated and keeps its row and pods.

        So the new version of a node from the API server can be passed without removing the old one first.
        """
        self.occupancy.add_nodes(tuple(nodes))

    def remove_nodes(self, node_names: Iterable[str]) -> None:
        """Remove nodes, with their pods and with the nominations of pending pods to them.

        Raises:
            KeyError: a node is not in the table; no node is removed.
        """
        names = tuple(dict.fromkeys(node_names))
        self.rows_of(names)
        self.occupancy.remove_nodes(names)

    def add(self, pod: Pod, node_name: str | None = None, placed_at: float | None = None) -> None:
        """Count a pod on a node; a pod that is already counted, on this or another node, is updated and moved.

        So the new version of a pod from the API server can be passed without removing the old one first. A finished
        pod uses no resources, so it is removed and not counted again.

        Args:
            pod: the pod.
            node_name: name of the node; by default the node that the pod is bound to.
            placed_at: time of placement, Unix seconds; by default ``pod.scheduled_at``, or -infinity if that is
                unknown.

        Raises:
            KeyError: the node is not in the table.
        """
        row = self.row(pod.node_name if node_name is None else node_name)
        self.occupancy.end_nomination(pod.uid)
        if placed_at is None:
            placed_at = float("-inf") if pod.scheduled_at is None else pod.scheduled_at
        if not pod.finished and self.occupancy.replace(row, pod, placed_at):
            return
        self.occupancy.drop(pod.uid)
        if not pod.finished:
            self.occupancy.put(row, pod, placed_at)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node before it is bound there; its placement time is infinity, later than every measurement.

        The assumption lasts until :meth:`add` counts the bound pod with the same uid.

        Raises:
            KeyError: the node is not in the table.
        """
        self.add(pod, node_name, placed_at=float("inf"))

    def left_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, DepartedPod]]:
        """Yield the row and the pod for all pods that left after a time and are remembered; see :meth:`remove`.

        Args:
            since: time for each row of the table, Unix seconds, shape (nodes,).
            rows: rows to search, shape (k,); None searches all rows.
        """
        return self.occupancy.left_since(since, rows)

    def remove(self, pod: Pod, *, left_at: float | None = None, keep_seconds: float = DEPARTED_SECONDS) -> None:
        """Stop counting a pod, identified by its uid.

        Args:
            pod: the pod.
            left_at: time when the pod stopped running, Unix seconds. The table remembers the pod, because metrics still
                include it for the length of their window. None forgets the pod.
            keep_seconds: time for which pods that left the same node earlier are remembered.

        Raises:
            KeyError: the pod is not counted.
        """
        if left_at is not None:
            self.occupancy.depart(pod.uid, left_at, keep_seconds)
        if not self.occupancy.drop(pod.uid) and not self.occupancy.end_nomination(pod.uid):
            raise KeyError(f"pod {pod.namespace}/{pod.name} is on no node of this table")

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Count a pending pod as nominated to a node until :meth:`add` or :meth:`remove` is called for the pod.

        Args:
            pod: pending pod.
            node_name: name of the node where preemption makes room for the pod; by default the nominated node in the
                pod's status.

        Raises:
            KeyError: the node is not in the table.
        """
        row = self.row(pod.nominated_node_name if node_name is None else node_name)
        self.occupancy.end_nomination(pod.uid)
        self.occupancy.nominate(row, pod)

    @contextmanager
    def transaction(self) -> Iterator["NodePlan"]:
        """Try placements: commit all of them when the block ends, or none if the block raises an exception.

        Yields:
            A plan: a separate table that starts equal to this one. This table does not change before the block ends.

        Raises:
            RuntimeError: another caller changed the table during the transaction; nothing is committed.
        """
        plan, version = self.copy(), self.version
        yield plan
        if self.version != version:
            raise RuntimeError("the table changed during the transaction, so nothing was committed: use a lock")
        self.occupancy = plan.occupancy.copy()  # a caller that still has the plan must not write to the table

    def copy(self) -> "NodeTable":
        """Return an independent copy; the time to copy depends on the number of nodes, not of pods."""
        return NodeTable(self.occupancy.copy())

    def take(self, rows: Int64s) -> "NodeTable":
        """Return an independent table with some of the nodes and their pods, in the given order.

        Args:
            rows: row numbers, shape (k,).
        """
        return NodeTable(self.occupancy.take(rows))

    def _view(self, amounts: Int64s, resource: str) -> Int64s:
        column = self.rows.column.get(resource)
        return _read_only(np.zeros(len(self), np.int64) if column is None else amounts[column])


NodePlan = NodeTable
"""Table that a transaction yields; it has no special behavior."""


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    view = array.view()
    view.flags.writeable = False
    return view


def _checked(objects: Iterable[Any], kind: type[Kind]) -> Iterator[Kind]:
    for each in objects:
        if not isinstance(each, kind):
            wanted = f"must be {kind.__name__} objects, got a {type(each).__name__}"
            raise TypeError(f"{kind.__name__.lower()}s: {wanted}: NodeTable.from_k8s reads manifests")
        yield each
