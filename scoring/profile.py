"""A scheduler profile: plugins with weights, added up as kube-scheduler adds them.

For each plugin: score every feasible node, normalize over them, check 0..100, multiply by the weight, add. A plugin
that skips the pod adds nothing. Source: ``RunScorePlugins`` of k8s.io/kubernetes/pkg/scheduler/framework/runtime.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from scoring.metrics_table import MetricsTable
from scoring.node_table import NodeTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.objects import Pod
from scoring.plugin import Explanation, PreparedPlugin, ScorePlugin, Terms, aligned, explanation
from scoring.pod_sums import Int64s
from watcher.model import WatcherMetrics

INFEASIBLE = -1
"""The total of a node that was not feasible: below every score."""


@dataclass(frozen=True, slots=True)
class WeightedPlugin:
    """A plugin and its weight, at least 1."""

    plugin: ScorePlugin
    weight: int = 1


@dataclass(frozen=True)
class PluginScores:
    """What one plugin gave a pod: arrays of shape (nodes,).

    Attributes:
        weighted: the plugin and its weight.
        raw: before normalization.
        normalized: 0 to 100; 0 where the node was not feasible.
        terms: what made the raw scores, None when the plugin skipped the pod.
    """

    weighted: WeightedPlugin
    raw: Int64s
    normalized: Int64s
    terms: Terms | None


@dataclass(frozen=True)
class ProfileExplanation:
    """Why a profile gave a node its total: the plugins' explanations beside weight and normalized score."""

    pod: str
    node: str
    total: int
    parts: tuple[tuple[Explanation, int, int], ...]

    def __str__(self) -> str:
        lines = [f"{self.pod} on {self.node}: {self.total}"]
        for part, weight, normalized in self.parts:
            was = "" if normalized == part.score else f" (normalized from {part.score})"
            lines.append(f"  {weight} x {normalized}{was} {part.plugin}: {part.line}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Scores:
    """A pod's scores on every node. Later changes to the table do not reach into them.

    Attributes:
        pod: the pod.
        names: the nodes' names, in row order.
        total: weighted sum, shape (nodes,); :data:`INFEASIBLE` where the node was not feasible.
        plugins: each plugin's part, by its name.
    """

    pod: Pod
    names: tuple[str, ...]
    total: Int64s
    plugins: Mapping[str, PluginScores]

    def best(self, rng: np.random.Generator | None = None) -> str:
        """Return the name of the node with the highest total.

        Args:
            rng: draws among equals, as kube-scheduler does at random; None takes the first in row order.

        Raises:
            LookupError: no node is feasible.
        """
        highest = self.total.max() if self.total.size else INFEASIBLE
        if highest == INFEASIBLE:
            raise LookupError(f"no feasible node for pod {self.pod.namespace}/{self.pod.name}")
        equals = np.flatnonzero(self.total == highest)
        return self.names[int(equals[0] if rng is None else rng.choice(equals))]

    def ranking(self) -> list[tuple[str, int]]:
        """Return feasible nodes and totals, best first, equals in row order."""
        order = np.argsort(-self.total, kind="stable")
        return [(self.names[row], int(self.total[row])) for row in order if self.total[row] != INFEASIBLE]

    def explain(self, node_name: str) -> ProfileExplanation:
        """Return every plugin's explanation for one node.

        Raises:
            KeyError: no such node.
        """
        if node_name not in self.names:
            raise KeyError(node_name)
        row = self.names.index(node_name)
        pod = f"{self.pod.namespace}/{self.pod.name}"
        parts = []
        for name, scores in self.plugins.items():
            plugin = scores.weighted.plugin
            if scores.terms is None:
                part = Explanation(name, pod, node_name, 0, {}, "skipped for this pod")
            else:
                part = explanation(plugin, scores.terms, self.pod, node_name, row)
            parts.append((part, scores.weighted.weight, int(scores.normalized[row])))
        return ProfileExplanation(pod, node_name, int(self.total[row]), tuple(parts))


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

    @classmethod
    def from_config(cls, configuration: Mapping[str, Any], scheduler_name: str | None = None) -> "Profile":
        """Read one profile of a KubeSchedulerConfiguration.

        Args:
            configuration: the parsed file, of any version from v1beta1 on.
            scheduler_name: which profile; by default the only one.

        Raises:
            ValueError: the file has no meaning, or several profiles and no name was given; the message says where.
            KeyError: no profile has this name.
        """
        from scoring.scheduler_configuration import read_configuration  # noqa: PLC0415  it builds profiles

        return read_configuration(configuration).profile(scheduler_name)

    def prepare(self, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics) -> "PreparedProfile":
        """Compute once what does not depend on the pod. See :class:`PreparedProfile`."""
        return PreparedProfile(self, nodes, metrics)

    def score(
        self,
        pod: Pod,
        nodes: NodeTable,
        metrics: MetricsTable | WatcherMetrics,
        feasible: NDArray[np.bool_] | None = None,
    ) -> Scores:
        """Return the pod's scores. For many pods, :meth:`prepare` first: this aligns and prepares for each.

        Args:
            pod: the pending pod.
            nodes: the nodes, or a transaction's plan.
            metrics: a snapshot, or one aligned to the nodes.
            feasible: nodes that passed the filters, shape (nodes,); all by default.
        """
        return self.prepare(nodes, metrics).score(pod, feasible)


class PreparedProfile:
    """A profile with its node terms for one table and one snapshot; it follows the table as pods come and go.

    One thread at a time may use it. See :class:`scoring.PreparedPlugin`.
    """

    def __init__(self, profile: Profile, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics) -> None:
        self.profile = profile
        self.nodes = nodes
        self.metrics = aligned(metrics, nodes)
        self._prepared = [(w, PreparedPlugin(w.plugin, nodes, self.metrics)) for w in profile.plugins]

    def score(self, pod: Pod, feasible: NDArray[np.bool_] | None = None) -> Scores:
        """Return the pod's scores.

        Args:
            pod: the pending pod.
            feasible: nodes that passed the filters, shape (nodes,); all by default.

        Raises:
            ValueError: a plugin left 0..100 after normalization, as kube-scheduler refuses it; it can only happen to
                values that did not come through the boundaries.
        """
        size = len(self.nodes)
        total = np.zeros(size, np.int64)
        plugins: dict[str, PluginScores] = {}
        for weighted, prepared in self._prepared:
            plugin = weighted.plugin
            if plugin.skips(pod):
                plugins[plugin.name] = PluginScores(weighted, np.zeros_like(total), np.zeros_like(total), None)
                continue
            terms = prepared.terms(pod)
            raw = np.broadcast_to(terms["score"], (1, size))[0]
            normalized = self._normalized(plugin, raw, feasible)
            total += weighted.weight * normalized
            plugins[plugin.name] = PluginScores(weighted, raw, normalized, terms)
        if feasible is not None:
            total[~feasible] = INFEASIBLE
        return Scores(pod, self.nodes.names, total, plugins)

    def score_many(self, pods: Sequence[Pod], feasible: NDArray[np.bool_] | None = None) -> Int64s:
        """Return totals of many pods, each as if it came alone, shape (pods, nodes).

        Args:
            pods: the pending pods.
            feasible: as in :meth:`score`, shape (pods, nodes) or (nodes,).
        """
        total: Int64s = np.zeros((len(pods), len(self.nodes)), np.int64)
        allowed = None if feasible is None else np.broadcast_to(feasible, total.shape)
        for weighted, prepared in self._prepared:
            raw = prepared.score_many(pods)
            for row, pod in enumerate(pods):
                if weighted.plugin.skips(pod):
                    raw[row] = 0
                elif weighted.plugin.normalizes or allowed is not None:
                    raw[row] = self._normalized(weighted.plugin, raw[row], None if allowed is None else allowed[row])
            if not weighted.plugin.normalizes:
                self._check(weighted.plugin, raw)
            raw *= weighted.weight  # in place: these arrays are large
            total += raw
        if allowed is not None:
            total[~allowed] = INFEASIBLE
        return total

    def _normalized(self, plugin: ScorePlugin, raw: Int64s, feasible: NDArray[np.bool_] | None) -> Int64s:
        if feasible is None:
            normalized = plugin.normalize(raw)
        else:
            normalized = np.zeros_like(raw)
            normalized[feasible] = plugin.normalize(raw[feasible])
        self._check(plugin, normalized)
        return normalized

    @staticmethod
    def _check(plugin: ScorePlugin, scores: Int64s) -> None:
        if scores.size and (scores.min() < 0 or scores.max() > MAX_NODE_SCORE):
            raise ValueError(f"{plugin.name} scores {scores.min()} to {scores.max()}, outside 0 to {MAX_NODE_SCORE}")
