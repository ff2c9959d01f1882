"""What is wrong with metrics, and what is done about it. Pure: a snapshot in, a clean snapshot and findings out."""

import math
from collections.abc import Iterator, Mapping

from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics

_MAX_NAME_LENGTH = 253  # of a Kubernetes node
_SLACK_PERCENT = 5.0  # rates over counters overshoot their range a little; more than this is another unit


def clean(nodes: Mapping[str, NodeMetrics], window: str) -> tuple[dict[str, NodeMetrics], list[Finding]]:
    """Keep what may be published.

    Not a number and infinite values are dropped; values a little outside 0 to 100 percent are clamped and those far
    outside dropped; so are nodes with impossible names and nodes that are left without metrics.

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
        metrics = tuple(_clean_metrics(name, node.metrics, window, findings))
        if metrics:
            same = len(metrics) == len(node.metrics) and all(map(lambda a, b: a is b, metrics, node.metrics))
            kept[name] = node if same else NodeMetrics(metrics, node.tags, node.metadata)
    return kept, findings


def _clean_metrics(node: str, metrics: tuple[Metric, ...], window: str, findings: list[Finding]) -> Iterator[Metric]:
    for metric in metrics:
        value = metric.value
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


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_NAME_LENGTH and name.isprintable() and not set(name) & set(" \"'\\/")
