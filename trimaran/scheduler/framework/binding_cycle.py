"""Binding cycle of the pods that count on a node and are not known to be bound, from Permit to PostBind.

Source: k8s.io/kubernetes/pkg/scheduler (``bindingCycle``), without its threads: decisions contain the requests to send,
and the caller reports their outcome.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.failures import blaming
from scoring.plugins.filtering import ClusterEvent
from trimaran.cluster.state import ClusterState
from trimaran.scheduler.framework.decisions import Bind, Decision, Prepare, Unschedulable, Waiting
from trimaran.scheduler.framework.extension_points import Rejection, ReservePlugin, WaitingPods, Write
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.framework.plugin_failures import PluginFailures, checked
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.queue import QueueEntry, SchedulingQueue

_FOREVER = float("inf")
_PREPARE_SECONDS = 600.0  # kube-scheduler's bindTimeoutSeconds


@dataclass
class _Placed:
    """Pod that counts on a node and is not known to be bound.

    Attributes:
        entry: pod with its attempts.
        decision: decision to bind the pod.
        until: time until which the effect of the writes must be visible, seconds.
    """

    entry: QueueEntry
    decision: Bind
    until: float = _FOREVER


class BindingCycle:
    """Pods that are decided and not known to be bound. For one thread.

    Args:
        profiles: plugins by scheduler name.
        state: nodes and pods, in which a decided pod counts on its node.
        queue: takes back pods that could not be bound.
        failures: counts and logs the failures of plugins.

    Attributes:
        waiting: pods that wait for Permit plugins.
        outdated: uids of decided pods that no longer fit on their node; any thread may read them.
    """

    def __init__(
        self,
        profiles: Mapping[str, SchedulerProfile],
        state: ClusterState,
        queue: SchedulingQueue,
        failures: PluginFailures,
    ) -> None:
        self._profiles, self._state, self._queue, self._failures = profiles, state, queue, failures
        self.waiting = WaitingPods()
        self.outdated: set[str] = set()
        self._placed: dict[str, _Placed] = {}
        self._on_node: dict[str, dict[str, _Placed]] = {}  # the same by node name and uid, oldest first
        self._preparing: set[str] = set()  # uids of pods whose writes were sent, until their effect is visible
        self._approved: deque[Decision] = deque()

    @property
    def uids(self) -> Iterable[str]:
        """Uids of all pods that are decided and not known to be bound."""
        return self._placed

    @property
    def in_flight(self) -> int:
        """Number of decided pods that are not known to be bound, without those that wait for Permit plugins."""
        return len(self._placed) - len(self.waiting.by_uid)

    def decision(self, uid: str) -> Bind | None:
        """Return the Bind of a pod that is decided and not known to be bound; None for others."""
        placed = self._placed.get(uid)
        return None if placed is None else placed.decision

    def begin(self, entry: QueueEntry, decision: Bind, waits: Mapping[str, float], now: float) -> Decision:
        """Accept a pod for which a node was chosen; return the first step of its binding.

        Args:
            entry: pod with its attempts.
            decision: decision to bind the pod.
            waits: time until which the pod waits for each Permit plugin, seconds; empty if it does not wait.
            now: current time, seconds.
        """
        pod = decision.pod
        placed = self._placed[pod.uid] = _Placed(entry, decision)
        self._on_node.setdefault(decision.node_name, {})[pod.uid] = placed
        if not waits:
            return self._approve(placed, now)
        self.waiting.add(pod, decision.node_name, waits)
        self._queue.move(ClusterEvent.POD_ASSIGNED, now)
        return Waiting(pod, decision.node_name)

    def announce(self, decisions: Iterable[Decision]) -> None:
        """Queue the decisions on the other pods of a gang, for :meth:`next` to return."""
        self._approved.extend(decisions)

    def next(self, now: float) -> Decision | None:
        """Return the next decision on a pod whose wait has ended; None if there is none."""
        self._settle(now)
        return self._approved.popleft() if self._approved else None

    def next_at(self) -> float | None:
        """Return the time at which :meth:`next` may have a decision without a new event, seconds; None if never."""
        if self._approved:
            return float("-inf")
        until = min((self._placed[uid].until for uid in self._preparing), default=None)
        return min((at for at in (self.waiting.next_at(), until) if at is not None), default=None)

    def update(self, pod: Pod) -> bool:
        """Replace a pod by its new version; return whether the pod is decided and not known to be bound."""
        placed = self._placed.get(pod.uid)
        if placed is None:
            return False
        placed.entry.pod = pod
        return True

    def drop(self, uid: str) -> None:
        """Give up a decided pod that was deleted or that another scheduler bound; ignore other pods."""
        placed = self._take(uid)
        if placed is not None:
            self._unreserve(placed.decision.pod, placed.decision.node_name)

    def recheck(self, node_names: Collection[str] | None = None) -> None:
        """Check again whether decided pods fit on their nodes, after others have bound pods or changed the nodes.

        If the pods of a node no longer fit, the newest decisions become outdated first. Outdated pods count on the node
        until their outcome is known, because their Bindings may have been sent.

        Args:
            node_names: changed nodes; None for all.
        """
        for node_name in tuple(self._on_node) if node_names is None else node_names:
            placed_there = tuple(self._on_node.get(node_name, {}).values())
            removed = []
            for pod in [placed.entry.pod for placed in reversed(placed_there)]:
                if pod.uid not in self._state.pending:
                    continue  # its Binding was executed
                self._state.retry(pod.uid)
                if self._fits(pod, node_name):
                    self._state.assume(pod, node_name, 0.0)
                else:
                    self.outdated.add(pod.uid)
                    removed.append(pod)
            for pod in removed:
                self._state.assume(pod, node_name, 0.0)

    def prepared(self, uid: str, now: float) -> None:
        """Record that the writes of a :class:`Prepare` were sent."""
        if uid in self._placed:
            self._preparing.add(uid)
            self._placed[uid].until = now + _PREPARE_SECONDS

    def bound(self, uid: str) -> None:
        """Record that the API server accepted the Binding of a pod."""
        placed = self._take(uid)
        if placed is None:
            return
        pod = placed.decision.pod
        for plugin in self._profiles[pod.scheduler_name].post_bind:
            try:
                with blaming(plugin.name, "PostBind"):
                    plugin.post_bind(pod, placed.decision.node_name)
            except Exception as error:  # noqa: BLE001  the pod is bound, which nothing can undo
                self._failures.record(error)

    def forget(self, uid: str) -> str:
        """Forget a decided pod without undoing its reservations; return its node, empty if the pod is not decided."""
        placed = self._take(uid)
        return "" if placed is None else placed.decision.node_name

    def not_bound(self, uid: str, now: float) -> None:
        """Record that the Binding of a pod, or a write before it, failed."""
        placed = self._take(uid)
        if placed is not None:
            self.give_up(placed.entry, placed.decision.node_name, now, ())

    def give_up(self, entry: QueueEntry, node_name: str, now: float, refused_by: tuple[str, ...]) -> None:
        """Stop counting a pod on its node, and take it back into the queue."""
        self.withdraw(entry.pod, node_name)
        self._queue.retry(entry, now, refused_by)
        self._queue.move(ClusterEvent.POD_GONE, now, but=entry.pod.uid)

    def withdraw(self, pod: Pod, node_name: str) -> None:
        """Stop counting a pod on its node, and undo its reservations, without a change of the queue."""
        self._unreserve(pod, node_name)
        self._state.retry(pod.uid)

    def _approve(self, placed: _Placed, now: float) -> Decision:
        """Return the decision for a pod that all Permit plugins allow: bind it, or send the writes before that."""
        try:
            return self._prepare(placed, now)
        except Exception as error:  # noqa: BLE001  of a plugin
            return self._failed(placed, error, now)

    def _failed(self, placed: _Placed, error: Exception, now: float) -> Unschedulable:
        """Take back a pod because a plugin failed; return the decision."""
        message = self._failures.record(error)
        if self._take(placed.decision.pod.uid) is not None:
            self.give_up(placed.entry, placed.decision.node_name, now, ())
        return Unschedulable(placed.decision.pod, message, needs_room=False, is_error=True)

    def _prepare(self, placed: _Placed, now: float) -> Decision:
        pod, node_name = placed.decision.pod, placed.decision.node_name
        writes: list[Write] = []
        for plugin in self._profiles[pod.scheduler_name].pre_bind:
            with blaming(plugin.name, "PreBind"):
                answer = plugin.pre_bind(pod, node_name)
                if not isinstance(answer, Rejection):
                    answer = [checked(each, Write) for each in answer]
            if isinstance(answer, Rejection):
                self._take(pod.uid)
                self.give_up(placed.entry, node_name, now, (plugin.name,))
                return Unschedulable(pod, answer.message, answer.needs_room)
            writes += answer
        self._queue.move(ClusterEvent.POD_ASSIGNED, now)
        if not writes and self._is_ready(placed) is True:
            return placed.decision
        return Prepare(pod, node_name, tuple(writes))

    def _settle(self, now: float) -> None:
        """Queue the decisions on pods whose wait has ended."""
        for pod, node_name, plugin, rejection in self.waiting.settle(now):
            placed = self._placed[pod.uid]
            if rejection is None:
                self._approved.append(self._approve(placed, now))
                continue
            self._take(pod.uid)
            self.give_up(placed.entry, node_name, now, (plugin,))
            self._approved.append(Unschedulable(pod, rejection.message, rejection.needs_room))
        for uid in tuple(self._preparing):
            if uid in self._preparing:  # a plugin may have dropped the pod
                self._settle_prepared(self._placed[uid], now)

    def _settle_prepared(self, placed: _Placed, now: float) -> None:
        """Queue the Bind of a pod once the effect of its writes is visible."""
        pod = placed.decision.pod
        try:
            answer = self._is_ready(placed)
        except Exception as error:  # noqa: BLE001  of a plugin
            self._approved.append(self._failed(placed, error, now))
            return
        if answer is True:
            self._preparing.remove(pod.uid)
            self._approved.append(placed.decision)
            return
        if answer is False and now >= placed.until:
            answer = Rejection("the writes before the Binding took no visible effect in time")
        if isinstance(answer, Rejection):
            self._take(pod.uid)
            self.give_up(placed.entry, placed.decision.node_name, now, ())
            self._approved.append(Unschedulable(pod, answer.message, answer.needs_room))

    def _is_ready(self, placed: _Placed) -> bool | Rejection:
        """Return whether all PreBind plugins allow to bind the pod now; a Rejection if one of them refuses the pod."""
        pod = placed.decision.pod
        for plugin in self._profiles[pod.scheduler_name].pre_bind:
            with blaming(plugin.name, "PreBind"):
                answer = checked(plugin.is_ready(pod, placed.decision.node_name), bool, np.bool_, Rejection)
            if isinstance(answer, Rejection) or not answer:
                return answer if isinstance(answer, Rejection) else False
        return True

    def _fits(self, pod: Pod, node_name: str) -> bool:
        """Return whether a pod passes the filters on a node, except filters that have reserved resources for it."""
        row = self._state.table.rows.row_by_name.get(node_name)
        if row is None:
            return False
        filters = [each for each in self._profiles[pod.scheduler_name].filters if not isinstance(each, ReservePlugin)]
        try:
            return bool(run_filters(filters, pod, self._state.table, np.array([row])).feasible[0])
        except Exception as error:  # noqa: BLE001  a plugin that fails has not refused the pod
            self._failures.record(error)
            return True

    def _unreserve(self, pod: Pod, node_name: str) -> None:
        for plugin in reversed(self._profiles[pod.scheduler_name].reserve):
            try:
                with blaming(plugin.name, "Unreserve"):
                    plugin.unreserve(pod, node_name)
            except Exception as error:  # noqa: BLE001  the reservations of other plugins must be undone
                self._failures.record(error)

    def _take(self, uid: str) -> _Placed | None:
        """Remove and return a decided pod; None if the pod is not decided."""
        self._preparing.discard(uid)
        self.outdated.discard(uid)
        self.waiting.forget(uid)
        placed = self._placed.pop(uid, None)
        if placed is not None:
            there = self._on_node[placed.decision.node_name]
            del there[uid]
            if not there:
                del self._on_node[placed.decision.node_name]
        return placed
