"""Expected CPU and memory use of each node if a pod were placed on it.

    after(node) = 100 * (average use + unreported requests of recent pods + the pod's request) / capacity       percent

Unreported requests are those of recently placed and assumed pods that the average does not include yet; see
:mod:`scoring.load.recent_pods`. The expected use is a score plugin because a prepared plugin recomputes only the nodes
that have changed. Its score is the free percentage of the fuller resource.
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
    """Plugin that computes the expected CPU and memory use of a node with the pod, percent of capacity.

    The percentages are terms of the score; they are NaN where the node is not measured.
    """

    name: ClassVar[str] = "ExpectedUse"
    reads_metrics: ClassVar[bool] = True

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the expected use of each resource without the pod, millicores or bytes; NaN if not measured."""
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
        """Return the expected use of each resource with the pod, percent of capacity, and the score."""
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
        """Return the expected use of each resource as text, such as ``cpu 71.2 %, memory 40.0 %``."""
        return ", ".join(f"{each.name} {terms[f'{each.name}_percent']:.1f} %" for each in CPU_AND_MEMORY)
