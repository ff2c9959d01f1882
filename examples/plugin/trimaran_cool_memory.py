"""CoolMemory: prefer nodes that use little of their memory, and keep a share of each node unrequested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from runtime.kubernetes.pod_demand import in_tree_requests
from scoring import FilterPlugin, FilterVerdict, MetricsTable, NodeTable, Pod, Rows, ScorePlugin, Terms
from scoring.arguments import Between


@dataclass(frozen=True)
class CoolMemory(ScorePlugin, FilterPlugin):
    """Score: 100 minus the percent of memory in use, 0 above ``target_percent`` and for unmeasured nodes.

    Filter: nodes on which less than ``spare_percent`` of the memory would stay unrequested.
    """

    target_percent: Annotated[float, Between(0, 100)] = 80.0
    spare_percent: Annotated[float, Between(0, 100)] = 0.0

    name: ClassVar[str] = "CoolMemory"
    reads_metrics: ClassVar[bool] = True
    reads_pods: ClassVar[bool] = False

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return each node's memory use in percent."""
        memory = metrics.of("Memory")
        return {"used": np.where(memory.valid, np.clip(memory.average, 0, 100), 100)}

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the scores, which are the same for every pod."""
        cool = node["used"] <= self.target_percent
        return {"score": np.where(cool, 100 - node["used"], 0).astype(np.int64)}

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = slice(None)) -> FilterVerdict | None:
        """Return which nodes keep enough memory; None (skip) without ``spare_percent``."""
        if not self.spare_percent:
            return None
        left = nodes.allocatable("memory") - nodes.in_tree_requests("memory") - in_tree_requests(pod, "memory")
        return FilterVerdict((100 * left >= self.spare_percent * nodes.allocatable("memory"))[rows], "Spare memory")

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the memory use and the target."""
        return f"{terms['used']:.0f} % of memory used, target {self.target_percent:g} %"
