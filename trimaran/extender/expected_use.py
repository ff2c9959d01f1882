"""Expected use of nodes with a pod: the measured use, the unreported requests of recent pods, and the pod's requests.

    after(node) = 100 * (average use + unreported requests of recent pods + the pod's request) / capacity       percent

for CPU and memory. Recent and assumed pods count as in :mod:`scoring.load.recent_pods`. The expected use is implemented
as a plugin so that it follows the changes of a table row by row; its score is the free share of the fuller resource.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes import pod_demand
from scoring import MetricsTable, NodeTable, Pod, ScorePlugin
from scoring.load import recent_pods
from scoring.load.measured_resource import CPU_AND_MEMORY
from scoring.plugins.base import Rows, Terms, per_pod


@dataclass(frozen=True)
class ExpectedUse(ScorePlugin):
    """Percent of each resource that a node is expected to use with the pod; NaN where the node is not measured."""

    name: ClassVar[str] = "ExpectedUse"
    reads_metrics: ClassVar[bool] = True

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the use of each resource before the pod, in whole units."""
        terms: Terms = {}
        for resource in CPU_AND_MEMORY:
            measured = metrics.of(resource.metric_type)
            measured_use = measured.average / 100 * nodes.capacity(resource.name)

            def request(pod: Pod, name: str = resource.name) -> int:
                return pod_demand.in_tree_requests(pod, name)

            unreported = recent_pods.clip_to_measured(recent_pods.unreported(nodes, metrics, request), measured_use)
            terms[f"{resource.name}_use"] = np.where(measured.averaged, measured_use + unreported, np.nan)
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the percent of each resource with the pod."""
        terms: Terms = {}
        free = np.full((len(pods), len(node["cpu_use"])), 100.0)
        for resource in CPU_AND_MEMORY:
            capacity = np.maximum(nodes.capacity(resource.name)[rows], 1)
            demand = per_pod(pods, pod_demand.in_tree_requests, resource.name)
            after = 100 * (node[f"{resource.name}_use"] + demand) / capacity
            terms[f"{resource.name}_percent"] = after
            free = np.fmin(free, 100 - after)
        return {**terms, "score": np.maximum(free, 0).astype(np.int64)}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the expected use of each resource as text."""
        return ", ".join(f"{each.name} {terms[f'{each.name}_percent']:.1f} %" for each in CPU_AND_MEMORY)
