"""Koordinator's LoadAwareScheduling with its default arguments, for comparison.

The estimated use of a pod is 85 percent of its CPU limit and 70 percent of its memory limit, or of the request if that
is higher, rounded, and at most the limit. A pod with neither is estimated at 250 millicores and 200 MiB. The score is

    used  = reported use + estimates of pods in flight + estimate of the pod
    score = (allocatable - used) * 100 / allocatable, at least 0, truncated; mean of CPU and memory, truncated

Koordinator excludes nodes whose used CPU, in whole percent, would be above 65 or memory above 95; here they score 0.
Source: koordinator-sh/koordinator, pkg/scheduler/plugins/loadaware, with the defaults of its arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Pod
from scoring.load import recent_pods
from scoring.load.measured_resource import CPU_AND_MEMORY
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.table.node_table import NodeTable

_WITHOUT_REQUEST = {CPU: 250, MEMORY: 200 * 1024**2}


@dataclass(frozen=True)
class KoordinatorLoadAware(ScorePlugin):
    """Koordinator's LoadAwareScheduling plugin.

    Attributes:
        scaling_percent: estimated use of pods by resource, percent of their limits or requests.
        threshold_percent: use by resource above which a node is excluded, percent.
    """

    scaling_percent: Mapping[str, int] = field(default_factory=lambda: {CPU: 85, MEMORY: 70})
    threshold_percent: Mapping[str, int] = field(default_factory=lambda: {CPU: 65, MEMORY: 95})

    name: ClassVar[str] = "KoordinatorLoadAware"
    reads_metrics: ClassVar[bool] = True

    def estimate(self, pod: Pod, resource: str) -> int:
        """Return the estimated use of a pod, millicores or bytes."""
        limit = sum(container.limits.amount(resource) for container in pod.containers)
        larger = max(limit, pod_demand.requests(pod, resource))
        if not larger:
            return _WITHOUT_REQUEST[resource]
        used = int(larger * self.scaling_percent[resource] / 100 + 0.5)
        return min(used, limit) if limit else used

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the allocatable and the used amount of each resource, including pods in flight."""
        terms: Terms = {}
        for resource in CPU_AND_MEMORY:
            name = resource.name
            reported = metrics.of(resource.metric_type).average / 100 * nodes.capacity(name)
            estimated = recent_pods.unmeasured(nodes, metrics, partial(self.estimate, resource=name))
            terms[f"{name}.allocatable"] = np.maximum(nodes.allocatable(name), 1)
            terms[f"{name}.used"] = (np.rint(reported) + estimated).astype(np.int64)
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score of each node for a pod."""
        total, fits = np.zeros((1, 1), np.int64), np.ones((1, 1), np.bool_)
        for name in (CPU, MEMORY):
            used = node[f"{name}.used"] + per_pod(pods, self.estimate, name)
            allocatable = node[f"{name}.allocatable"]
            total = total + np.maximum(allocatable - used, 0) * MAX_NODE_SCORE // allocatable
            fits = fits & (np.floor(used / allocatable * 100 + 0.5) <= self.threshold_percent[name])
        return {"score": np.where(fits, total // 2, 0)}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the text that explains a node's score, with the node's estimated CPU and memory use."""
        return f"cpu {terms['cpu.used']:.0f}m used, memory {terms['memory.used']:.0f} bytes"
