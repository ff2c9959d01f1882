"""Scheduler as a pure state machine: changes of the cluster in, decisions out.

No thread, no input or output, no clock: the caller passes the time and a random number generator, carries out the
decisions, and reports their outcome. The service does so on a live cluster, the simulator in a replay.

A decided pod counts on its node at once, so that the next cycle sees it. It counts until the API server reports it
bound, or until its binding failed. Source: k8s.io/kubernetes/pkg/scheduler (``scheduleOne``, ``schedulingCycle``).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from runtime.kubernetes.objects import Node, Pod
from scoring.arrays import Bools, Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.plugins.filtering import ClusterEvent, count_reasons
from scoring.profiles.fallback import Judgment
from scoring.table.placed_rules import SelectorSources
from trimaran.cluster.state import ClusterState
from trimaran.scheduler.decisions import Bind, Decision, Prepare, Unschedulable, Waiting
from trimaran.scheduler.extension_points import Preemption, Rejection, Wait, WaitingPods, Write
from trimaran.scheduler.feasibility import Feasibility
from trimaran.scheduler.node_selector import NodeSelector
from trimaran.scheduler.profile import SchedulerProfile
from trimaran.scheduler.queue import QueueEntry, QueueOptions, SchedulingQueue

_FOREVER = float("inf")
_PREPARE_SECONDS = 600.0  # kube-scheduler's bindTimeoutSeconds


class OtherObjects(Protocol):
    """Store of the objects other than nodes and pods, which plugins read: claims, volumes, budgets, ..."""

    @property
    def selector_sources(self) -> SelectorSources:
        """Namespaces, Services and owners of pods; the same object until one of them changes."""
        ...

    def put(self, kind: str, document: Mapping[str, Any]) -> ClusterEvent | None:
        """Add or update an object; return the event that it is for unschedulable pods, or None."""
        ...

    def drop(self, kind: str, document: Mapping[str, Any]) -> ClusterEvent | None:
        """Remove an object; return the event that it is for unschedulable pods, or None."""
        ...


@dataclass
class _Placed:
    """Pod that counts on a node and is not known to be bound.

    Attributes:
        entry: pod with its attempts.
        decision: its Bind.
        until: time until which the effect of the writes must be visible, seconds.
    """

    entry: QueueEntry
    decision: Bind
    until: float = _FOREVER


class Scheduler:
    """Scheduler of the pending pods of some scheduler names. For one thread.

    Args:
        profiles: plugins of each scheduler name.
        rng: breaks ties between nodes with equal scores, as kube-scheduler does.
        options: times of the queue.
        others: store of the other objects, which the profiles' plugins read.

    Attributes:
        profiles: profile by scheduler name.
        state: nodes with all pods that are bound to them or decided to be.
        queue: pending pods.
        waiting: pods that wait for Permit plugins.
    """

    def __init__(
        self,
        profiles: Iterable[SchedulerProfile],
        rng: np.random.Generator,
        options: QueueOptions = QueueOptions(),  # noqa: B008  immutable
        others: OtherObjects | None = None,
    ) -> None:
        self.profiles = {profile.scheduler_name: profile for profile in profiles}
        self.state = ClusterState(assume_seconds=_FOREVER)
        self.waiting = WaitingPods()
        first = next(iter(self.profiles.values()))
        requeued_by = {name: events for each in self.profiles.values() for name, events in each.requeued_by.items()}
        self.queue = SchedulingQueue(
            first.queue_sort.sort_key,
            lambda pod: self.profiles[pod.scheduler_name].gate(pod),
            lambda name: requeued_by.get(name, frozenset(ClusterEvent)),
            options,
        )
        self._selector = NodeSelector(self.state.table, rng)
        self._others = others
        self._placed: dict[str, _Placed] = {}
        self._nominations: dict[str, str] = {}  # node name by uid, until the API server shows it
        self._preparing: set[str] = set()  # uids of pods whose writes were sent, until their effect is visible
        self._approved: deque[Decision] = deque()

    @property
    def in_flight(self) -> int:
        """Number of pods that are decided and not known to be bound, without those that wait for Permit plugins."""
        return len(self._placed) - len(self.waiting.by_uid)

    # Changes of the cluster

    def put_node(self, node: Node, now: float) -> None:
        """Add or update a node."""
        known, before = node.name in self.state.table, self.state.table.version
        self.state.put_node(node)
        if self.state.table.version != before:
            self.queue.move(ClusterEvent.NODE_CHANGED if known else ClusterEvent.NODE_ADDED, now)

    def drop_node(self, name: str) -> None:
        """Remove a node."""
        self.state.drop_node(name)

    def replace_nodes(self, nodes: Iterable[Node], now: float) -> None:
        """Replace all nodes with a full list."""
        self.state.replace_nodes(nodes)
        self.queue.move(ClusterEvent.NODE_ADDED, now)

    def put_pod(self, pod: Pod, now: float) -> None:
        """Add or update a pod, bound or pending, of any scheduler."""
        if pod.finished:
            self.drop_pod(pod.uid, now)
        elif pod.node_name:
            self._put_bound(pod, now)
        else:
            self._put_pending(pod, now)

    def drop_pod(self, uid: str, now: float) -> None:
        """Remove a pod that was deleted or has finished."""
        self.queue.drop(uid)
        self._nominations.pop(uid, None)
        placed = self._take(uid)
        if placed is not None:
            self._unreserve(placed.decision.pod, placed.decision.node_name)
        before = self.state.table.version
        self.state.drop_pod(uid)
        if self.state.table.version != before:
            self.queue.move(ClusterEvent.POD_GONE, now)

    def replace_pods(self, pods: Iterable[Pod], now: float) -> None:
        """Replace all pods with a full list."""
        by_uid = {pod.uid: pod for pod in pods}
        for uid in [uid for uid in (*self.state.uids, *self._placed) if uid not in by_uid]:
            self.drop_pod(uid, now)
        for pod in by_uid.values():
            self.put_pod(pod, now)

    def put_other(self, kind: str, document: Mapping[str, Any], now: float) -> None:
        """Add or update an object of another kind."""
        if self._others is not None:
            self._moved(self._others.put(kind, document), now)

    def drop_other(self, kind: str, document: Mapping[str, Any], now: float) -> None:
        """Remove an object of another kind."""
        if self._others is not None:
            self._moved(self._others.drop(kind, document), now)

    def use_load(self, metrics: MetricsTable | Judgment, levels: UseLevels | None = None) -> None:
        """Score by other metrics from now on.

        Args:
            metrics: metrics aligned to the table, or the judgment of a fallback policy.
            levels: expected use of pods; None for their requests.
        """
        self._selector.use_load(metrics, levels)

    def totals(self, pod: Pod, feasible: Bools) -> Int64s:
        """Return the score of each feasible node for a pod, shape (nodes,); 0 for the others."""
        return self._selector.totals(self.profiles[pod.scheduler_name], pod, feasible)

    # Decisions

    def next(self, now: float) -> Decision | None:
        """Run one scheduling cycle; return its decision, or None if nothing is due.

        Args:
            now: seconds, on a clock that never goes back.
        """
        self._settle(now)
        if self._approved:
            return self._approved.popleft()
        while (entry := self.queue.pop(now)) is not None:
            if not entry.pod.terminating:
                return self._attempt(entry, now)
        return None

    def next_at(self) -> float | None:
        """Return the time at which :meth:`next` may decide without a change, seconds; None if there is none."""
        if self._approved:
            return float("-inf")
        until = [self._placed[uid].until for uid in self._preparing]
        times = (self.queue.next_at(), self.waiting.next_at(), min(until, default=None))
        return min((at for at in times if at is not None), default=None)

    # Outcomes of decisions

    def prepared(self, uid: str, now: float) -> None:
        """Take note that the writes of a :class:`Prepare` were sent."""
        if uid in self._placed:
            self._preparing.add(uid)
            self._placed[uid].until = now + _PREPARE_SECONDS

    def bound(self, uid: str) -> None:
        """Take note that the API server accepted the Binding of a pod."""
        placed = self._take(uid)
        if placed is not None:
            self._nominations.pop(uid, None)
            pod = placed.decision.pod
            for plugin in self.profiles[pod.scheduler_name].post_bind:
                plugin.post_bind(pod, placed.decision.node_name)

    def not_bound(self, uid: str, now: float) -> None:
        """Take note that the Binding of a pod, or a write before it, failed; the pod is tried again after a backoff."""
        placed = self._take(uid)
        if placed is not None:
            self._give_up(placed.entry, placed.decision.node_name, now, ())

    def _put_bound(self, pod: Pod, now: float) -> None:
        self.queue.drop(pod.uid)
        self._nominations.pop(pod.uid, None)
        placed = self._placed.get(pod.uid)
        if placed is not None and (placed.decision.node_name != pod.node_name or pod.uid in self.waiting.by_uid):
            self._take(pod.uid)  # bound by another scheduler
            self._unreserve(placed.decision.pod, placed.decision.node_name)
        known = self.state.table.find(pod)
        self.state.put_pod(pod)
        if placed is None:
            changed = known is not None and known[1].pod != pod
            if known is None or changed:
                self.queue.move(ClusterEvent.POD_CHANGED if changed else ClusterEvent.POD_ASSIGNED, now)

    def _put_pending(self, pod: Pod, now: float) -> None:
        if not pod.nominated_node_name and pod.uid in self._nominations:
            pod = replace(pod, nominated_node_name=self._nominations[pod.uid])
        self.state.put_pod(pod)
        if pod.scheduler_name not in self.profiles:
            return
        placed = self._placed.get(pod.uid)
        if placed is not None:
            placed.entry.pod = pod
        elif pod.terminating:
            self.queue.drop(pod.uid)
        else:
            self.queue.put(pod, now)

    def _attempt(self, entry: QueueEntry, now: float) -> Decision:
        pod, nodes = entry.pod, self.state.table
        if self._others is not None:
            nodes.selector_sources = self._others.selector_sources
        profile = self.profiles[pod.scheduler_name]
        feasibility = self._selector.feasible(profile, pod)
        if not feasibility.feasible.any():
            return self._refuse(entry, profile, feasibility, now)
        row, total = self._selector.best(profile, pod, feasibility)
        node_name = nodes.names[row]
        self.state.assume(pod, node_name, now)
        decision = Bind(pod, node_name, int(np.count_nonzero(feasibility.feasible)), total)
        rejection, plugin = self._reserve(profile, pod, node_name)
        if rejection is None:
            waits, rejection, plugin = self._permit(profile, pod, node_name, now)
            if rejection is None:
                self._placed[pod.uid] = _Placed(entry, decision)
                if waits:
                    self.waiting.add(pod, node_name, waits)
                    self.queue.move(ClusterEvent.POD_ASSIGNED, now)
                    return Waiting(pod, node_name)
                return self._approve(self._placed[pod.uid], now)
        self._give_up(entry, node_name, now, (plugin,))
        return Unschedulable(pod, rejection.message, rejection.needs_room)

    def _refuse(
        self, entry: QueueEntry, profile: SchedulerProfile, feasibility: Feasibility, now: float
    ) -> Unschedulable:
        pod, size = entry.pod, len(self.state.table)
        reasons = count_reasons(feasibility.verdicts)
        parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
        message = f"0/{size} nodes are available: {', '.join(parts)}." if parts else f"0/{size} nodes are available."
        preemption, ends_nomination = None, False
        for plugin in profile.post_filters if size else ():
            result = plugin.post_filter(pod, self.state.table, feasibility.verdicts, now)
            if isinstance(result, Preemption):
                preemption = result
                self._nominate(pod, result)
                break
            message += f" {result.message}"
            ends_nomination |= result.ends_nomination
        ends_nomination &= preemption is None and bool(pod.nominated_node_name)
        if ends_nomination:
            self._nominations.pop(pod.uid, None)
            self.state.put_pod(replace(pod, nominated_node_name=""))
        refused_by = feasibility.verdicts or [plugin.name for plugin in profile.filters]
        entry.pod = self.state.pending.get(pod.uid, pod)
        self.queue.retry(entry, now, refused_by)
        return Unschedulable(pod, message, True, reasons, preemption, ends_nomination)

    def _nominate(self, pod: Pod, preemption: Preemption) -> None:
        for other in preemption.cleared:
            self._nominations.pop(other.uid, None)
            self.state.put_pod(replace(other, nominated_node_name=""))
        self._nominations[pod.uid] = preemption.node_name
        self.state.put_pod(replace(pod, nominated_node_name=preemption.node_name))

    def _reserve(self, profile: SchedulerProfile, pod: Pod, node_name: str) -> tuple[Rejection | None, str]:
        for plugin in profile.reserve:
            rejection = plugin.reserve(pod, node_name)
            if rejection is not None:
                return rejection, plugin.name
        return None, ""

    def _permit(
        self, profile: SchedulerProfile, pod: Pod, node_name: str, now: float
    ) -> tuple[Mapping[str, float], Rejection | None, str]:
        """Return the time until which the pod waits for each plugin, or a rejection and its plugin."""
        waits: dict[str, float] = {}
        for plugin in profile.permit:
            answer = plugin.permit(pod, node_name, self.waiting, now)
            if isinstance(answer, Rejection):
                return {}, answer, plugin.name
            if isinstance(answer, Wait):
                waits[plugin.name] = now + answer.seconds
        return waits, None, ""

    def _approve(self, placed: _Placed, now: float) -> Decision:
        """Return the decision for a pod that all Permit plugins allow: bind it, or send the writes before that."""
        pod, node_name = placed.decision.pod, placed.decision.node_name
        writes: list[Write] = []
        for plugin in self.profiles[pod.scheduler_name].pre_bind:
            answer = plugin.pre_bind(pod, node_name)
            if isinstance(answer, Rejection):
                self._take(pod.uid)
                self._give_up(placed.entry, node_name, now, (plugin.name,))
                return Unschedulable(pod, answer.message, answer.needs_room)
            writes += answer
        self.queue.move(ClusterEvent.POD_ASSIGNED, now)
        if not writes and self._is_ready(placed) is True:
            return placed.decision
        return Prepare(pod, node_name, tuple(writes))

    def _settle(self, now: float) -> None:
        """Queue the decisions on pods whose wait has ended."""
        for pod, node_name, plugin, rejection in self.waiting.settle(now) if self.waiting.by_uid else ():
            placed = self._placed[pod.uid]
            if rejection is None:
                self._approved.append(self._approve(placed, now))
                continue
            self._take(pod.uid)
            self._give_up(placed.entry, node_name, now, (plugin,))
            self._approved.append(Unschedulable(pod, rejection.message, rejection.needs_room))
        for uid in tuple(self._preparing):
            self._settle_prepared(self._placed[uid], now)

    def _settle_prepared(self, placed: _Placed, now: float) -> None:
        """Queue the Bind of a pod once the effect of its writes is visible."""
        pod, answer = placed.decision.pod, self._is_ready(placed)
        if answer is True:
            self._preparing.remove(pod.uid)
            self._approved.append(placed.decision)
            return
        if answer is False and now >= placed.until:
            answer = Rejection("the effect of the writes before binding did not become visible in time")
        if isinstance(answer, Rejection):
            self._take(pod.uid)
            self._give_up(placed.entry, placed.decision.node_name, now, ())
            self._approved.append(Unschedulable(pod, answer.message, answer.needs_room))

    def _is_ready(self, placed: _Placed) -> bool | Rejection:
        """Return whether a pod can be bound as far as the PreBind plugins see, or why it cannot."""
        pod = placed.decision.pod
        for plugin in self.profiles[pod.scheduler_name].pre_bind:
            answer = plugin.is_ready(pod, placed.decision.node_name)
            if answer is not True:
                return answer
        return True

    def _give_up(self, entry: QueueEntry, node_name: str, now: float, refused_by: tuple[str, ...]) -> None:
        """Stop counting a pod on its node, and take it back into the queue."""
        self._unreserve(entry.pod, node_name)
        self.state.retry(entry.pod.uid)
        self.queue.retry(entry, now, refused_by)
        self.queue.move(ClusterEvent.POD_GONE, now, but=entry.pod.uid)

    def _unreserve(self, pod: Pod, node_name: str) -> None:
        for plugin in reversed(self.profiles[pod.scheduler_name].reserve):
            plugin.unreserve(pod, node_name)

    def _take(self, uid: str) -> _Placed | None:
        """Remove and return a pod that is not known to be bound; None if it is not one."""
        self._preparing.discard(uid)
        self.waiting.forget(uid)
        return self._placed.pop(uid, None)

    def _moved(self, event: ClusterEvent | None, now: float) -> None:
        if event is not None:
            self.queue.move(event, now)
