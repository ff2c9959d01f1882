"""Nodes as a struct of arrays, with the sums of the pods on them.

One row a node. Per-resource columns are int64: millicores for ``cpu``, bytes or pieces for the rest. Sums follow pods
as they come and go; a transaction tries placements and keeps all of them or none.

Threads: any number may read a table while none writes. Writing (``add``, ``remove``, ``assume``, leaving a
transaction) needs the caller's lock. A transaction's plan is private to its thread.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from scoring.objects import CPU, EPHEMERAL_STORAGE, MEMORY, Node, Pod
from scoring.pod_sums import Int64s, PodSums

_ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node. ``placed_at`` is in unix seconds: infinity while only assumed, -infinity when unknown."""

    pod: Pod
    placed_at: float


class NodeTable:
    """Nodes and what their pods ask for, as arrays.

    Args:
        nodes: one row each, in this order.
        pods: pods that run on these nodes. Pending and finished ones, and those on other nodes, are left out; a pending
            pod that is nominated to a node counts as nominated there.

    Raises:
        ValueError: two nodes have one name.

    Attributes:
        names: the rows' node names. A table keeps its rows for life: build another when nodes join or leave.
        resources: the resources that have columns: cpu, memory, ephemeral-storage and whatever the nodes list.
    """

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        self.nodes: Sequence[Node] = tuple(nodes)
        self.names: tuple[str, ...] = tuple(node.name for node in self.nodes)
        self._row_by_name = {name: row for row, name in enumerate(self.names)}
        if len(self._row_by_name) < len(self.names):
            twice = next(name for row, name in enumerate(self.names) if self._row_by_name[name] != row)
            raise ValueError(f"two nodes are named {twice!r}")
        listed = {name for node in self.nodes for amounts in (node.capacity, node.allocatable) for name in amounts}
        self.resources: tuple[str, ...] = (*_ALWAYS, *sorted(listed.difference(_ALWAYS)))
        self._column = {name: column for column, name in enumerate(self.resources)}
        self._capacity = self._amounts("capacity")
        self._allocatable = self._amounts("allocatable")
        self._sums = PodSums(self.resources, len(self.names))
        self._pods: list[Mapping[str, PlacedPod]] = [{} for _ in self.names]
        self._row_by_uid: MutableMapping[str, int | None] = {}
        self._nominated: dict[str, int] = {}
        self._images: Mapping[str, tuple[Int64s, Int64s]] | None = None
        self.version = 0
        self._row_version = np.zeros(len(self.names), np.int64)
        for pod in pods:
            if pod.node_name in self._row_by_name:
                self.add(pod)
            elif not pod.node_name and not pod.finished and pod.nominated_node_name in self._row_by_name:
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
        return len(self.names)

    def row(self, node_name: str) -> int:
        """Return the row of a node.

        Raises:
            KeyError: no such node.
        """
        row = self._row_by_name.get(node_name)
        if row is None:
            raise KeyError(f"no node {node_name!r} in this table")
        return row

    def capacity(self, resource: str) -> Int64s:
        """Return ``status.capacity`` of every node, shape (nodes,), read-only; zeros for an unknown resource."""
        return self._view(self._capacity, resource)

    def allocatable(self, resource: str) -> Int64s:
        """Return ``status.allocatable`` of every node, shape (nodes,), read-only; zeros for an unknown resource."""
        return self._view(self._allocatable, resource)

    def requests(self, resource: str) -> Int64s:
        """Return the pods' requests as Trimaran counts them, summed by node, shape (nodes,), read-only."""
        return self._view(self._sums.requests, resource)

    def limits(self, resource: str) -> Int64s:
        """Return the pods' limits, each at least its request, summed by node, shape (nodes,), read-only."""
        return self._view(self._sums.limits, resource)

    def in_tree_requests(self, resource: str, *, non_zero: bool = False) -> Int64s:
        """Return the pods' requests as kube-scheduler counts them, summed by node, shape (nodes,), read-only.

        Args:
            resource: the resource's name.
            non_zero: containers without a request count as 100m CPU and 200 MiB.
        """
        return self._view(self._sums.in_tree_non_zero if non_zero else self._sums.in_tree_requests, resource)

    @property
    def pod_counts(self) -> Int64s:
        """How many pods each node has, shape (nodes,), read-only."""
        return _read_only(self._sums.pods)

    @property
    def terminating_counts(self) -> Int64s:
        """How many of each node's pods are terminating, shape (nodes,), read-only."""
        return _read_only(self._sums.terminating)

    @property
    def nominated_counts(self) -> Int64s:
        """How many pending pods are nominated to each node, shape (nodes,), read-only."""
        return _read_only(self._sums.nominated)

    def image(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the rows of the nodes that have an image, and its size on each in bytes; both of shape (k,).

        The index is made at the first call: nodes never change, so it is always the same.
        """
        if self._images is None:
            found: dict[str, tuple[list[int], list[int]]] = {}
            for row, node in enumerate(self.nodes):
                for image_name, size in node.images.items():
                    rows, sizes = found.setdefault(image_name, ([], []))
                    rows.append(row)
                    sizes.append(size)
            self._images = {n: (np.array(rows), np.array(sizes)) for n, (rows, sizes) in found.items()}
        nowhere: Int64s = np.zeros(0, np.int64)
        return self._images.get(name, (nowhere, nowhere))

    def pods(self, node_name: str) -> tuple[Pod, ...]:
        """Return the pods on a node, oldest entry first.

        Raises:
            KeyError: no such node.
        """
        return tuple(placed.pod for placed in self._pods[self.row(node_name)].values())

    def find(self, pod: Pod) -> tuple[str, PlacedPod] | None:
        """Return the node that a pod, told by its uid, is counted on, and how; None when it is on none."""
        row = self._row_by_uid.get(pod.uid)
        return None if row is None else (self.names[row], self._pods[row][pod.uid])

    def placed_on(self, row: int) -> Collection[PlacedPod]:
        """Return the pods in a row, with the times they were placed at."""
        return self._pods[row].values()

    def placed_pods(self) -> Iterator[tuple[int, PlacedPod]]:
        """Yield every pod with its row."""
        for row, placed_pods in enumerate(self._pods):
            for placed in placed_pods.values():
                yield row, placed

    def changed_rows(self, since_version: int) -> Int64s:
        """Return the rows that changed after ``version`` was ``since_version``, ascending."""
        return np.flatnonzero(self._row_version > since_version)

    def add(self, pod: Pod, node_name: str | None = None, placed_at: float | None = None) -> None:
        """Count a pod on a node; a pod that is already counted, here or elsewhere, is moved and renewed.

        So an update of a pod may be added as it comes. A finished pod uses nothing: it only stops being counted.

        Args:
            pod: the pod.
            node_name: the node; by default the one that the pod is bound to.
            placed_at: when it was placed, unix seconds; by default ``pod.scheduled_at``, else long ago.

        Raises:
            KeyError: no such node.
        """
        row = self.row(pod.node_name if node_name is None else node_name)
        self._end_nomination(pod)
        if self._row_by_uid.get(pod.uid) is not None:
            self.remove(pod)
        if pod.finished:
            return
        if placed_at is None:
            placed_at = float("-inf") if pod.scheduled_at is None else pod.scheduled_at
        self._row_by_uid[pod.uid] = row
        self._pods[row] = {**self._pods[row], pod.uid: PlacedPod(pod, placed_at)}
        self._sums.count(row, pod, 1)
        self._touch(row)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node as just placed: no measurement can have seen it yet.

        It stays so until :meth:`add` counts the bound pod under the same uid.

        Raises:
            KeyError: no such node.
        """
        self.add(pod, node_name, placed_at=float("inf"))

    def remove(self, pod: Pod) -> None:
        """Stop counting a pod, told by its uid.

        Raises:
            KeyError: the pod is not counted.
        """
        row = self._row_by_uid.get(pod.uid)
        if row is None:
            if self._end_nomination(pod):
                return
            raise KeyError(f"pod {pod.namespace}/{pod.name} is on no node of this table")
        remaining = dict(self._pods[row])
        counted = remaining.pop(pod.uid).pod
        self._pods[row] = remaining
        self._forget(pod.uid)
        self._sums.count(row, counted, -1)
        self._touch(row)

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Count a pending pod as nominated to a node, until it is counted on a node or removed.

        Args:
            pod: the pending pod.
            node_name: the node that preemption made room on; by default the one that the pod names.

        Raises:
            KeyError: no such node.
        """
        row = self.row(pod.nominated_node_name if node_name is None else node_name)
        self._end_nomination(pod)
        self._nominated[pod.uid] = row
        self._sums.nominated[row] += 1
        self._touch(row)

    @contextmanager
    def transaction(self) -> Iterator["NodePlan"]:
        """Try placements: all of them are kept when the block ends, none when it raises.

        Yields:
            A plan: a table of its own that starts equal to this one. This one does not change before the block ends.

        Raises:
            RuntimeError: the table was changed by someone else meanwhile; nothing is kept.
        """
        plan, version = NodePlan(self), self.version
        yield plan
        if self.version != version:
            raise RuntimeError("the table changed during the transaction; nothing of it was kept")
        plan._commit(self)

    def take(self, rows: Int64s) -> "NodeTable":
        """Return a table of some rows, in that order, as they are now.

        Args:
            rows: row numbers, shape (k,).
        """
        taken = object.__new__(NodeTable)
        taken.nodes = tuple(self.nodes[row] for row in rows)
        taken.names = tuple(self.names[row] for row in rows)
        taken._row_by_name = {name: row for row, name in enumerate(taken.names)}
        taken.resources, taken._column = self.resources, self._column
        taken._capacity, taken._allocatable = self._capacity[:, rows], self._allocatable[:, rows]
        taken._sums = self._sums.take(rows)
        taken._pods = [self._pods[row] for row in rows]
        taken._row_by_uid = {uid: row for row, placed_pods in enumerate(taken._pods) for uid in placed_pods}
        new_rows = {int(row): new for new, row in enumerate(rows)}
        taken._nominated = {uid: new_rows[row] for uid, row in self._nominated.items() if row in new_rows}
        taken._images = None
        taken.version, taken._row_version = self.version, self._row_version[rows]
        return taken

    def _end_nomination(self, pod: Pod) -> bool:
        row = self._nominated.pop(pod.uid, None)
        if row is None:
            return False
        self._sums.nominated[row] -= 1
        self._touch(row)
        return True

    def _touch(self, row: int) -> None:
        self.version += 1
        self._row_version[row] = self.version

    def _forget(self, uid: str) -> None:
        del self._row_by_uid[uid]

    def _amounts(self, field: str) -> Int64s:
        rows = [[getattr(node, field).get(name, 0) for node in self.nodes] for name in self.resources]
        return np.array(rows, dtype=np.int64).reshape(len(self.resources), len(self.nodes))

    def _view(self, amounts: Int64s, resource: str) -> Int64s:
        column = self._column.get(resource)
        return _read_only(np.zeros(len(self.names), np.int64) if column is None else amounts[column])


class NodePlan(NodeTable):
    """What a transaction changes: a copy of a table's sums that notes what it did to the pods. Made by a table."""

    def __init__(self, base: NodeTable) -> None:
        self.nodes, self.names, self._row_by_name = base.nodes, base.names, base._row_by_name
        self.resources, self._column = base.resources, base._column
        self._capacity, self._allocatable = base._capacity, base._allocatable
        self._sums = base._sums.copy()
        self._pods = list(base._pods)  # a row's mapping is replaced, never changed, so sharing is safe
        self._images = base._images
        self._nominated = dict(base._nominated)
        self._moved: dict[str, int | None] = {}
        self._row_by_uid = ChainMap(self._moved, base._row_by_uid)
        self.version, self._row_version = base.version, base._row_version.copy()

    def _forget(self, uid: str) -> None:
        self._moved[uid] = None

    def _commit(self, base: NodeTable) -> None:
        # Copies: whoever still holds the plan must not reach into the table.
        base._sums = self._sums.copy()
        base._pods, base._row_version, base.version = list(self._pods), self._row_version.copy(), self.version
        base._nominated = dict(self._nominated)
        for uid, row in self._moved.items():
            if row is not None:
                base._row_by_uid[uid] = row
            elif base._row_by_uid.get(uid) is not None:
                base._forget(uid)


def _items(listed: Any) -> Iterable[Any]:
    if isinstance(listed, Mapping):
        return listed.get("items") or ()
    items: Iterable[Any] = getattr(listed, "items", listed)
    return items


def _read_only(array: Int64s) -> Int64s:
    view = array.view()
    view.flags.writeable = False
    return view
