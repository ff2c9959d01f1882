"""State of a cluster as one NodeTable: every node with its bound pods and the pods assumed on it. No I/O, no threads.

The API server can report a pod before its node, and can delete a node before its pods. Pods of a missing node are kept
under the node's name, and are counted once a node of that name is added.
"""

from collections.abc import Container, Iterable
from contextlib import suppress

from scoring import Node, NodeTable, Pod
from scoring.table.occupancy import DEPARTED_SECONDS
from trimaran.cluster.assumptions import Assumptions


class ClusterState:
    """Nodes and pods of a cluster, updated one by one or by full lists, in any order.

    Not thread-safe: the caller must hold a lock.

    Args:
        assume_seconds: time until an assumed placement expires without news from the API server.
        departed_seconds: time for which a pod that left its node is remembered, as metrics still show it.

    Attributes:
        table: nodes with all pods that are bound to them or assumed on them.
        assumptions: assumed placements and their outcomes.
        pending: unbound pods by uid, oldest first.
        departed_seconds: time for which a pod that leaves its node from now on is remembered.
    """

    def __init__(self, assume_seconds: float = 30.0, departed_seconds: float = DEPARTED_SECONDS) -> None:
        self.table = NodeTable(())
        self.departed_seconds = departed_seconds
        self.assumptions = Assumptions(assume_seconds)
        self.pending: dict[str, Pod] = {}
        self._node_of: dict[str, str] = {}  # node name of each bound pod, whether the node exists or not
        self._waiting: dict[str, dict[str, Pod]] = {}  # pods of missing nodes, by node name and uid

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace all nodes with a full list."""
        by_name = {node.name: node for node in nodes}
        self._remove_nodes([name for name in self.table.names if name not in by_name])
        self._add_nodes([node for node in by_name.values() if not self._has(node)])

    def put_node(self, node: Node) -> None:
        """Add or update a node. Most updates are heartbeats, which change nothing."""
        if not self._has(node):
            self._add_nodes([node])

    def drop_node(self, name: str) -> None:
        """Remove a node; its bound pods are kept until a node of the same name is added."""
        if name in self.table:
            self._remove_nodes([name])

    def replace_pods(self, pods: Iterable[tuple[Pod, bool]], at: float | None = None) -> None:
        """Replace all pods with a full list.

        Args:
            pods: pairs of a pod and whether the scheduler found no node for the pod in its last attempt.
            at: time at which the pods that are missing in the list stopped running, as in :meth:`drop_pod`.
        """
        by_uid = {pod.uid: (pod, refused) for pod, refused in pods}
        self.drop_other_pods(by_uid, at)
        for pod, refused in by_uid.values():
            self.put_pod(pod, refused=refused, at=at)

    @property
    def uids(self) -> tuple[str, ...]:
        """UIDs of all pods, bound and pending."""
        return *self._node_of, *self.pending

    def drop_other_pods(self, uids: Container[str], at: float | None = None) -> None:
        """Remove all pods except those with the given uids; ``at`` as in :meth:`drop_pod`."""
        for uid in [uid for uid in self.uids if uid not in uids]:
            self.drop_pod(uid, at)

    def put_pod(self, pod: Pod, *, refused: bool = False, at: float | None = None) -> None:
        """Add or update a pod.

        Args:
            pod: the pod.
            refused: whether the scheduler found no node for the pod, which ends its assumption.
            at: time at which a finished pod ended, as in :meth:`drop_pod`.
        """
        if pod.finished:
            self.drop_pod(pod.uid, at)
        elif pod.node_name:
            self._bind(pod)
        else:
            self.pending[pod.uid] = pod
            if refused:
                self.assumptions.drop(pod.uid)
            self._count_pending(pod)

    def drop_pod(self, uid: str, at: float | None = None) -> None:
        """Remove a pod.

        Args:
            uid: uid of the pod.
            at: time at which the pod stopped running, Unix seconds; a bound pod is then remembered for a while, because
                metrics still include its use. None forgets the pod at once.
        """
        self.assumptions.drop(uid)
        self.pending.pop(uid, None)
        left_at = at if uid in self._node_of else None
        self._forget_node(uid)
        self._withdraw(uid, left_at)

    def assume(self, pod: Pod, node_name: str, now: float) -> None:
        """Count a pod on the node that it is expected to be bound to; replaces the pod's earlier assumption.

        An unknown node changes nothing. If the API server has already reported that the pod is bound, only a hit or a
        miss is counted.

        Args:
            pod: the pod.
            node_name: the expected node.
            now: monotonic seconds.
        """
        if node_name not in self.table:
            return
        self.assumptions.add(pod.uid, node_name, now)
        if pod.uid in self._node_of:
            self.assumptions.resolve(pod.uid, self._node_of[pod.uid])
        else:
            self.table.assume(pod, node_name)

    def expire(self, now: float) -> None:
        """Drop the assumptions that have expired at ``now``, monotonic seconds; their pods no longer count."""
        for uid in self.assumptions.expire(now):
            self._unassume(uid)

    def retry(self, uid: str) -> None:
        """Drop the assumption of a pod that is scored again: its earlier scheduling attempt has failed."""
        if self.assumptions.drop(uid):
            self._unassume(uid)

    def _has(self, node: Node) -> bool:
        return node.name in self.table and self.table.nodes[self.table.row(node.name)] == node

    def _add_nodes(self, nodes: list[Node]) -> None:
        if nodes:
            self.table.add_nodes(nodes)
        for node in nodes:
            for pod in self._waiting.pop(node.name, {}).values():
                self.table.add(pod)
        for pod in self.pending.values() if nodes else ():
            if pod.nominated_node_name:
                self._count_pending(pod)

    def _remove_nodes(self, names: list[str]) -> None:
        for name in names:
            for pod in self.table.pods(name):
                if pod.uid in self._node_of:
                    self._waiting.setdefault(name, {})[pod.uid] = pod
                else:
                    self.assumptions.drop(pod.uid)
        if names:
            self.table.remove_nodes(names)
        for pod in self.pending.values() if names else ():
            if pod.nominated_node_name:
                self._count_pending(pod)

    def _bind(self, pod: Pod) -> None:
        self.assumptions.resolve(pod.uid, pod.node_name)
        self.pending.pop(pod.uid, None)
        if self._node_of.get(pod.uid) != pod.node_name:
            self._forget_node(pod.uid)
        self._node_of[pod.uid] = pod.node_name
        if pod.node_name not in self.table:
            self._withdraw(pod.uid)
            self._waiting.setdefault(pod.node_name, {})[pod.uid] = pod
            return
        known = self.table.find(pod)
        if known is None or known[0] != pod.node_name or known[1].pod != pod or known[1].placed_at == float("inf"):
            self.table.add(pod)

    def _unassume(self, uid: str) -> None:
        self._withdraw(uid)
        if uid in self.pending:
            self._count_pending(self.pending[uid])

    def _count_pending(self, pod: Pod) -> None:
        """Count a pending pod on its nominated node, unless it is assumed on a node."""
        if pod.uid in self.assumptions:
            assumed = self.table.find(pod)
            if assumed is not None and assumed[1].pod != pod:  # its requests have changed since it was assumed
                self.table.assume(pod, assumed[0])
            return
        self._withdraw(pod.uid)
        if pod.nominated_node_name in self.table:
            self.table.nominate(pod)

    def _forget_node(self, uid: str) -> None:
        """Forget the node that a pod is bound to."""
        name = self._node_of.pop(uid, "")
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting[name]

    def _withdraw(self, uid: str, left_at: float | None = None) -> None:
        """Remove a pod from the table, if it is bound, assumed or nominated there."""
        with suppress(KeyError):
            self.table.remove(Pod(uid=uid), left_at=left_at, keep_seconds=self.departed_seconds)
