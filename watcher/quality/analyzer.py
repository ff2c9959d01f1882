"""What is wrong with values by themselves, and what is done about it: a fetch in, clean metrics and findings out. Pure.

What only shows against other fetches is found in ``anomalies``.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any

from runtime import masking
from watcher.findings import Action, Finding, Kind
from watcher.model import AVERAGES, SLACK_PERCENT, Metric, NodeMetrics, Operator

# What a node's metrics are like beside their numbers: what was good once is not looked at again, as the nodes of a
# cluster are alike.
_Shape = tuple[tuple[object, ...], ...]
_shape_of = attrgetter("name", "type", "operator", "rollup", "value.__class__")

_MAX_NAME_LENGTH = 253  # of a Kubernetes node
_SHAPES = 8  # kinds of nodes that are remembered as good; more cost time and nothing else
_ROUNDING_PERCENT = 1e-6  # a sum of floats may miss 0 by so much


def clean(nodes: Mapping[str, NodeMetrics], window: str) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Keep what may be published.

    What is no number or not finite is dropped; values a little outside 0 to 100 percent are clamped and those far
    outside dropped; so are deviations without their average, labels that are not text, nodes with impossible names and
    nodes that are left without metrics. Of two metrics with one name and operator the first stays.

    Args:
        nodes: node name to metrics, as fetched.
        window: the window's duration, for the findings.
    """
    kept: dict[str, NodeMetrics] = {}
    findings: list[Finding] = []
    good: list[_Shape] = []
    named = _are_names(nodes)
    suspect = masking.has_secret(" ".join(map(str, nodes)))  # a source may repeat a token as a label
    for name, node in nodes.items():
        if not (named or _is_name(name)) or (suspect and masking.has_secret(name)):
            message = f"{_shown(name)} is no node name"
            findings.append(Finding(Kind.BAD_NODE_NAME, message, window, action=Action.DROPPED))
            continue
        metrics = _clean_metrics(name, node.metrics, window, findings, good)
        if metrics:
            tags, metadata = node.tags, node.metadata
            if tags.__class__ is not dict or tags:  # quicker than a look where there are none
                tags = _clean_labels(name, tags, window, findings, may_be_numbers=False)
            if metadata.__class__ is not dict or metadata:
                metadata = _clean_labels(name, metadata, window, findings, may_be_numbers=True)
            same = metrics is node.metrics and tags is node.tags and metadata is node.metadata
            kept[name] = node if same else NodeMetrics(metrics, tags, metadata)
    return kept, findings


def limit(nodes: Mapping[str, NodeMetrics], window: str, most: int) -> tuple[Mapping[str, NodeMetrics], list[Finding]]:
    """Keep at most so many nodes, the first by name, so that the same ones stay; with a finding where some go.

    Args:
        nodes: node name to metrics.
        window: the window's duration, for the finding.
        most: how many may stay.
    """
    if len(nodes) <= most:
        return nodes, []
    kept = {name: nodes[name] for name in sorted(nodes, key=str)[:most]}
    message = f"there are {len(nodes)} nodes: all but the first {most} by name are dropped (watch.max_nodes)"
    return kept, [Finding(Kind.TOO_MANY_NODES, message, window, action=Action.DROPPED)]


def _clean_metrics(
    node: str, metrics: tuple[Metric, ...], window: str, findings: list[Finding], good: list[_Shape]
) -> tuple[Metric, ...]:
    """Return what may be published of a node's metrics: the same tuple where that is all of them.

    Args:
        node: its name.
        metrics: as fetched.
        window: for the findings.
        findings: what is found is added here.
        good: the shapes that were good, the newest last: to compare is quicker than to hash, and neighbours are alike.
    """
    shape = tuple(map(_shape_of, metrics))
    if (good and shape == good[-1]) or shape in good:
        for metric in metrics:
            if not 0 <= metric.value <= 100:
                break
        else:
            return metrics
    clean = _without_lone_deviations(node, metrics, [*_good_metrics(node, metrics, window, findings)], window, findings)
    if len(clean) != len(metrics) or not all(map(lambda a, b: a is b, clean, metrics)):
        return clean
    good.append(shape)
    del good[:-_SHAPES]
    return metrics


def _good_metrics(node: str, metrics: tuple[Metric, ...], window: str, findings: list[Finding]) -> Iterator[Metric]:
    seen: set[tuple[str, str]] = set()
    for metric in metrics:
        value: Any = metric.value  # a provider may be anybody's
        texts = metric.name, metric.type, metric.operator, metric.rollup
        if not (isinstance(value, float | int) and all(map(_is_text, texts))):
            message = f"{_shown(metric)} is no metric: names must be text, and values numbers"
            findings.append(Finding(Kind.BAD_VALUE, message, window, node, action=Action.DROPPED))
            continue
        if (metric.name, metric.operator) in seen:
            message = f"{metric.operator} is given twice; the first is used"
            findings.append(Finding(Kind.DUPLICATE, message, window, node, metric.name, Action.MERGED))
            continue
        seen.add((metric.name, metric.operator))
        if 0 <= value <= 100:
            yield metric
        elif not math.isfinite(value):
            message = f"{metric.operator} is {value}"
            findings.append(Finding(Kind.NOT_FINITE, message, window, node, metric.name, Action.DROPPED))
        elif -SLACK_PERCENT <= value <= 100 + SLACK_PERCENT:
            if value < -_ROUNDING_PERCENT:  # above 100 a node is full either way; below 0 nobody knows how idle it is
                message = f"{metric.operator} is {value:g} percent of capacity and counts as 0"
                findings.append(Finding(Kind.OUT_OF_RANGE, message, window, node, metric.name, Action.CLAMPED))
            yield Metric(metric.name, metric.type, metric.operator, metric.rollup, min(100.0, max(0.0, value)))
        else:
            message = f"{metric.operator} is {value:g} percent of capacity; is the query's scale right?"
            findings.append(Finding(Kind.OUT_OF_RANGE, message, window, node, metric.name, Action.DROPPED))


def _without_lone_deviations(
    node: str, fetched: tuple[Metric, ...], metrics: list[Metric], window: str, findings: list[Finding]
) -> tuple[Metric, ...]:
    """Drop deviations whose average is missing: a plugin reads such a node as idle, with an average of 0.

    Where the average was fetched but could not be used, that has been said already.
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
    """Drop labels that readers could not read; return the same mapping where all are good."""
    if isinstance(labels, Mapping):
        bad = {key: value for key, value in labels.items() if not _is_label(key, value, may_be_number=may_be_numbers)}
        good = {key: value for key, value in labels.items() if key not in bad} if bad else labels
    else:
        bad, good = {"": labels}, {}
    if bad:
        shown = ", ".join(f"{_shown(key)}: {_shown(value)}" for key, value in islice(bad.items(), 3))
        message = f"labels that are not text are left out: {shown}{', ...' if len(bad) > 3 else ''}"
        findings.append(Finding(Kind.BAD_LABEL, message, window, node, action=Action.DROPPED))
    return good


def _are_names(nodes: Mapping[str, NodeMetrics]) -> bool:
    """Return whether all nodes can have their names, in less time than one by one."""
    try:
        text = "".join(nodes)
    except TypeError:  # one is no text
        return False
    most = max(map(len, nodes), default=0)
    return 0 < most <= _MAX_NAME_LENGTH and "" not in nodes and _fits_names(text)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_LENGTH and _fits_names(name)


def _fits_names(text: str) -> bool:
    return text.isprintable() and not any(character in text for character in " \"'\\/")


def _is_text(value: object) -> bool:
    """Return whether it is text that can be sent: no half of a surrogate pair."""
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
    """Return what a message may show of anything."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:80].encode("ascii", "backslashreplace").decode())
