"""Scheduling cycle: one attempt to find a node for a pod, from PreFilter to Permit.

Source: k8s.io/kubernetes/pkg/scheduler (``schedulingCycle``).
"""

from collections.abc import Mapping
from dataclasses import replace
from types import NoneType

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.failures import blaming
from scoring.plugins.filtering import ClusterEvent, FilterVerdict, PluginResultError, count_reasons
from trimaran.cluster.state import ClusterState
from trimaran.scheduler.framework.binding_cycle import BindingCycle
from trimaran.scheduler.framework.decisions import Bind, Decision, Unschedulable
from trimaran.scheduler.framework.extension_points import PREEMPTION_SECONDS, Preemption, Rejection, Wait
from trimaran.scheduler.framework.feasibility import Feasibility
from trimaran.scheduler.framework.node_backoff import RejectingNodes
from trimaran.scheduler.framework.node_selector import NodeSelector
from trimaran.scheduler.framework.nominations import Nominations
from trimaran.scheduler.framework.plugin_failures import checked
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.queue import QueueEntry, SchedulingQueue

_LONGEST_WAIT_SECONDS = 900.0  # for a Permit plugin, as in kube-scheduler (maxTimeout); a PodGroup may state any time


class SchedulingCycle:
    """Attempts to place pods. For one thread.

    Args:
        state: nodes and pods.
        queue: takes back pods that no node can take.
        selector: chooses among the nodes.
        nominations: records the nodes that pods are nominated to.
        binding: takes the pods that got a node.
        node_backoff: nodes that get no pods for a while.
    """

    def __init__(
        self,
        state: ClusterState,
        queue: SchedulingQueue,
        selector: NodeSelector,
        nominations: Nominations,
        binding: BindingCycle,
        node_backoff: RejectingNodes,
    ) -> None:
        self._state, self._queue, self._selector = state, queue, selector
        self._nominations, self._binding, self._node_backoff = nominations, binding, node_backoff

    def attempt(self, entry: QueueEntry, profile: SchedulerProfile, now: float) -> Decision:
        """Try to place a pod by its profile; return the decision."""
        rejection, plugin = self.pre_filter(profile, entry.pod, now)
        if rejection is not None and rejection.may_preempt:
            nowhere = np.zeros(len(self._state.table), np.bool_)
            verdicts = {plugin: FilterVerdict(nowhere, rejection.message)}
            return self.refuse(entry, profile, Feasibility(nowhere, verdicts), now, rejection.message)
        if rejection is not None:
            refused_by = () if rejection.retry_at is not None else rejection.refused_by or (plugin,)
            self._queue.retry(entry, now, refused_by, rejection.retry_at)
            return Unschedulable(entry.pod, rejection.message, rejection.needs_room)
        feasibility = self.feasible(profile, entry.pod)
        if not feasibility.feasible.any():
            return self.refuse(entry, profile, feasibility, now)
        decision, rejection, plugin = self.reserve(profile, entry.pod, feasibility, now)
        if rejection is None:
            return self.submit(entry, profile, decision, now)
        self._binding.give_up(entry, decision.node_name, now, (plugin,))
        return Unschedulable(entry.pod, rejection.message, rejection.needs_room)

    def take_back(self, entry: QueueEntry, now: float) -> None:
        """Undo an attempt that raised an exception; the pod is tried again after its backoff."""
        node_name = self._binding.forget(entry.pod.uid) or self._state.assumptions.node_of(entry.pod.uid)
        if node_name:
            self._queue.drop(entry.pod.uid)
            self._binding.give_up(entry, node_name, now, ())
        elif entry.pod.uid not in self._queue:
            self._queue.retry(entry, now)

    def pre_filter(self, profile: SchedulerProfile, pod: Pod, now: float) -> tuple[Rejection | None, str]:
        """Return the rejection of a pod and the name of the PreFilter plugin; None and "" if no plugin rejects it."""
        for plugin in profile.pre_filters:
            with blaming(plugin.name, "PreFilter"):
                rejection = checked(plugin.pre_filter(pod, self._state.table, now), Rejection, NoneType)
            if rejection is not None:
                return rejection, plugin.name
        return None, ""

    def feasible(self, profile: SchedulerProfile, pod: Pod) -> Feasibility:
        """Return the nodes that can take a pod."""
        result = self._selector.feasible(profile, pod)
        return replace(result, verdicts=self._node_backoff.explain(result.verdicts, self._state.table))

    def reserve(
        self, profile: SchedulerProfile, pod: Pod, feasibility: Feasibility, now: float
    ) -> tuple[Bind, Rejection | None, str]:
        """Let a pod count on the best of its feasible nodes.

        Returns:
            The decision; if a Reserve plugin refuses the pod, also the rejection and the plugin's name. The caller then
            takes the pod back. Otherwise it submits the decision.
        """
        row, total = self._selector.best(profile, pod, feasibility)
        node_name = self._state.table.names[row]
        self._state.assume(pod, node_name, now)
        decision = Bind(pod, node_name, int(np.count_nonzero(feasibility.feasible)), total)
        for plugin in profile.reserve:
            with blaming(plugin.name, "Reserve"):
                rejection = checked(plugin.reserve(pod, node_name), Rejection, NoneType)
            if rejection is not None:
                return decision, rejection, plugin.name
        return decision, None, ""

    def submit(self, entry: QueueEntry, profile: SchedulerProfile, decision: Bind, now: float) -> Decision:
        """Run the Permit plugins for a pod with a chosen node; unless one rejects the pod, begin its binding cycle."""
        waits, rejection, plugin = self._permit(profile, decision.pod, decision.node_name, now)
        if rejection is None:
            return self._binding.begin(entry, decision, waits, now)
        self._binding.give_up(entry, decision.node_name, now, (plugin,))
        return Unschedulable(decision.pod, rejection.message, rejection.needs_room)

    def refuse(
        self, entry: QueueEntry, profile: SchedulerProfile, feasibility: Feasibility, now: float, held: str = ""
    ) -> Unschedulable:
        """Requeue a pod that no node can take; return the reasons, and the preemption if a PostFilter plugin found one.

        Args:
            entry: the pod.
            profile: profile of the pod.
            feasibility: verdicts of the filters.
            now: current time, seconds.
            held: reason of PreFilter, which no new node would change; "" if the filters refuse the pod.
        """
        pod, size = entry.pod, len(self._state.table)
        reasons = count_reasons(feasibility.verdicts)
        parts = [held] if held else sorted(f"{count} {reason}" for reason, count in reasons.items())
        message = f"0/{size} nodes are available: {', '.join(parts)}." if parts else f"0/{size} nodes are available."
        preemption, ends_nomination, retry_at = None, False, None
        refused_by = set(feasibility.verdicts or [plugin.name for plugin in profile.filters])
        for plugin in profile.post_filters if size else ():
            with blaming(plugin.name, "PostFilter"):
                answer = plugin.post_filter(pod, self._state.table, feasibility.verdicts, now)
                result = checked(answer, Preemption, Rejection)
                if isinstance(result, Preemption) and result.node_name not in self._state.table:
                    raise PluginResultError(f"must preempt on a node of the cluster, got {result.node_name!r}")
            if isinstance(result, Preemption):
                preemption = result
                self._nominations.nominate(pod, result)
                retry_at = now + PREEMPTION_SECONDS
                break
            message += f" {result.message}" if result.message else ""
            ends_nomination |= result.ends_nomination
            refused_by |= result.refused_by
            retry_at = result.retry_at if retry_at is None else retry_at
        ends_nomination &= preemption is None and bool(pod.nominated_node_name)
        if ends_nomination:
            self._nominations.end(pod)
        entry.pod = self._state.pending.get(pod.uid, pod)
        self._queue.retry(entry, now, refused_by, retry_at)
        if ends_nomination:  # the capacity that was reserved for the pod is free
            self._queue.move(ClusterEvent.POD_GONE, now, but=pod.uid)
        return Unschedulable(pod, message, not held, reasons, preemption, ends_nomination)

    def _permit(
        self, profile: SchedulerProfile, pod: Pod, node_name: str, now: float
    ) -> tuple[Mapping[str, float], Rejection | None, str]:
        """Return the time until which the pod waits for each plugin, or a rejection and its plugin."""
        waits: dict[str, float] = {}
        for plugin in profile.permit:
            with blaming(plugin.name, "Permit"):
                answer = checked(plugin.permit(pod, node_name, self._binding.waiting, now), Wait, Rejection, NoneType)
            if isinstance(answer, Rejection):
                return {}, answer, plugin.name
            if isinstance(answer, Wait):
                waits[plugin.name] = now + min(answer.seconds, _LONGEST_WAIT_SECONDS)
        return waits, None, ""
