"""Scheduler profile: plugins with weights, whose scores are added as in kube-scheduler.

Each plugin scores all feasible nodes, and its scores are normalized to 0 to 100 over these nodes, checked, multiplied
by the plugin's weight and added to the total. A plugin that skips the pod adds nothing. Source: ``RunScorePlugins`` of
k8s.io/kubernetes/pkg/scheduler/framework/runtime.

A profile can be prepared with a judgment, the grades of the nodes by a fallback policy
(:mod:`scoring.profiles.fallback`). Then the scores of plugins that read metrics are replaced on nodes without usable
metrics. Replaced scores are left out of the normalization.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arguments import check_arguments
from scoring.arrays import Bools, Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.normalization import INFEASIBLE, MAX_NODE_SCORE
from scoring.plugins.base import PreparedPlugin, RowSliceCache, ScorePlugin, align_metrics, check_pod
from scoring.plugins.failures import blaming
from scoring.plugins.results import as_mask, as_scores
from scoring.profiles.fallback import Judgment
from scoring.profiles.scores import PluginScores, Scores, WeightedPlugin
from scoring.profiles.trial import check_metric_types
from scoring.table.node_table import NodeTable
from watcher.model import WatcherMetrics


@dataclass(frozen=True)
class Profile:
    """Score plugins with weights.

    Attributes:
        plugins: plugins with their weights, in order; no two plugins have the same name. Plugins of other packages
            score a made-up node when the profile is built: asking for a misspelled metric type raises a ValueError.
        scheduler_name: scheduler name of the profile, which pods select by ``spec.schedulerName``.
    """

    plugins: tuple[WeightedPlugin, ...]
    scheduler_name: str = "default-scheduler"

    def __post_init__(self) -> None:
        check_arguments(self)
        names = [weighted.plugin.name for weighted in self.plugins]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"profile {self.scheduler_name}: two plugins are named {name}")
        for weighted in self.plugins:
            check_metric_types(weighted.plugin)

    @classmethod
    def of(cls, *plugins: ScorePlugin) -> Self:
        """Create a profile of plugins with weight 1."""
        return cls(tuple(map(WeightedPlugin, plugins)))

    def prepare(
        self, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics | Judgment, levels: UseLevels | None = None
    ) -> "PreparedProfile":
        """Compute the values that do not depend on the pod, once for many pods. See :class:`PreparedProfile`.

        Args:
            nodes: node table to follow, or a transaction's plan.
            metrics: a snapshot, metrics aligned to the nodes, or the judgment of a fallback policy.
            levels: expected use of pods, for plugins that take it into account; None leaves the plugins unchanged.
        """
        return PreparedProfile(self if levels is None else self.with_levels(levels), nodes, metrics)

    @property
    def reads_levels(self) -> bool:
        """True if a plugin takes the expected use of pods into account."""
        return any(type(weighted.plugin).with_levels is not ScorePlugin.with_levels for weighted in self.plugins)

    def with_levels(self, levels: UseLevels) -> "Profile":
        """Return a copy of the profile whose plugins take the expected use of pods into account."""
        plugins = tuple(replace(weighted, plugin=weighted.plugin.with_levels(levels)) for weighted in self.plugins)
        return replace(self, plugins=plugins)

    def score(
        self,
        pod: Pod,
        nodes: NodeTable,
        metrics: MetricsTable | WatcherMetrics | Judgment,
        feasible: Bools | None = None,
    ) -> Scores:
        """Return the scores of all nodes for a pod. To score many pods, call :meth:`prepare` once instead.

        Args:
            pod: pending pod.
            nodes: node table, or a transaction's plan.
            metrics: a snapshot, metrics aligned to the nodes, or the judgment of a fallback policy.
            feasible: mask of the nodes that passed the filters, shape (nodes,); None scores all nodes.

        Raises:
            TypeError: an argument has another type; the message names it.
        """
        check_pod(pod)
        return self.prepare(nodes, metrics).score(pod, feasible)


class PreparedProfile:
    """Profile with the values that do not depend on the pod, for one node table and one snapshot.

    A prepared profile follows the table: it recomputes the values of changed rows before it scores a pod. Metrics of
    nodes that join the table come from the snapshot. If the profile was prepared with a judgment, all nodes are graded
    again when nodes change, for the time of the original judgment. A new snapshot needs a new prepared profile.

    Only one thread at a time may use a prepared profile. See :class:`scoring.PreparedPlugin`.

    Args:
        profile: the profile.
        nodes: node table to follow, or a transaction's plan.
        metrics: a snapshot, metrics aligned to the nodes, or the judgment of a fallback policy.

    Attributes:
        metrics: metrics from which the last scores were computed, aligned to the nodes.
        judgment: grades of the nodes for the last scores; None without fallback.
    """

    def __init__(self, profile: Profile, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics | Judgment) -> None:
        self.profile = profile
        self.nodes = nodes
        self.judgment = metrics if isinstance(metrics, Judgment) else None
        self.metrics = align_metrics(metrics.metrics if isinstance(metrics, Judgment) else metrics, nodes)
        self._rows = nodes.rows
        self._fallback_scores = None if self.judgment is None else self.judgment.prepare(nodes)
        self._slices = RowSliceCache()
        self._prepared: list[tuple[WeightedPlugin, PreparedPlugin]] = []
        for weighted in profile.plugins:
            with blaming(weighted.plugin.name, "Score"):
                self._prepared.append((weighted, PreparedPlugin(weighted.plugin, nodes, self.metrics)))

    def attach(self, nodes: NodeTable) -> None:
        """Follow another node table from now on; the present table must be an unchanged copy of that table.

        So a profile can be prepared from a copy, without a lock, and then follow the table that other threads change.
        """
        self.nodes = nodes
        if self._fallback_scores is not None:
            self._fallback_scores.attach(nodes)
        for _, prepared in self._prepared:
            prepared.attach(nodes)

    def score(self, pod: Pod, feasible: Bools | None = None, among: Sequence[str] | Int64s | None = None) -> Scores:
        """Return the scores of nodes for a pod.

        Args:
            pod: pending pod.
            feasible: mask of the nodes that passed the filters, shape (nodes,); None stands for all.
            among: names or rows of the nodes to score, shape (k,), which is then the shape of ``feasible`` and of the
                scores; None scores all nodes. Other nodes are left out of the normalization, too, like nodes that did
                not pass kube-scheduler's filters.

        Raises:
            KeyError: ``among`` names a node that is not in the table.
            ValueError: a plugin's normalized score is outside 0 to 100, which kube-scheduler refuses, too. Plugins and
                metrics that this project has read, and so checked, do not cause this.
        """
        self._follow_rows()
        rows = among if among is None or isinstance(among, np.ndarray) else self.nodes.rows_of(among)
        plugins: dict[str, PluginScores] = {}
        total = self._total(pod, feasible, rows, plugins)
        return Scores(pod, self.nodes.names, total, plugins, self.judgment, rows)

    def total(self, pod: Pod, feasible: Bools | None = None, among: Int64s | None = None) -> Int64s:
        """Return only the total scores of nodes for a pod, shape (nodes,): faster than :meth:`score`.

        Args:
            pod: pending pod.
            feasible: mask of the nodes that passed the filters, shape (nodes,); None stands for all.
            among: rows of the nodes to score, shape (k,), which is then the shape of ``feasible`` and of the result;
                None scores all nodes.
        """
        self._follow_rows()
        return self._total(pod, feasible, among, None)

    def _total(
        self, pod: Pod, feasible: Bools | None, rows: Int64s | None, parts: dict[str, PluginScores] | None
    ) -> Int64s:
        """Return the total scores, shape (nodes,); if ``parts`` is given, put each plugin's scores into it by name."""
        size = len(self.nodes if rows is None else rows)
        total = np.zeros(size, np.int64)
        feasible = self._allowed(None if feasible is None else as_mask(feasible, (size,)), rows)
        replacement = self._replacement(pod, rows)
        equal = 0  # sum of the scores that are equal on all nodes
        for weighted, prepared in self._prepared:
            plugin = weighted.plugin
            with blaming(plugin.name, "Score"):
                if plugin.skips(pod):
                    if parts is not None:
                        parts[plugin.name] = PluginScores(weighted, np.zeros_like(total), np.zeros_like(total), None)
                    continue
                score = None if parts is not None or plugin.reads_metrics else plugin.equal_score(pod, self.nodes)
                if score is not None:
                    equal += weighted.weight * _equal(plugin, score)
                    continue
                prepared.follow(slices=self._slices)
                # Only results with parts need the terms, for explanations; raw() takes less time.
                terms = None if parts is None else prepared.terms(pod, rows)
                raw = prepared.raw(pod, rows) if terms is None else terms["score"]
                raw = raw[-1] if raw.shape == (1, size) else np.broadcast_to(raw, (1, size))[0]
                normalized = self._normalized(plugin, raw, feasible, replacement)
                total += normalized if weighted.weight == 1 else weighted.weight * normalized
                if parts is not None:
                    parts[plugin.name] = PluginScores(weighted, raw, normalized, terms)
        if equal:
            total += equal
        if feasible is not None:
            total[~feasible] = INFEASIBLE
        return total

    def score_many(self, pods: Sequence[Pod], feasible: Bools | None = None) -> Int64s:
        """Return the total scores of all nodes for many pods, shape (pods, nodes), each as if it were the only one.

        Args:
            pods: pending pods.
            feasible: mask of the nodes that passed the filters, shape (pods, nodes) or (nodes,); None stands for all.
        """
        self._follow_rows()
        total: Int64s = np.zeros((len(pods), len(self.nodes)), np.int64)
        feasible = self._allowed(None if feasible is None else as_mask(feasible, total.shape), None)
        allowed = None if feasible is None else np.broadcast_to(feasible, total.shape)
        replacements = [self._replacement(pod, None) for pod in pods]
        for weighted, prepared in self._prepared:
            with blaming(weighted.plugin.name, "Score"):
                raw = prepared.score_many(pods)
                for row, pod in enumerate(pods):
                    if weighted.plugin.skips(pod):
                        raw[row] = 0
                    elif weighted.plugin.normalizes or allowed is not None or replacements[row] is not None:
                        among = None if allowed is None else allowed[row]
                        raw[row] = self._normalized(weighted.plugin, raw[row], among, replacements[row])
                if not weighted.plugin.normalizes:
                    _check(weighted.plugin, raw)
            raw *= weighted.weight  # in place: these arrays are large
            total += raw
        if allowed is not None:
            total[~allowed] = INFEASIBLE
        return total

    def _follow_rows(self) -> None:
        """Update metrics, judgment and prepared plugins if nodes joined, left or changed.

        Changes of pods need no update here, because each prepared plugin follows them.
        """
        nodes, before = self.nodes, self._rows
        if nodes.rows is before:
            return
        judgment, fallback_scores, extra_rows = self.judgment, self._fallback_scores, None
        if judgment is None:
            metrics = self.metrics.follow(nodes)
        else:
            # Rows with a prediction, now or before, have new metrics and must be recomputed.
            predicted = [before.names[row] for row in judgment.predicted.tolist()]
            judgment = judgment.follow(nodes)
            metrics, fallback_scores = judgment.metrics, judgment.prepare(nodes)
            extra_rows = np.union1d(judgment.predicted, nodes.rows_of(name for name in predicted if name in nodes))
        for weighted, prepared in self._prepared:
            prepared.metrics = metrics
            with blaming(weighted.plugin.name, "Score"):
                prepared.follow(extra_rows)
        # Only now, so that an exception above leaves the earlier state, and the next call makes the same update.
        self.metrics, self.judgment, self._fallback_scores, self._rows = metrics, judgment, fallback_scores, nodes.rows

    def _replacement(self, pod: Pod, rows: Int64s | None) -> tuple[Bools, Int64s] | None:
        """Return a mask of the nodes whose scores from plugins that read metrics are replaced, and the replacements.

        Both have the shape (nodes,). The result is None if no scores are replaced.
        """
        scores = None if self._fallback_scores is None else self._fallback_scores.scores(pod, rows)
        if scores is None or self.judgment is None:
            return None
        return self.judgment.replaced if rows is None else self.judgment.replaced[rows], scores

    def _allowed(self, feasible: Bools | None, rows: Int64s | None) -> Bools | None:
        """Return a mask of the feasible nodes without those that ``fail = closed`` excludes; None stands for all."""
        if self.judgment is None or not self.judgment.refuses_any:
            return feasible
        refused = self.judgment.refused if rows is None else self.judgment.refused[rows]
        return ~refused if feasible is None else feasible & ~refused

    def _normalized(
        self, plugin: ScorePlugin, raw: Int64s, feasible: Bools | None, replacement: tuple[Bools, Int64s] | None
    ) -> Int64s:
        # Normalize over feasible nodes whose scores are not replaced, then insert the replacements.
        replaced, fallback_scores = replacement if replacement and plugin.reads_metrics else (None, None)
        counted = feasible if replaced is None else ~replaced if feasible is None else feasible & ~replaced
        if counted is None:
            normalized = as_scores(plugin.normalize(raw), raw.shape, plugin.name, "normalize")
        else:
            normalized, selected = np.zeros_like(raw), raw[counted]
            normalized[counted] = as_scores(plugin.normalize(selected), selected.shape, plugin.name, "normalize")
        if replaced is not None and fallback_scores is not None:
            rows = replaced if feasible is None else replaced & feasible
            normalized[rows] = fallback_scores[rows]
        _check(plugin, normalized)
        return normalized


def _equal(plugin: ScorePlugin, score: object) -> int:
    if not isinstance(score, int | np.integer) or not 0 <= score <= MAX_NODE_SCORE:
        raise ValueError(f"{plugin.name}.equal_score: must be an integer from 0 to {MAX_NODE_SCORE}, got {score!r}")
    return int(score)


def _check(plugin: ScorePlugin, scores: Int64s) -> None:
    # Read as unsigned integers, negative scores are above every valid score: one pass checks both bounds.
    if scores.size and np.maximum.reduce(scores.view(np.uint64), axis=None) > MAX_NODE_SCORE:
        raise ValueError(f"{plugin.name} scores {scores.min()} to {scores.max()}, must be from 0 to {MAX_NODE_SCORE}")
