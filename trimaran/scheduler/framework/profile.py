"""Plugins of one scheduler name, by extension point."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any

from runtime.kubernetes.objects import Pod
from scoring.plugins.failures import blaming
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, PluginResultError
from scoring.profiles.profile import Profile
from trimaran.scheduler.framework.extension_points import (
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    Rejection,
    ReservePlugin,
    SchedulerPlugin,
)
from trimaran.scheduler.framework.node_sampling import ALL_NODES
from trimaran.scheduler.framework.plugin_failures import checked
from trimaran.scheduler.framework.priority_sort import PrioritySort


@dataclass(frozen=True)
class SchedulerProfile:
    """Plugins of one scheduler name.

    Attributes:
        scores: score plugins with weights, and the scheduler name.
        filters: filter plugins, in the order in which they run.
        queue_sort: order of the queue, the same in all profiles of a scheduler.
        pre_enqueue: plugins that gate pods.
        pre_filters: plugins that may refuse a pod before its nodes are filtered.
        places_groups: whether the pods of a PodGroup of Kubernetes are placed in one cycle; if not, one by one.
        post_filters: plugins that may preempt other pods, in order.
        reserve: plugins that account for further resources of pods on nodes.
        permit: plugins that let pods wait.
        pre_bind: plugins that write before a pod is bound.
        post_bind: plugins that record bound pods.
        sample_percent: ``percentageOfNodesToScore``: share of the nodes after which the search for feasible nodes ends;
            0 is kube-scheduler's default.
    """

    scores: Profile
    filters: tuple[FilterPlugin, ...] = ()
    queue_sort: QueueSortPlugin = field(default_factory=PrioritySort)
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filters: tuple[PreFilterPlugin, ...] = ()
    places_groups: bool = False
    post_filters: tuple[PostFilterPlugin, ...] = ()
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()
    post_bind: tuple[PostBindPlugin, ...] = ()
    sample_percent: int = ALL_NODES

    @property
    def scheduler_name(self) -> str:
        """Scheduler name, which pods select by ``spec.schedulerName``."""
        return self.scores.scheduler_name

    @property
    def reads_load(self) -> bool:
        """True if a score plugin or a filter reads the measured load of nodes."""
        filters = any(each.reads_metrics for each in self.filters)
        return filters or any(weighted.plugin.reads_metrics for weighted in self.scores.plugins)

    @cached_property
    def requeued_by(self) -> Mapping[str, frozenset[ClusterEvent]]:
        """Events that requeue a pod, by the name of the plugin that refused it."""
        plugins: Iterable[FilterPlugin | SchedulerPlugin] = (
            *self.filters, *self.pre_filters, *self.post_filters, *self.reserve, *self.permit, *self.pre_bind,
        )  # fmt: skip
        readers = {each.name for each in self.filters if each.reads_metrics}
        published = frozenset({ClusterEvent.METRICS_PUBLISHED})
        return {each.name: each.requeued_by | (published if each.name in readers else frozenset()) for each in plugins}

    @property
    def stateful(self) -> Iterable[SchedulerPlugin]:
        """Plugins that may use the scheduler's handle, each once."""
        plugins: Iterable[SchedulerPlugin] = (
            self.queue_sort, *self.pre_enqueue, *self.pre_filters, *self.post_filters, *self.reserve, *self.permit,
            *self.pre_bind, *self.post_bind, *(each for each in self.filters if isinstance(each, SchedulerPlugin)),
            *(each.plugin for each in self.scores.plugins if isinstance(each.plugin, SchedulerPlugin)),
        )  # fmt: skip
        return {id(plugin): plugin for plugin in plugins}.values()

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[Any, ...]:
        """Return the key by which the queue is sorted; see :class:`QueueSortPlugin`."""
        with blaming(self.queue_sort.name, "QueueSort"):
            key = checked(self.queue_sort.sort_key(pod, queued_at), tuple, list)
            if any(part != part for part in key):  # noqa: PLR0124  NaN
                raise PluginResultError(f"{self.queue_sort.name}.sort_key: must not contain NaN, got {key}")
            return key

    def gate(self, pod: Pod) -> Rejection | None:
        """Return why a pod must not be scheduled yet; None if it may be."""
        for plugin in self.pre_enqueue:
            with blaming(plugin.name, "PreEnqueue"):
                rejection = checked(plugin.pre_enqueue(pod), Rejection, NoneType)
            if rejection is not None:
                return rejection
        return None
