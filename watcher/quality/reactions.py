"""What is done about findings: nodes are marked, metrics dropped, and what most nodes share becomes one finding."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from watcher.findings import Action, Finding
from watcher.model import NodeMetrics, WatcherMetrics
from watcher.settings import Reaction

_MANY = 5  # nodes, and more than half of them all, are one finding
DONE = {Reaction.REPORT: Action.REPORTED, Reaction.MARK: Action.MARKED, Reaction.DROP: Action.DROPPED}


def act(snapshots: Mapping[str, WatcherMetrics], findings: Iterable[Finding]) -> dict[str, WatcherMetrics]:
    """Mark and drop what the findings say. One without a node is about all, and so is one without a metric."""
    marked: dict[str, set[str]] = defaultdict(set)
    dropped: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.action is Action.MARKED:
            marked[finding.node].add(finding.kind)
        elif finding.action is Action.DROPPED:
            dropped[finding.node].add(finding.metric)
    if not marked and not dropped:
        return dict(snapshots)
    judged = {}
    named = marked.keys() | dropped.keys()
    for window, metrics in snapshots.items():
        data = dict(metrics.data)
        for name in metrics.data if "" in named else named & data.keys():
            left = _without(data[name], dropped[""] | dropped[name])
            kinds = marked[""] | marked[name]
            if not left.metrics:
                del data[name]
            elif kinds:
                data[name] = replace(left, metadata={**left.metadata, "suspect": ",".join(sorted(kinds))})
            else:
                data[name] = left
        if data:
            judged[window] = replace(metrics, data=data)
    return judged


def _without(node: NodeMetrics, names: set[str]) -> NodeMetrics:
    if not names:
        return node
    return replace(node, metrics=tuple(each for each in node.metrics if "" not in names and each.name not in names))


def together(findings: Iterable[Finding], nodes: int) -> list[Finding]:
    """Make one finding of those of one kind about most nodes."""
    groups: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.kind, finding.window, finding.metric, finding.action].append(finding)
    result: list[Finding] = []
    for group in groups.values():
        if is_most(len(group), nodes):
            message = f"{len(group)} of {nodes} nodes, for one: {group[0].message}"
            since = min(finding.since for finding in group)
            result.append(replace(group[0], node="", message=message, since=since))
        else:
            result += group
    return result


def is_most(count: int, nodes: int) -> bool:
    """Return whether so many nodes are most of them."""
    return count >= _MANY and 2 * count > nodes
