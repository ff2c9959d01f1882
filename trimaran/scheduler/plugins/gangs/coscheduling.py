"""Coscheduling: pods of a gang wait on their nodes until enough of them have a node; else they release the nodes.

Has the extension points of the plugin in kubernetes-sigs/scheduler-plugins; docs/gangs.md lists the differences. It
places gangs of ``scheduling.x-k8s.io`` and of labels; the gangs of Kubernetes itself are placed by
:mod:`trimaran.scheduler.framework.group_cycle`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from runtime.errors import quoted
from runtime.kubernetes import pod_demand
from runtime.kubernetes.gangs import GangForm
from runtime.kubernetes.objects import Pod
from scoring.plugins.filtering import ClusterEvent, FilterVerdict
from scoring.profiles.configuration.fields import FieldReader, camel
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import (
    PermitPlugin,
    PostFilterPlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    Rejection,
    ReservePlugin,
    SchedulerHandle,
    Wait,
    WaitingPods,
)
from trimaran.scheduler.framework.gang_directory import HELD, Gang, GangDirectory, placed_pods
from trimaran.scheduler.plugins.gangs.room import are_alike, room_for
from trimaran.scheduler.plugins.preemption.lowest_priorities import LowestPriorities

_PAUSE_SECONDS = 1.0  # a gang that lost its nodes waits as long as a pod's first backoff in kube-scheduler
_TYPE_KEYS = ("apiVersion", "kind")
_ROOM_EVENTS = frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_GONE})


@dataclass(frozen=True)
class CoschedulingArgs:
    """Arguments of the plugin, by upstream's names; the last one is ours.

    Attributes:
        permit_waiting_time_seconds: longest wait of a placed pod for the rest of its gang, unless the PodGroup states
            another time.
        pod_group_backoff_seconds: time for which a gang that failed is not tried again; 0 for no such time.
        pod_group_reject_percentage: a gang keeps the nodes of its other pods if at most this share of its least number
            of pods has no node.
        max_hold_seconds: longest time for which an incomplete gang keeps nodes while another gang waits for nodes.
    """

    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10
    max_hold_seconds: int = 60

    @classmethod
    def from_config(cls, arguments: Mapping[str, Any], where: str) -> Self:
        """Read ``CoschedulingArgs`` of a KubeSchedulerConfiguration.

        Args:
            arguments: the arguments.
            where: their path in the file.

        Raises:
            ValueError: the arguments are not a mapping, or an argument is unknown or out of range; the message has the
                paths of all such arguments.
        """
        reader = FieldReader(where, arguments)
        names = {camel(each.name): each.name for each in fields(cls)}
        given = {key: reader.raw(key) for key in (*names, *_TYPE_KEYS)}
        reader.finish()
        given = {key: value for key, value in given.items() if value is not None and key in names}
        problems = [f"{note.path}: {note.detail}" for note in reader.notes]
        for key, value in given.items():
            most = 100 if key == "podGroupRejectPercentage" else None
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            if not is_whole or value < 0 or (most is not None and value > most):
                bounds = "of at least 0" if most is None else f"between 0 and {most}"
                problems.append(f"{where}.{key}: must be a whole number {bounds}, got {quoted(value)}")
        if problems:
            raise ValueError("; ".join(sorted(problems)))
        return cls(**{names[key]: value for key, value in given.items()})


class Coscheduling(QueueSortPlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin, PermitPlugin):
    """Plugin that places the pods of a gang all together or not at all.

    Args:
        gangs: gangs with their pods.
        arguments: arguments of the plugin.
    """

    name = "Coscheduling"
    requeued_by = _ROOM_EVENTS

    def __init__(self, gangs: GangDirectory, arguments: CoschedulingArgs = CoschedulingArgs()) -> None:
        self._gangs, self._arguments = gangs, arguments
        self._starved: dict[str, Gang] = {}  # gangs that lack free nodes, by identity
        self._rejected: set[str] = set()  # uids of waiting pods whose rejection is under way
        self._handle: SchedulerHandle | None = None
        self._lowest = LowestPriorities()

    def attach(self, handle: SchedulerHandle) -> None:
        """Receive the handle of the scheduler."""
        self._handle = handle

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[Any, ...]:
        """Return the key: priority, then the time of the gang's first pod or last failure, then its creation and name.

        The pods of a gang are therefore scheduled one after the other. After a failure of the gang, others come first.
        """
        gang = self._gangs.of(pod)
        if gang is None:
            return -pod.priority, queued_at, pod.created_at or 0.0, f"{pod.namespace}/{pod.name}"
        if gang.queued_at is None:
            gang.queued_at = queued_at
        created_at = None if gang.group is None else gang.group.created_at
        return -pod.priority, gang.queued_at, created_at or 0.0, str(gang.ref)

    def pre_filter(self, pod: Pod, nodes: NodeTable, now: float) -> Rejection | None:
        """Refuse a pod whose gang is unknown, in backoff or incomplete, has just failed, or lacks ``minResources``."""
        gang = self._gang(pod)
        if gang is None:
            return None
        if reason := gang.why_missing():
            return _held(reason)
        if now < gang.backoff_until:
            message = f"gang {gang.ref} failed and is tried again in {gang.backoff_until - now:.0f} s"
            return Rejection(message, gang.lacks_room, retry_at=gang.backoff_until)
        if gang.ready < gang.min_members:
            return _held(f"{gang.ready} of {gang.min_members} pods of gang {gang.ref} exist")
        if pod.uid in gang.failed_pods:
            gang.failed_pods.discard(pod.uid)
            return Rejection(gang.failure[0], needs_room=True, refused_by=gang.failure[1])
        lacking = self._lacking(gang, pod, nodes, now)
        if lacking:
            self._starve(gang)
            return Rejection(f"gang {gang.ref} needs more {', '.join(lacking)} than is free", needs_room=True)
        return self._without_room(gang, pod, nodes, now)

    def post_filter(
        self,
        pod: Pod,
        nodes: NodeTable,  # noqa: ARG002  the verdicts say enough
        verdicts: Mapping[str, FilterVerdict],
        now: float,
    ) -> Rejection:
        """Release the nodes of a gang that does not fit as a whole, unless only few of its pods have no node."""
        gang = self._gang(pod)
        if gang is None or not gang.min_members:
            return Rejection("")
        placed, least = self._placed(gang), gang.min_members
        if placed >= least:
            return Rejection("")
        self._starve(gang)
        if 100 * (least - placed) <= self._arguments.pod_group_reject_percentage * least:
            return Rejection(f"Gang {gang.ref}: {placed} of {least} pods keep their nodes.")
        message = f"gang {gang.ref} does not fit as a whole: {pod.namespace}/{pod.name} has no node"
        self._reject_waiting(gang, Rejection(message, needs_room=True))
        handle = self._known_handle()
        waits = handle.waiting.by_uid
        gang.failed_pods = {uid for uid in gang.pods if uid not in waits and handle.is_active(uid)}
        gang.failure = message, frozenset(verdicts)
        gang.queued_at = now
        gang.checked_until = now
        if gang.ready >= least:
            gang.backoff_until = now + self._arguments.pod_group_backoff_seconds
        return Rejection(f"Gang {gang.ref} gives up the nodes of {placed} pods.")

    def reserve(self, pod: Pod, node_name: str) -> None:
        """Reserve nothing: a pod of a gang counts once it is assumed on its node."""

    def unreserve(self, pod: Pod, node_name: str) -> None:  # noqa: ARG002  counted by assumptions
        """Release the nodes of a gang's waiting pods when one of its pods loses its node."""
        gang = self._gang(pod)
        if gang is None:
            return
        if pod.uid in self._rejected:
            self._rejected.discard(pod.uid)
            return
        handle = self._known_handle()
        self._reject_waiting(gang, Rejection(f"{pod.namespace}/{pod.name}, of the same gang, has lost its node"))
        gang.queued_at = handle.now
        # The free nodes go to the gang that has waited longest, before this gang is tried again. Without the pause, two
        # gangs that lose their nodes at the same time would take them again in turn, pod by pod.
        gang.backoff_until = handle.now + max(_PAUSE_SECONDS, self._arguments.pod_group_backoff_seconds)
        starved = next((each for each in self._starved.values() if each is not gang), None)
        if starved is not None:
            starved.backoff_until = handle.now
            handle.activate(starved.pods)

    def permit(
        self,
        pod: Pod,
        node_name: str,  # noqa: ARG002  any node counts
        waiting: WaitingPods,
        now: float,
    ) -> Wait | Rejection | None:
        """Let a pod wait until enough pods of its gang have a node, then let all of them be bound."""
        gang = self._gang(pod)
        if gang is None:
            return None
        if reason := gang.why_missing():
            return Rejection(reason)
        siblings = [uid for uid in gang.pods if uid in waiting.by_uid]
        if self._placed(gang) >= gang.min_members:
            for uid in siblings:
                waiting.allow(uid, self.name)
            self._starved.pop(str(gang.ref), None)
            gang.lacks_room = False
            gang.failed_pods.clear()
            return None
        if not siblings:
            gang.held_since = now
            gang.failed_pods.clear()
            self._known_handle().activate(uid for uid in gang.pods if uid != pod.uid)
        stated = None if gang.group is None else gang.group.timeout_seconds
        until = now + (stated or self._arguments.permit_waiting_time_seconds)
        if any(other is not gang for other in self._starved.values()):
            until = min(until, gang.held_since + self._arguments.max_hold_seconds)
        return Wait(max(0.0, until - now))

    def _gang(self, pod: Pod) -> Gang | None:
        gang = self._gangs.of(pod)
        return None if gang is None or gang.ref.form is GangForm.IN_TREE else gang

    def _known_handle(self) -> SchedulerHandle:
        if self._handle is None:
            raise RuntimeError("Coscheduling is used before attach()")
        return self._handle

    def _placed(self, gang: Gang) -> int:
        return placed_pods(gang, self._known_handle().is_assumed)

    def _starve(self, gang: Gang) -> None:
        """Record that a gang lacks free nodes, so that other incomplete gangs keep nodes for a limited time only."""
        gang.lacks_room = True
        self._starved = {key: each for key, each in self._starved.items() if each.pods}
        self._starved[str(gang.ref)] = gang
        waiting = self._known_handle().waiting
        for uid, (pod, _, _) in tuple(waiting.by_uid.items()):
            other = self._gang(pod)
            if other is not None and other is not gang:
                waiting.limit(uid, self.name, other.held_since + self._arguments.max_hold_seconds)

    def _reject_waiting(self, gang: Gang, rejection: Rejection) -> None:
        waiting = self._known_handle().waiting
        for uid in gang.pods:
            if uid in waiting.by_uid:
                self._rejected.add(uid)
                waiting.reject(uid, self.name, rejection)

    def _without_room(self, gang: Gang, pod: Pod, nodes: NodeTable, now: float) -> Rejection | None:
        """Refuse a pod whose gang of equal pods does not fit on the free nodes, and could not preempt any pod."""
        if gang.min_members < 2 or self._placed(gang) or not are_alike(gang):
            return None
        room = room_for(pod, nodes)
        if room >= gang.min_members or bool((self._lowest.of(nodes, pod.scheduler_name) < pod.priority).any()):
            return None
        self._starve(gang)
        gang.queued_at = now
        gang.backoff_until = now + self._arguments.pod_group_backoff_seconds
        message = f"gang {gang.ref} needs room for {gang.min_members} pods, and there is room for {room}"
        gang.failed_pods = {uid for uid in gang.pods if uid != pod.uid and self._known_handle().is_active(uid)}
        gang.failure = message, frozenset({self.name})
        return Rejection(message, needs_room=True)

    def _lacking(self, gang: Gang, pod: Pod, nodes: NodeTable, now: float) -> list[str]:
        """Return the resources in ``minResources`` of which too little is free on the nodes that the pod may use."""
        needs = {} if gang.group is None else dict(gang.group.min_resources)
        if not needs or now < gang.checked_until:
            return []
        rows = nodes.rows.constraints.allows(pod)
        lacking = []
        for name, needed in {**needs, "pods": gang.min_members}.items():
            if name == "pods":
                free = nodes.allocatable(name) - nodes.pod_counts
            else:
                free = nodes.allocatable(name) - nodes.in_tree_requests(name)
            own = self._own(gang, name)
            if sum(np.maximum(free, 0)[rows].tolist()) + own < needed:  # Python's integers cannot wrap
                lacking.append(name)
        if not lacking:
            gang.checked_until = now + self._arguments.permit_waiting_time_seconds
        return lacking

    def _own(self, gang: Gang, name: str) -> int:
        """Return the amount of a resource that the placed pods of a gang hold."""
        is_assumed = self._known_handle().is_assumed
        placed = [pod for uid, pod in gang.pods.items() if pod.node_name or is_assumed(uid)]
        return len(placed) if name == "pods" else sum(pod_demand.in_tree_requests(pod, name) for pod in placed)


def _held(reason: str) -> Rejection:
    return Rejection(reason, refused_by=frozenset({HELD}))
