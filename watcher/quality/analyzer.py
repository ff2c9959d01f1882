"""What is wrong with values by themselves, and what is done about it: a fetch in, clean metrics and findings out. Pure.

What only shows against other fetches is found in ``suspicion``.
"""

import math
from collections.abc import Iterator, Mapping

from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, Operator

_MAX_NAME_LENGTH = 253  # of a Kubernetes node
_LEVELS = {Operator.AVG, Operator.LATEST}
_SLACK_PERCENT = 5.0  # rates over counters overshoot their range a little; more than this is another unit


def clean(nodes: Mapping[str, NodeMetrics], window: str) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Keep what may be published.

    Not a number and infinite values are dropped; values a little outside 0 to 100 percent are clamped and those far
    outside dropped; so are deviations without their average, nodes with impossible names and nodes that are left
    without metrics. Of two metrics with one name and operator the first stays.

    Args:
        nodes: node name to metrics, as fetched.
        window: the window's duration, for the findings.
    """
    kept: dict[str, NodeMetrics] = {}
    findings: list[Finding] = []
    for name, node in nodes.items():
        if not _is_name(name):
            shown = name[:80].encode("ascii", "backslashreplace").decode()
            findings.append(Finding(Kind.BAD_NODE_NAME, f"{shown!r} is no node name", window, action="dropped"))
            continue
        metrics = _without_lone_deviations(
            name, [*_clean_metrics(name, node.metrics, window, findings)], window, findings
        )
        if metrics:
            same = len(metrics) == len(node.metrics) and all(map(lambda a, b: a is b, metrics, node.metrics))
            kept[name] = node if same else NodeMetrics(metrics, node.tags, node.metadata)
    return kept, findings


def _clean_metrics(node: str, metrics: tuple[Metric, ...], window: str, findings: list[Finding]) -> Iterator[Metric]:
    seen: set[tuple[str, str]] = set()
    for metric in metrics:
        value = metric.value
        if (metric.name, metric.operator) in seen:
            message = f"{metric.operator} is given twice; the first is used"
            findings.append(Finding(Kind.DUPLICATE, message, window, node, metric.name, "merged"))
            continue
        seen.add((metric.name, metric.operator))
        if 0 <= value <= 100:
            yield metric
        elif not math.isfinite(value):
            message = f"{metric.operator} is {value}"
            findings.append(Finding(Kind.NOT_FINITE, message, window, node, metric.name, "dropped"))
        elif -_SLACK_PERCENT <= value <= 100 + _SLACK_PERCENT:
            yield Metric(metric.name, metric.type, metric.operator, metric.rollup, min(100.0, max(0.0, value)))
        else:
            message = f"{metric.operator} is {value:g} percent of capacity; is the query's scale right?"
            findings.append(Finding(Kind.OUT_OF_RANGE, message, window, node, metric.name, "dropped"))


def _without_lone_deviations(
    node: str, metrics: list[Metric], window: str, findings: list[Finding]
) -> tuple[Metric, ...]:
    """Drop deviations whose average is missing: a plugin reads such a node as idle, with an average of 0."""
    levels = {metric.name for metric in metrics if metric.operator in _LEVELS}
    lone = [metric for metric in metrics if metric.operator == Operator.STD and metric.name not in levels]
    findings += [
        Finding(Kind.NO_AVERAGE, "there is a deviation but no average", window, node, metric.name, "dropped")
        for metric in lone
    ]
    return tuple(metric for metric in metrics if metric not in lone) if lone else tuple(metrics)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_NAME_LENGTH and name.isprintable() and not set(name) & set(" \"'\\/")
