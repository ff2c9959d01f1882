"""Fallback scores for nodes without usable measurements: prediction, the minimum, allocation or a neutral score.

A node counts as measured if its metrics in the snapshot are complete (CPU and Memory, unless no node has them), fresh,
and not marked as suspect by the watcher. Values that the watcher took from a shorter window or from the last good
snapshot count as measured. Otherwise:

    the node and its pods are new      predicted    the pods use their requests: 0 without pods
    one node's agent failed            avoided      the minimum score
    its values are suspect             avoided      the minimum score
    there is no fresh snapshot         allocation   best fit by allocation on all nodes, never mixed with load
    more than half of the nodes bad    neutral      the same score for all nodes, so that other plugins decide

These are the rules of ``fail = open``. With ``fail = closed``, pods are placed on measured nodes only, and on no node
in the last two cases. docs/fallback.md lists every case. The module reads no clock and keeps no state between calls:
callers pass the time.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Annotated, Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Pod
from scoring.arguments import Between, CheckedArguments
from scoring.arrays import Bools, Int64s, Texts
from scoring.load.metrics_table import MetricsTable
from scoring.load.recent_pods import REPORTING_INTERVAL_SECONDS
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import PreparedPlugin
from scoring.plugins.node_resources_fit import NodeResourcesFit, fits
from scoring.table.node_table import NodeTable
from watcher.model import MetricType, WatcherMetrics

_RESOURCES = {MetricType.CPU.value: CPU, MetricType.MEMORY.value: MEMORY}
NEUTRAL_SCORE = MAX_NODE_SCORE // 2


class NodeGrade(StrEnum):
    """Source of a node's score. Measured nodes may also have one of the watcher's grades (:class:`watcher.Grade`)."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    AVOIDED = "avoided"
    ALLOCATION = "allocation"
    NEUTRAL = "neutral"


_OURS = frozenset(NodeGrade)
_BAD = frozenset({NodeGrade.AVOIDED, NodeGrade.ALLOCATION, NodeGrade.NEUTRAL})


@dataclass(frozen=True, slots=True)
class FallbackPolicy(CheckedArguments):
    """Rules that decide which metrics are usable, and how nodes without usable metrics are scored.

    Attributes:
        fail: ``open`` places pods by the remaining information; ``closed`` places them on measured nodes only.
        max_age_seconds: largest age of a usable snapshot, and of the values of a node. With a timestamp further than
            this in the future they are unusable, too.
        settling_seconds: time after which a new node or a newly placed pod should be measured.
        bad_ratio: largest share of nodes without usable metrics, 0 to 1; above this share, all nodes get the same
            score.
        trust_suspect: use values that the watcher marked as suspect (stale, frozen, ...) like others.
        best_fit: plugin that scores nodes by their allocation if there is no usable snapshot. Nodes that the pod does
            not fit on score 0.

    Raises:
        ValueError: a field is out of its range; the message names it.
    """

    fail: Literal["open", "closed"] = "open"
    max_age_seconds: Annotated[float, Between(0, inf)] = 300
    settling_seconds: Annotated[float, Between(0, inf)] = 300
    bad_ratio: Annotated[float, Between(0, 1)] = 0.5
    trust_suspect: bool = False
    best_fit: NodeResourcesFit = field(default_factory=lambda: NodeResourcesFit("MostAllocated"))

    def judge(self, nodes: NodeTable, snapshot: WatcherMetrics | None, now: float) -> "Judgment":
        """Grade every node; pass the result, instead of the snapshot, to :meth:`scoring.Profile.prepare`.

        Args:
            nodes: nodes with their pods.
            snapshot: snapshot from a client; None if there is none.
            now: present time, Unix seconds.

        Raises:
            ValueError: a value in the snapshot is NaN or infinite; the message names node, metric and operator.
        """
        outage = _outage(self, snapshot, now)
        if outage or snapshot is None:
            return _judged(self, nodes, Evidence(MetricsTable.empty(nodes), {}, outage, now))
        metadata = snapshot.metadata
        return _judged(self, nodes, Evidence(MetricsTable.align(snapshot, nodes), metadata, outage, now))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Data by which nodes are graded.

    Attributes:
        metrics: metrics of the snapshot, aligned to the nodes.
        metadata: metadata that the watcher added to the snapshot, by node name.
        outage: reason why no metrics of the snapshot are usable; "" if there is none.
        now: time of the judgment, Unix seconds.
    """

    metrics: MetricsTable
    metadata: Mapping[str, Mapping[str, object]]
    outage: str
    now: float


@dataclass(frozen=True, eq=False)
class Judgment:
    """Grades of every node of a table at one moment. A judgment is immutable, so threads may share it.

    Attributes:
        policy: fallback policy by which the nodes were graded.
        metrics: metrics of the snapshot aligned to the nodes, with predictions for new nodes.
        grades: :class:`NodeGrade` or the watcher's grade of each node, as text, shape (nodes,).
        reasons: reason why each node is not measured, "" for a measured node, shape (nodes,).
        evidence: data that the judgment is based on.
    """

    policy: FallbackPolicy
    metrics: MetricsTable
    grades: Texts
    reasons: Texts
    evidence: Evidence

    def follow(self, nodes: NodeTable) -> "Judgment":
        """Return a judgment of the table's present nodes, by the same snapshot and for the same moment."""
        return _judged(self.policy, nodes, replace(self.evidence, metrics=self.evidence.metrics.follow(nodes)))

    @cached_property
    def replaced(self) -> Bools:
        """Mask of the nodes whose scores from plugins that read metrics are replaced, shape (nodes,)."""
        return _mask_of(self.grades, _BAD)

    @cached_property
    def refused(self) -> Bools:
        """Mask of the nodes where no pods are placed because of ``fail = closed``, shape (nodes,)."""
        return _mask_of(self.grades, {*_BAD, NodeGrade.PREDICTED} if self.policy.fail == "closed" else ())

    @cached_property
    def refuses_any(self) -> bool:
        """True if there are nodes where no pods are placed because of ``fail = closed``."""
        return bool(self.refused.any())

    @cached_property
    def predicted(self) -> Int64s:
        """Rows of the nodes whose metrics are predicted, ascending, shape (k,)."""
        return np.flatnonzero(self.grades == NodeGrade.PREDICTED)

    def counts(self) -> Counter[str]:
        """Count the nodes by grade."""
        return Counter(self.grades.tolist())

    def line(self, row: int) -> str:
        """Return a phrase for users: the reason why the score of the row's node is replaced, and the replacement."""
        replacements = {
            NodeGrade.AVOIDED: "so the minimum",
            NodeGrade.ALLOCATION: "so nodes are scored by allocation",
            NodeGrade.NEUTRAL: "so all nodes get the same score",
        }
        return f"{self.reasons[row]}, {replacements[NodeGrade(self.grades[row])]}"

    def prepare(self, nodes: NodeTable) -> "FallbackScores":
        """Return an object that computes the replacements for the scores of plugins that read metrics."""
        return FallbackScores(self, nodes)


class FallbackScores:
    """Replacements for the scores of plugins that read metrics.

    The replacements follow changes of the pods in their table. Only one thread at a time may use them.
    """

    def __init__(self, judgment: Judgment, nodes: NodeTable) -> None:
        by_allocation = (judgment.grades == NodeGrade.ALLOCATION).any()
        self._fit = PreparedPlugin(judgment.policy.best_fit, nodes, judgment.metrics) if by_allocation else None
        self._constant = np.where(judgment.grades == NodeGrade.NEUTRAL, NEUTRAL_SCORE, 0)
        self._needed = judgment.replaced.any()

    def attach(self, nodes: NodeTable) -> None:
        """Follow another node table from now on; the present table must be an unchanged copy of that table."""
        if self._fit is not None:
            self._fit.attach(nodes)

    def scores(self, pod: Pod, rows: Int64s | None = None) -> Int64s | None:
        """Return scores from 0 to 100, shape (nodes,), for the nodes whose scores are replaced; None if there are none.

        The scores of the other nodes have no meaning.

        Args:
            pod: pending pod.
            rows: rows to score, shape (k,); None scores all rows.
        """
        if self._fit is not None:
            nodes = self._fit.nodes
            fitting, scores = fits(pod, nodes), self._fit.terms(pod, rows)["score"][0]
            return np.where(fitting if rows is None else fitting[rows], scores, 0)
        if not self._needed:
            return None
        return self._constant if rows is None else self._constant[rows]


def _judged(policy: FallbackPolicy, nodes: NodeTable, evidence: Evidence) -> Judgment:
    def same_for_all(grade: NodeGrade, reason: str) -> Judgment:
        grades, reasons = np.full(len(nodes), grade.value, object), np.full(len(nodes), reason, object)
        return Judgment(policy, metrics, grades, reasons, evidence)

    # An outage concerns all nodes.
    metrics = evidence.metrics
    if evidence.outage:
        return same_for_all(NodeGrade.ALLOCATION, evidence.outage)
    # Otherwise grade each node, unless too many are bad.
    grades, reasons = _graded(policy, nodes, evidence)
    bad = np.count_nonzero(grades == NodeGrade.AVOIDED)
    if bad > policy.bad_ratio * len(nodes):
        return same_for_all(NodeGrade.NEUTRAL, f"{bad} of {len(nodes)} nodes are not measured")
    if policy.fail == "open":
        metrics = _predict(nodes, metrics, np.flatnonzero(grades == NodeGrade.PREDICTED), int(evidence.now))
    return Judgment(policy, metrics, grades, reasons, evidence)


def _graded(policy: FallbackPolicy, nodes: NodeTable, evidence: Evidence) -> tuple[Texts, Texts]:
    """Return the grade of each node, and why it is not measured; the share of bad nodes is not considered yet."""
    # Grade all nodes at once, then look for reasons where a node is not measured.
    measured = _measured(policy, evidence.metrics, evidence.now)
    grades = np.where(measured, NodeGrade.MEASURED.value, NodeGrade.AVOIDED.value).astype(object)
    reasons = np.full(len(nodes), "", object)
    for row in np.flatnonzero(~measured).tolist():
        settled = _settled(policy, nodes, row, evidence.now)
        reasons[row] = settled or "new, like all of its pods, which are expected to use their requests"
        if not settled:
            grades[row] = NodeGrade.PREDICTED.value
    for name, metadata in evidence.metadata.items():
        if name not in nodes or not measured[row := nodes.row(name)]:
            continue
        if metadata.get("suspect") and not policy.trust_suspect:
            grades[row] = NodeGrade.AVOIDED.value
            reasons[row] = f"the watcher suspects its values: {metadata['suspect']}"
        else:
            grades[row] = _watcher_grade(metadata)
    return grades, reasons


def _outage(policy: FallbackPolicy, snapshot: WatcherMetrics | None, now: float) -> str:
    if snapshot is None:
        return "there are no metrics"
    age = now - snapshot.timestamp
    if abs(age) > policy.max_age_seconds:
        return f"the metrics are {age:.0f} s old, the limit is {policy.max_age_seconds:.0f} s"
    return "" if snapshot.data else "there are no fresh metrics"


def _measured(policy: FallbackPolicy, metrics: MetricsTable, now: float) -> Bools:
    measured: Bools = metrics.present & (np.abs(now - metrics.window_end) <= policy.max_age_seconds)
    for metric_type in _RESOURCES:
        averaged = metrics.of(metric_type).averaged
        if averaged.any():  # otherwise the provider lacks this metric for all nodes
            measured = measured & averaged
    return measured


def _settled(policy: FallbackPolicy, nodes: NodeTable, row: int, now: float) -> str:
    """Return the reason why a node should be measured by now; "" if the node and all its pods are too new."""
    since = now - policy.settling_seconds
    created_at = nodes.nodes[row].created_at
    if created_at is None or created_at < since:
        return "not measured although not new: its agent may have failed"
    old = sum(placed.placed_at < since for placed in nodes.placed_on(row))
    return f"new and not measured yet, with {old} long-running pods" if old else ""


def _predict(nodes: NodeTable, metrics: MetricsTable, rows: Int64s, now: int) -> MetricsTable:
    """Return metrics with predictions for new nodes: their pods are assumed to use exactly their requests.

    Args:
        nodes: nodes with their pods.
        metrics: metrics aligned to the nodes.
        rows: rows of the nodes to predict.
        now: present time, Unix seconds.
    """
    if not rows.size:
        return metrics
    percents = {}
    for metric_type, resource in _RESOURCES.items():
        # Skip pods placed later or only assumed (at infinity): the plugins add those themselves.
        use = [
            sum(
                pod_demand.in_tree_requests(placed.pod, resource, non_zero=True)
                for placed in nodes.placed_on(row)
                if placed.placed_at < now + 1
            )
            for row in rows.tolist()
        ]
        capacity = np.maximum(nodes.capacity(resource)[rows], 1)
        percents[metric_type] = np.minimum(100 * np.array(use, np.float64) / capacity, 100.0)
    # Plugins add pods placed less than a reporting interval before a window's end. Moving the end past now by that
    # interval keeps them from adding the pods counted above again.
    return metrics.predicted(rows, percents, now + REPORTING_INTERVAL_SECONDS)


def _watcher_grade(metadata: Mapping[str, object]) -> str:
    """Return the grade from a watcher's metadata of a node, or MEASURED.

    The names of :class:`NodeGrade` are ignored, so that metadata from the network cannot choose a fallback score.
    """
    grade = metadata.get("grade")
    return grade if isinstance(grade, str) and grade not in _OURS else NodeGrade.MEASURED.value


def _mask_of(grades: Texts, selected: Collection[str]) -> Bools:
    return np.array([grade in selected for grade in grades], np.bool_)
