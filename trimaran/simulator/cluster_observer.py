"""Observer of a simulated cluster: receives each change of its nodes and pods, as a watch does in a real cluster."""

from runtime.kubernetes.objects import Node, Pod


class ClusterObserver:
    """Base class of observers, which ignores every change."""

    def joined(self, node: Node) -> None:
        """Record a node that was added."""

    def left(self, node_name: str) -> None:
        """Record a node that was removed, after its pods have ended."""

    def placed(self, number: int, pod: Pod, node_name: str) -> None:
        """Record that a pod, given by its number in the trace, was bound to a node."""

    def ended(self, number: int, pod: Pod) -> None:
        """Record that a bound pod ended."""
