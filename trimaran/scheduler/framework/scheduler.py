"""Scheduler as a pure state machine: changes of the cluster in, decisions out.

No thread, no input or output, no clock: the caller passes the time and a random number generator, carries out the
decisions, and reports their outcome. The service does so on a live cluster, the simulator in a replay.

A decided pod counts on its node at once, so that the next cycle sees it. It counts until the API server reports it
bound, or until its binding failed. Source: k8s.io/kubernetes/pkg/scheduler (``scheduleOne``, ``schedulingCycle``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from runtime.kubernetes.constraints import Taint
from runtime.kubernetes.gangs import POD_GROUP_KINDS
from runtime.kubernetes.objects import Node, Pod
from scoring.arrays import Bools, Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.plugins.failures import blaming
from scoring.plugins.filtering import CLUSTER_CHANGES, ClusterEvent
from scoring.profiles.fallback import Judgment
from scoring.table.placed_rules import SelectorSources
from trimaran.cluster.state import ClusterState
from trimaran.scheduler.framework.binding_cycle import BindingCycle
from trimaran.scheduler.framework.decisions import Decision, Unschedulable
from trimaran.scheduler.framework.extension_points import SchedulerHandle, WaitingPods
from trimaran.scheduler.framework.gang_directory import HELD, GangDirectory
from trimaran.scheduler.framework.group_cycle import GroupCycle
from trimaran.scheduler.framework.node_backoff import RejectingNodes, with_taint
from trimaran.scheduler.framework.node_selector import NodeSelector
from trimaran.scheduler.framework.nominations import Nominations
from trimaran.scheduler.framework.plugin_failures import PluginFailures
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.queue import QueueEntry, QueueOptions, SchedulingQueue
from trimaran.scheduler.framework.scheduling_cycle import SchedulingCycle

UNKNOWN_REQUESTS: Final = Taint("scheduler.trimaran.io/unknown-requests")
"""Taint, in the scheduler's own view, of a node whose free capacity is not known."""
_MOST_NAMES = 3


class OtherObjects(Protocol):
    """Store of the objects other than nodes and pods, which plugins read: claims, volumes, budgets, ..."""

    @property
    def selector_sources(self) -> SelectorSources:
        """Namespaces, Services and owners of pods; the same object until one of them changes."""
        ...

    @property
    def unreadable_quotas(self) -> Mapping[str, str]:
        """Elastic quotas with an unreadable amount: ``namespace/name`` to the reason."""
        ...

    def put(self, kind: str, document: Mapping[str, Any]) -> ClusterEvent | None:
        """Add or update an object; return the event that may requeue unschedulable pods, or None."""
        ...

    def drop(self, kind: str, document: Mapping[str, Any]) -> ClusterEvent | None:
        """Remove an object; return the event that may requeue unschedulable pods, or None."""
        ...


class Scheduler:
    """Scheduler of the pending pods whose ``schedulerName`` has a profile. For one thread.

    Args:
        profiles: plugins of each scheduler name.
        rng: breaks ties between nodes with equal scores, as kube-scheduler does.
        options: durations of the queue.
        others: store of the other objects, which the profiles' plugins read.
        gangs: gangs, which the profiles' plugins read.

    Attributes:
        profiles: profile by scheduler name.
        state: nodes, with the pods that are bound to them or decided to be bound.
        queue: pending pods.
        node_backoff: nodes that get no pods for a while, because their kubelet rejected one.
        failures: failures of plugins.
    """

    def __init__(
        self,
        profiles: Iterable[SchedulerProfile],
        rng: np.random.Generator,
        options: QueueOptions = QueueOptions(),  # noqa: B008  immutable
        others: OtherObjects | None = None,
        gangs: GangDirectory | None = None,
    ) -> None:
        self.profiles = {profile.scheduler_name: profile for profile in profiles}
        self.state = ClusterState(assume_seconds=float("inf"))
        self.node_backoff = RejectingNodes()
        self.failures = PluginFailures()
        self._unknown_nodes: set[str] = set()
        first = next(iter(self.profiles.values()))
        requeued_by = {name: events for each in self.profiles.values() for name, events in each.requeued_by.items()}
        requeued_by[HELD] = frozenset()
        self.queue = SchedulingQueue(
            first.sort_key,
            lambda pod: self.profiles[pod.scheduler_name].gate(pod),
            lambda name: requeued_by.get(name, CLUSTER_CHANGES),
            options,
            self.failures.record,
        )
        self._selector = NodeSelector(self.state.table, rng)
        self._others = others
        self._nominations = Nominations(self.state)
        self._binding = BindingCycle(self.profiles, self.state, self.queue, self.failures)
        self._cycle = SchedulingCycle(
            self.state, self.queue, self._selector, self._nominations, self._binding, self.node_backoff
        )
        self._gangs = GangDirectory() if gangs is None else gangs
        self._groups = GroupCycle(self._gangs, self.state, self.queue, self._cycle, self._binding)
        self._handle = SchedulerHandle(
            self.waiting,
            self.state.assumptions.__contains__,
            self.queue.is_active,
            lambda uids: self.queue.activate(uids, self._handle.now),
            self._selector.metrics,
        )
        plugins = {id(plugin): plugin for each in self.profiles.values() for plugin in each.stateful}
        self._plugins = tuple(plugins.values())
        for plugin in self._plugins:
            plugin.attach(self._handle)

    @property
    def unreadable_quotas(self) -> Mapping[str, str]:
        """Elastic quotas with an unreadable amount: ``namespace/name`` to the reason."""
        return {} if self._others is None else self._others.unreadable_quotas

    @property
    def in_flight(self) -> int:
        """Number of pods that are decided and not known to be bound, without those that wait for Permit plugins."""
        return self._binding.in_flight

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of pods by queue, of pods ``in_flight``, and of ``nodes_in_backoff``."""
        nodes = len(self.node_backoff.nodes)
        return {**self.queue.counts, "in_flight": self.in_flight, "nodes_in_backoff": nodes}

    @property
    def waiting(self) -> WaitingPods:
        """Pods that wait for Permit plugins."""
        return self._binding.waiting

    # Changes of the cluster

    def put_node(self, node: Node, now: float) -> None:
        """Add or update a node."""
        known, before = node.name in self.state.table, self.state.table.version
        self.state.put_node(self._marked(node))
        if self.state.table.version != before:
            self.queue.move(ClusterEvent.NODE_CHANGED if known else ClusterEvent.NODE_ADDED, now)
            self._binding.recheck((node.name,))

    def drop_node(self, name: str) -> None:
        """Remove a node."""
        self.state.drop_node(name)
        self._binding.recheck((name,))

    def replace_nodes(self, nodes: Iterable[Node], now: float) -> None:
        """Replace all nodes with a full list."""
        self.state.replace_nodes(map(self._marked, nodes))
        self.queue.move(ClusterEvent.NODE_ADDED, now)
        self._binding.recheck()

    def reject_pod(self, node_name: str, now: float) -> None:
        """Record that the kubelet of a node rejected a pod: the node gets no pods for a while.

        At most a tenth of the nodes are left out at once, but at least one: a Deployment whose pods every kubelet
        rejects, for example for a forbidden sysctl, must not stop all others.
        """
        self.node_backoff.reject(node_name, now, max(1, len(self.state.table) // 10))
        self._mark_node(node_name, now)

    def mark_unknown(self, node_name: str, now: float, *, is_unknown: bool) -> None:
        """Record whether a node has pods whose requests are unknown; if so, the node gets no pods."""
        (self._unknown_nodes.add if is_unknown else self._unknown_nodes.discard)(node_name)
        self._mark_node(node_name, now)

    def put_pod(self, pod: Pod, now: float) -> None:
        """Add or update a pod, bound or pending, of any scheduler."""
        if pod.finished:
            self.drop_pod(pod.uid, now)
            return
        self._gangs.put_pod(pod)
        if pod.node_name:
            self._put_bound(pod, now)
        else:
            self._put_pending(pod, now)
        self.queue.activate(self._gangs.take_changed(), now)

    def drop_pod(self, uid: str, now: float, left_at: float | None = None) -> None:
        """Remove a pod that was deleted or has finished.

        Args:
            uid: uid of the pod.
            now: current time, seconds.
            left_at: time at which a bound pod stopped running, Unix seconds: scores remember it for a while, because
                metrics still include its use. None forgets it at once.
        """
        self.queue.drop(uid)
        self._nominations.forget(uid)
        self._binding.drop(uid)
        self._gangs.drop_pod(uid)
        self._tell_gone(uid)
        before = self.state.table.version
        self.state.drop_pod(uid, left_at)
        if self.state.table.version != before:
            self.queue.move(ClusterEvent.POD_GONE, now)

    def replace_pods(self, pods: Iterable[Pod], now: float) -> None:
        """Replace all pods with a full list.

        Raises:
            ExceptionGroup: pods could not be applied; all others were.
        """
        by_uid = {pod.uid: pod for pod in pods}
        for uid in [uid for uid in (*self.state.uids, *self._binding.uids) if uid not in by_uid]:
            self.drop_pod(uid, now)
        errors: list[Exception] = []
        for pod in by_uid.values():
            try:
                self.put_pod(pod, now)
            except Exception as error:  # noqa: BLE001  one pod must not keep back those that come after it
                errors.append(error)
        if errors:
            raise ExceptionGroup("pods could not be applied", errors)

    def put_other(self, kind: str, document: Mapping[str, Any], now: float) -> None:
        """Add or update an object that is neither a node nor a pod."""
        if kind in POD_GROUP_KINDS:
            self._gangs.put_group(kind, document)
            self.queue.activate(self._gangs.take_changed(), now)
        elif self._others is not None:
            self._moved(self._others.put(kind, document), now)

    def drop_other(self, kind: str, document: Mapping[str, Any], now: float) -> None:
        """Remove an object that is neither a node nor a pod."""
        if kind in POD_GROUP_KINDS:
            self._gangs.drop_group(kind, document)
        elif self._others is not None:
            self._moved(self._others.drop(kind, document), now)

    def use_load(self, metrics: MetricsTable | Judgment, levels: UseLevels | None = None) -> None:
        """Score and filter by new metrics from now on; try the pods again that a filter refused by the old metrics.

        Args:
            metrics: metrics aligned to the table, or the judgment of a fallback policy.
            levels: expected use of pods; None for their requests.
        """
        self._selector.use_load(metrics, levels)
        self.queue.move(ClusterEvent.METRICS_PUBLISHED, self._handle.now)

    def totals(self, pod: Pod, feasible: Bools) -> Int64s:
        """Return the score of each feasible node for a pod, shape (nodes,); 0 for the others."""
        return self._selector.totals(self.profiles[pod.scheduler_name], pod, feasible)

    # Decisions

    def is_outdated(self, uid: str) -> bool:
        """Return whether a decided pod no longer fits on its node, so that it should not be bound. Thread-safe."""
        return uid in self._binding.outdated

    def next(self, now: float) -> Decision | None:
        """Run one scheduling cycle; return its decision, or None if nothing is due.

        Args:
            now: seconds, on a clock that never goes back.
        """
        self._handle.now = now
        for name in self.node_backoff.end(now):
            self._mark_node(name, now)
        decision = self._binding.next(now)
        if decision is not None:
            return decision
        while (entry := self.queue.pop(now)) is not None:
            if not entry.pod.terminating:
                if self._others is not None:
                    self.state.table.selector_sources = self._others.selector_sources
                return self._attempt(entry, now)
        return None

    def next_at(self) -> float | None:
        """Return the time at which :meth:`next` may have a decision without a new event, seconds; None if never."""
        times = (self.queue.next_at(), self._binding.next_at(), self.node_backoff.next_at())
        return min((at for at in times if at is not None), default=None)

    # Outcomes of decisions

    def prepared(self, uid: str, now: float) -> None:
        """Record that the writes of a :class:`Prepare` were sent."""
        self._binding.prepared(uid, now)

    def bound(self, uid: str) -> None:
        """Record that the API server accepted the Binding of a pod."""
        self._binding.bound(uid)
        self._nominations.forget(uid)

    def not_bound(self, uid: str, now: float) -> None:
        """Record that the Binding of a pod, or a write before it, failed; the pod is tried again after a backoff."""
        self._binding.not_bound(uid, now)

    def _tell_gone(self, uid: str) -> None:
        for plugin in self._plugins:
            try:
                with blaming(plugin.name, "PodGone"):
                    plugin.pod_gone(uid)
            except Exception as error:  # noqa: BLE001  of a plugin, which must not keep the pod in the state
                self.failures.record(error)

    def _attempt(self, entry: QueueEntry, now: float) -> Decision:
        profile = self.profiles[entry.pod.scheduler_name]
        try:
            gang = self._groups.gang_of(entry.pod) if profile.places_groups else None
            if gang is not None:
                return self._with_unknown(self._groups.attempt(entry, gang, profile, now))
            return self._with_unknown(self._cycle.attempt(entry, profile, now))
        except Exception as error:  # noqa: BLE001  of a plugin, which must not lose the pod or stop the others
            message = self.failures.record(error)
            self._cycle.take_back(entry, now)
            return Unschedulable(entry.pod, message, needs_room=False, is_error=True)

    def _with_unknown(self, decision: Decision) -> Decision:
        """Name the nodes with unknown requests in the reason why a pod has no node: users cannot see our taint."""
        if not self._unknown_nodes or not isinstance(decision, Unschedulable):
            return decision
        names = sorted(self._unknown_nodes)
        some = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        reason = f"{len(names)} nodes get no pods, because they have a pod whose requests are not known: {some}."
        return replace(decision, message=f"{decision.message} {reason}")

    def _put_bound(self, pod: Pod, now: float) -> None:
        self.queue.drop(pod.uid)
        self._nominations.forget(pod.uid)
        decision = self._binding.decision(pod.uid)
        if decision is not None and (decision.node_name != pod.node_name or pod.uid in self.waiting.by_uid):
            self._binding.drop(pod.uid)  # bound by another scheduler
        known = self.state.table.find(pod)
        self.state.put_pod(pod)
        if decision is None:
            if known is None:
                self.queue.move(ClusterEvent.POD_ASSIGNED, now)
                self._binding.recheck((pod.node_name,))
            elif _changed(known[1].pod, pod):
                self.queue.move(ClusterEvent.POD_CHANGED, now)

    def _put_pending(self, pod: Pod, now: float) -> None:
        pod = self._nominations.apply(pod)
        self.state.put_pod(pod)
        if pod.scheduler_name not in self.profiles:
            return
        if self._binding.update(pod):
            return
        if pod.terminating:
            self.queue.drop(pod.uid)
        else:
            self.queue.put(pod, now)

    def _marked(self, node: Node) -> Node:
        node = self.node_backoff.mark(node)
        return with_taint(node, UNKNOWN_REQUESTS, is_tainted=node.name in self._unknown_nodes)

    def _mark_node(self, name: str, now: float) -> None:
        if name in self.state.table:
            self.put_node(self.state.table.nodes[self.state.table.row(name)], now)

    def _moved(self, event: ClusterEvent | None, now: float) -> None:
        if event is not None:
            self.queue.move(event, now)


def _changed(before: Pod, after: Pod) -> bool:
    """Return whether a pod has changed in more than its binding and its status, so that other pods may fit now."""
    same_binding = replace(
        before,
        node_name=after.node_name,
        nominated_node_name=after.nominated_node_name,
        scheduled_at=after.scheduled_at,
        started_at=after.started_at,
        preempted=after.preempted,
    )
    return same_binding != after
