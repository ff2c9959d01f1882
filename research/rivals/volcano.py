"""Volcano's usage plugin with its default arguments, for comparison.

    score = (1 - CPU use) * 100 / 2 + (1 - memory use) * 100 / 2, times the plugin's weight 5

Only use reported by the node counts. Volcano excludes a node above 80 percent of either resource; here such a node
scores 0. Volcano adds fractional scores; here scores are integers, truncated before the weight. The least-requested
and balanced plugins also score, with weight 1 each.
Source: volcano-sh/volcano, pkg/scheduler/plugins/usage, with the defaults of its arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms
from scoring.table.node_table import NodeTable
from watcher.model import MetricType


@dataclass(frozen=True)
class VolcanoUsage(ScorePlugin):
    """Volcano's usage plugin.

    Attributes:
        threshold_percent: reported use of CPU or memory above which a node is excluded.
    """

    threshold_percent: float = 80.0

    name: ClassVar[str] = "VolcanoUsage"
    reads_metrics: ClassVar[bool] = True
    reads_pods: ClassVar[bool] = False  # pods do not affect the score, not even those in flight

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return CPU and memory use, percent."""
        return {"cpu": metrics.of(MetricType.CPU).average, "memory": metrics.of(MetricType.MEMORY).average}

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score, which does not depend on the pod."""
        score = MAX_NODE_SCORE - (np.minimum(node["cpu"], 100.0) + np.minimum(node["memory"], 100.0)) / 2
        fits = (node["cpu"] <= self.threshold_percent) & (node["memory"] <= self.threshold_percent)
        return {"score": np.where(fits, score.astype(np.int64), 0)[None, :].repeat(len(pods), axis=0)}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the text that explains a node's score, with the node's CPU and memory use."""
        return f"cpu {terms['cpu']:.1f}% used, memory {terms['memory']:.1f}%"
