"""What to score by when nodes are not measured: prediction, the minimum, allocations, or nothing at all.

A node is measured when the snapshot has what it should have of it (CPU and Memory, as far as any node has them), that
is fresh, and the watcher does not suspect it; grades that the watcher gave (a shorter window, a last good value) count
as measured. Else:

    the node is new and its pods are   predicted    used as much as they request: 0 without pods
    one node's agent failed            avoided      the minimum score
    its values are suspect             avoided      the minimum score
    no fresh snapshot at all           allocation   best fit by allocation, for ALL nodes: the two are never mixed
    more than half of the nodes bad    neutral      all alike, so that other plugins decide

That is fail-open. Fail-closed means: pods go to measured nodes only, and nowhere in the last two cases. The table in
docs/fallback.md says each case. Pure: the time is passed in, nothing is remembered from one call to the next.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Pod
from scoring.arrays import Bools, Int64s, Texts
from scoring.load.metrics_table import MetricsTable
from scoring.load.recent_pods import REPORTING_INTERVAL_SECONDS
from scoring.plugins.base import PreparedPlugin
from scoring.plugins.node_resources_fit import NodeResourcesFit, fits
from scoring.profiles.normalization import MAX_NODE_SCORE
from scoring.table.node_table import NodeTable
from watcher.model import MetricType, WatcherMetrics

_RESOURCES = {MetricType.CPU.value: CPU, MetricType.MEMORY.value: MEMORY}
NEUTRAL_SCORE = MAX_NODE_SCORE // 2


class NodeGrade(StrEnum):
    """How a node's score was obtained, beside the grades that a watcher gives (:class:`watcher.Grade`)."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    AVOIDED = "avoided"
    ALLOCATION = "allocation"
    NEUTRAL = "neutral"


_OURS = frozenset(NodeGrade)
_BAD = frozenset({NodeGrade.AVOIDED, NodeGrade.ALLOCATION, NodeGrade.NEUTRAL})


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """When to trust what, and what to do where nothing can be trusted.

    Attributes:
        fail: ``open`` places pods by what else is known; ``closed`` on measured nodes only.
        max_age_seconds: an older snapshot, or one so far in the future, is none; the same for a single node's values.
        settling_seconds: time within which a new node, or a pod that was placed, gets measured.
        bad_ratio: above this share of bad nodes all nodes are treated alike, 0 to 1.
        trust_suspect: score by values that the watcher marked as suspect (stale, frozen, ...) as if they were not.
        best_fit: how nodes are scored by allocation; nodes that the pod does not fit on score 0.

    Raises:
        ValueError: a field is out of its range; the message names it.
    """

    fail: Literal["open", "closed"] = "open"
    max_age_seconds: float = 300
    settling_seconds: float = 300
    bad_ratio: float = 0.5
    trust_suspect: bool = False
    best_fit: NodeResourcesFit = field(default_factory=lambda: NodeResourcesFit("MostAllocated"))

    def __post_init__(self) -> None:
        if self.fail not in {"open", "closed"}:
            raise ValueError(f"fail = {self.fail!r}: it is open or closed")
        for name, highest in (("max_age_seconds", inf), ("settling_seconds", inf), ("bad_ratio", 1.0)):
            value = getattr(self, name)
            if not 0 <= value <= highest:  # nor is NaN
                raise ValueError(f"{name} = {value!r}: it is at least 0" + (" and at most 1" if highest == 1 else ""))

    def judge(self, nodes: NodeTable, snapshot: WatcherMetrics | None, now: float) -> "Judgment":
        """Say what is known of every node. Prepare a profile with the result, in place of the snapshot.

        Args:
            nodes: the nodes with their pods.
            snapshot: from a client; None when there is none.
            now: unix seconds.

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
    """What nodes are judged by.

    Attributes:
        metrics: what was measured, aligned to the nodes.
        metadata: what the watcher says of nodes, by name.
        outage: why there is nothing to go by, else "".
        now: the moment, unix seconds.
    """

    metrics: MetricsTable
    metadata: Mapping[str, Mapping[str, object]]
    outage: str
    now: float


@dataclass(frozen=True, eq=False)
class Judgment:
    """What is known of every node of a table at a moment. Frozen: threads may share it.

    Attributes:
        policy: what made it.
        metrics: the snapshot aligned to the nodes, with predictions for new ones.
        grades: by row the :class:`NodeGrade`, or the watcher's grade, as text; shape (nodes,).
        reasons: by row why it is not measured, else ""; shape (nodes,).
        evidence: what it was made from.
    """

    policy: FallbackPolicy
    metrics: MetricsTable
    grades: Texts
    reasons: Texts
    evidence: Evidence

    def follow(self, nodes: NodeTable) -> "Judgment":
        """Judge other nodes by the same snapshot, as of the same moment."""
        return _judged(self.policy, nodes, replace(self.evidence, metrics=self.evidence.metrics.follow(nodes)))

    @cached_property
    def replaced(self) -> Bools:
        """The nodes whose scores by load are replaced, shape (nodes,)."""
        return _among(self.grades, _BAD)

    @cached_property
    def refused(self) -> Bools:
        """The nodes that fail-closed keeps pods away from, shape (nodes,)."""
        return _among(self.grades, {*_BAD, NodeGrade.PREDICTED} if self.policy.fail == "closed" else ())

    @cached_property
    def refuses_any(self) -> bool:
        """Whether any node is refused."""
        return bool(self.refused.any())

    @cached_property
    def predicted(self) -> Int64s:
        """The rows whose metrics are predictions, ascending, shape (k,)."""
        return np.flatnonzero(self.grades == NodeGrade.PREDICTED)

    def counts(self) -> Counter[str]:
        """Count the nodes by grade."""
        return Counter(self.grades.tolist())

    def line(self, row: int) -> str:
        """Say why a node's score is what it is, where it is replaced."""
        how = {
            NodeGrade.AVOIDED: "so the minimum",
            NodeGrade.ALLOCATION: "so every node by allocation",
            NodeGrade.NEUTRAL: "so all nodes alike",
        }
        return f"{self.reasons[row]}, {how[NodeGrade(self.grades[row])]}"

    def prepare(self, nodes: NodeTable) -> "FallbackScores":
        """Prepare the scores that stand in for those by load."""
        return FallbackScores(self, nodes)


class FallbackScores:
    """The scores that stand in for those by load; they follow their table, one thread at a time."""

    def __init__(self, judgment: Judgment, nodes: NodeTable) -> None:
        by_allocation = (judgment.grades == NodeGrade.ALLOCATION).any()
        self._fit = PreparedPlugin(judgment.policy.best_fit, nodes, judgment.metrics) if by_allocation else None
        self._alike = np.where(judgment.grades == NodeGrade.NEUTRAL, NEUTRAL_SCORE, 0)
        self._needed = judgment.replaced.any()

    def scores(self, pod: Pod, rows: Int64s | None = None) -> Int64s | None:
        """Return the scores, 0 to 100, shape (nodes,), valid where the judgment replaces; None where it does not.

        Args:
            pod: the pending pod.
            rows: the rows to score, shape (k,); all by default.
        """
        if self._fit is not None:
            nodes = self._fit.nodes
            fitting, scores = fits(pod, nodes), self._fit.terms(pod, rows)["score"][0]
            return np.where(fitting if rows is None else fitting[rows], scores, 0)
        if not self._needed:
            return None
        return self._alike if rows is None else self._alike[rows]


def _judged(policy: FallbackPolicy, nodes: NodeTable, evidence: Evidence) -> Judgment:
    def alike(grade: NodeGrade, reason: str) -> Judgment:
        grades, reasons = np.full(len(nodes), grade.value, object), np.full(len(nodes), reason, object)
        return Judgment(policy, metrics, grades, reasons, evidence)

    metrics = evidence.metrics
    if evidence.outage:
        return alike(NodeGrade.ALLOCATION, evidence.outage)
    grades, reasons = _graded(policy, nodes, evidence)
    bad = np.count_nonzero(grades == NodeGrade.AVOIDED)
    if bad > policy.bad_ratio * len(nodes):
        return alike(NodeGrade.NEUTRAL, f"{bad} of {len(nodes)} nodes are not measured")
    if policy.fail == "open":
        metrics = _predict(nodes, metrics, np.flatnonzero(grades == NodeGrade.PREDICTED), int(evidence.now))
    return Judgment(policy, metrics, grades, reasons, evidence)


def _graded(policy: FallbackPolicy, nodes: NodeTable, evidence: Evidence) -> tuple[Texts, Texts]:
    """Return each node's grade and reason by itself; a pass over those that are not plainly measured."""
    measured = _measured(policy, evidence.metrics, evidence.now)
    grades = np.where(measured, NodeGrade.MEASURED.value, NodeGrade.AVOIDED.value).astype(object)
    reasons = np.full(len(nodes), "", object)
    for row in np.flatnonzero(~measured).tolist():
        settled = _settled(policy, nodes, row, evidence.now)
        reasons[row] = settled or "new, and so are its pods: they are expected to use what they request"
        if not settled:
            grades[row] = NodeGrade.PREDICTED.value
    for name, given in evidence.metadata.items():
        if name not in nodes or not measured[row := nodes.row(name)]:
            continue
        if given.get("suspect") and not policy.trust_suspect:
            grades[row] = NodeGrade.AVOIDED.value
            reasons[row] = f"the watcher suspects its values: {given['suspect']}"
        else:
            grades[row] = _given_grade(given)
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
        if averaged.any():  # else the provider does not have it, which is no fault of a node
            measured = measured & averaged
    return measured


def _settled(policy: FallbackPolicy, nodes: NodeTable, row: int, now: float) -> str:
    """Return why a node should be measured by now; empty when it and all its pods are too new for that."""
    since = now - policy.settling_seconds
    created_at = nodes.nodes[row].created_at
    if created_at is None or created_at < since:
        return "not measured though long in the cluster: its agent may have failed"
    old = sum(placed.placed_at < since for placed in nodes.placed_on(row))
    return f"new and not measured yet, with {old} long-running pods" if old else ""


def _predict(nodes: NodeTable, metrics: MetricsTable, rows: Int64s, now: int) -> MetricsTable:
    """Return metrics in which the pods of these nodes use what they request."""
    if not rows.size:
        return metrics
    percents = {}
    for metric_type, resource in _RESOURCES.items():
        # Pods placed later, or only assumed (at infinity): the plugins that count such pods do so themselves.
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
    # Plugins count pods placed less than a reporting interval before a window's end; these are counted here.
    return metrics.predicted(rows, percents, now + REPORTING_INTERVAL_SECONDS)


def _given_grade(metadata: Mapping[str, object]) -> str:
    """Return the grade that a watcher gave; one of ours has no meaning there, as a payload does not choose the rule."""
    grade = metadata.get("grade")
    return grade if isinstance(grade, str) and grade not in _OURS else NodeGrade.MEASURED.value


def _among(grades: Texts, some: Collection[str]) -> Bools:
    return np.array([grade in some for grade in grades], np.bool_)
