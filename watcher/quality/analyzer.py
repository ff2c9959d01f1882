"""Checks of a single fetch: pure functions that take fetched metrics and return clean metrics and findings.

``anomalies`` finds the problems that only a comparison with earlier fetches can show.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any

from runtime import masking
from watcher.findings import Action, Finding, Kind
from watcher.model import AVERAGES, LOWEST_PERCENT, SLACK_PERCENT, Metric, MetricType, NodeMetrics, Operator

# Shape of a node's metrics: everything except the numbers. Most nodes of a cluster have the same shape, and a shape
# that was valid once is not checked again.
_Shape = tuple[tuple[object, ...], ...]
_shape_of = attrgetter("name", "type", "operator", "rollup", "value.__class__")

_MAX_NAME_LENGTH = 253  # of a Kubernetes node
_SHAPES = 8  # good shapes that are remembered; more would only cost time


def clean(nodes: Mapping[str, NodeMetrics], window: str) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Remove invalid metrics and labels from a fetch.

    Values that are not finite numbers, values below 0, and values more than ``SLACK_PERCENT`` above 100 percent are
    dropped. Values slightly above 100 become 100, and rounding errors below 0 become 0. Standard deviations without an
    average, labels that are not text, nodes with invalid names and nodes without remaining metrics are dropped, too. If
    a node has two metrics with the same name and operator, the first is used.

    Args:
        nodes: node name to metrics, as fetched.
        window: the window's duration, such as ``5m``, for the findings.

    Returns:
        Node name to the metrics that may be published, and a finding for each problem.
    """
    cleaned: dict[str, NodeMetrics] = {}
    findings: list[Finding] = []
    good_shapes: list[_Shape] = []
    all_names_valid = _are_names(nodes)
    may_have_secret = masking.has_secret(" ".join(map(str, nodes)))  # a source may return a token as a label
    for name, node in nodes.items():
        if not (all_names_valid or _is_name(name)) or (may_have_secret and masking.has_secret(name)):
            message = f"{_shown(name)} is not a valid node name"
            findings.append(Finding(Kind.BAD_NODE_NAME, message, window, action=Action.DROPPED))
            continue
        try:
            metrics = _clean_metrics(name, node.metrics, window, findings, good_shapes)
        except (AttributeError, TypeError) as error:  # third-party providers may return anything
            message = f"the provider's metrics of {name} cannot be read: {type(error).__name__}: {error}"
            findings.append(Finding(Kind.BAD_VALUE, message, window, name, action=Action.DROPPED))
            continue
        if metrics:
            tags, metadata = node.tags, node.metadata
            if tags.__class__ is not dict or tags:  # faster than a call for nodes without tags
                tags = _clean_labels(name, tags, window, findings, may_be_numbers=False)
            if metadata.__class__ is not dict or metadata:
                metadata = _clean_labels(name, metadata, window, findings, may_be_numbers=True)
            unchanged = metrics is node.metrics and tags is node.tags and metadata is node.metadata
            cleaned[name] = node if unchanged else NodeMetrics(metrics, tags, metadata)
    return cleaned, findings


def limit(nodes: Mapping[str, NodeMetrics], window: str, most: int) -> tuple[Mapping[str, NodeMetrics], list[Finding]]:
    """Return at most ``most`` nodes, and a finding if nodes are dropped.

    The first nodes in alphabetical order are kept, so that every fetch keeps the same nodes.

    Args:
        nodes: node name to metrics.
        window: the window's duration, such as ``5m``, for the finding.
        most: the maximum number of nodes.
    """
    if len(nodes) <= most:
        return nodes, []
    first_nodes = {name: nodes[name] for name in sorted(nodes, key=str)[:most]}
    message = f"there are {len(nodes)} nodes: all but the first {most} by name are dropped"
    return first_nodes, [Finding(Kind.TOO_MANY_NODES, message, window, action=Action.DROPPED)]


def explain_missing_cpu(
    nodes: Mapping[str, NodeMetrics], findings: Iterable[Finding], source: str
) -> Mapping[str, NodeMetrics]:
    """Set ``metadata.missing`` of all nodes if none of them has CPU, for example soon after a source's start.

    CPU is a rate, so it needs more samples than memory. Without this text an answer without CPU would look complete.

    Args:
        nodes: node name to metrics.
        findings: findings of the fetch, for the reason.
        source: name of the source.
    """
    if any(metric.type == MetricType.CPU for node in nodes.values() for metric in node.metrics):
        return nodes
    problems = (each.message for each in findings if each.kind is Kind.QUERY_FAILED and MetricType.CPU in each.message)
    reason = next(problems, f"{source} has no CPU of any node yet")
    return {
        name: replace(node, metadata={**node.metadata, "missing": f"CPU: {reason}"}) for name, node in nodes.items()
    }


def is_node_name(name: str) -> bool:
    """Return whether a node of this name may be published: its name is valid, and does not contain a secret."""
    return _is_name(name) and not masking.has_secret(name)


def _clean_metrics(
    node: str, metrics: tuple[Metric, ...], window: str, findings: list[Finding], good_shapes: list[_Shape]
) -> tuple[Metric, ...]:
    """Return the valid metrics of a node; the given tuple itself if all its metrics are valid.

    Args:
        node: the node's name.
        metrics: the metrics as fetched.
        window: the window's duration, for the findings.
        findings: a list that new findings are added to.
        good_shapes: shapes of nodes whose metrics were all valid, the newest first. A shape is everything but the
            values. A list is faster than a set, because successive nodes mostly have the same shape.
    """
    shape = tuple(map(_shape_of, metrics))
    if shape in good_shapes:
        try:  # contextlib.suppress would take a third of the time
            for metric in metrics:
                if not 0 <= metric.value <= 100:
                    break
            else:
                return metrics
        except TypeError:  # a value that is not a number is named below
            pass
    clean = _without_lone_deviations(node, metrics, [*_good_metrics(node, metrics, window, findings)], window, findings)
    if clean != metrics:
        return clean
    good_shapes.insert(0, shape)
    del good_shapes[_SHAPES:]
    return metrics


def _good_metrics(node: str, metrics: tuple[Metric, ...], window: str, findings: list[Finding]) -> Iterator[Metric]:
    seen: set[tuple[str, str]] = set()
    for metric in metrics:
        value: Any = metric.value  # untyped, as third-party providers may return anything
        texts = metric.name, metric.type, metric.operator, metric.rollup
        if not (isinstance(value, float | int) and all(map(_is_text, texts))):
            message = f"{_shown(metric)} is not a valid metric: names must be text, and values numbers"
            findings.append(Finding(Kind.BAD_VALUE, message, window, node, action=Action.DROPPED))
            continue
        if (metric.name, metric.operator) in seen:
            message = f"there are two values of {metric.operator}; the first is used"
            findings.append(Finding(Kind.DUPLICATE, message, window, node, metric.name, Action.MERGED))
            continue
        seen.add((metric.name, metric.operator))
        if 0 <= value <= 100:
            yield metric
        elif not math.isfinite(value):
            message = f"{metric.operator} is {value}"
            findings.append(Finding(Kind.NOT_FINITE, message, window, node, metric.name, Action.DROPPED))
        elif LOWEST_PERCENT <= value <= 100 + SLACK_PERCENT:
            # Above 100 the node is full either way; below 0 its true load is unknown, and 0 would attract all pods.
            yield Metric(metric.name, metric.type, metric.operator, metric.rollup, min(100.0, max(0.0, value)))
        else:
            message = f"{metric.operator} is {value:g} percent of capacity; is the query's scale right?"
            findings.append(Finding(Kind.OUT_OF_RANGE, message, window, node, metric.name, Action.DROPPED))


def _without_lone_deviations(
    node: str, fetched: tuple[Metric, ...], metrics: list[Metric], window: str, findings: list[Finding]
) -> tuple[Metric, ...]:
    """Drop standard deviations without an average: a scoring plugin would assume an average of 0, an idle node.

    If an average was fetched but dropped as invalid, there is already a finding about it, so none is added here.

    Args:
        node: the node's name.
        fetched: all metrics of the node as fetched.
        metrics: the valid metrics among them.
        window: the window's duration, for the findings.
        findings: a list that new findings are added to.

    Returns:
        The remaining metrics.
    """
    levels = {metric.name for metric in metrics if metric.operator in AVERAGES}
    lone = [metric for metric in metrics if metric.operator == Operator.STD and metric.name not in levels]
    if lone:
        unusable = [metric.name for metric in fetched if metric.operator in AVERAGES]
        findings += [
            Finding(Kind.NO_AVERAGE, "there is a deviation but no average", window, node, metric.name, Action.DROPPED)
            for metric in lone
            if metric.name not in unusable
        ]
    return tuple(metric for metric in metrics if metric not in lone) if lone else tuple(metrics)


def _clean_labels(
    node: str, labels: Any, window: str, findings: list[Finding], *, may_be_numbers: bool
) -> Mapping[str, Any]:
    """Drop labels that are not text or, if ``may_be_numbers``, finite numbers; return the same mapping if all are."""
    if isinstance(labels, Mapping):
        bad = {key: value for key, value in labels.items() if not _is_label(key, value, may_be_number=may_be_numbers)}
        good = {key: value for key, value in labels.items() if key not in bad} if bad else labels
    else:
        bad, good = {"": labels}, {}
    if bad:
        shown = ", ".join(f"{_shown(key)}: {_shown(value)}" for key, value in islice(bad.items(), 3))
        message = f"labels that are not text are dropped: {shown}{', ...' if len(bad) > 3 else ''}"
        findings.append(Finding(Kind.BAD_LABEL, message, window, node, action=Action.DROPPED))
    return good


def _are_names(nodes: Mapping[str, NodeMetrics]) -> bool:
    """Return whether all nodes have valid names, with one check of the concatenated names, to be fast."""
    try:
        text = "".join(nodes)
    except TypeError:  # a name is not text
        return False
    longest = max(map(len, nodes), default=0)
    return longest <= _MAX_NAME_LENGTH and "" not in nodes and _fits_names(text)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_LENGTH and _fits_names(name)


def _fits_names(text: str) -> bool:
    return text.isprintable() and not any(character in text for character in " \"'\\/")


def _is_text(value: object) -> bool:
    """Return whether the value is a string that can be encoded as UTF-8, so has no unpaired surrogates."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _is_label(key: object, value: object, *, may_be_number: bool) -> bool:
    if not _is_text(key):
        return False
    if isinstance(value, str):
        return value.isascii() or _is_text(value)
    return may_be_number and isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: object) -> str:
    """Return the first 80 characters of a value as quoted ASCII text, for a message."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:80].encode("ascii", "backslashreplace").decode())
