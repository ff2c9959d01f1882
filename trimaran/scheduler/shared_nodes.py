"""Nodes that several schedulers place pods on, which is a risk: each decides without the other's last decisions.

Two schedulers that bind to one node at the same time can request more than it has; the kubelet then rejects a pod.
Nodes of a scheduler's own have a taint that only its pods tolerate, and a label that they select.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from runtime.kubernetes.objects import Node, Pod

_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class NodeSharing:
    """Use of the nodes by a scheduler and others, without the pods of DaemonSets, whose node is fixed.

    Attributes:
        own: nodes with pods of this scheduler only.
        shared: nodes with pods of this and of other schedulers.
        untainted: nodes among them without a taint that keeps the pods of others away.
    """

    own: tuple[str, ...]
    shared: tuple[str, ...]
    untainted: tuple[str, ...]

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
    for pod in pods:
        if pod.node_name and not pod.finished and not (pod.owner is not None and pod.owner.kind == "DaemonSet"):
            (ours if pod.scheduler_name in scheduler_names else others).add(pod.node_name)
    tainted = {node.name for node in nodes if any(taint.effect != "PreferNoSchedule" for taint in node.taints)}
    return NodeSharing(tuple(sorted(ours - others)), tuple(sorted(ours & others)), tuple(sorted(ours - tainted)))


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown}, ..."
