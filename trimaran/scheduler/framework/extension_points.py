"""Extension points of the scheduling cycle, by kube-scheduler's names.

A plugin is an object that inherits from one or more of these classes. Filter and score plugins handle all nodes in one
call and have no state: see :class:`scoring.plugins.filtering.FilterPlugin` and :class:`scoring.ScorePlugin`. There is
therefore no PreScore, and PreFilter only refuses pods: in kube-scheduler both also prepare values for the calls for
single nodes. kube-scheduler's status Skip is a filter that returns None, or a score that skips the pod.
NormalizeScore is ``ScorePlugin.normalize``.

The plugins below may have state, because one scheduler owns them. They send no requests and read no clock: they return
the requests to send, and get the time as an argument. Source: k8s.io/kube-scheduler/framework.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.paths import MERGE_PATCH
from scoring.load.metrics_table import MetricsTable
from scoring.plugins.base import Plugin
from scoring.plugins.filtering import CLUSTER_CHANGES, ClusterEvent, FilterVerdict
from scoring.table.node_table import NodeTable

#: Time for the requests that delete victims. Then the pod is tried again, because these requests may have failed.
PREEMPTION_SECONDS: Final = 10.0
_AT_ONCE = float("-inf")


@dataclass(frozen=True)
class Write:
    """Patch of an object before a pod is bound.

    Attributes:
        path: path of the object or subresource.
        body: the patch.
        purpose: sentence for logs and Events.
        form: media type of the patch.
    """

    path: str
    body: Mapping[str, Any]
    purpose: str = ""
    form: str = MERGE_PATCH


@dataclass(frozen=True)
class Preemption:
    """Result of a PostFilter plugin: the pod will fit on a node once the victims are gone.

    Attributes:
        node_name: node to nominate the pod to.
        victims: pods to delete, highest priority first.
        cleared: pending pods of lower priority whose nomination to the node ends.

    Raises:
        TypeError: a victim is not a pod.
    """

    node_name: str
    victims: tuple[Pod, ...]
    cleared: tuple[Pod, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(pod, Pod) for pod in (*self.victims, *self.cleared)):
            raise TypeError("Preemption.victims and Preemption.cleared must consist of pods")


@dataclass(frozen=True)
class Wait:
    """Answer of a Permit plugin: the pod waits on its node.

    Attributes:
        seconds: time after which the pod is rejected; more than 900 count as 900.

    Raises:
        ValueError: the time is not a number.
    """

    seconds: float

    def __post_init__(self) -> None:
        if math.isnan(self.seconds):
            raise ValueError("Wait.seconds must be a number, got NaN")


@dataclass(frozen=True)
class Rejection:
    """Answer of a PreEnqueue, PreFilter, Reserve, Permit or PreBind plugin that stops a pod.

    Attributes:
        message: reason, for the pod's status.
        needs_room: true if a new node could help, so that cluster autoscalers may act; the status then has the reason
            ``Unschedulable``.
        ends_nomination: true if the pod's nomination to a node ends, because preemption cannot help it any more.
        refused_by: plugins whose events requeue a pod that PreFilter refuses; empty for the refusing plugin alone. For
            PostFilter, plugins in addition to the filters that refused the nodes.
        may_preempt: true if PostFilter plugins may help a pod that PreFilter refuses; their verdicts refuse all nodes.
        retry_at: time at which a pod that PreFilter or PostFilter refuses is tried again without an event, seconds;
            None for the queue's own times.

    Raises:
        TypeError: a field has another type.
        ValueError: the time is not a number.
    """

    message: str
    needs_room: bool = False
    ends_nomination: bool = False
    refused_by: frozenset[str] = frozenset()
    may_preempt: bool = False
    retry_at: float | None = None

    def __post_init__(self) -> None:
        given: tuple[object, object] = (self.message, self.refused_by)
        if not isinstance(given[0], str) or not isinstance(given[1], frozenset):
            raise TypeError("Rejection.message must be a text, and Rejection.refused_by a frozenset")
        if self.retry_at is not None and math.isnan(self.retry_at):
            raise ValueError("Rejection.retry_at must be a number, got NaN")


@runtime_checkable
class ReadsAnnotations(Protocol):
    """Plugin that reads annotations of nodes or pods. The scheduler stores no annotations that no plugin reads."""

    @property
    def annotations(self) -> frozenset[str]:
        """Names of the annotations."""
        ...


class SchedulerPlugin(Plugin):
    """Base class of the plugins below.

    Attributes:
        requeued_by: events after which a pod that this plugin refused is tried again.
    """

    requeued_by: ClassVar[frozenset[ClusterEvent]] = CLUSTER_CHANGES

    def attach(self, handle: "SchedulerHandle") -> None:
        """Receive the handle of the scheduler that uses the plugin; called once before any other method."""

    def pod_gone(self, uid: str) -> None:
        """Forget a pod, bound or pending, that was deleted or has finished; by default do nothing."""


class PreEnqueuePlugin(SchedulerPlugin, ABC):
    """Plugin that keeps a pod out of the queue until a condition holds."""

    extension_point: ClassVar[str] = "preEnqueue"

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """Return why the pod must not be scheduled yet; None if it may be."""


class QueueSortPlugin(SchedulerPlugin, ABC):
    """Plugin that orders the queue; a configuration has exactly one."""

    extension_point: ClassVar[str] = "queueSort"

    @abstractmethod
    def sort_key(self, pod: Pod, queued_at: float) -> tuple[Any, ...]:
        """Return a sortable key; the pod with the least key is scheduled first.

        Args:
            pod: pending pod.
            queued_at: time when the pod was first queued, seconds.
        """


class PreFilterPlugin(SchedulerPlugin, ABC):
    """Plugin that may refuse a pod before its nodes are filtered."""

    extension_point: ClassVar[str] = "preFilter"

    @abstractmethod
    def pre_filter(self, pod: Pod, nodes: NodeTable, now: float) -> Rejection | None:
        """Return the reason to not schedule the pod now; None to continue with the filters.

        PostFilter plugins do not run for a refused pod, unless the rejection says that they may help.

        Args:
            pod: pending pod.
            nodes: node table with all bound and assumed pods.
            now: seconds on the scheduler's clock.
        """


class PostFilterPlugin(SchedulerPlugin, ABC):
    """Plugin that may preempt other pods for a pod that no node can take."""

    extension_point: ClassVar[str] = "postFilter"

    @abstractmethod
    def post_filter(
        self, pod: Pod, nodes: NodeTable, verdicts: Mapping[str, FilterVerdict], now: float
    ) -> Preemption | Rejection:
        """Return a node with the victims to delete so that the pod fits there, or the reason why no preemption helps.

        Args:
            pod: pending pod.
            nodes: node table with all bound and assumed pods.
            verdicts: verdicts on all nodes by name of the filter, up to the filter that refused the last node.
            now: seconds on the scheduler's clock.
        """


class ReservePlugin(SchedulerPlugin, ABC):
    """Plugin that accounts for resources of a pod on its node, except the requests in the node table."""

    extension_point: ClassVar[str] = "reserve"

    @abstractmethod
    def reserve(self, pod: Pod, node_name: str) -> Rejection | None:
        """Reserve resources for a pod on its node; if this is impossible, reserve nothing and return the reason."""

    @abstractmethod
    def unreserve(self, pod: Pod, node_name: str) -> None:
        """Undo a reservation, if there is one."""


class PermitPlugin(SchedulerPlugin, ABC):
    """Plugin that lets a pod wait on its node before it is bound, for example for the rest of its gang."""

    extension_point: ClassVar[str] = "permit"

    @abstractmethod
    def permit(self, pod: Pod, node_name: str, waiting: "WaitingPods", now: float) -> Wait | Rejection | None:
        """Return None to bind the pod, a Wait to let it wait, or a Rejection to give it up.

        The plugin may allow or reject waiting pods in the same call.
        """


class PreBindPlugin(SchedulerPlugin, ABC):
    """Plugin that writes to the API server before a pod is bound, such as the node of a volume claim."""

    extension_point: ClassVar[str] = "preBind"

    @abstractmethod
    def pre_bind(self, pod: Pod, node_name: str) -> Sequence[Write] | Rejection:
        """Return the requests to send before the Binding; empty if there are none."""

    def is_ready(self, pod: Pod, node_name: str) -> bool | Rejection:  # noqa: ARG002  unused by default
        """Return True once the effect of the requests is visible and the pod can be bound, or why they failed."""
        return True


class PostBindPlugin(SchedulerPlugin, ABC):
    """Plugin that records every bound pod."""

    extension_point: ClassVar[str] = "postBind"

    @abstractmethod
    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Record a bound pod."""


class WaitingPods:
    """Pods that wait on their nodes for the approval of Permit plugins.

    Attributes:
        by_uid: pod, node name, and by plugin the time until which the pod waits, seconds.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, tuple[Pod, str, dict[str, float]]] = {}
        self._rejected: dict[str, tuple[str, Rejection]] = {}

    def add(self, pod: Pod, node_name: str, until: Mapping[str, float]) -> None:
        """Let a pod wait for the plugins in ``until``, each at most until its time."""
        self.by_uid[pod.uid] = pod, node_name, dict(until)

    def allow(self, uid: str, plugin: str) -> None:
        """Record that a plugin approves a pod; the pod is bound once all its plugins have."""
        if uid in self.by_uid:
            self.by_uid[uid][2].pop(plugin, None)

    def limit(self, uid: str, plugin: str, until: float) -> None:
        """Let a pod wait for a plugin no longer than until a time, seconds."""
        if uid in self.by_uid:
            times = self.by_uid[uid][2]
            if plugin in times:
                times[plugin] = min(times[plugin], until)

    def reject(self, uid: str, plugin: str, refusal: Rejection) -> None:
        """Record that a plugin rejects a pod."""
        if uid in self.by_uid:
            self._rejected.setdefault(uid, (plugin, refusal))

    def forget(self, uid: str) -> None:
        """Drop a pod, for example because it was deleted."""
        self.by_uid.pop(uid, None)
        self._rejected.pop(uid, None)

    def settle(self, now: float) -> list[tuple[Pod, str, str, Rejection | None]]:
        """Remove the pods whose wait has ended; return pod, node, plugin and Rejection, or "" and None if approved."""
        settled: list[tuple[Pod, str, str, Rejection | None]] = []
        for uid, (pod, node_name, until) in list(self.by_uid.items()):
            late = next((plugin for plugin, at in until.items() if at <= now), "")
            if uid in self._rejected:
                settled.append((pod, node_name, *self._rejected[uid]))
            elif late:
                settled.append((pod, node_name, late, Rejection(f"{late} did not permit the pod in time")))
            elif not until:
                settled.append((pod, node_name, "", None))
            else:
                continue
            self.forget(uid)
        return settled

    def next_at(self) -> float | None:
        """Return the earliest time at which a pod's wait for a permit times out, seconds; None if no pod waits.

        If a pod is already approved or rejected, the time is minus infinity.
        """
        if self._rejected or any(not until for _, _, until in self.by_uid.values()):
            return _AT_ONCE
        return min((at for _, _, until in self.by_uid.values() for at in until.values()), default=None)


@dataclass
class SchedulerHandle:
    """Part of a scheduler that plugins may use. kube-scheduler calls it ``framework.Handle``.

    Attributes:
        waiting: pods that wait for Permit plugins.
        is_assumed: returns whether a pod, given by its uid, counts on a node and is not known to be bound.
        is_active: returns whether a pod, given by its uid, is due for an attempt.
        activate: tries pods, given by their uids, as soon as possible, without their backoff.
        metrics: returns the metrics of a table's nodes; without fresh metrics no value in the result is valid. Filters
            that call it must set ``reads_metrics``.
        now: time of the current cycle, seconds on the scheduler's clock.
    """

    waiting: WaitingPods
    is_assumed: Callable[[str], bool]
    is_active: Callable[[str], bool]
    activate: Callable[[Iterable[str]], None]
    metrics: Callable[[NodeTable], MetricsTable]
    now: float = 0.0
