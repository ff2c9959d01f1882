"""SchedulingGates: a pod with gates is not scheduled. Source: the plugin schedulinggates of kube-scheduler."""

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.extension_points import PreEnqueuePlugin, Rejection


class SchedulingGates(PreEnqueuePlugin):
    """Plugin that keeps a pod out of the queue as long as its ``spec.schedulingGates`` has an entry."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """Return a Rejection with the names of the gates, worded as in kube-scheduler; None without gates."""
        gates = pod.scheduling.gates
        return Rejection(f"waiting for scheduling gates: [{' '.join(gates)}]") if gates else None
