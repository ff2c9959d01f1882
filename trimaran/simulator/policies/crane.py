"""Crane's Dynamic scheduler with its default policy, to compare with.

A controller writes on each node what Prometheus says of it, u in parts of capacity, of CPU and of memory alike:

    average over 5 minutes                      every 3 minutes,    weight 0.2, left out above 0.65
    highest such average of the past hour       every 15 minutes,   weight 0.3, left out above 0.75
    highest such average of the past day        every 3 hours,      weight 0.5

and with each of these a hot value: pods bound within 5 minutes / 5 + pods bound within a minute / 2, each truncated.

    score = trunc(sum of (1 - u) * weight * 100 / sum of weights) - 10 * hot value      within 0 and 100

with weight 3 beside kube-scheduler's own plugins. What is not known adds nothing. Pods here do not wait where all nodes
are left out: then none is. Source: gocrane/crane-scheduler, pkg/plugins/dynamic, pkg/controller/annotator and
deploy/manifests/dynamic.
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
    """A metric that is written on nodes.

    Attributes:
        highest_of_minutes: of how long the highest average is taken; 0 takes the last one.
        every_minutes: how often it is written.
        weight: in the score.
        limit: above which a node is left out, in parts of capacity.
    """

    highest_of_minutes: int
    every_minutes: int
    weight: float
    limit: float = float("inf")


USAGE_METRICS = (UsageMetric(0, 3, 0.2, 0.65), UsageMetric(60, 15, 0.3, 0.75), UsageMetric(1440, 180, 0.5))
HOT_VALUES = ((5, 5), (1, 2))
"""Within how many minutes pods were bound, and by what their number is divided."""


def scores(usages: Float64s, hot: Int64s, metrics: tuple[UsageMetric, ...] = USAGE_METRICS) -> Int64s:
    """Return the scores.

    Args:
        usages: parts of capacity, NaN where not known, shape (2 resources, len(metrics), nodes).
        hot: the hot values, shape (nodes,).
        metrics: what is written.
    """
    weights = np.array([usage.weight for usage in metrics])
    parts = np.nan_to_num((1 - usages) * weights[:, None] * MAX_NODE_SCORE, nan=0.0)
    score = (parts.sum(axis=(0, 1)) / (2 * weights.sum())).astype(np.int64) - _HOT_PENALTY * hot
    clipped: Int64s = np.clip(score, 0, MAX_NODE_SCORE)
    return clipped


def overloaded(usages: Float64s, metrics: tuple[UsageMetric, ...] = USAGE_METRICS) -> Bools:
    """Return which nodes are left out, shape (nodes,); arguments as for :func:`scores`."""
    limits = np.array([usage.limit for usage in metrics])[:, None]
    above: Bools = np.any(usages > limits, axis=(0, 1))
    return above


class NodeAnnotations:
    """What is written on the nodes, by their numbers in the ledger.

    Args:
        cluster: whose nodes they are.
        delay_minutes: how old it is when it is written.
        metrics: what is written.

    Attributes:
        metrics: what is written.
        usages: see :func:`scores`.
        hot: the hot values, shape (nodes,).
    """

    def __init__(self, cluster: Cluster, delay_minutes: int, metrics: tuple[UsageMetric, ...] = USAGE_METRICS) -> None:
        self._cluster, self._delay = cluster, delay_minutes
        self.metrics = metrics
        self._last_written = [-1] * len(metrics)
        self.usages = np.full((2, len(metrics), 0), np.nan)
        self.hot = np.zeros(0, np.int64)

    def update(self) -> None:
        """Write what was due since the last time, as of the minute that it was due in."""
        minute = self._cluster.minute
        more = len(self._cluster.ledger.since) - len(self.hot)
        if more:
            self.usages = np.pad(self.usages, ((0, 0), (0, 0), (0, more)), constant_values=np.nan)
            self.hot = np.pad(self.hot, (0, more))
        for place, usage in enumerate(self.metrics):
            due = minute // usage.every_minutes * usage.every_minutes
            if due > self._last_written[place]:
                self._last_written[place] = due
                self.usages[:, place] = self._highest(due - self._delay, usage.highest_of_minutes)
                if not place:  # the others are due in minutes that it is due in too
                    self.hot = self._hot(due)

    def _hot(self, minute: int) -> Int64s:
        total = np.zeros(len(self.hot), np.int64)
        for within, divisor in HOT_VALUES:
            bound = [run.node for run in self._cluster.runs_since(minute - within + 1) if run.start <= minute]
            total += np.bincount(np.array(bound, np.int64), minlength=len(total)) // divisor
        return total

    def _highest(self, end: int, minutes: int) -> Float64s:
        """Return the highest average over 5 minutes of so many minutes, up to one, shape (2, nodes)."""
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
    """Score by what is written on the nodes.

    Attributes:
        cluster: whose nodes they are.
        annotations: what is written; followed as it changes.
    """

    cluster: Cluster = field(hash=False, compare=False)
    annotations: NodeAnnotations = field(hash=False, compare=False)

    name: ClassVar[str] = "Dynamic"

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score, of which the pod knows nothing."""
        written, numbers = self.annotations, self.cluster.numbers[rows]
        score = scores(written.usages[:, :, numbers], written.hot[numbers], written.metrics)
        return {"score": score[None, :].repeat(len(pods), axis=0)}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Say that it is Crane's."""
        return f"{terms['score']} by what is written on the node"


@dataclass(frozen=True)
class Crane(ProfilePolicy):
    """kube-scheduler with the Dynamic plugin beside its own.

    Attributes:
        weight: of the Dynamic plugin.
        metrics: what is written on the nodes; the first as often as any other.
    """

    weight: int = 3
    metrics: tuple[UsageMetric, ...] = USAGE_METRICS

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "CraneChooser":
        """Begin a replay."""
        return CraneChooser(self, cluster, watcher, rng)


class CraneChooser(ProfileChooser):
    """Crane at work."""

    def __init__(self, policy: Crane, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> None:
        self._annotations = NodeAnnotations(cluster, watcher.windows.delay_minutes, policy.metrics)
        dynamic = WeightedPlugin(CraneDynamic(cluster, self._annotations), policy.weight)
        profile = Profile((*policy.profile.plugins, dynamic), policy.profile.scheduler_name)
        super().__init__(replace(policy, profile=profile), cluster, watcher, rng)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row with the highest score of the nodes that are not left out."""
        self._annotations.update()
        written = self._annotations
        cool = candidates[~overloaded(written.usages[:, :, self._cluster.numbers[candidates]], written.metrics)]
        return super().choose(number, pod, cool if cool.size else candidates)
