"""What a cluster is like, as one NodeTable: every node, the pods on them, and what is in flight. No input, no threads.

Pods may be told of before their node is, and outlive it: they wait by the node's name, so that a node that is deleted
and created again under its name has them.
"""

from collections.abc import Container, Iterable
from contextlib import suppress

from scoring import Node, NodeTable, Pod
from scoring.table.occupancy import DEPARTED_SECONDS
from trimaran.cluster.assumptions import Assumptions


class ClusterState:
    """Nodes and pods, told of one by one or as whole lists, in any order. Needs its caller's lock.

    Args:
        assume_seconds: how long a placement that was advised is believed without a word of the API server.
        departed_seconds: how long a pod that left its node is remembered, as metrics still show it.

    Attributes:
        table: the nodes, with all pods that are bound to them or assumed on them.
        assumptions: what is assumed, and what became of it.
        pending: pods that are bound to no node, by uid, oldest first.
        departed_seconds: how long a pod that left its node from now on is remembered.
    """

    def __init__(self, assume_seconds: float = 30.0, departed_seconds: float = DEPARTED_SECONDS) -> None:
        self.table = NodeTable(())
        self.departed_seconds = departed_seconds
        self.assumptions = Assumptions(assume_seconds)
        self.pending: dict[str, Pod] = {}
        self._node_of: dict[str, str] = {}  # each bound pod's node, whether that is there or not
        self._waiting: dict[str, dict[str, Pod]] = {}  # pods of nodes that are not there, by the node's name and uid

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Take all nodes that there are."""
        by_name = {node.name: node for node in nodes}
        self._remove_nodes([name for name in self.table.names if name not in by_name])
        self._add_nodes([node for node in by_name.values() if not self._has(node)])

    def put_node(self, node: Node) -> None:
        """Take a node that is new or has changed; most updates are heartbeats, and cost nothing."""
        if not self._has(node):
            self._add_nodes([node])

    def drop_node(self, name: str) -> None:
        """Take a node away; its pods wait for one of that name."""
        if name in self.table:
            self._remove_nodes([name])

    def replace_pods(self, pods: Iterable[tuple[Pod, bool]], at: float | None = None) -> None:
        """Take all pods that there are, each with whether the scheduler refused it last; ``at`` as in drop_pod."""
        by_uid = {pod.uid: (pod, refused) for pod, refused in pods}
        self.drop_other_pods(by_uid, at)
        for pod, refused in by_uid.values():
            self.put_pod(pod, refused=refused, at=at)

    def drop_other_pods(self, uids: Container[str], at: float | None = None) -> None:
        """Take all pods away but some, told by their uids; ``at`` as in :meth:`drop_pod`."""
        for uid in [uid for uid in (*self._node_of, *self.pending) if uid not in uids]:
            self.drop_pod(uid, at)

    def put_pod(self, pod: Pod, *, refused: bool = False, at: float | None = None) -> None:
        """Take a pod that is new or has changed.

        Args:
            pod: the pod.
            refused: the scheduler found no place for it, so that it is not on its way to one either.
            at: when it finished, if it did, as in :meth:`drop_pod`.
        """
        if pod.finished:
            self.drop_pod(pod.uid, at)
        elif pod.node_name:
            self._bind(pod)
        else:
            self.pending[pod.uid] = pod
            if refused:
                self.assumptions.drop(pod.uid)
            self._wait(pod)

    def drop_pod(self, uid: str, at: float | None = None) -> None:
        """Take a pod away, told by its uid.

        Args:
            uid: of the pod.
            at: when it stopped running, unix seconds: remembered if it was on a node, see :meth:`NodeTable.remove`.
        """
        self.assumptions.drop(uid)
        self.pending.pop(uid, None)
        left_at = at if uid in self._node_of else None
        self._leave(uid)
        self._withdraw(uid, left_at)

    def assume(self, pod: Pod, node_name: str, now: float) -> None:
        """Count a pod that is about to be bound, in place of what was assumed of it before.

        A node that is not there changes nothing. Neither does a pod that is bound already, as the API server may tell
        first, but for what is counted of right and wrong assumptions.

        Args:
            pod: the pod.
            node_name: where it is expected.
            now: monotonic seconds.
        """
        if node_name not in self.table:
            return
        self.assumptions.make(pod.uid, node_name, now)
        if pod.uid in self._node_of:
            self.assumptions.bound(pod.uid, self._node_of[pod.uid])
        else:
            self.table.assume(pod, node_name)

    def expire(self, now: float) -> None:
        """Give up assumptions that are too old, by monotonic seconds."""
        for uid in self.assumptions.expire(now):
            self._unassume(uid)

    def retry(self, uid: str) -> None:
        """Give up what was assumed of a pod: a scheduler asks about it again, so nothing came of that."""
        if self.assumptions.drop(uid):
            self._unassume(uid)

    def _has(self, node: Node) -> bool:
        return node.name in self.table and self.table.nodes[self.table.row(node.name)] == node

    def _add_nodes(self, nodes: list[Node]) -> None:
        if nodes:
            self.table.add_nodes(nodes)
        for node in nodes:
            for pod in self._waiting.pop(node.name, {}).values():
                with suppress(ValueError):  # more than can be counted; the node has the others
                    self.table.add(pod)
        for pod in self.pending.values() if nodes else ():
            if pod.nominated_node_name:
                self._wait(pod)

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
                self._wait(pod)

    def _bind(self, pod: Pod) -> None:
        self.assumptions.bound(pod.uid, pod.node_name)
        self.pending.pop(pod.uid, None)
        if self._node_of.get(pod.uid) != pod.node_name:
            self._leave(pod.uid)
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
            self._wait(self.pending[uid])

    def _wait(self, pod: Pod) -> None:
        """Count a pending pod as nominated where it is, unless it is assumed somewhere."""
        if pod.uid in self.assumptions:
            assumed = self.table.find(pod)
            if assumed is not None and assumed[1].pod != pod:  # it asks for something else since
                self.table.assume(pod, assumed[0])
            return
        self._withdraw(pod.uid)
        if pod.nominated_node_name in self.table:
            self.table.nominate(pod)

    def _leave(self, uid: str) -> None:
        """Forget the node that a pod was bound to."""
        name = self._node_of.pop(uid, "")
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting[name]

    def _withdraw(self, uid: str, left_at: float | None = None) -> None:
        """Take a pod off the table, where it is counted, assumed or nominated there."""
        with suppress(KeyError):
            self.table.remove(Pod(uid=uid), left_at=left_at, keep_seconds=self.departed_seconds)
