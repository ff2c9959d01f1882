"""Scheduling cycle of a whole gang, for PodGroups of Kubernetes itself: enough of its pods get a node, or none does.

No other pod is tried between two pods of the gang, and nothing is sent before enough of them fit, so an incomplete gang
blocks no nodes. Source: ``scheduleOnePodGroup`` and the plugin GangScheduling of kube-scheduler 1.37. Preemption for a
gang and placements within a topology domain are not supported.
"""

from dataclasses import dataclass
from typing import Final

from runtime.kubernetes.gangs import GangForm
from runtime.kubernetes.objects import Pod
from scoring.plugins.filtering import count_reasons
from trimaran.cluster.state import ClusterState
from trimaran.scheduler.framework.binding_cycle import BindingCycle
from trimaran.scheduler.framework.decisions import Bind, Decision, Unschedulable
from trimaran.scheduler.framework.feasibility import Feasibility
from trimaran.scheduler.framework.gang_directory import HELD, Gang, GangDirectory, placed_pods
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.queue import QueueEntry, SchedulingQueue
from trimaran.scheduler.framework.scheduling_cycle import SchedulingCycle

GANG_SCHEDULING: Final = "GangScheduling"
"""Name of the plugin in a KubeSchedulerConfiguration."""


@dataclass
class _Attempt:
    """Attempt of one pod of the gang.

    Attributes:
        entry: pod with its attempts.
        bind: decision with the pod's node; None without a node.
        feasibility: nodes and verdicts, if no node can take the pod.
        refused_by: plugins that refused the pod.
        message: reason why the pod has no node.
    """

    entry: QueueEntry
    bind: Bind | None = None
    feasibility: Feasibility | None = None
    refused_by: frozenset[str] = frozenset()
    message: str = ""


class GroupCycle:
    """Attempts to place gangs. For one thread.

    Args:
        gangs: gangs with their pods.
        state: nodes and pods.
        queue: pending pods.
        cycle: places single pods.
        binding: takes the pods that got a node.
    """

    def __init__(
        self,
        gangs: GangDirectory,
        state: ClusterState,
        queue: SchedulingQueue,
        cycle: SchedulingCycle,
        binding: BindingCycle,
    ) -> None:
        self._gangs, self._state, self._queue, self._cycle, self._binding = gangs, state, queue, cycle, binding

    def gang_of(self, pod: Pod) -> Gang | None:
        """Return the gang that has to be placed in one cycle; None for pods that are placed one by one."""
        gang = self._gangs.of(pod)
        if gang is None or gang.ref.form is not GangForm.IN_TREE:
            return None
        return None if gang.group is not None and not gang.min_members else gang

    def attempt(self, entry: QueueEntry, gang: Gang, profile: SchedulerProfile, now: float) -> Decision:
        """Try to place the pending pods of a gang; return the first decision. The binding cycle returns the others.

        Args:
            entry: pod of the gang that is due.
            gang: the gang.
            profile: profile of the pod.
            now: current time, seconds.
        """
        reason = gang.why_missing() or self._foreign(gang, entry.pod) or _incomplete(gang)
        if reason:
            self._queue.retry(entry, now, (HELD,))
            return Unschedulable(entry.pod, reason, needs_room=False)
        taken = [
            self._queue.take(uid) for uid, pod in gang.pods.items() if uid != entry.pod.uid and not pod.terminating
        ]
        entries = [entry, *(each for each in taken if each is not None)]
        try:
            decisions = self._place(entries, gang, profile, now)
        except Exception:
            for each in reversed(entries):
                self._cycle.take_back(each, now)
            raise
        self._binding.announce(decisions[1:])
        return decisions[0]

    def _place(self, entries: list[QueueEntry], gang: Gang, profile: SchedulerProfile, now: float) -> list[Decision]:
        """Return the decisions on all pods of a gang that have no node."""
        placed, attempts = placed_pods(gang, self._state.assumptions.__contains__), []
        for number, each in enumerate(entries):
            if placed + len(entries) - number < gang.min_members:
                break  # the remaining pods cannot complete the gang, so trying them would waste cycles
            attempts.append(self._try(each, profile, now))
            placed += attempts[-1].bind is not None
        if placed >= gang.min_members:
            return [self._submit(each, profile, now) for each in attempts]
        attempts += [_Attempt(each) for each in entries[len(attempts) :]]
        return self._give_up(gang, attempts, now)

    def _foreign(self, gang: Gang, pod: Pod) -> str:
        """Return the pod of a gang that another scheduler has to place, as a reason; empty if there is no such pod."""
        for other in gang.pods.values():
            if not other.node_name and other.scheduler_name != pod.scheduler_name:
                return f"{other.namespace}/{other.name}, of gang {gang.ref}, has another schedulerName"
        return ""

    def _try(self, entry: QueueEntry, profile: SchedulerProfile, now: float) -> _Attempt:
        rejection, plugin = self._cycle.pre_filter(profile, entry.pod, now)
        if rejection is not None:
            return _Attempt(entry, refused_by=rejection.refused_by or frozenset({plugin}), message=rejection.message)
        feasibility = self._cycle.feasible(profile, entry.pod)
        if not feasibility.feasible.any():
            names = frozenset(feasibility.verdicts or [each.name for each in profile.filters])
            parts = sorted(f"{count} {reason}" for reason, count in count_reasons(feasibility.verdicts).items())
            return _Attempt(entry, feasibility=feasibility, refused_by=names, message=", ".join(parts))
        bind, rejection, plugin = self._cycle.reserve(profile, entry.pod, feasibility, now)
        if rejection is None:
            return _Attempt(entry, bind)
        self._binding.withdraw(entry.pod, bind.node_name)
        return _Attempt(entry, refused_by=frozenset({plugin}), message=rejection.message)

    def _submit(self, attempt: _Attempt, profile: SchedulerProfile, now: float) -> Decision:
        """Return the decision on one pod of a gang of which enough pods have a node."""
        if attempt.bind is not None:
            return self._cycle.submit(attempt.entry, profile, attempt.bind, now)
        if attempt.feasibility is not None:
            return self._cycle.refuse(attempt.entry, profile, attempt.feasibility, now)
        self._queue.retry(attempt.entry, now, attempt.refused_by)
        return Unschedulable(attempt.entry.pod, attempt.message)

    def _give_up(self, gang: Gang, attempts: list[_Attempt], now: float) -> list[Decision]:
        """Take back all pods of a gang that does not fit as a whole.

        All pods are reported as Unschedulable, also those with a feasible node: a cluster autoscaler that sees only a
        part of the gang would find that this part fits on the free nodes, and add no node.
        """
        fit = [each.bind for each in attempts if each.bind is not None]
        for bind in reversed(fit):
            self._binding.withdraw(bind.pod, bind.node_name)
        refused_by = frozenset().union(*(each.refused_by for each in attempts))
        message = f"gang {gang.ref} does not fit as a whole: {len(fit)} of the {gang.min_members} pods it needs fit"
        failed = next((each for each in attempts if each.message), None)
        if failed is not None:
            message += f"; {failed.entry.pod.namespace}/{failed.entry.pod.name} has no node: {failed.message}"
        for each in attempts:
            self._queue.retry(each.entry, now, refused_by)
        return [Unschedulable(each.entry.pod, message) for each in attempts]


def _incomplete(gang: Gang) -> str:
    if gang.ready >= gang.min_members:
        return ""
    return f"{gang.ready} of {gang.min_members} pods of gang {gang.ref} exist"
