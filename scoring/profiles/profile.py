"""A scheduler profile: plugins with weights, added up as kube-scheduler adds them.

For each plugin: score every feasible node, normalize over them, check 0..100, multiply by the weight, add. A plugin
that skips the pod adds nothing. Source: ``RunScorePlugins`` of k8s.io/kubernetes/pkg/scheduler/framework/runtime.

Prepared with a judgment (see :mod:`scoring.load.fallback`), the plugins that read metrics get other scores where it
says so; those scores have no part in the normalization.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.load.fallback import Judgment
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.plugins.base import PreparedPlugin, RowSliceCache, ScorePlugin, align_metrics
from scoring.profiles.normalization import INFEASIBLE, MAX_NODE_SCORE
from scoring.profiles.scores import PluginScores, Scores, WeightedPlugin
from scoring.table.node_table import NodeTable
from watcher.model import WatcherMetrics


@dataclass(frozen=True)
class Profile:
    """Plugins with weights.

    Attributes:
        scheduler_name: which pods it is for.
        plugins: in order; no two of one name.
    """

    plugins: tuple[WeightedPlugin, ...]
    scheduler_name: str = "default-scheduler"

    def __post_init__(self) -> None:
        names = [weighted.plugin.name for weighted in self.plugins]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"profile {self.scheduler_name}: two plugins are named {name}")

    @classmethod
    def of(cls, *plugins: ScorePlugin) -> Self:
        """Make a profile of plugins that weigh 1 each."""
        return cls(tuple(map(WeightedPlugin, plugins)))

    def prepare(
        self,
        nodes: NodeTable,
        metrics: MetricsTable | WatcherMetrics | Judgment,
        levels: UseLevels | None = None,
    ) -> "PreparedProfile":
        """Compute once what does not depend on the pod. See :class:`PreparedProfile`.

        Args:
            nodes: the table to follow, or a transaction's plan.
            metrics: a snapshot, one aligned to the nodes, or what a fallback policy judged of one.
            levels: what pods are known to use, for the plugins that ask; None leaves them as they are.
        """
        return PreparedProfile(self if levels is None else self.with_levels(levels), nodes, metrics)

    def with_levels(self, levels: UseLevels) -> "Profile":
        """Return the profile with what pods are known to use."""
        plugins = tuple(replace(weighted, plugin=weighted.plugin.with_levels(levels)) for weighted in self.plugins)
        return replace(self, plugins=plugins)

    def score(
        self,
        pod: Pod,
        nodes: NodeTable,
        metrics: MetricsTable | WatcherMetrics | Judgment,
        feasible: Bools | None = None,
    ) -> Scores:
        """Return the pod's scores. For many pods, :meth:`prepare` first: this aligns and prepares for each.

        Args:
            pod: the pending pod.
            nodes: the nodes, or a transaction's plan.
            metrics: a snapshot, one aligned to the nodes, or what a fallback policy judged of one.
            feasible: nodes that passed the filters, shape (nodes,); all by default.
        """
        return self.prepare(nodes, metrics).score(pod, feasible)


class PreparedProfile:
    """A profile with its node terms for one table and one snapshot: what scores pod after pod.

    It follows the table as pods and nodes come, go and change. Nodes that join get what the snapshot has of them, and
    with a judgment all nodes are judged again, as of the moment of the judgment. A new snapshot needs a new one.

    One thread at a time may use it. See :class:`scoring.PreparedPlugin`.

    Args:
        profile: the profile.
        nodes: the table to follow, or a transaction's plan.
        metrics: a snapshot, one aligned to the nodes, or what a fallback policy judged of one.

    Attributes:
        metrics: what the scores are made from, aligned to the nodes as they were at the last score.
        judgment: how each node's load is known, as of the last score; None without fallback.
    """

    def __init__(self, profile: Profile, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics | Judgment) -> None:
        self.profile = profile
        self.nodes = nodes
        self.judgment = metrics if isinstance(metrics, Judgment) else None
        self.metrics = align_metrics(metrics.metrics if isinstance(metrics, Judgment) else metrics, nodes)
        self._rows = nodes.rows
        self._fallback_scores = None if self.judgment is None else self.judgment.prepare(nodes)
        self._slices = RowSliceCache()
        self._prepared = [(w, PreparedPlugin(w.plugin, nodes, self.metrics)) for w in profile.plugins]

    def score(
        self,
        pod: Pod,
        feasible: Bools | None = None,
        among: Sequence[str] | Int64s | None = None,
    ) -> Scores:
        """Return the pod's scores.

        Args:
            pod: the pending pod.
            feasible: nodes that passed the filters, shape (nodes,); all by default.
            among: the only nodes to score, by name or by row, shape (k,); ``feasible`` and the scores then have this
                shape, and nothing is computed for the others. They have no part in normalization, as candidates of
                kube-scheduler that did not pass its filters.

        Raises:
            KeyError: ``among`` names a node that is not in the table.
            ValueError: a plugin left 0..100 after normalization, as kube-scheduler refuses it; it can only happen to
                values that did not come through the boundaries.
        """
        self._follow_rows()
        rows = among if among is None or isinstance(among, np.ndarray) else self.nodes.rows_of(among)
        plugins: dict[str, PluginScores] = {}
        total = self._total(pod, feasible, rows, plugins)
        return Scores(pod, self.nodes.names, total, plugins, self.judgment, rows)

    def total(self, pod: Pod, feasible: Bools | None = None, among: Int64s | None = None) -> Int64s:
        """Return the totals of :meth:`score` alone: faster, as nothing is kept that would explain them.

        Args:
            pod: the pending pod.
            feasible: as in :meth:`score`.
            among: as in :meth:`score`, by row.
        """
        self._follow_rows()
        return self._total(pod, feasible, among, None)

    def _total(
        self, pod: Pod, feasible: Bools | None, rows: Int64s | None, parts: dict[str, PluginScores] | None
    ) -> Int64s:
        """Return the totals; note each plugin's part, by its name, where that is wanted."""
        size = len(self.nodes if rows is None else rows)
        total = np.zeros(size, np.int64)
        feasible = self._allowed(feasible, rows)
        replacement = self._replacement(pod, rows)
        for weighted, prepared in self._prepared:
            plugin = weighted.plugin
            if plugin.skips(pod):
                if parts is not None:
                    parts[plugin.name] = PluginScores(weighted, np.zeros_like(total), np.zeros_like(total), None)
                continue
            prepared.follow(slices=self._slices)
            terms = None if parts is None else prepared.terms(pod, rows)
            raw = prepared.raw(pod, rows) if terms is None else terms["score"]
            raw = raw[-1] if raw.shape == (1, size) else np.broadcast_to(raw, (1, size))[0]
            normalized = self._normalized(plugin, raw, feasible, replacement)
            total += normalized if weighted.weight == 1 else weighted.weight * normalized
            if parts is not None:
                parts[plugin.name] = PluginScores(weighted, raw, normalized, terms)
        if feasible is not None:
            total[~feasible] = INFEASIBLE
        return total

    def score_many(self, pods: Sequence[Pod], feasible: Bools | None = None) -> Int64s:
        """Return totals of many pods, each as if it came alone, shape (pods, nodes).

        Args:
            pods: the pending pods.
            feasible: as in :meth:`score`, shape (pods, nodes) or (nodes,).
        """
        self._follow_rows()
        total: Int64s = np.zeros((len(pods), len(self.nodes)), np.int64)
        feasible = self._allowed(feasible, None)
        allowed = None if feasible is None else np.broadcast_to(feasible, total.shape)
        replacements = [self._replacement(pod, None) for pod in pods]
        for weighted, prepared in self._prepared:
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
        """Take in nodes that joined, left or changed; what pods do, each prepared plugin sees for itself."""
        nodes, before = self.nodes, self._rows
        if nodes.rows is before:
            return
        self._rows, extra_rows = nodes.rows, None
        if self.judgment is None:
            self.metrics = self.metrics.follow(nodes)
        else:
            was, self.judgment = self.judgment, self.judgment.follow(nodes)
            self.metrics = self.judgment.metrics
            self._fallback_scores = self.judgment.prepare(nodes)
            # Predictions are made again, so these rows have other metrics.
            predicted = [before.names[row] for row in was.predicted.tolist()]
            extra_rows = np.union1d(self.judgment.predicted, nodes.rows_of(name for name in predicted if name in nodes))
        for _, prepared in self._prepared:
            prepared.metrics = self.metrics
            prepared.follow(extra_rows)

    def _replacement(self, pod: Pod, rows: Int64s | None) -> tuple[Bools, Int64s] | None:
        """Return which scores by load are replaced, and by what; both of shape (nodes,)."""
        scores = None if self._fallback_scores is None else self._fallback_scores.scores(pod, rows)
        if scores is None or self.judgment is None:
            return None
        return self.judgment.replaced if rows is None else self.judgment.replaced[rows], scores

    def _allowed(self, feasible: Bools | None, rows: Int64s | None) -> Bools | None:
        """Return the feasible nodes without those that fail-closed refuses; None means all."""
        if self.judgment is None or not self.judgment.refuses_any:
            return feasible
        refused = self.judgment.refused if rows is None else self.judgment.refused[rows]
        return ~refused if feasible is None else feasible & ~refused

    def _normalized(
        self,
        plugin: ScorePlugin,
        raw: Int64s,
        feasible: Bools | None,
        replacement: tuple[Bools, Int64s] | None,
    ) -> Int64s:
        replaced, fallback_scores = replacement if replacement and plugin.reads_metrics else (None, None)
        counted = feasible if replaced is None else ~replaced if feasible is None else feasible & ~replaced
        if counted is None:
            normalized = plugin.normalize(raw)
        else:
            normalized = np.zeros_like(raw)
            normalized[counted] = plugin.normalize(raw[counted])
        if replaced is not None and fallback_scores is not None:
            rows = replaced if feasible is None else replaced & feasible
            normalized[rows] = fallback_scores[rows]
        _check(plugin, normalized)
        return normalized


def _check(plugin: ScorePlugin, scores: Int64s) -> None:
    # Read as unsigned, a negative number is above every score: one pass instead of two.
    if scores.size and np.maximum.reduce(scores.view(np.uint64), axis=None) > MAX_NODE_SCORE:
        raise ValueError(f"{plugin.name} scores {scores.min()} to {scores.max()}, outside 0 to {MAX_NODE_SCORE}")
