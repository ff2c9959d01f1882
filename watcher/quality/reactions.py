"""Actions on findings: mark nodes as suspect, drop metrics, and merge findings that concern most nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from watcher.findings import Action, Finding
from watcher.model import NodeMetrics, WatcherMetrics
from watcher.settings import Reaction

_MANY = 5  # minimum number of affected nodes for a merged finding, with more than half of all nodes
ACTION_OF = {Reaction.REPORT: Action.REPORTED, Reaction.MARK: Action.MARKED, Reaction.DROP: Action.DROPPED}


def apply_actions(snapshots: Mapping[str, WatcherMetrics], findings: Iterable[Finding]) -> dict[str, WatcherMetrics]:
    """Return the snapshots after the findings' actions: suspect nodes are marked, bad metrics are dropped.

    A marked node has the kinds of its findings in its metadata under ``suspect``. A finding applies to all windows; a
    finding without a node applies to all nodes, and a finding without a metric to all metrics. Nodes without remaining
    metrics, and windows without remaining nodes, are left out.

    Args:
        snapshots: the snapshots by window; they are not modified.
        findings: the findings.
    """
    marked: dict[str, set[str]] = defaultdict(set)
    dropped: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.action is Action.MARKED:
            marked[finding.node].add(finding.kind)
        elif finding.action is Action.DROPPED:
            dropped[finding.node].add(finding.metric)
    if not marked and not dropped:
        return dict(snapshots)
    # Only copy the affected nodes; the key "" means all nodes, or all metrics.
    judged = {}
    affected = marked.keys() | dropped.keys()
    for window, metrics in snapshots.items():
        data = dict(metrics.data)
        for name in metrics.data if "" in affected else affected & data.keys():
            remaining = _without(data[name], dropped[""] | dropped[name])
            kinds = marked[""] | marked[name]
            if not remaining.metrics:
                del data[name]
            elif kinds:
                data[name] = replace(remaining, metadata={**remaining.metadata, "suspect": ",".join(sorted(kinds))})
            else:
                data[name] = remaining
        if data:
            judged[window] = replace(metrics, data=data)
    return judged


def _without(node: NodeMetrics, names: set[str]) -> NodeMetrics:
    if not names:
        return node
    return replace(
        node, metrics=tuple(metric for metric in node.metrics if "" not in names and metric.name not in names)
    )


def merge_common(findings: Iterable[Finding], nodes: int) -> list[Finding]:
    """Merge equal findings that concern at least five nodes and more than half of all nodes into one finding.

    Findings are equal if they have the same kind, window, metric and action.

    Args:
        findings: the findings, each about one node.
        nodes: the number of all nodes.
    """
    groups: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.kind, finding.window, finding.metric, finding.action].append(finding)
    result: list[Finding] = []
    for group in groups.values():
        if is_most(len(group), nodes):
            message = f"{len(group)} of {nodes} nodes, for example: {group[0].message}"
            since = min(finding.since for finding in group)
            result.append(replace(group[0], node="", message=message, since=since))
        else:
            result += group
    return result


def is_most(count: int, nodes: int) -> bool:
    """Return whether a count of affected nodes is at least five, and more than half of all nodes."""
    return count >= _MANY and 2 * count > nodes
