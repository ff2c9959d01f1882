"""Nominations of pending pods to the nodes of their victims, until the API server shows these nominations."""

from dataclasses import replace

from runtime.kubernetes.objects import Pod
from trimaran.cluster.state import ClusterState
from trimaran.scheduler.framework.extension_points import Preemption


class Nominations:
    """Nominations that were decided and that the API server may not show yet. For one thread.

    Args:
        state: nodes and pods, in which a nominated pod counts on its node for pods of lower priority.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._node_names: dict[str, str] = {}  # by uid

    def apply(self, pod: Pod) -> Pod:
        """Return a pending pod with its nomination, which the API server may not show yet."""
        if not pod.nominated_node_name and pod.uid in self._node_names:
            return replace(pod, nominated_node_name=self._node_names[pod.uid])
        return pod

    def nominate(self, pod: Pod, preemption: Preemption) -> None:
        """Nominate a pod to the node of a preemption, and end the nominations that the preemption clears."""
        for other in preemption.cleared:
            self.end(other)
        self._node_names[pod.uid] = preemption.node_name
        self._state.put_pod(replace(pod, nominated_node_name=preemption.node_name))

    def end(self, pod: Pod) -> None:
        """End the nomination of a pending pod."""
        self.forget(pod.uid)
        self._state.put_pod(replace(pod, nominated_node_name=""))

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or was deleted."""
        self._node_names.pop(uid, None)
