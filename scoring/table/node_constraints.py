"""Which of many nodes a pod's constraints allow: cordons, taints, node selector and required node affinity.

Nodes are looked through once for each label that some pod asks for, and once for their taints; after that a pod costs
array operations, and a pod like one before it a look into a mapping.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from runtime.kubernetes.constraints import UNSCHEDULABLE, NodeRequirement, NodeSelectorTerm, Taint
from runtime.kubernetes.objects import Node, Pod
from scoring.arrays import Bools, Int64s

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
_MOST_KEPT = 256  # different pods' answers, of one byte a node each


class NodeConstraints:
    """The constraints of some nodes, which do not change.

    Args:
        nodes: the nodes, by row.
        row_by_name: the row of each.
    """

    def __init__(self, nodes: Sequence[Node], row_by_name: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._row_by_name = row_by_name
        self._rows_by_value: dict[str, dict[str, Int64s]] = {}
        self._answers: dict[object, Bools] = {}
        rows_by_taints: dict[tuple[Taint, ...], list[int]] = defaultdict(list)
        for row, node in enumerate(nodes):
            if node.taints or node.unschedulable:
                taints = tuple(taint for taint in node.taints if taint.effect in _KEEPS_OFF)
                rows_by_taints[(*taints, UNSCHEDULABLE) if node.unschedulable else taints].append(row)
        self._rows_by_taints = {taints: np.array(rows) for taints, rows in rows_by_taints.items() if taints}

    def applies_to(self, pod: Pod) -> bool:
        """Say whether there is anything that could keep the pod off a node."""
        return bool(self._rows_by_taints or pod.node_selector) or pod.required_affinity is not None

    def allows(self, pod: Pod) -> Bools:
        """Say which nodes a pod may go to, if it fits, shape (nodes,), read-only."""
        asked = pod.tolerations, tuple(pod.node_selector.items()), pod.required_affinity
        answer = self._answers.get(asked)
        if answer is None:
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            answer = self._answer(pod)
            answer.flags.writeable = False
            self._answers[asked] = answer
        return answer

    def _answer(self, pod: Pod) -> Bools:
        allowed = np.ones(len(self._nodes), np.bool_)
        for taints, rows in self._rows_by_taints.items():
            if not all(any(each.tolerates(taint) for each in pod.tolerations) for taint in taints):
                allowed[rows] = False
        for key, value in pod.node_selector.items():
            allowed &= self._labelled(NodeRequirement(key, "In", (value,)))
        if pod.required_affinity is not None:
            some: Bools = np.zeros(len(self._nodes), np.bool_)
            for term in pod.required_affinity:
                some |= self._holds(term)
            allowed &= some
        return allowed

    def _holds(self, term: NodeSelectorTerm) -> Bools:
        holds = np.full(len(self._nodes), bool(term.labels or term.names))
        for requirement in term.labels:
            holds &= self._labelled(requirement)
        for requirement in term.names:
            named = np.zeros(len(self._nodes), np.bool_)
            named[[self._row_by_name[name] for name in requirement.values if name in self._row_by_name]] = True
            holds &= named if requirement.operator == "In" else ~named
        return holds

    def _labelled(self, requirement: NodeRequirement) -> Bools:
        holds = np.full(len(self._nodes), requirement.allows(None))
        for value, rows in self._by_value(requirement.key).items():
            holds[rows] = requirement.allows(value)
        return holds

    def _by_value(self, key: str) -> Mapping[str, Int64s]:
        """Return each value of a label with the rows of the nodes that have it."""
        found = self._rows_by_value.get(key)
        if found is None:
            rows: dict[str, list[int]] = defaultdict(list)
            for row, node in enumerate(self._nodes):
                value = node.labels.get(key)
                if value is not None:
                    rows[value].append(row)
            found = self._rows_by_value[key] = {value: np.array(each) for value, each in rows.items()}
        return found
