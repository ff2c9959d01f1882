"""PodState: prefer nodes with terminating pods to nodes with nominated pods.

    raw = terminating pods - nominated pods

rescaled linearly to 0..100 over the nodes. Source: sigs.k8s.io/scheduler-plugins, pkg/podstate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import rescaled
from scoring.plugins.base import Rows, ScorePlugin, Terms
from scoring.table.node_table import NodeTable


@dataclass(frozen=True)
class PodState(ScorePlugin):
    """Plugin PodState, which has no arguments."""

    name: ClassVar[str] = "PodState"
    normalizes: ClassVar[bool] = True

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return the number of terminating and of nominated pods of each node."""
        return {"terminating": nodes.terminating_counts, "nominated": nodes.nominated_counts}

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score, which is the same for every pod."""
        return {"score": node["terminating"] - node["nominated"]}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, shape (nodes,)."""
        return rescaled(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the numbers of terminating and of nominated pods as a sentence."""
        return f"{terms['terminating']} pods leaving, {terms['nominated']} nominated"
