"""Constraints that decide which nodes a pod may use: cordons, taints, node selector, required node affinity.

All nodes are scanned once for their taints, and once for each label key that a pod selects by. After that, each pod
takes a few array operations, or a dictionary lookup if an earlier pod had the same constraints.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from runtime.kubernetes.constraints import UNSCHEDULABLE, NodeRequirement, NodeSelectorTerm, Taint
from runtime.kubernetes.objects import Node, Pod
from scoring.arrays import Bools, Int64s

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_MAX_CACHED_MASKS = 256  # each takes one byte a node


class NodeConstraints:
    """Constraints that a fixed set of nodes puts on pods, such as taints.

    Args:
        nodes: nodes, by row.
        row_by_name: row of each node name.
    """

    def __init__(self, nodes: Sequence[Node], row_by_name: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._row_by_name = row_by_name
        self._rows_by_value: dict[str, dict[str, Int64s]] = {}
        self._masks: dict[object, Bools] = {}
        rows_by_taints: dict[tuple[Taint, ...], list[int]] = defaultdict(list)
        for row, node in enumerate(nodes):
            if node.taints or node.unschedulable:
                taints = tuple(taint for taint in node.taints if taint.effect in _BLOCKING_EFFECTS)
                rows_by_taints[(*taints, UNSCHEDULABLE) if node.unschedulable else taints].append(row)
        self._rows_by_taints = {taints: np.array(rows) for taints, rows in rows_by_taints.items() if taints}

    def applies_to(self, pod: Pod) -> bool:
        """Return whether any constraint could exclude a node for the pod."""
        return bool(self._rows_by_taints or pod.node_selector) or pod.required_affinity is not None

    def allows(self, pod: Pod) -> Bools:
        """Return a read-only mask of the nodes that the pod's constraints allow, shape (nodes,)."""
        constraints = pod.tolerations, tuple(pod.node_selector.items()), pod.required_affinity
        mask = self._masks.get(constraints)
        if mask is None:
            if len(self._masks) >= _MAX_CACHED_MASKS:
                self._masks.clear()
            mask = self._allowed(pod)
            mask.flags.writeable = False
            self._masks[constraints] = mask
        return mask

    def _allowed(self, pod: Pod) -> Bools:
        allowed = np.ones(len(self._nodes), np.bool_)
        for taints, rows in self._rows_by_taints.items():
            if not all(any(toleration.tolerates(taint) for toleration in pod.tolerations) for taint in taints):
                allowed[rows] = False
        for key, value in pod.node_selector.items():
            allowed &= self._with_label(NodeRequirement(key, "In", (value,)))
        if pod.required_affinity is not None:
            allowed &= self.matching_any(pod.required_affinity)
        return allowed

    def matching_any(self, terms: Iterable[NodeSelectorTerm]) -> Bools:
        """Return a mask of the nodes that match at least one term, shape (nodes,)."""
        matching: Bools = np.zeros(len(self._nodes), np.bool_)
        for term in terms:
            matching |= self._matching(term)
        return matching

    def _matching(self, term: NodeSelectorTerm) -> Bools:
        matching = np.full(len(self._nodes), bool(term.labels or term.names))  # an empty term matches no node
        for requirement in term.labels:
            matching &= self._with_label(requirement)
        for requirement in term.names:
            named = np.zeros(len(self._nodes), np.bool_)
            named[[self._row_by_name[name] for name in requirement.values if name in self._row_by_name]] = True
            matching &= named if requirement.operator == "In" else ~named
        return matching

    def _with_label(self, requirement: NodeRequirement) -> Bools:
        matching = np.full(len(self._nodes), requirement.allows(None))
        for value, rows in self._by_value(requirement.key).items():
            matching[rows] = requirement.allows(value)
        return matching

    def _by_value(self, key: str) -> Mapping[str, Int64s]:
        """Return, for each value of a label, the rows of the nodes with that value; cached by label key."""
        rows_by_value = self._rows_by_value.get(key)
        if rows_by_value is None:
            listed: dict[str, list[int]] = defaultdict(list)
            for row, node in enumerate(self._nodes):
                value = node.labels.get(key)
                if value is not None:
                    listed[value].append(row)
            rows_by_value = self._rows_by_value[key] = {value: np.array(rows) for value, rows in listed.items()}
        return rows_by_value
