"""Base class of filter plugins, and the verdict of a filter on nodes.

A filter plugin decides for all nodes at once whether a pod may run there. It is a pure function of the pod and of a
node table, which keeps the indexes that filters need; so a filter has no state, and one object serves any number of
tables. Source: ``FilterPlugin`` and ``Status`` of k8s.io/kube-scheduler/framework.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools
from scoring.plugins.base import EVERY_ROW, Plugin, Rows
from scoring.plugins.failures import blaming
from scoring.table.node_table import NodeTable

Reasons = str | Callable[[int], tuple[str, ...]]
"""Why nodes are refused: one text for all refused nodes, or a function from an index in the mask to its texts."""


class ClusterEvent(Enum):
    """Change of the cluster that can make an unschedulable pod schedulable."""

    NODE_ADDED = "node added"
    NODE_CHANGED = "node changed"
    POD_ASSIGNED = "pod assigned"
    POD_CHANGED = "pod changed"
    POD_GONE = "pod gone"
    VOLUME_CHANGED = "volume changed"
    OTHER_CHANGED = "other object changed"
    METRICS_PUBLISHED = "metrics published"


CLUSTER_CHANGES = frozenset(ClusterEvent) - {ClusterEvent.METRICS_PUBLISHED}


class Dependence(Enum):
    """Pods that a filter's refusal depends on. Except with PODS, preemption can try many nodes at once."""

    NODES = "no pod"
    REQUESTS = "only the sums of the requests of each node's own pods, and their number"
    PODS = "any pod"


@dataclass(frozen=True)
class FilterVerdict:
    """Result of one filter for the tested nodes.

    Attributes:
        allowed: mask of the nodes on which the pod may run, shape (rows,).
        why: reasons for the nodes that are not allowed, as kube-scheduler words them.
        unresolvable: mask of the refused nodes where preemption cannot help, shape (rows,); None if it may help on all
            refused nodes. Values at allowed nodes have no meaning.
        counts: function that counts the nodes of a mask by reason; None to call :meth:`reasons` for each node.
    """

    allowed: Bools
    why: Reasons
    unresolvable: Bools | None = None
    counts: Callable[[Bools], Mapping[str, int]] | None = None

    def reasons(self, index: int) -> tuple[str, ...]:
        """Return the reasons for a refused node, given by its index in the mask."""
        return (self.why,) if isinstance(self.why, str) else self.why(index)


class PluginResultError(ValueError):
    """A plugin returned something that its base class does not allow."""


class FilterPlugin(Plugin, ABC):
    """Base class of the filter plugins. A plugin may be a filter and a :class:`~scoring.plugins.base.ScorePlugin`.

    Attributes:
        counts_nominated: true if :meth:`filter` itself counts the pods that are nominated to a node. All other filters
            run once more on a table with these pods, as in kube-scheduler.
        depends_on: pods that a refusal depends on.
        reads_metrics: true if the verdict depends on the nodes' metrics, which the scheduler's handle provides. A pod
            that the filter refused is then also tried again when new metrics are published.
        requeued_by: other events after which a pod that this filter refused is tried again.
    """

    extension_point: ClassVar[str] = "filter"
    counts_nominated: ClassVar[bool] = False
    depends_on: ClassVar[Dependence] = Dependence.PODS
    reads_metrics: ClassVar[bool] = False
    requeued_by: ClassVar[frozenset[ClusterEvent]] = CLUSTER_CHANGES

    @abstractmethod
    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which nodes the pod may run on; None if this filter allows every node (kube-scheduler's Skip).

        Args:
            pod: pending pod.
            nodes: whole node table.
            rows: rows to decide on, in the order of the result; by default all.
        """


def verdict_of(plugin: FilterPlugin, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
    """Return the verdict of a filter plugin, which may be from another package.

    Raises:
        PluginResultError: the result is not a verdict over the rows; the message names the plugin.
    """
    verdict: object = plugin.filter(pod, nodes, rows)
    if verdict is None:
        return None
    if isinstance(verdict, FilterVerdict):
        size = len(nodes) if isinstance(rows, slice) else len(rows)
        for name in ("allowed",) if verdict.unresolvable is None else ("allowed", "unresolvable"):
            mask = getattr(verdict, name)
            if not isinstance(mask, np.ndarray) or mask.shape != (size,):
                shape = getattr(mask, "shape", None)
                raise PluginResultError(f"{plugin.name}.filter: {name} must have the shape ({size},), got {shape}")
            if size and mask.dtype != np.bool_:
                raise PluginResultError(f"{plugin.name}.filter: {name} must be of bool, got {mask.dtype}")
        why: object = verdict.why
        if not isinstance(why, str) and not callable(why):
            raise PluginResultError(f"{plugin.name}.filter: why must be a text or a function, got {type(why).__name__}")
        return verdict
    kind = type(verdict).__name__
    raise PluginResultError(f"{plugin.name}.filter: must return a FilterVerdict or None, got {kind}")


def unresolvable_everywhere(allowed: Bools, why: str) -> FilterVerdict:
    """Return a verdict whose refusals preemption cannot change, such as those for a missing label."""
    return FilterVerdict(allowed, why, ~allowed)


def count_reasons(verdicts: Mapping[str, FilterVerdict]) -> Mapping[str, int]:
    """Return for how many nodes each reason is the first refusal, by reason.

    Args:
        verdicts: verdicts over the same nodes, by name of the filter, in the order in which the filters ran.
    """
    counts: dict[str, int] = {}
    still_allowed: Bools | None = None
    for name, verdict in verdicts.items():
        refused = ~verdict.allowed if still_allowed is None else still_allowed & ~verdict.allowed
        still_allowed = verdict.allowed if still_allowed is None else still_allowed & verdict.allowed
        if isinstance(verdict.why, str):
            number = int(np.count_nonzero(refused))
            if number:
                counts[verdict.why] = counts.get(verdict.why, 0) + number
            continue
        with blaming(name, "Filter"):
            if verdict.counts is not None:
                for reason, number in verdict.counts(refused).items():
                    if number:
                        counts[reason] = counts.get(reason, 0) + number
                continue
            for index in np.flatnonzero(refused).tolist():
                for reason in verdict.why(index):
                    counts[reason] = counts.get(reason, 0) + 1
    return counts
