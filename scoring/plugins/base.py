"""Base classes of score plugins.

A plugin is an immutable set of arguments. Two methods compute its scores as arrays. A term is the score or an
intermediate value:

- ``node_terms``: terms that do not depend on the pending pod. They are computed once per snapshot; when pods or nodes
  come, go or change, only the changed rows are recomputed.
- ``pod_terms``: all other terms, for several pods at once by broadcasting, shape (pods, nodes). The nodes are the whole
  table or a selection, such as the nodes that passed a scheduler's filters.

An explanation of a score consists of the terms of one pod on one node, so it needs no second implementation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.plugins.node_terms import NodeTerms
from scoring.plugins.results import check_type, has_scores, with_scores
from scoring.plugins.score_cache import ScoreCache
from scoring.table.node_table import NodeTable
from watcher.model import WatcherMetrics

Terms = dict[str, NDArray[Any]]
"""Terms (scores and intermediate values) by name; each array broadcasts to (pods, nodes).

Explanations omit terms whose names start with an underscore.
"""
Rows = Int64s | slice
"""Selected rows of a node table: row numbers in the order of the result, or a slice of all rows."""

EVERY_ROW = slice(None)

# Number of values that fit the processor's second-level cache together with a few temporaries.
_BLOCK_VALUES = 1 << 14
_MAX_OF_POD = 2**62 - 1


@dataclass(frozen=True)
class Explanation:
    """Reasons for the score that a plugin gave a node.

    Attributes:
        plugin: name of the plugin.
        pod: ``namespace/name`` of the pod.
        node: name of the node.
        score: score before normalization, not multiplied by the weight.
        terms: intermediate values by name, in the order of computation.
        line: explanation as a sentence.
    """

    plugin: str
    pod: str
    node: str
    score: int
    terms: Mapping[str, Any]
    line: str

    def __str__(self) -> str:
        return f"{self.plugin}: {self.pod} on {self.node} scores {self.score}: {self.line}"


class Plugin:
    """Base class of the plugins of every extension point. An entry point of a Python package may name any plugin.

    Attributes:
        name: name of the plugin in a KubeSchedulerConfiguration.
        extension_point: key of a base class's extension point in such a file; a plugin inherits those of all its bases.
    """

    name: ClassVar[str]
    extension_point: ClassVar[str] = ""


def points_of(plugin: type[object]) -> frozenset[str]:
    """Return the extension points that a plugin's class implements, by their keys in a KubeSchedulerConfiguration."""
    return frozenset(point for base in plugin.__mro__ if (point := vars(base).get("extension_point")))


class ScorePlugin(Plugin, ABC):
    """Base class of the score plugins. A plugin is a frozen dataclass, whose fields are the plugin's arguments.

    Attributes:
        normalizes: true if raw scores may be any integers and :meth:`normalize` converts them to 0 to 100.
        reads_metrics: true if scores have no meaning for a node without metrics; a fallback policy replaces such
            scores.
        scores_replicas_alike: true if the raw score of a node depends on nothing but the node with its pods and, of the
            pending pod, on its requests, limits, images and workload. Replicas are then scored on changed nodes only.
    """

    extension_point: ClassVar[str] = "score"
    normalizes: ClassVar[bool] = False
    reads_metrics: ClassVar[bool] = False
    scores_replicas_alike: ClassVar[bool] = False

    @property
    def reads_pods(self) -> bool:
        """True if the node terms depend on the pods on a node, so that they are recomputed when pods change."""
        return True

    @abstractmethod
    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the terms that do not depend on the pending pod, by name.

        Each term is an array of shape (nodes,). The value of a node must not depend on other nodes.

        Args:
            nodes: nodes with their pods.
            metrics: metrics aligned to the nodes.
        """

    def changed_terms(
        self,
        node: Terms,  # noqa: ARG002  unused by default
        nodes: NodeTable,  # noqa: ARG002
        metrics: MetricsTable,  # noqa: ARG002
        rows: Int64s,  # noqa: ARG002
    ) -> Terms | None:
        """Return the node terms that depend on pods, for rows whose pods changed: a shortcut for :meth:`node_terms`.

        Args:
            node: previous node terms of all rows; must not be modified.
            nodes: node table, in which only pods changed.
            metrics: metrics aligned to the table.
            rows: rows whose pods changed, shape (k,).

        Returns:
            Terms by name, shape (k,); None if the plugin has no shortcut, so that :meth:`node_terms` recomputes the
            rows.
        """
        return None

    @abstractmethod
    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the terms that depend on the pending pod, including ``score`` (int64, broadcasts to (pods, nodes)).

        Args:
            pods: pending pods.
            node: result of :meth:`node_terms` for the rows to score; must not be modified.
            nodes: whole node table.
            rows: rows of the table to score.
        """

    @abstractmethod
    def line(self, terms: Mapping[str, Any]) -> str:
        """Return a sentence that explains the score of a pod on a node by its terms.

        Args:
            terms: value of each term, by name, for this pod and this node.
        """

    def normalize(self, scores: Int64s) -> Int64s:
        """Convert the raw scores of all feasible nodes to 0 to 100, shape (nodes,); unchanged for most plugins."""
        return scores

    def equal_score(self, pod: Pod, nodes: NodeTable) -> int | None:  # noqa: ARG002  unused by default
        """Return the normalized score of a pod if it is equal on all nodes; None if it differs or may differ.

        With a number, the plugin's score is not computed for each node. The method must take less time than that.

        Args:
            pod: pending pod.
            nodes: whole node table.
        """
        return None

    def skips(self, pod: Pod) -> bool:  # noqa: ARG002  unused by default
        """Return whether kube-scheduler would skip this plugin for the pod (PreScore status Skip)."""
        return False

    def with_levels(self, levels: UseLevels) -> Self:  # noqa: ARG002  most plugins use requests
        """Return a copy that takes the expected use of pods into account; most plugins return themselves."""
        return self

    def prepare(self, nodes: NodeTable, metrics: "MetricsTable | WatcherMetrics") -> "PreparedPlugin":
        """Compute the node terms once for many pods. See :class:`PreparedPlugin`."""
        return PreparedPlugin(self, nodes, metrics)

    def score(self, pod: Pod, nodes: NodeTable, metrics: "MetricsTable | WatcherMetrics") -> Int64s:
        """Return the raw score of every node for a pod, shape (nodes,). For many pods, call :meth:`prepare` instead."""
        check_pod(pod)
        return self.prepare(nodes, metrics).score(pod)

    def explain(
        self, pod: Pod, nodes: NodeTable, metrics: "MetricsTable | WatcherMetrics", node_name: str
    ) -> Explanation:
        """Return the explanation of the score of one node for a pod, with every term.

        Raises:
            KeyError: the node is not in the table.
        """
        return self.prepare(nodes, metrics).explain(pod, node_name)


class WithoutNodeTerms(ScorePlugin):
    """Base class of the plugins that compute all terms when a pod is scored, and so have no node terms."""

    reads_pods: ClassVar[bool] = False  # there are no node terms to recompute

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return an empty mapping: these plugins have no node terms."""
        return {}


class PreparedPlugin:
    """Plugin with its node terms, the values that do not depend on the pending pod, for one table and one snapshot.

    A prepared plugin follows its node table: before each result it recomputes the rows that changed since the last
    result, adds rows for nodes that joined, and drops the rows of nodes that left. It does not modify the table or the
    metrics, so these can be shared. Only one thread at a time may use a prepared plugin.

    Args:
        plugin: the plugin.
        nodes: node table to follow, often a transaction's plan.
        metrics: a snapshot, or better, to save time, metrics aligned to the table.

    Attributes:
        metrics: metrics for the last result, aligned to the nodes. When nodes change, a caller that prepared several
            plugins may align the snapshot once and set this attribute.

    Raises:
        ValueError: the metrics are aligned to a table with other nodes, or a term has another shape.
    """

    def __init__(self, plugin: ScorePlugin, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics) -> None:
        self.plugin = plugin
        self.nodes = nodes
        self.metrics = align_metrics(metrics, nodes)
        self._rows, self._version = nodes.rows, nodes.version
        self._node = NodeTerms.of(_checked(plugin, plugin.node_terms(nodes, self.metrics), len(nodes)))
        self._terms_are_shared = False
        self._cache = ScoreCache(by_workload=type(plugin).with_levels is not ScorePlugin.with_levels)

    def attach(self, nodes: NodeTable) -> None:
        """Follow another node table from now on; the present table must be an unchanged copy of that table."""
        self.nodes = nodes

    def score(self, pod: Pod) -> Int64s:
        """Return the score of every node for a pod, before normalization, shape (nodes,)."""
        return np.asarray(self.score_many([pod])[0])

    def score_many(self, pods: Sequence[Pod]) -> Int64s:
        """Return the scores of every node for many pods, before normalization, shape (pods, nodes).

        Each pod is scored as if the other pods did not exist.
        """
        self.follow()
        scores = np.empty((len(pods), len(self.nodes)), np.int64)
        step = max(1, _BLOCK_VALUES // max(1, len(self.nodes)))
        for start in range(0, len(pods), step):
            block = pods[start : start + step]
            scores[start : start + step] = self._pod_terms(block, self._node.terms, EVERY_ROW)["score"]
        return scores

    def terms(self, pod: Pod, rows: Int64s | None = None) -> Terms:
        """Return every term of the scores for a pod; each term broadcasts to (1, nodes).

        Later changes of the node table do not modify the result.

        Args:
            pod: pending pod.
            rows: rows to score, shape (k,); None scores all rows.
        """
        node, terms = self._terms(pod, rows)
        self._terms_are_shared = self._terms_are_shared or rows is None
        return {**node, **{name: np.asarray(term) for name, term in terms.items()}}

    def raw(self, pod: Pod, rows: Int64s | None = None) -> Int64s:
        """Return the scores for a pod before normalization, without other terms; they broadcast to (1, nodes).

        Args:
            pod: pending pod.
            rows: rows to score, shape (k,); None scores all rows.
        """
        if not self.plugin.scores_replicas_alike:
            scores: Int64s = self._terms(pod, rows)[1]["score"]
            return scores
        self.follow()
        kept: Int64s = self._cache.scores(pod, self.nodes, self.metrics, rows, lambda some: self._raw(pod, some))
        return kept[np.newaxis]

    def _raw(self, pod: Pod, rows: Int64s | None) -> Int64s:
        size = len(self.nodes) if rows is None else len(rows)
        scores: Int64s = self._terms(pod, rows)[1]["score"]
        # Most scores have the full shape, and broadcasting takes longer than a plugin's arithmetic on a few rows.
        one: Int64s = (scores if scores.shape == (1, size) else np.broadcast_to(scores, (1, size)))[0]
        return one

    def _terms(self, pod: Pod, rows: Int64s | None) -> tuple[Terms, Terms]:
        self.follow()
        if rows is None:
            return self._node.terms, self._pod_terms([pod], self._node.terms, EVERY_ROW)
        node = self._node.take(rows)
        return node, self._pod_terms([pod], node, rows)

    def _pod_terms(self, pods: Sequence[Pod], node: Terms, rows: Rows) -> Terms:
        size = len(self.nodes) if isinstance(rows, slice) else len(rows)
        terms = self.plugin.pod_terms(pods, node, self.nodes, rows)
        shape = len(pods), size
        return terms if has_scores(terms, shape) else with_scores(terms, shape, self.plugin.name)

    def explain(self, pod: Pod, node_name: str) -> Explanation:
        """Return the explanation of the score of one node for a pod, with every term.

        Raises:
            KeyError: the node is not in the table.
        """
        row = self.nodes.row(node_name)
        terms = explained_terms(self.terms(pod, np.array([row])))
        columns = {name: [term.item(0)] for name, term in terms.items()}
        return next(explanations(self.plugin, columns, f"{pod.namespace}/{pod.name}", [self.nodes.names[row]]))

    def follow(self, extra_rows: Int64s | None = None, slices: "RowSliceCache | None" = None) -> None:
        """Update the node terms after changes of the node table. The other methods call this method first.

        If it raises an exception, the next call makes the same update.

        Args:
            extra_rows: other rows to recompute, shape (k,), because their metrics were replaced.
            slices: cache of slices of the table, shared by plugins that follow the same table.
        """
        # Return early when nothing changed that this plugin reads.
        nodes = self.nodes
        if nodes.version == self._version and extra_rows is None:
            return
        before = self._rows
        if nodes.rows is before and not self.plugin.reads_pods and extra_rows is None:
            self._version = nodes.version
            return
        # Bring the arrays into the order of the new rows.
        node, metrics = self._node, self.metrics
        if nodes.names is not before.names:
            surviving = nodes.rows.surviving(before)
            metrics, node = metrics.follow(nodes), node.moved(surviving, len(nodes) - len(surviving))
        elif self._terms_are_shared:  # a caller has the old terms, which must not change
            node = node.copy()
        changed = nodes.changed_rows(self._version)
        if extra_rows is not None:
            changed = np.union1d(changed, extra_rows)
        # Recompute the changed rows; if only pods changed, the plugin may have a shortcut.
        if changed.size:
            recomputed = None
            if nodes.rows is before and extra_rows is None:
                recomputed = self.plugin.changed_terms(node.terms, nodes, metrics, changed)
            if recomputed is None:
                recomputed = self.plugin.node_terms(*(slices or RowSliceCache()).take(nodes, metrics, changed))
            for name, term in recomputed.items():
                node.terms[name][changed] = term
        # Only now, so that an exception above leaves the earlier state.
        self._node, self.metrics, self._terms_are_shared = node, metrics, False
        self._rows, self._version = nodes.rows, nodes.version


class RowSliceCache:
    """Cache of the last slice (some rows) of a table and its metrics, shared by plugins that need the same rows."""

    def __init__(self) -> None:
        self._rows: Int64s | None = None
        self._source: tuple[int, MetricsTable] | None = None

    def take(self, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> tuple[NodeTable, MetricsTable]:
        """Return the given rows of a node table and of its metrics; reuse the last result if nothing changed.

        Args:
            nodes: node table, the same object in every call.
            metrics: metrics aligned to the table.
            rows: row numbers, shape (k,).
        """
        same = self._source is not None and self._source[0] == nodes.version and self._source[1] is metrics
        if not same or self._rows is None or not np.array_equal(rows, self._rows):
            self._slice = nodes.take(rows), metrics.take(rows)
            self._rows, self._source = rows, (nodes.version, metrics)
        return self._slice


def explanations(
    plugin: ScorePlugin, columns: Mapping[str, Sequence[Any]], pod: str, node_names: Sequence[str]
) -> Iterator[Explanation]:
    """Yield the explanation of the score of each node for a pod.

    Args:
        plugin: plugin that computed the scores.
        columns: values of each term by the term's name, one value per node.
        pod: ``namespace/name`` of the pod.
        node_names: names of the nodes.
    """
    for node_name, *row in zip(node_names, *columns.values(), strict=True):
        values = dict(zip(columns, row, strict=True))
        score = int(values.pop("score"))
        line = plugin.line({**values, "score": score})
        yield Explanation(plugin.name, pod, node_name, score, values, line)


def explained_terms(terms: Terms) -> Terms:
    """Return the terms that explanations show: those whose names do not start with an underscore."""
    return {name: term for name, term in terms.items() if not name.startswith("_")}


def align_metrics(metrics: MetricsTable | WatcherMetrics, nodes: NodeTable) -> MetricsTable:
    """Return metrics aligned to a node table: align a snapshot, or check metrics that are already aligned.

    Raises:
        TypeError: ``metrics`` are not metrics, or ``nodes`` is not a node table.
        ValueError: the metrics are aligned to a table with other nodes.
    """
    check_type("nodes", nodes, NodeTable, "create it with NodeTable or NodeTable.from_k8s")
    if isinstance(metrics, WatcherMetrics):
        return MetricsTable.align(metrics, nodes)
    remedy = (
        "pass a snapshot, metrics aligned to the nodes, or for a profile the Judgment of a FallbackPolicy; without "
        "metrics, pass MetricsTable.empty(nodes)"
    )
    check_type("metrics", metrics, MetricsTable, remedy)
    if metrics.names is not nodes.names and metrics.names != nodes.names:
        raise ValueError("the metrics are aligned to other nodes: align the snapshot to this table")
    return metrics


def check_pod(pod: Pod) -> None:
    """Check that an object is a pod.

    Raises:
        TypeError: the object is not a pod.
    """
    check_type("pod", pod, Pod, "read it with Pod.from_k8s")


def per_pod(pods: Sequence[Pod], amount: Callable[..., int], *arguments: object) -> Int64s:
    """Return ``amount(pod, *arguments)`` of each pod as a column, shape (pods, 1).

    Amounts saturate below 2^62, so that sums of a node can be added to them.
    """
    amounts = [[min(amount(pod, *arguments), _MAX_OF_POD)] for pod in pods]
    return np.array(amounts, dtype=np.int64).reshape(len(pods), 1)


def _checked(plugin: ScorePlugin, terms: Terms, size: int) -> Terms:
    """Return the terms as arrays after checking their shapes.

    Raises:
        ValueError: a term does not have one value for each of ``size`` nodes.
    """
    arrays = {name: np.asarray(term) for name, term in terms.items()}
    for name, term in arrays.items():
        if term.shape != (size,):
            raise ValueError(f"{plugin.name}.node_terms: {name}: must have the shape ({size},), got {term.shape}")
    return arrays
