"""NodeAffinity: node selectors, required and preferred node affinity.

    raw   = sum of the weights of the preferred terms that match the node
    score = trunc(100 * raw / highest raw)               0 for all nodes if every raw is 0

Source: the plugin nodeaffinity of kube-scheduler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.constraints import NodeSelectorTerm
from runtime.kubernetes.objects import Pod
from scoring.arguments import CheckedArguments
from scoring.arrays import Bools, Int64s
from scoring.normalization import scaled_to_highest
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable

_NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
_NOT_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
_NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_CONFLICT = "pod affinity terms conflict"


@dataclass(frozen=True)
class NodeAffinity(CheckedArguments, WithoutNodeTerms, FilterPlugin):
    """Arguments of NodeAffinity.

    Attributes:
        added_required: terms of required node affinity; at least one must match for every pod. None for no such terms.
        added_preferred: weights and terms of preferred node affinity that every pod has in addition to its own.
    """

    added_required: tuple[NodeSelectorTerm, ...] | None = None
    added_preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()

    name: ClassVar[str] = "NodeAffinity"
    normalizes: ClassVar[bool] = True
    depends_on: ClassVar[Dependence] = Dependence.NODES
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_CHANGED}
    )

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return which nodes the pod and the arguments select; None if neither selects nodes."""
        constraints = nodes.rows.constraints
        selected = constraints.selected(pod)
        if self.added_required is None and selected is None:
            return None
        # If every term names nodes, kube-scheduler leaves all other nodes out before the filters run.
        names = _named(pod.required_affinity)
        if names is not None:
            if not names:
                return unresolvable_everywhere(np.zeros(len(nodes), np.bool_)[rows], _CONFLICT)
            named = np.zeros(len(nodes), np.bool_)
            named[[nodes.rows.row_by_name[name] for name in names if name in nodes.rows.row_by_name]] = True
            named = named[rows]
        enforced = None if self.added_required is None else constraints.any_term(self.added_required)[rows]
        allowed = np.ones(len(nodes), np.bool_)[rows] if selected is None else selected[rows]
        if names is None and enforced is None:
            return unresolvable_everywhere(allowed, _NOT_SELECTED)

        def why(index: int) -> tuple[str, ...]:
            if names is not None and not named[index]:
                return (_NOT_NAMED,)
            return (_NOT_SELECTED if enforced is None or enforced[index] else _NOT_ENFORCED,)

        allowed = allowed if enforced is None else allowed & enforced
        return FilterVerdict(allowed, why, ~allowed)

    def skips(self, pod: Pod) -> bool:
        """Return true for a pod without preferred node affinity, unless the arguments add some."""
        return not (self.added_preferred or pod.scheduling.preferred_node_terms)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the sum of the weights of the terms that match each node."""
        sums = np.zeros((len(pods), len(nodes)), np.int64)
        for index, pod in enumerate(pods):
            for weight, term in (*self.added_preferred, *pod.scheduling.preferred_node_terms):
                matching: Bools = nodes.rows.constraints.any_term((term,))
                sums[index] += weight * matching
        return {"score": sums[:, rows]}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, shape (nodes,)."""
        return scaled_to_highest(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the sum of the weights as a sentence."""
        return f"preferred node affinity of weight {terms['score']}"


def _named(terms: tuple[NodeSelectorTerm, ...] | None) -> set[str] | None:
    """Return the names of the nodes that the terms allow; None if a term does not name nodes."""
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        required = [set(requirement.values) for requirement in term.names if requirement.operator == "In"]
        if not required:
            return None
        names |= set.intersection(*required)
    return names
