"""NodeResourcesBalancedAllocation: prefer nodes where all resources are requested to a similar share.

Let f be the requested share of each resource's allocatable amount, at most 1, with the pending pod:

    B = trunc((1 - std(f)) * 100)           std = |f1 - f2| / 2 for two resources, the population deviation for more

kube-scheduler up to 1.35 scores B. From 1.36 on it scores the change of B by the pod: 50 + trunc((50 + B with the pod -
B without it) / 2). The plugin skips pods that request none of the resources, because they would gather on balanced
nodes. A resource is left out if the node does not have it, and an extended resource also if the pod does not request
it. Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arguments import Distinct, check_arguments, not_empty
from scoring.arrays import Bools, Float64s, Int64s
from scoring.kubernetes_version import LATEST_VERSION, at_least, known_version
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms
from scoring.plugins.node_resources_fit import (
    EQUAL_CPU_AND_MEMORY,
    ResourceWeight,
    WeightsUpTo,
    allocatable_terms,
    counted_requests,
    requested_lines,
    requested_on,
)
from scoring.table.node_table import NodeTable

_Balanced = Annotated[tuple[ResourceWeight, ...], not_empty, Distinct(attrgetter("name")), WeightsUpTo(1)]


@dataclass(frozen=True)
class NodeResourcesBalancedAllocation(ScorePlugin):
    """Arguments of NodeResourcesBalancedAllocation.

    Attributes:
        resources: resources to balance, each with weight 1.
        kubernetes_version: version of kube-scheduler whose score is computed, such as ``1.36``.

    Raises:
        ValueError: the version is unknown.
    """

    resources: _Balanced = EQUAL_CPU_AND_MEMORY
    kubernetes_version: str = LATEST_VERSION

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    scores_replicas_alike: ClassVar[bool] = True
    reads_pods: ClassVar[bool] = False  # the pods' requests are read when a pod is scored

    def __post_init__(self) -> None:
        check_arguments(self)
        object.__setattr__(self, "kubernetes_version", known_version(self.kubernetes_version))

    @property
    def scores_difference(self) -> bool:
        """True if this version of kube-scheduler scores the pod's change of the balance, not the resulting balance."""
        return at_least(self.kubernetes_version, "1.36")

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return the allocatable amount of each resource."""
        return allocatable_terms(nodes, self.resources)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the requests and the requested share of each resource, and the node's score."""
        terms: Terms = {}
        parts: list[tuple[Float64s, Bools]] = []
        parts_without: list[tuple[Float64s, Bools]] = []
        for resource in self.resources:
            name = resource.name
            request, counted = counted_requests(pods, node, name, non_zero=False)
            requested = terms[f"{name}.requested"] = requested_on(nodes, rows, name, non_zero=False)
            divisor = node[f"{name}.divisor"]
            fraction = np.minimum((requested + request) / divisor, 1.0)
            parts.append((fraction, counted))
            if self.scores_difference:
                parts_without.append((np.minimum(requested / divisor, 1.0), counted))
            terms[f"{name}.request"], terms[f"{name}.counted"] = request, counted
            terms[f"{name}.fraction"] = fraction
        everywhere = all(counted.all() for _, counted in parts)
        score = terms["balance"] = balance(parts, everywhere=everywhere)
        if self.scores_difference:
            without = terms["balance_without_pod"] = balance(parts_without, everywhere=everywhere)
            score = 50 + (50 + score - without) // 2  # B is 50 to 100, so the dividend is not negative
        skipped = [self.skips(pod) for pod in pods]
        terms["score"] = np.where(np.array(skipped)[:, None], 0, score) if any(skipped) else score
        return terms

    def skips(self, pod: Pod) -> bool:
        """Return whether the plugin skips a pod because the pod requests none of the resources."""
        return not any(pod_demand.in_tree_requests(pod, r.name) for r in self.resources)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the requests of each resource and the balance as a sentence."""
        requested = "; ".join(requested_lines(terms, self.resources)) or "no resource counts"
        without = f", {terms['balance_without_pod']} without the pod" if "balance_without_pod" in terms else ""
        return f"{requested}: balance {terms['balance']}{without}"


def balance(parts: Sequence[tuple[Float64s, Bools]], *, everywhere: bool) -> Int64s:
    """Return trunc((1 - std) * 100), with std the deviation of the requested shares; higher is more balanced.

    Args:
        parts: for each resource its requested shares, and a mask of the pods and nodes for which the resource counts;
            both broadcast to (pods, nodes).
        everywhere: true if all masks are true everywhere.
    """
    two_resources = len(parts) == 2 and everywhere  # the usual case, several times faster
    std = np.abs((parts[0][0] - parts[1][0]) / 2) if two_resources else _deviation(parts)
    return np.asarray(((1 - std) * MAX_NODE_SCORE).astype(np.int64))


def _deviation(parts: Sequence[tuple[Float64s, Bools]]) -> Float64s:
    """Return the deviation of the requested shares that count, shape (pods, nodes).

    It is |f1 - f2| / 2 where two resources count, the population standard deviation where more count, otherwise 0.

    Args:
        parts: requested shares and mask of each resource, as for :func:`balance`.
    """
    count = sum((counted.astype(np.int64) for _, counted in parts), start=np.zeros((1, 1), np.int64))
    mean = sum((np.where(c, f, 0.0) for f, c in parts), start=np.zeros((1, 1))) / np.maximum(count, 1)
    squares = sum((np.where(c, (f - mean) * (f - mean), 0.0) for f, c in parts), start=np.zeros((1, 1)))
    highest = np.max([np.broadcast_to(np.where(c, f, 0.0), mean.shape) for f, c in parts], axis=0)
    lowest = np.min([np.broadcast_to(np.where(c, f, 1.0), mean.shape) for f, c in parts], axis=0)
    several = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    return np.where(count == 2, (highest - lowest) / 2, several)
