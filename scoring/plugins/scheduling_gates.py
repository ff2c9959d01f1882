"""SchedulingGates: a pod with gates is not scheduled. Source: the plugin schedulinggates of kube-scheduler."""

from runtime.kubernetes.objects import Pod


def gate_message(pod: Pod) -> str | None:
    """Return why a pod must not be scheduled yet, as kube-scheduler words it; None for a pod without gates."""
    gates = pod.scheduling.gates
    return f"waiting for scheduling gates: [{' '.join(gates)}]" if gates else None
