"""Feasible nodes of a pod: nodes that pass a profile's filters, with and without the pods nominated to each node.

Source: ``RunFilterPluginsWithNominatedPods`` of kube-scheduler's framework.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.scheduling_rules import NO_RULES
from scoring.arrays import Bools
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.failures import blaming
from scoring.plugins.filtering import FilterPlugin, FilterVerdict, verdict_of
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class Feasibility:
    """Result of all filters for a pod.

    Attributes:
        feasible: mask of the nodes that passed all filters, shape (rows,).
        verdicts: verdict of each filter that refused a node, by its name, in the order of the filters. Filters after
            the one that refused the last node are left out.
    """

    feasible: Bools
    verdicts: Mapping[str, FilterVerdict]


def run_filters(filters: Sequence[FilterPlugin], pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> Feasibility:
    """Return the nodes that pass all filters, with the pods that are nominated to them and without.

    Args:
        filters: filter plugins in order.
        pod: pending pod.
        nodes: whole node table.
        rows: rows to decide on, in the order of the result; by default all.
    """
    result = _run(filters, pod, nodes, rows)
    for row, others in _nominated(pod, nodes).items():
        if isinstance(rows, slice):
            index = row
        else:
            indices = np.flatnonzero(rows == row)
            if not indices.size:
                continue
            index = int(indices[0])
        if not result.feasible[index] or not _may_conflict(pod, others):
            continue
        # Each node is checked with the pods that are nominated to it, as if they ran there.
        plan = nodes.copy()
        for other in others:
            plan.assume(other, nodes.names[row])
        checked = _run([each for each in filters if not each.counts_nominated], pod, plan, np.array([row]))
        if not checked.feasible[0]:
            result = _without(result, index, checked.verdicts)
    return result


def _run(filters: Sequence[FilterPlugin], pod: Pod, nodes: NodeTable, rows: Rows) -> Feasibility:
    feasible = np.ones(len(nodes) if isinstance(rows, slice) else len(rows), np.bool_)
    verdicts: dict[str, FilterVerdict] = {}
    for each in filters:
        with blaming(each.name, "Filter"):
            verdict = verdict_of(each, pod, nodes, rows)
        if verdict is None:
            continue
        passed = feasible & verdict.allowed
        if passed.all():
            continue
        verdicts[each.name] = verdict
        feasible = passed
        if not feasible.any():
            break
    return Feasibility(feasible, verdicts)


def _nominated(pod: Pod, nodes: NodeTable) -> Mapping[int, Sequence[Pod]]:
    """Return the pods that are nominated to nodes and whose priority is not below that of the pod, by row."""
    by_row: dict[int, list[Pod]] = {}
    for uid, (name, other) in nodes.occupancy.nominated.items():
        if uid != pod.uid and other.priority >= pod.priority:
            by_row.setdefault(nodes.row(name), []).append(other)
    return by_row


def _may_conflict(pod: Pod, others: Sequence[Pod]) -> bool:
    """Return whether any pod has scheduling rules; without rules only requests matter, which the filter counts."""
    return any(each.scheduling is not NO_RULES for each in (pod, *others))


def _without(result: Feasibility, index: int, verdicts: Mapping[str, FilterVerdict]) -> Feasibility:
    """Return a result in which one more node is refused; ``verdicts`` are those on this node alone."""
    (name, verdict), *_ = verdicts.items()
    allowed = np.ones_like(result.feasible)
    allowed[index] = False
    reasons = verdict.reasons(0)
    extra = FilterVerdict(allowed, lambda _: reasons)
    return Feasibility(result.feasible & allowed, {**result.verdicts, f"{name} with nominated pods": extra})
