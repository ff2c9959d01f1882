"""A watcher that has known the pods for a day: what moves need, in a test of minutes."""

from control_plane.moving import PodUse
from real_nodes.cluster import RealCluster
from real_nodes.recorder import Recorder

from runtime.kubernetes.objects import Pod

_SECONDS = 15


class MeasuredDay(PodUse):
    """A made-up watcher: each pod used all day the CPU and memory that its control group uses now.

    Use it as a context manager.

    Args:
        cluster: cluster with the pods.
        recorder: recorder of the cluster's control groups.
    """

    cluster: RealCluster

    def __init__(self, cluster: RealCluster, recorder: Recorder) -> None:
        super().__init__(cluster)
        self._recorder = recorder

    def pods(self) -> list[tuple[Pod, float]]:
        """Return the pods on nodes with their use, cores."""
        listed = [each for each in self.cluster.api.items("/api/v1/pods") if each["spec"].get("nodeName")]
        return [(Pod.from_k8s(each), self._recorder.latest(each["metadata"]["uid"], _SECONDS)) for each in listed]

    def memory_gibibytes(self, pod: Pod) -> float:
        """Return the working set of a pod."""
        return self._recorder.working_set(pod.uid) / 2**30

    def loads(self) -> dict[str, float]:
        """Return the CPU load of each node, percent."""
        nodes = self.cluster.nodes.values()
        return {each.name: 100 * self._recorder.latest(each.name, _SECONDS) / each.cores for each in nodes}
