"""Constraints that decide which nodes a pod may use: cordons, taints, node selector, node affinity, declared features.

All nodes are scanned once for their taints, and once for each label key that a pod selects by. After that, each pod
takes a few array operations, or a dictionary lookup if an earlier pod had the same constraints.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from runtime.kubernetes.constraints import UNSCHEDULABLE, NodeRequirement, NodeSelectorTerm, Taint, Toleration
from runtime.kubernetes.objects import Node, Pod
from scoring.arrays import Bools, Int64s

SOFT_EFFECT = "PreferNoSchedule"
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
        self._masks: dict[Hashable, Bools] = {}
        self._soft_taint_counts: dict[tuple[Toleration, ...], Int64s] = {}
        blocking: dict[tuple[Taint, ...], list[int]] = defaultdict(list)
        soft: dict[tuple[Taint, ...], list[int]] = defaultdict(list)
        cordoned: list[int] = []
        for row, node in enumerate(nodes):
            if node.taints:
                blocking[tuple([taint for taint in node.taints if taint.effect in _BLOCKING_EFFECTS])].append(row)
                soft[tuple([taint for taint in node.taints if taint.effect == SOFT_EFFECT])].append(row)
            if node.unschedulable:
                cordoned.append(row)
        self._rows_by_taints = {taints: np.array(rows) for taints, rows in blocking.items() if taints}
        self._rows_by_soft_taints = {taints: np.array(rows) for taints, rows in soft.items() if taints}
        self._cordoned = np.array(cordoned, np.int64)

    def applies_to(self, pod: Pod) -> bool:
        """Return whether any constraint could exclude a node for the pod."""
        has_rules = selects_nodes(pod) or bool(pod.scheduling.node_features)
        return has_rules or bool(self._rows_by_taints or self._cordoned.size)

    def allows(self, pod: Pod) -> Bools:
        """Return a read-only mask of the nodes that the pod's constraints allow, shape (nodes,)."""
        features = pod.scheduling.node_features
        key = pod.tolerations, tuple(pod.node_selector.items()), pod.required_affinity, features
        return self._cached(key, lambda: self._allowed(pod))

    def uncordoned(self, pod: Pod) -> Bools | None:
        """Return a mask of the nodes that are not cordoned, shape (nodes,); None if the pod may use all nodes."""
        if not self._cordoned.size or _tolerates(pod.tolerations, UNSCHEDULABLE):
            return None
        return self._cached("uncordoned", self._not_cordoned)

    def tolerated(self, pod: Pod) -> Bools | None:
        """Return a mask of the nodes whose taints NoSchedule and NoExecute the pod tolerates, shape (nodes,).

        The result is None if no node has such taints. A cordon is not counted as a taint.
        """
        if not self._rows_by_taints:
            return None
        return self._cached(("taints", pod.tolerations), lambda: self._tolerated(pod.tolerations))

    def selected(self, pod: Pod) -> Bools | None:
        """Return a mask of the nodes that the pod's node selector and required node affinity select, shape (nodes,).

        The result is None if the pod has neither.
        """
        if not selects_nodes(pod):
            return None
        key = "selected", tuple(pod.node_selector.items()), pod.required_affinity
        return self._cached(key, lambda: self._selected(pod))

    def any_term(self, terms: tuple[NodeSelectorTerm, ...]) -> Bools:
        """Return a read-only mask of the nodes that match at least one term, shape (nodes,); cached by the terms."""
        return self._cached(("terms", terms), lambda: self.matching_any(terms))

    def soft_taint_counts(self, tolerations: tuple[Toleration, ...]) -> Int64s | None:
        """Return the number of each node's taints PreferNoSchedule that are not tolerated, shape (nodes,), read-only.

        The result is None if no node has such taints.
        """
        if not self._rows_by_soft_taints:
            return None
        counts = self._soft_taint_counts.get(tolerations)
        if counts is None:
            if len(self._soft_taint_counts) >= _MAX_CACHED_MASKS:
                self._soft_taint_counts.clear()
            counts = np.zeros(len(self._nodes), np.int64)
            for taints, rows in self._rows_by_soft_taints.items():
                counts[rows] = sum(not _tolerates(tolerations, taint) for taint in taints)
            counts.flags.writeable = False
            self._soft_taint_counts[tolerations] = counts
        return counts

    def _cached(self, key: Hashable, compute: Callable[[], Bools]) -> Bools:
        mask = self._masks.get(key)
        if mask is None:
            if len(self._masks) >= _MAX_CACHED_MASKS:
                self._masks.clear()
            mask = compute()
            mask.flags.writeable = False
            self._masks[key] = mask
        return mask

    def _allowed(self, pod: Pod) -> Bools:
        allowed = self._tolerated(pod.tolerations)
        if not _tolerates(pod.tolerations, UNSCHEDULABLE):
            allowed[self._cordoned] = False
        allowed &= self._selected(pod)
        features = pod.scheduling.node_features
        if features:
            allowed &= [node.declared_features.issuperset(features) for node in self._nodes]
        return allowed

    def _not_cordoned(self) -> Bools:
        mask = np.ones(len(self._nodes), np.bool_)
        mask[self._cordoned] = False
        return mask

    def _tolerated(self, tolerations: tuple[Toleration, ...]) -> Bools:
        allowed = np.ones(len(self._nodes), np.bool_)
        for taints, rows in self._rows_by_taints.items():
            if not all(_tolerates(tolerations, taint) for taint in taints):
                allowed[rows] = False
        return allowed

    def _selected(self, pod: Pod) -> Bools:
        selected = np.ones(len(self._nodes), np.bool_)
        for key, value in pod.node_selector.items():
            selected &= self._with_label(NodeRequirement(key, "In", (value,)))
        if pod.required_affinity is not None:
            selected &= self.matching_any(pod.required_affinity)
        return selected

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


def selects_nodes(pod: Pod) -> bool:
    """Return whether a pod has a node selector or required node affinity."""
    return bool(pod.node_selector) or pod.required_affinity is not None


def _tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)
