"""TaintToleration: no pods on nodes with taints that they do not tolerate, and few on nodes with soft taints.

The filter counts the effects NoSchedule and NoExecute, the score the effect PreferNoSchedule:

    raw   = number of the node's soft taints that the pod does not tolerate
    score = 100 - trunc(100 * raw / highest raw)          100 for all nodes if every raw is 0

Source: the plugin tainttoleration of kube-scheduler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.normalization import MAX_NODE_SCORE, inverted
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class TaintToleration(WithoutNodeTerms, FilterPlugin):
    """Plugin TaintToleration, which has no arguments."""

    name: ClassVar[str] = "TaintToleration"
    normalizes: ClassVar[bool] = True
    depends_on: ClassVar[Dependence] = Dependence.NODES
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_CHANGED}
    )

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes whose taints NoSchedule and NoExecute the pod tolerates; None if no node has such taints."""
        allowed = nodes.rows.constraints.tolerated(pod)
        return None if allowed is None else unresolvable_everywhere(allowed[rows], "node(s) had untolerated taint(s)")

    def equal_score(self, pod: Pod, nodes: NodeTable) -> int | None:
        """Return 100 if no node has soft taints."""
        return None if nodes.rows.constraints.soft_taint_counts(pod.tolerations) is not None else MAX_NODE_SCORE

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the number of soft taints that each pod does not tolerate."""
        counts = [nodes.rows.constraints.soft_taint_counts(pod.tolerations) for pod in pods]
        none = np.zeros(len(nodes), np.int64)
        return {"score": np.array([(none if count is None else count)[rows] for count in counts])}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, shape (nodes,)."""
        return inverted(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the number of soft taints as a sentence."""
        return f"{terms['score']} taints PreferNoSchedule that the pod does not tolerate"
