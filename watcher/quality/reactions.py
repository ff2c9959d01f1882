"""Actions on findings: mark nodes as suspect, and merge findings that concern most nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from watcher.findings import Action, Finding
from watcher.model import WatcherMetrics

_MANY = 5  # minimum number of affected nodes for a merged finding, with more than half of all nodes


def mark_suspects(snapshots: Mapping[str, WatcherMetrics], findings: Iterable[Finding]) -> dict[str, WatcherMetrics]:
    """Return the snapshots with ``suspect`` in the metadata of marked nodes: the kinds of findings about a node.

    A finding applies to all windows; a finding without a node applies to all nodes.

    Args:
        snapshots: the snapshots by window; they are not modified.
        findings: the findings.
    """
    marked: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.action is Action.MARKED:
            marked[finding.node].add(finding.kind)
    if not marked:
        return dict(snapshots)
    of_all = marked.pop("", set())
    judged = {}
    for window, metrics in snapshots.items():
        data = dict(metrics.data)
        for name in metrics.data if of_all else marked.keys() & data.keys():  # only affected nodes are copied
            kinds = ",".join(sorted(of_all | marked[name]))
            data[name] = replace(data[name], metadata={**data[name].metadata, "suspect": kinds})
        judged[window] = replace(metrics, data=data)
    return judged


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
