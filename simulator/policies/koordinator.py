"""Koordinator's LoadAwareScheduling, as shipped, to compare with.

With the use that a node reports, and the pods that were placed since, estimated at 85 percent of their CPU and 70 of
their memory requests:

    used  = reported + estimates of pods that are not reported yet + the estimate of the pod
    score = (allocatable - used) * 100 / allocatable, 0 when used is more; mean of CPU and memory

and nodes that report more than 65 percent of CPU or 95 percent of memory are left out: here they score 0.
Source: koordinator-sh/koordinator, pkg/scheduler/plugins/loadaware, with the defaults of its arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from scoring import pod_demand, recent_pods
from scoring.measured_resource import CPU_AND_MEMORY
from scoring.metrics_table import MetricsTable
from scoring.node_table import NodeTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.objects import CPU, MEMORY, Pod
from scoring.plugins.base import Rows, ScorePlugin, Terms


@dataclass(frozen=True)
class KoordinatorLoadAware(ScorePlugin):
    """Arguments of LoadAwareScheduling.

    Attributes:
        scaling_percent: what pods are estimated at, in percent of their requests.
        threshold_percent: above which reported use a node is left out.
    """

    scaling_percent: Mapping[str, int] = field(default_factory=lambda: {CPU: 85, MEMORY: 70})
    threshold_percent: Mapping[str, int] = field(default_factory=lambda: {CPU: 65, MEMORY: 95})

    name: ClassVar[str] = "KoordinatorLoadAware"
    reads_metrics: ClassVar[bool] = True

    def estimate(self, pod: Pod, resource: str) -> int:
        """Return what a pod is estimated to use, millicores or bytes."""
        return pod_demand.requests(pod, resource) * self.scaling_percent[resource] // 100

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return for each resource what is allocatable, and used with the pods that are not reported yet."""
        terms: Terms = {"fits": np.ones(len(nodes), np.bool_)}
        for resource in CPU_AND_MEMORY:
            name = resource.name
            percent = metrics.of(resource.metric_type).average
            allocatable = nodes.allocatable(name).astype(np.float64)
            estimated = recent_pods.unmeasured(nodes, metrics, partial(self.estimate, resource=name))
            terms[f"{name}.allocatable"] = np.maximum(allocatable, 1.0)
            terms[f"{name}.used"] = percent / 100 * allocatable + estimated
            terms["fits"] = terms["fits"] & (percent <= self.threshold_percent[name])
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score."""
        total = np.zeros((1, 1), np.int64)
        for name in (CPU, MEMORY):
            used = node[f"{name}.used"] + np.array([[self.estimate(pod, name)] for pod in pods])
            allocatable = node[f"{name}.allocatable"]
            total = total + (np.maximum(allocatable - used, 0.0) * MAX_NODE_SCORE / allocatable).astype(np.int64)
        return {"score": np.where(node["fits"], total // 2, 0)}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Say what is used."""
        return f"cpu {terms['cpu.used']:.0f}m used, memory {terms['memory.used']:.0f} bytes"
