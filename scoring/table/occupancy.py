"""Pods on the nodes of a table: the pods by row, the sums over them, and their placement times.

A node table writes to this value, and a transaction works on a copy. A copy takes a few arrays and lists with one
element per row. Its cost does not depend on the number of pods: the original and the copy share the mapping of each
row's pods and the buckets of the index until one of them writes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, Kin, Node, Pod
from scoring.arrays import Float64s, Int64s
from scoring.table.node_rows import NodeRows
from scoring.table.placed_pods import DepartedPod, PlacedPod
from scoring.table.placed_rules import NO_SOURCES, PlacedRules, SelectorSources
from scoring.table.pod_sums import PodSums
from scoring.table.shared_index import SharedIndex

# The longest default window is 15 minutes, and metrics are used until they are 5 minutes old.
DEPARTED_SECONDS = 20 * 60.0
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class OwnedPods:
    """Sums over the pods on a node that have the same workload, or the same owner if the workload is not known.

    Attributes:
        count: number of pods.
        cpu_milli: CPU requests in millicores as kube-scheduler counts them, with 100m for a container without a
            request.
        requests: requests by resource as Trimaran counts them; the mapping is replaced, never modified.
    """

    count: int
    cpu_milli: int
    requests: Mapping[str, int]


_NO_PODS = OwnedPods(0, 0, {})


@dataclass(slots=True, eq=False)
class Occupancy:
    """Nodes and the pods on them.

    Attributes:
        rows: nodes as arrays; immutable, so copies share them.
        sums: sums over the pods of each row.
        pods: for each row, its pods by uid, in order of placement. A row's mapping is replaced, never modified.
        owners: for each row, the sums of its pods by workload or owner. A row's mapping is replaced, never modified.
        newest: time of the latest placement in each row, Unix seconds, shape (nodes,); -infinity without pods.
        departed: for each row, the pods that left so recently that a metrics window may include them. A row's tuple is
            replaced, never modified.
        last_left: time when the last pod left each row, Unix seconds, shape (nodes,); -infinity if none left.
        nominated: pending pods by uid, each with the name of its nominated node. The mapping is replaced, never
            modified.
        version: version number, which grows with every change.
        row_version: version number of the latest change of each row, shape (nodes,).
        index: name of the node of each pod by uid; None if it is not built yet, after :meth:`take`.
        owner_index: names of the nodes that have pods of each workload or owner; None if it is not built yet.
        rules_index: index of the pods by labels, affinity terms and ports; None if it is not built yet.
        selector_sources: Services and other objects that select pods.
    """

    rows: NodeRows
    sums: PodSums
    pods: list[dict[str, PlacedPod]]
    owners: list[Mapping[Kin, OwnedPods]]
    newest: Float64s
    departed: list[tuple[DepartedPod, ...]]
    last_left: Float64s
    nominated: Mapping[str, tuple[str, Pod]]
    version: int
    row_version: Int64s
    index: SharedIndex[str, str] | None
    owner_index: SharedIndex[Kin, tuple[str, ...]] | None
    rules_index: PlacedRules | None = field(default=None, repr=False)
    selector_sources: SelectorSources = NO_SOURCES

    @classmethod
    def empty(cls, rows: NodeRows) -> "Occupancy":
        """Return nodes without pods."""
        size = len(rows)
        return cls(
            rows, PodSums.zeros(rows.column, size), [{}] * size, [{}] * size, np.full(size, _NEVER),
            [()] * size, np.full(size, _NEVER), {}, 0, np.zeros(size, np.int64), SharedIndex(),
            SharedIndex(),
        )  # fmt: skip

    def copy(self) -> "Occupancy":
        """Return an independent copy."""
        return Occupancy(
            self.rows, self.sums.copy(), list(self.pods), list(self.owners), self.newest.copy(),
            list(self.departed), self.last_left.copy(), self.nominated, self.version, self.row_version.copy(),
            self.pod_index().copy(), self._owner_nodes().copy(),
            None if self.rules_index is None else self.rules_index.share(), self.selector_sources,
        )  # fmt: skip

    def take(self, rows: Int64s) -> "Occupancy":
        """Return an independent value with some of the nodes and their pods, in the given order."""
        selected = self.rows.take(rows)
        nominated = {uid: (name, pod) for uid, (name, pod) in self.nominated.items() if name in selected.row_by_name}
        return Occupancy(
            selected, self.sums.take(rows), [self.pods[row] for row in rows.tolist()],
            [self.owners[row] for row in rows.tolist()], self.newest[rows],
            [self.departed[row] for row in rows.tolist()], self.last_left[rows], nominated, self.version,
            self.row_version[rows], None, None, None, self.selector_sources,
        )  # fmt: skip

    def pod_index(self) -> SharedIndex[str, str]:
        """Return the index from pod to node; build it if necessary."""
        if self.index is None:
            items = zip(self.rows.names, self.pods, strict=True)
            self.index = SharedIndex((uid, name) for name, pods in items for uid in pods)
        return self.index

    def placed_rules(self) -> PlacedRules:
        """Return the index of the present pods by labels, affinity terms and ports; build or update it if necessary."""
        index = self.rules_index
        if index is None:
            index = PlacedRules(self.rows)
        self.rules_index = index = index.following(self.rows, self.pods, self.row_version, self.version)
        return index

    def node_names_of(self, owner: Kin) -> tuple[str, ...]:
        """Return the names of the nodes that have pods of a workload or owner."""
        return self._owner_nodes().get(owner) or ()

    def _owner_nodes(self) -> SharedIndex[Kin, tuple[str, ...]]:
        """Return the index from owner to nodes; build it if necessary."""
        if self.owner_index is None:
            names: dict[Kin, list[str]] = {}
            for name, owners in zip(self.rows.names, self.owners, strict=True):
                for owner in owners:
                    names.setdefault(owner, []).append(name)
            self.owner_index = SharedIndex((owner, tuple(found)) for owner, found in names.items())
        return self.owner_index

    def find(self, uid: str) -> tuple[int, PlacedPod] | None:
        """Return the row of the pod with a uid, and the pod with its placement time; None if the pod is on no node."""
        name = self.pod_index().get(uid)
        if name is None:
            return None
        row = self.rows.row_by_name[name]
        return row, self.pods[row][uid]

    def placed_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, PlacedPod]]:
        """Yield the row and the pod for all pods placed at or after a time.

        Args:
            since: time for each row, Unix seconds, shape (nodes,).
            rows: rows to search, shape (k,); None searches all rows.
        """
        for row in ((self.newest >= since).nonzero()[0] if rows is None else rows).tolist():
            oldest, recent = since.item(row), []
            for placed in reversed(self.pods[row].values()):
                if placed.placed_at < oldest:
                    break
                recent.append(placed)
            for placed in reversed(recent):
                yield row, placed

    def left_since(self, since: Float64s | Int64s, rows: Int64s | None = None) -> Iterator[tuple[int, DepartedPod]]:
        """Yield the row and the pod for all remembered pods that left after a time.

        Args:
            since: time for each row, Unix seconds, shape (nodes,).
            rows: rows to search, shape (k,); None searches all rows.
        """
        for row in ((self.last_left > since).nonzero()[0] if rows is None else rows).tolist():
            for departed in self.departed[row]:
                if departed.left_at > since.item(row):
                    yield row, departed

    def depart(self, uid: str, left_at: float, keep_seconds: float) -> None:
        """Remember when a pod left its node, and forget pods that left the node more than ``keep_seconds`` earlier.

        A pod that is not counted, or was placed later, is ignored. The pod remains counted until :meth:`drop`.

        Args:
            uid: uid of the pod.
            left_at: time when the pod left, Unix seconds.
            keep_seconds: time for which pods that left the same node earlier are remembered.
        """
        row_and_pod = self.find(uid)
        if row_and_pod is None or row_and_pod[1].placed_at >= left_at:  # only assumed there, or it never ran
            return
        row, placed = row_and_pod
        remembered = [departed for departed in self.departed[row] if departed.left_at > left_at - keep_seconds]
        self.departed[row] = (*remembered, DepartedPod(placed.pod, placed.placed_at, left_at))
        self.last_left[row] = max(self.last_left[row], left_at)

    def put(self, row: int, pod: Pod, placed_at: float) -> None:
        """Count a pod on the node of a row; the pod must not be counted yet."""
        self.sums.count(row, pod, 1)
        # A pod that reappears with the same placement time never left: drop its departure.
        if self.departed[row]:
            self.departed[row] = tuple(
                departed
                for departed in self.departed[row]
                if (departed.pod.uid, departed.placed_at) != (pod.uid, placed_at)
            )
        placed = {**self.pods[row], pod.uid: PlacedPod(pod, placed_at)}
        if placed_at >= self.newest[row]:
            self.newest[row] = placed_at
        else:
            placed = dict(sorted(placed.items(), key=_placed_at))
        self.pods[row] = placed
        self._count_owner(row, pod, 1)
        self.pod_index().put(pod.uid, self.rows.names[row])
        self.mark_changed(row)

    def replace(self, row: int, pod: Pod, placed_at: float) -> bool:
        """Replace a pod of a row by a version with equal sums, such as an assumed pod by the bound one.

        Returns:
            False, without a change, if the row does not have the pod or the sums may differ: then drop and put it.
        """
        known = self.pods[row].get(pod.uid)
        if (
            known is None
            or pod.cached_requests is None
            or pod.cached_requests is not known.pod.cached_requests
            or pod.terminating != known.pod.terminating
            or pod.kin != known.pod.kin
            or self.departed[row]
        ):
            return False
        placed = dict(self.pods[row])
        del placed[pod.uid]  # so that it is put last of the pods with the same time, as by drop and put
        placed[pod.uid] = PlacedPod(pod, placed_at)
        if len(placed) > 1:
            placed = dict(sorted(placed.items(), key=_placed_at))
        self.pods[row] = placed
        self.newest[row] = next(reversed(placed.values())).placed_at
        self.mark_changed(row)
        return True

    def drop(self, uid: str) -> bool:
        """Stop counting the pod with a uid; return whether it was counted."""
        row_and_pod = self.find(uid)
        if row_and_pod is None:
            return False
        row, placed = row_and_pod
        remaining = dict(self.pods[row])
        del remaining[uid]
        self.pods[row] = remaining
        self._count_owner(row, placed.pod, -1)
        self.newest[row] = next(reversed(remaining.values())).placed_at if remaining else _NEVER
        self.pod_index().drop(uid)
        self.sums.count(row, placed.pod, -1)
        self.mark_changed(row)
        return True

    def nominate(self, row: int, pod: Pod) -> None:
        """Count a pending pod as nominated to the node of a row; the pod must not be nominated yet."""
        self.nominated = {**self.nominated, pod.uid: (self.rows.names[row], pod)}
        self.sums.nominated[row] += 1
        self.mark_changed(row)

    def end_nomination(self, uid: str) -> bool:
        """Stop counting the pod with a uid as nominated; return whether it was nominated."""
        nomination = self.nominated.get(uid)
        if nomination is None:
            return False
        self.nominated = {other_uid: other for other_uid, other in self.nominated.items() if other_uid != uid}
        row = self.rows.row_by_name[nomination[0]]
        self.sums.nominated[row] -= 1
        self.mark_changed(row)
        return True

    def add_nodes(self, nodes: Collection[Node]) -> None:
        """Add nodes; a node replaces a present node of the same name, whose row and pods remain."""
        before, self.rows = self.rows, self.rows.added(nodes)
        more = len(self.rows) - len(before)
        if more:
            self.sums = self.sums.extended(more)
            self.pods = [*self.pods, *({} for _ in range(more))]
            self.owners = [*self.owners, *({} for _ in range(more))]
            self.newest = np.pad(self.newest, (0, more), constant_values=_NEVER)
            self.departed = [*self.departed, *([()] * more)]
            self.last_left = np.pad(self.last_left, (0, more), constant_values=_NEVER)
            self.row_version = np.pad(self.row_version, (0, more))
        self._update_columns(before)
        for node in nodes:
            self.mark_changed(self.rows.row_by_name[node.name])

    def remove_nodes(self, names: Collection[str]) -> None:
        """Remove the named nodes, with their pods and with the nominations of pending pods to them."""
        before, index = self.rows, self.pod_index()
        for name in names:
            row = before.row_by_name[name]
            for uid in self.pods[row]:
                index.drop(uid)
            for owner in self.owners[row]:
                self._leave(owner, name)
        self.rows = before.without(names)
        surviving = self.rows.surviving(before)
        self.sums = self.sums.take(surviving)
        self.pods = [self.pods[row] for row in surviving.tolist()]
        self.owners = [self.owners[row] for row in surviving.tolist()]
        self.departed = [self.departed[row] for row in surviving.tolist()]
        self.newest, self.last_left = self.newest[surviving], self.last_left[surviving]
        self.row_version = self.row_version[surviving]
        removed = set(names)
        self.nominated = {uid: (name, pod) for uid, (name, pod) in self.nominated.items() if name not in removed}
        self._update_columns(before)
        self.version += 1

    def _count_owner(self, row: int, pod: Pod, sign: int) -> None:
        kin = pod.kin
        if kin is None:
            return
        owners = dict(self.owners[row])
        before = owners.get(kin, _NO_PODS)
        count = before.count + sign
        if count:
            cpu_milli = before.cpu_milli + sign * pod_demand.in_tree_requests(pod, CPU, non_zero=True)
            owners[kin] = OwnedPods(count, cpu_milli, _added(before.requests, pod_demand.requested(pod), sign))
        else:
            del owners[kin]
            self._leave(kin, self.rows.names[row])
        if not before.count:
            index = self._owner_nodes()
            index.put(kin, (*(index.get(kin) or ()), self.rows.names[row]))
        self.owners[row] = owners

    def _leave(self, owner: Kin, node_name: str) -> None:
        """Remove a node from the index of the nodes that have pods of an owner."""
        index = self._owner_nodes()
        names = index.get(owner) or (node_name,)
        place = names.index(node_name)  # each name occurs once
        others = (*names[:place], *names[place + 1 :])
        if others:
            index.put(owner, others)
        else:
            index.drop(owner)

    def mark_changed(self, row: int) -> None:
        """Increment the version number, and record it as the version of a row's latest change."""
        self.version += 1
        self.row_version[row] = self.version

    def placed_pods(self) -> Iterator[tuple[int, PlacedPod]]:
        """Yield every pod with its row."""
        for row, pods in enumerate(self.pods):
            for placed in pods.values():
                yield row, placed

    def _update_columns(self, before: NodeRows) -> None:
        if self.rows.column is not before.column:
            self.sums = self.sums.for_resources(
                self.rows.column, ((row, placed.pod) for row, placed in self.placed_pods())
            )


def _added(amounts: Mapping[str, int], more: Mapping[str, int], sign: int) -> Mapping[str, int]:
    if not amounts:
        return more  # shared, not copied: most owners have one pod on a node
    return {name: amounts.get(name, 0) + sign * more.get(name, 0) for name in (*amounts, *more)}


def _placed_at(item: tuple[str, PlacedPod]) -> float:
    return item[1].placed_at
