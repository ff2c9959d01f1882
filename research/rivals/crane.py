"""Crane's Dynamic scheduler plugin with its default policy, for comparison.

A controller writes annotations on each node: its use u of CPU and of memory from Prometheus, as a share of capacity,

    average over 5 minutes                      every 3 minutes,    weight 0.2, excluded above 0.65
    highest such average of the past hour       every 15 minutes,   weight 0.3, excluded above 0.75
    highest such average of the past day        every 3 hours,      weight 0.5

and a hot value: pods bound in the last 5 minutes / 5 + pods bound in the last minute / 2, each truncated.

    score = trunc(sum of (1 - u) * weight * 100 / sum of weights) - 10 * hot value      clipped to 0 to 100

The plugin has weight 3, in addition to kube-scheduler's own plugins. A missing annotation contributes 0 to the sum. If
all nodes are excluded, the simulated pod does not wait; instead no node is excluded.
Source: gocrane/crane-scheduler, pkg/plugins/dynamic, pkg/controller/annotator and deploy/manifests/dynamic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Float64s, Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from scoring.table.node_table import NodeTable
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.profiles import ProfileChooser, ProfilePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher

_AVERAGED_MINUTES = 5
_HOT_PENALTY = 10


@dataclass(frozen=True, slots=True)
class UsageMetric:
    """Metric of measured CPU and memory use that Crane's controller writes on nodes as an annotation.

    Attributes:
        highest_of_minutes: span over which the highest average is taken; 0 takes the last average.
        every_minutes: interval of the annotation.
        weight: weight in the score.
        limit: value above which a node is excluded, as a share of capacity.
    """

    highest_of_minutes: int
    every_minutes: int
    weight: float
    limit: float = float("inf")


USAGE_METRICS = (UsageMetric(0, 3, 0.2, 0.65), UsageMetric(60, 15, 0.3, 0.75), UsageMetric(1440, 180, 0.5))
HOT_VALUES = ((5, 5), (1, 2))
"""Spans in minutes in which bound pods are counted, each with the divisor of the count."""


def scores(usages: Float64s, hot: Int64s, metrics: tuple[UsageMetric, ...] = USAGE_METRICS) -> Int64s:
    """Return Crane's scores from 0 to 100, shape (nodes,); the module's docstring has the formula.

    Args:
        usages: measured use as a share of capacity, NaN if unknown, shape (2 resources, metrics, nodes).
        hot: hot values, which count recently bound pods, shape (nodes,).
        metrics: the averages and maxima of measured use that are weighted in the score.
    """
    weights = np.array([usage.weight for usage in metrics])
    terms = np.nan_to_num((1 - usages) * weights[:, None] * MAX_NODE_SCORE, nan=0.0)
    score = (terms.sum(axis=(0, 1)) / (2 * weights.sum())).astype(np.int64) - _HOT_PENALTY * hot
    return np.asarray(np.clip(score, 0, MAX_NODE_SCORE))


def overloaded(usages: Float64s, metrics: tuple[UsageMetric, ...] = USAGE_METRICS) -> Bools:
    """Return a mask of the nodes whose measured use exceeds any metric's limit, shape (nodes,).

    Args:
        usages: measured use as a share of capacity, NaN if unknown, shape (2 resources, metrics, nodes).
        metrics: the metrics with their limits.
    """
    limits = np.array([usage.limit for usage in metrics])[:, None]
    return np.asarray(np.any(usages > limits, axis=(0, 1)))


class NodeAnnotations:
    """Crane's annotations on the nodes: measured use and hot values. Nodes are indexed by number in the ledger.

    Args:
        cluster: the simulated cluster.
        delay_minutes: age of the values when they are written.
        metrics: the use metrics.

    Attributes:
        metrics: the use metrics.
        usages: measured use as a share of capacity, NaN if unknown, shape (2 resources, metrics, nodes).
        hot: hot values, which count recently bound pods, shape (nodes,).
    """

    def __init__(self, cluster: Cluster, delay_minutes: int, metrics: tuple[UsageMetric, ...] = USAGE_METRICS) -> None:
        self._cluster, self._delay = cluster, delay_minutes
        self.metrics = metrics
        self._last_written = [-1] * len(metrics)
        self.usages = np.full((2, len(metrics), 0), np.nan)
        self.hot = np.zeros(0, np.int64)

    def update(self) -> None:
        """Write the annotations that have become due, with the values of the minute in which they were due."""
        minute = self._cluster.minute
        more = len(self._cluster.ledger.since) - len(self.hot)
        if more:
            self.usages = np.pad(self.usages, ((0, 0), (0, 0), (0, more)), constant_values=np.nan)
            self.hot = np.pad(self.hot, (0, more))
        for index, metric in enumerate(self.metrics):
            due = minute // metric.every_minutes * metric.every_minutes
            if due > self._last_written[index]:
                self._last_written[index] = due
                self.usages[:, index] = self._highest(due - self._delay, metric.highest_of_minutes)
                if not index:  # the first metric is due whenever another one is
                    self.hot = self._hot(due)

    def _hot(self, minute: int) -> Int64s:
        total = np.zeros(len(self.hot), np.int64)
        for within, divisor in HOT_VALUES:
            bound = [run.node for run in self._cluster.runs_since(minute - within + 1) if run.start <= minute]
            total += np.bincount(np.array(bound, np.int64), minlength=len(total)) // divisor
        return total

    def _highest(self, end: int, minutes: int) -> Float64s:
        """Return the highest 5-minute average of use in the minutes before an end, shape (2 resources, nodes)."""
        ledger = self._cluster.ledger
        first = max(end - max(minutes, 1), 0)
        start = max(first - _AVERAGED_MINUTES + 1, 0)
        if end <= 0:
            return np.full((2, len(ledger.since)), np.nan)
        part = np.minimum(ledger.use[:, :, start:end] / ledger.capacity[:, :, None], 1.0)
        total = np.concatenate([np.zeros((*part.shape[:2], 1)), np.cumsum(part, axis=2)], axis=2)
        at = np.arange(first - start + 1, end - start + 1)
        before = np.maximum(at - _AVERAGED_MINUTES, 0)
        highest: Float64s = ((total[:, :, at] - total[:, :, before]) / (at - before)).max(axis=2)
        highest[:, ledger.since >= end] = np.nan
        return highest


@dataclass(frozen=True)
class CraneDynamic(WithoutNodeTerms):
    """Crane's Dynamic plugin: scores by the annotations of nodes.

    Attributes:
        cluster: the simulated cluster.
        annotations: annotations of the cluster's nodes; scores always use their current values.
    """

    cluster: Cluster = field(hash=False, compare=False)
    annotations: NodeAnnotations = field(hash=False, compare=False)

    name: ClassVar[str] = "Dynamic"

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score, which does not depend on the pod."""
        annotations, numbers = self.annotations, self.cluster.numbers[rows]
        score = scores(annotations.usages[:, :, numbers], annotations.hot[numbers], annotations.metrics)
        return {"score": score[None, :].repeat(len(pods), axis=0)}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the text that explains a node's score, with the score."""
        return f"{terms['score']} by the node's annotations"


@dataclass(frozen=True)
class Crane(ProfilePolicy):
    """kube-scheduler with Crane's Dynamic plugin.

    Attributes:
        weight: weight of the Dynamic plugin.
        metrics: the metrics of measured use; none may be written more often than the first.
    """

    weight: int = 3
    metrics: tuple[UsageMetric, ...] = USAGE_METRICS

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "CraneChooser":
        """Return a chooser for one replay."""
        return CraneChooser(self, cluster, watcher, rng)


class CraneChooser(ProfileChooser):
    """Choices of Crane in one replay."""

    def __init__(self, policy: Crane, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> None:
        self._annotations = NodeAnnotations(cluster, watcher.windows.delay_minutes, policy.metrics)
        dynamic = WeightedPlugin(CraneDynamic(cluster, self._annotations), policy.weight)
        profile = Profile((*policy.profile.plugins, dynamic), policy.profile.scheduler_name)
        super().__init__(replace(policy, profile=profile), cluster, watcher, rng)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row with the highest score among the nodes that are not excluded."""
        self._annotations.update()
        usages = self._annotations.usages[:, :, self._cluster.numbers[candidates]]
        remaining = candidates[~overloaded(usages, self._annotations.metrics)]
        return super().choose(number, pod, remaining if remaining.size else candidates)
