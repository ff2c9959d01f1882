"""Nodes on which several schedulers place pods. The risk: each decides without the last decisions of the others.

Two schedulers that bind to one node at the same time can request more than it has; the kubelet then rejects a pod.
Nodes of a scheduler's own have a taint that only its pods tolerate, and a label that they select.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Node, Pod
from scoring.arrays import Bools
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.node_backoff import REJECTED

_MOST_NAMES = 5
_PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", REJECTED.key)


def is_of_daemon_set(pod: Pod) -> bool:
    """Return whether a pod belongs to a DaemonSet, which fixes its node."""
    return pod.owner is not None and pod.owner.kind == "DaemonSet"


def keeps_others_away(node: Node) -> bool:
    """Return whether a node has a permanent taint that excludes pods; taints such as ``not-ready`` do not count."""
    return any(
        taint.effect != "PreferNoSchedule" and not taint.key.startswith(_PASSING_TAINTS) for taint in node.taints
    )


class OwnNodes:
    """Nodes with a taint that keeps other schedulers' pods away; read again when a node changes."""

    def __init__(self) -> None:
        self._rows: object = None  # nodes that the mask was made of
        self._tainted: Bools = np.zeros(0, np.bool_)

    def tainted(self, nodes: NodeTable) -> Bools:
        """Return a mask of the nodes with a taint that keeps other schedulers' pods away, shape (nodes,)."""
        if nodes.rows is not self._rows:
            self._rows = nodes.rows
            self._tainted = np.fromiter(map(keeps_others_away, nodes.nodes), np.bool_, len(nodes))
        return self._tainted


@dataclass(frozen=True, slots=True)
class NodeSharing:
    """Use of the nodes by a scheduler and others, without the pods of DaemonSets, whose node is fixed.

    Attributes:
        own: nodes with pods of this scheduler only.
        shared: nodes with pods of this and of other schedulers.
        untainted: nodes with pods of this scheduler and without a taint that keeps the pods of others away.
        unbounded: pods of this scheduler that may go to an untainted node, since they select no nodes by label;
            namespace and name. Empty if all nodes are tainted.
    """

    own: tuple[str, ...]
    shared: tuple[str, ...]
    untainted: tuple[str, ...]
    unbounded: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        """Return the problems, each with its remedy."""
        problems = []
        if self.shared:
            problems.append(
                f"{len(self.shared)} nodes have pods of this and of other schedulers ({_some(self.shared)}): give the "
                "scheduler nodes of its own, with a NoSchedule taint that only its pods tolerate"
            )
        if self.untainted:
            problems.append(
                f"{len(self.untainted)} nodes with pods of this scheduler have no NoSchedule taint, so others may "
                f"place pods there ({_some(self.untainted)}): taint them, and let the pods tolerate it"
            )
        if self.unbounded:
            problems.append(
                f"{len(self.unbounded)} pods of this scheduler have neither nodeSelector nor required node affinity, "
                f"so they may go to nodes of other schedulers ({_some(self.unbounded)}): label the scheduler's nodes, "
                "and let its pods select the label"
            )
        if not (self.own or self.shared):
            problems.append("no node has pods of this scheduler yet: run the check again once it has placed some")
        return problems


def node_sharing(nodes: Iterable[Node], pods: Iterable[Pod], scheduler_names: Collection[str]) -> NodeSharing:
    """Return which nodes a scheduler shares.

    Args:
        nodes: all nodes.
        pods: all pods; those that are pending or have finished do not count.
        scheduler_names: names of the scheduler's profiles.
    """
    ours: set[str] = set()
    others: set[str] = set()
    unbounded = []
    for pod in pods:
        if pod.node_name and not pod.finished and not is_of_daemon_set(pod):
            is_ours = pod.scheduler_name in scheduler_names
            (ours if is_ours else others).add(pod.node_name)
            if is_ours and not pod.node_selector and pod.required_affinity is None:
                unbounded.append(f"{pod.namespace}/{pod.name}")
    open_to_all = {node.name for node in nodes if not keeps_others_away(node)}
    return NodeSharing(
        tuple(sorted(ours - others)),
        tuple(sorted(ours & others)),
        tuple(sorted(ours & open_to_all)),
        tuple(sorted(unbounded)) if open_to_all else (),
    )


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown}, ..."
