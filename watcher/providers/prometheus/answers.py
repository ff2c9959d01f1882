"""Responses to the queries of a fetch, and their conversion into the metrics of nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, MetricType, NodeMetrics, Operator
from watcher.providers.node_names import NodeLabels, Resolved, without_port
from watcher.providers.prometheus.queries import STEP, Expression, ResourceQuery, value_of

Rows = list[tuple[NodeLabels, float]]
"""Node labels and value of each series."""


@dataclass(frozen=True, slots=True)
class LabelNames:
    """Names of the labels that name a node.

    Attributes:
        by: the names for the ``by`` of an aggregation, separated by a comma and a space.
    """

    by: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labels, the most important first."""
        return tuple(self.by.split(", "))

    def of(self, series: Mapping[str, Any]) -> NodeLabels:
        """Return the node labels of a series in a response."""
        labels = series["metric"]
        return tuple(labels.get(label, "") for label in self.names)

    def rows(self, answer: Sequence[Mapping[str, Any]]) -> Rows:
        """Return node labels and value of each series of a response."""
        return [(self.of(item), value_of(item)) for item in answer]


@dataclass(slots=True)
class QueryAnswer:
    """Result of a query for one metric.

    Attributes:
        expression: the alternative expression that has series.
        values: the node labels and the value of each series.
        warnings: the warnings in Prometheus' response.
    """

    expression: Expression
    values: Rows = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


Found = list[tuple[tuple[ResourceQuery, Operator], QueryAnswer]]


def labels_of(answers: Found) -> frozenset[NodeLabels]:
    """Return the node labels of all series."""
    return frozenset(labels for _, answer in answers for labels, _ in answer.values)


def nodes_of(answer: QueryAnswer, resolved: Mapping[NodeLabels, Resolved]) -> frozenset[str]:
    """Return the names of the nodes in an answer."""
    return frozenset(resolved[labels].name for labels, _ in answer.values)


def node_metrics(
    answers: Found, resolved: Mapping[NodeLabels, Resolved], window: str
) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Return each node's metrics, each from the first expression that has the node, and findings.

    Args:
        answers: the answers, with preferred expressions first.
        resolved: the node of each series.
        window: duration of the window.
    """
    findings = [_unmatched(labels, node, window) for labels, node in resolved.items() if node.problem]
    names = {labels: node.name for labels, node in resolved.items()}
    nodes: dict[str, dict[tuple[str, str], Metric]] = {}
    merged: dict[str, set[str]] = {}
    tags: dict[str, dict[str, str]] = {}
    # Nodes for which an earlier expression has a value; later ones only fill gaps.
    had: dict[tuple[ResourceQuery, Operator], set[str]] = {}
    for (query, operator), answer in answers:
        name = answer.expression.name
        findings += [Finding(Kind.PARTIAL_ANSWER, warning, window, metric=name) for warning in answer.warnings]
        if query.required and not answer.values and operator is Operator.AVG:
            findings.append(Finding(Kind.QUERY_FAILED, f"there are no series of {query.type}", window, metric=name))
        expression_tags = _tags(answer.expression) if query.type == MetricType.CPU else {}
        earlier = had.setdefault((query, operator), set())
        counts: dict[str, int] = {}
        key, type_, scale = (name, operator), query.type, query.scale
        for labels, value in answer.values:
            node = names[labels]
            if not node or node in earlier:
                continue
            metrics = nodes.get(node)
            if metrics is None:
                metrics = nodes[node] = {}
            percent = value * scale
            if key in metrics:  # the running mean of all replicas
                counts[node] = counts.get(node, 1) + 1
                percent = metrics[key].value + (percent - metrics[key].value) / counts[node]
                merged.setdefault(node, set()).add(name)
            metrics[key] = Metric(name, type_, operator, window, percent)
            if expression_tags:
                tags[node] = expression_tags
        earlier |= nodes_of(answer, resolved)
    for node, doubled in merged.items():
        message = "this node has several series: their mean is used; set prometheus.matchers to one replica"
        findings += [Finding(Kind.DUPLICATE, message, window, node, name, Action.MERGED) for name in sorted(doubled)]
    return {node: NodeMetrics(tuple(metrics.values()), tags.get(node, {})) for node, metrics in nodes.items()}, findings


def _tags(expression: Expression) -> dict[str, str]:
    """Return the tags of the CPU metrics that an expression computes."""
    tags = {"smoothing": expression.smoothing} if expression.smoothing else {}
    return tags if expression.is_selector() else {**tags, "step": STEP}


def _unmatched(labels: NodeLabels, resolved: Resolved, window: str) -> Finding:
    shown = without_port(next(filter(None, labels), ""))
    action = Action.REPORTED if resolved.name else Action.DROPPED
    message = f"{resolved.problem} (prometheus.node_label)"
    return Finding(Kind.UNMATCHED_NODE, message, window, resolved.name or shown, action=action)
