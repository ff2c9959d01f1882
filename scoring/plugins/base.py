"""What every score plugin is: a part that depends on the nodes, a part that depends on the pods, and an explanation.

A plugin is frozen arguments. Its numbers come from two functions over arrays:

- ``node_terms``: what can be said of each node before a pod is known. Computed once per snapshot; when pods or nodes
  come, go or change, only for the rows that changed.
- ``pod_terms``: the rest, for some pods at once, by broadcasting: shape (pods, nodes). The nodes are all of the table,
  or some: a scheduler asks for those that passed its filters.

Scoring one node is scoring an array of one, and an explanation is one row of the same arrays, so there is one code.
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
from scoring.table.node_rows import NodeRows
from scoring.table.node_table import NodeTable
from watcher.model import WatcherMetrics

Terms = dict[str, NDArray[Any]]
"""Name of a term to its values; each broadcasts to (pods, nodes). Names with a leading underscore are not explained."""
Rows = Int64s | slice
"""Which rows of a table, in which order: their numbers, or a slice of all."""

EVERY_ROW = slice(None)

# So many values fit the processor's second-level cache beside a few temporaries.
_BLOCK_VALUES = 1 << 14


@dataclass(frozen=True)
class Explanation:
    """Why a plugin gave a node its score.

    Attributes:
        plugin: the plugin's name.
        pod: ``namespace/name``.
        node: the node's name.
        score: before normalization and weight.
        terms: every intermediate value, by name, in the order of computation.
        line: the same as one readable sentence.
    """

    plugin: str
    pod: str
    node: str
    score: int
    terms: Mapping[str, Any]
    line: str

    def __str__(self) -> str:
        return f"{self.plugin}: {self.pod} on {self.node} scores {self.score}: {self.line}"


class ScorePlugin(ABC):
    """Base of the score plugins. Implementations are frozen dataclasses of their arguments.

    Attributes:
        name: the plugin's name in a KubeSchedulerConfiguration.
        normalizes: scores are only comparable after :meth:`normalize`; before it they may be any integer.
        reads_metrics: scores mean nothing for a node without metrics; fallback replaces them there.
    """

    name: ClassVar[str]
    normalizes: ClassVar[bool] = False
    reads_metrics: ClassVar[bool] = False

    @property
    def reads_pods(self) -> bool:
        """Whether node terms depend on the pods on a node; if not, they need not follow when pods come and go."""
        return True

    @abstractmethod
    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return what does not depend on the pending pod: arrays of shape (nodes,), each row from that row alone."""

    def changed_terms(
        self,
        node: Terms,  # noqa: ARG002  the default looks at nothing
        nodes: NodeTable,  # noqa: ARG002
        metrics: MetricsTable,  # noqa: ARG002
        rows: Int64s,  # noqa: ARG002
    ) -> Terms | None:
        """Return of some rows those node terms that pods which come and go change; None has all made anew.

        Args:
            node: all node terms, of all rows, as they were before; not changed.
            nodes: the table; only pods changed in it.
            metrics: aligned to it.
            rows: the rows with such pods, shape (k,).
        """
        return None

    @abstractmethod
    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the terms of pods on nodes, among them ``score`` (int64, broadcasts to (pods, nodes)).

        Args:
            pods: the pending pods.
            node: what :meth:`node_terms` returned, of these rows; not changed.
            nodes: the whole table.
            rows: which of its rows are scored.
        """

    @abstractmethod
    def line(self, terms: Mapping[str, Any]) -> str:
        """Return one sentence that says how these terms of one pod and node made the score."""

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores made comparable with other plugins', shape (nodes,); most plugins need no change."""
        return scores

    def skips(self, pod: Pod) -> bool:  # noqa: ARG002  the default looks at nothing
        """Say whether kube-scheduler would leave this plugin out for the pod (PreScore status Skip)."""
        return False

    def with_levels(self, levels: UseLevels) -> Self:  # noqa: ARG002  most plugins go by requests
        """Return the plugin with what pods are known to use."""
        return self

    def prepare(self, nodes: NodeTable, metrics: "MetricsTable | WatcherMetrics") -> "PreparedPlugin":
        """Compute the node terms once, for many pods. See :class:`PreparedPlugin`."""
        return PreparedPlugin(self, nodes, metrics)

    def score(self, pod: Pod, nodes: NodeTable, metrics: "MetricsTable | WatcherMetrics") -> Int64s:
        """Return the pod's score on every node, shape (nodes,). For many pods, :meth:`prepare` first."""
        return self.prepare(nodes, metrics).score(pod)

    def explain(
        self, pod: Pod, nodes: NodeTable, metrics: "MetricsTable | WatcherMetrics", node_name: str
    ) -> Explanation:
        """Return every term of the pod's score on one node.

        Raises:
            KeyError: no such node.
        """
        return self.prepare(nodes, metrics).explain(pod, node_name)


class WithoutNodeTerms(ScorePlugin):
    """Base of the plugins for which nothing can be prepared: what counts on a node depends on the pod or the moment."""

    @property
    def reads_pods(self) -> bool:
        """Say no: there are no node terms."""
        return False

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return nothing."""
        return {}


class PreparedPlugin:
    """A plugin with its node terms for one table and one snapshot.

    It follows its table: before each answer the rows that changed since the last one are computed anew, in arrays of
    its own; rows of nodes that joined are added, and those of nodes that left dropped. So one thread at a time may use
    it; tables and metrics stay shared.

    Args:
        plugin: the plugin.
        nodes: the table to follow, often a transaction's plan.
        metrics: a snapshot, or better one already aligned to the table.

    Attributes:
        metrics: aligned to the table's nodes as they were at the last answer. Replacing them, by the same metrics of
            other nodes, is for whoever prepares several plugins.

    Raises:
        ValueError: the metrics are aligned to a table with other nodes.
    """

    def __init__(self, plugin: ScorePlugin, nodes: NodeTable, metrics: MetricsTable | WatcherMetrics) -> None:
        self.plugin = plugin
        self.nodes = nodes
        self.metrics = align_metrics(metrics, nodes)
        self._rows, self._version = nodes.rows, nodes.version
        self._node = _copied(plugin.node_terms(nodes, self.metrics))
        self._terms_are_shared = False

    def score(self, pod: Pod) -> Int64s:
        """Return the pod's score on every node, before normalization, shape (nodes,)."""
        scores: Int64s = self.score_many([pod])[0]
        return scores

    def score_many(self, pods: Sequence[Pod]) -> Int64s:
        """Return scores of many pods, each as if it came alone, before normalization, shape (pods, nodes)."""
        self.follow()
        scores = np.empty((len(pods), len(self.nodes)), np.int64)
        step = max(1, _BLOCK_VALUES // max(1, len(self.nodes)))
        for start in range(0, len(pods), step):
            block = pods[start : start + step]
            scores[start : start + step] = self.plugin.pod_terms(block, self._node, self.nodes, EVERY_ROW)["score"]
        return scores

    def terms(self, pod: Pod, rows: Int64s | None = None) -> Terms:
        """Return every term of the pod's scores; each broadcasts to (1, nodes). They stay as they are now.

        Args:
            pod: the pending pod.
            rows: the rows to score, shape (k,); all by default.
        """
        node, terms = self._terms(pod, rows)
        self._terms_are_shared = self._terms_are_shared or rows is None
        return {**node, **terms}

    def raw(self, pod: Pod, rows: Int64s | None = None) -> Int64s:
        """Return the pod's scores alone, before normalization; they broadcast to (1, nodes). Rows as for the terms."""
        scores: Int64s = self._terms(pod, rows)[1]["score"]
        return scores

    def _terms(self, pod: Pod, rows: Int64s | None) -> tuple[Terms, Terms]:
        self.follow()
        if rows is None:
            return self._node, self.plugin.pod_terms([pod], self._node, self.nodes, EVERY_ROW)
        node = {name: term.take(rows) for name, term in self._node.items()}
        return node, self.plugin.pod_terms([pod], node, self.nodes, rows)

    def explain(self, pod: Pod, node_name: str) -> Explanation:
        """Return every term of the pod's score on one node.

        Raises:
            KeyError: no such node.
        """
        row = self.nodes.row(node_name)
        terms = explained_terms(self.terms(pod, np.array([row])))
        columns = {name: [term.item(0)] for name, term in terms.items()}
        return next(explanations(self.plugin, columns, f"{pod.namespace}/{pod.name}", [self.nodes.names[row]]))

    def follow(self, extra_rows: Int64s | None = None, taken: "RowSliceCache | None" = None) -> None:
        """Take in what changed in the table since the last answer; answers do so by themselves.

        Args:
            anew: more rows to compute anew, shape (k,): those whose metrics were replaced by others.
            taken: keeps what is taken of the table, for plugins that follow it together.
        """
        nodes = self.nodes
        if nodes.version == self._version and extra_rows is None:
            return
        before, since = self._rows, self._version
        self._rows, self._version = nodes.rows, nodes.version
        if nodes.rows is before and not self.plugin.reads_pods and extra_rows is None:
            return
        if nodes.names is not before.names:
            self.metrics = self.metrics.follow(nodes)
            self._move_rows(before)
        changed = nodes.changed_rows(since)
        if extra_rows is not None:
            changed = np.union1d(changed, extra_rows)
        if self._terms_are_shared:  # whoever has the old terms keeps them as they were
            self._node, self._terms_are_shared = _copied(self._node), False
        if changed.size:
            fresh = None
            if nodes.rows is before and extra_rows is None:
                fresh = self.plugin.changed_terms(self._node, nodes, self.metrics, changed)
            if fresh is None:
                fresh = self.plugin.node_terms(*(taken or RowSliceCache()).take(nodes, self.metrics, changed))
            for name, term in fresh.items():
                self._node[name][changed] = term

    def _move_rows(self, before: NodeRows) -> None:
        kept = self.nodes.rows.surviving(before)
        more = len(self.nodes) - len(kept)
        for name, term in self._node.items():
            self._node[name] = np.concatenate([term[kept], np.zeros(more, term.dtype)])
        self._terms_are_shared = False


class RowSliceCache:
    """Some rows of a table with their metrics, taken once for several plugins that ask for the same."""

    def __init__(self) -> None:
        self._rows: Int64s | None = None
        self._of: tuple[int, MetricsTable] | None = None

    def take(self, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> tuple[NodeTable, MetricsTable]:
        """Return the rows of one table and of its metrics.

        Args:
            nodes: always the same table.
            metrics: aligned to it.
            rows: row numbers, shape (k,).
        """
        same = self._of is not None and self._of[0] == nodes.version and self._of[1] is metrics
        if not same or self._rows is None or not np.array_equal(rows, self._rows):
            self._rows, self._of = rows, (nodes.version, metrics)
            self._slices = nodes.take(rows), metrics.take(rows)
        return self._slices


def explanations(
    plugin: ScorePlugin, columns: Mapping[str, Sequence[Any]], pod: str, node_names: Sequence[str]
) -> Iterator[Explanation]:
    """Yield some nodes' explanations.

    Args:
        plugin: what scored them.
        columns: every term that is explained, one value a node.
        pod: ``namespace/name``.
        node_names: the nodes.
    """
    for node_name, *each in zip(node_names, *columns.values(), strict=True):
        values = dict(zip(columns, each, strict=True))
        score = int(values.pop("score"))
        line = plugin.line({**values, "score": score})
        yield Explanation(plugin.name, pod, node_name, score, values, line)


def explained_terms(terms: Terms) -> Terms:
    """Return the terms that are explained_terms."""
    return {name: term for name, term in terms.items() if not name.startswith("_")}


def align_metrics(metrics: MetricsTable | WatcherMetrics, nodes: NodeTable) -> MetricsTable:
    """Return the metrics aligned to the table.

    Raises:
        ValueError: they are aligned to a table with other nodes.
    """
    if isinstance(metrics, WatcherMetrics):
        return MetricsTable.align(metrics, nodes)
    if metrics.names is not nodes.names and metrics.names != nodes.names:
        raise ValueError("these metrics are aligned to other nodes: align the snapshot to this table")
    return metrics


def per_pod(pods: Sequence[Pod], amount: Callable[..., int], *arguments: object) -> Int64s:
    """Return ``amount(pod, *arguments)`` of each pod as a column, shape (pods, 1)."""
    return np.array([[amount(pod, *arguments)] for pod in pods], dtype=np.int64).reshape(len(pods), 1)


def _copied(terms: Terms) -> Terms:
    """Copy arrays that others hold too, so that following the table changes nobody else's."""
    return {name: np.array(term) for name, term in terms.items()}
