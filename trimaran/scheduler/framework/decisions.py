"""Decisions of the scheduler. The service carries them out in a live cluster, a replay in its trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.extension_points import Preemption, Write


@dataclass(frozen=True)
class Bind:
    """Decision to bind a pod, which already counts on the node: send the Binding, and report the outcome.

    The outcome is reported by :meth:`~trimaran.scheduler.framework.scheduler.Scheduler.bound` or
    :meth:`~trimaran.scheduler.framework.scheduler.Scheduler.not_bound`.

    Attributes:
        pod: pending pod.
        node_name: its node.
        feasible: number of nodes that passed the filters.
        total: weighted score of the node; None if it was the only feasible node, which is not scored.
    """

    pod: Pod
    node_name: str
    feasible: int
    total: int | None = None


@dataclass(frozen=True)
class Prepare:
    """Decision to send requests before a pod is bound. The pod already counts on the node; a Bind follows later.

    The outcome is reported by :meth:`~trimaran.scheduler.framework.scheduler.Scheduler.prepared` or
    :meth:`~trimaran.scheduler.framework.scheduler.Scheduler.not_bound`.

    Attributes:
        pod: pending pod.
        node_name: its node.
        writes: requests to send, in order.
    """

    pod: Pod
    node_name: str
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class Unschedulable:
    """Decision that no node can take a pod now. The pod is tried again after an event, or after some minutes.

    Attributes:
        pod: pending pod.
        message: reason, as kube-scheduler words it.
        needs_room: true if a new node could help: the status then has the reason ``Unschedulable``, on which cluster
            autoscalers act.
        reasons: number of nodes that each reason refuses, by reason.
        preemption: victims and nominated node, if the pod will fit without the victims.
        ends_nomination: true if the pod's present nomination to a node ends.
        is_error: true if a plugin failed; the status then has the reason ``SchedulerError``.
    """

    pod: Pod
    message: str
    needs_room: bool = True
    reasons: Mapping[str, int] = field(default_factory=dict)
    preemption: Preemption | None = None
    ends_nomination: bool = False
    is_error: bool = False


@dataclass(frozen=True)
class Waiting:
    """Decision that a pod waits for the approval of Permit plugins; it already counts on the node."""

    pod: Pod
    node_name: str


Decision = Bind | Prepare | Unschedulable | Waiting
