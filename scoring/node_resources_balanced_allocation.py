"""NodeResourcesBalancedAllocation: prefer nodes whose resources are requested evenly.

With f the requested parts of the allocatable amounts, capped at 1, the pending pod included:

    B = trunc((1 - std(f)) * 100)           std = |f1 - f2| / 2 for two resources, the population deviation for more

``formula="absolute"`` scores B. Newer schedulers score how the pod changes it, ``formula="difference"``:
50 + trunc((50 + B with the pod - B without it) / 2).
Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from scoring import pod_demand
from scoring.go_math import truncating_divide
from scoring.metrics_table import MetricsTable
from scoring.node_resources_fit import (
    CPU_AND_MEMORY_ALIKE,
    ResourceWeight,
    counted_requests,
    requested_lines,
    requested_terms,
)
from scoring.node_table import Int64s, NodeTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.objects import Pod
from scoring.plugin import ScorePlugin, Terms

Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class NodeResourcesBalancedAllocation(ScorePlugin):
    """Arguments of NodeResourcesBalancedAllocation.

    Attributes:
        resources: what to balance; weights do not count.
        formula: ``absolute`` scores the balance that results, ``difference`` what the pod changes (kube-scheduler from
            2026 on).
        skip_best_effort: leave the plugin out for pods that request none of the resources (kube-scheduler from 2025
            on). Without it such pods gather on balanced nodes.
    """

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY_ALIKE
    formula: Literal["absolute", "difference"] = "absolute"
    skip_best_effort: bool = False

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return for each resource the allocatable amount and what the node's pods request."""
        return requested_terms(nodes, self.resources, non_zero=False)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable) -> Terms:  # noqa: ARG002
        """Return for each resource the request and fraction; and the node's score."""
        terms: Terms = {}
        parts: list[tuple[Float64s, Bools]] = []
        parts_without: list[tuple[Float64s, Bools]] = []
        for resource in self.resources:
            name = resource.name
            request, counted = counted_requests(pods, node, name, non_zero=False)
            allocatable = np.maximum(node[f"{name}.allocatable"], 1)
            fraction = np.minimum((node[f"{name}.requested"] + request) / allocatable, 1.0)
            parts.append((fraction, counted))
            parts_without.append((np.minimum(node[f"{name}.requested"] / allocatable, 1.0), counted))
            terms[f"{name}.request"], terms[f"{name}.counted"] = request, counted
            terms[f"{name}.fraction"] = fraction
        score = terms["balance"] = balance(parts)
        if self.formula == "difference":
            terms["balance_without_pod"] = balance(parts_without)
            score = 50 + truncating_divide(50 + score - terms["balance_without_pod"], 2)
        if self.skip_best_effort:
            score = np.where([[self.skips(pod)] for pod in pods], 0, score)
        terms["score"] = score
        return terms

    def skips(self, pod: Pod) -> bool:
        """Say whether the pod requests none of the resources, and the plugin is to leave such pods out."""
        return self.skip_best_effort and not any(pod_demand.in_tree_requests(pod, r.name) for r in self.resources)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Say each resource's requests and the balance."""
        requested = "; ".join(requested_lines(terms, self.resources)) or "no resource counts"
        without = f", {terms['balance_without_pod']} without the pod" if "balance_without_pod" in terms else ""
        return f"{requested}: balance {terms['balance']}{without}"


def balance(parts: Sequence[tuple[Float64s, Bools]]) -> Int64s:
    """Return trunc((1 - std) * 100) over the fractions that count.

    Args:
        parts: for each resource the fractions and where they count; shapes broadcast.
    """
    count: Int64s = np.zeros((1, 1), np.int64)
    total = lowest = highest = squares = None
    for fraction, counted in parts:
        count = count + counted
        value = np.where(counted, fraction, 0.0)
        total = value if total is None else total + value
        low, high = np.where(counted, fraction, np.inf), np.where(counted, fraction, -np.inf)
        lowest = low if lowest is None else np.minimum(lowest, low)
        highest = high if highest is None else np.maximum(highest, high)
    if total is None or lowest is None or highest is None:
        return np.full((1, 1), MAX_NODE_SCORE, np.int64)
    with np.errstate(invalid="ignore"):  # infinity - infinity where nothing counts
        std = np.where(count == 2, (highest - lowest) / 2, 0.0)
    if len(parts) > 2:
        mean = total / np.maximum(count, 1)
        for fraction, counted in parts:
            square = np.where(counted, (fraction - mean) * (fraction - mean), 0.0)
            squares = square if squares is None else squares + square
        std = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), std)
    result: Int64s = ((1 - std) * MAX_NODE_SCORE).astype(np.int64)
    return result
