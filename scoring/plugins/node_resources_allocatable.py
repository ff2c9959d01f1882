"""NodeResourcesAllocatable: prefer nodes with small (or with large) allocatable amounts, regardless of requests.

    raw = trunc(sum over resources of weight * allocatable / sum of weights)      negative for mode Least

The raw scores are rescaled linearly to 0 to 100 over the nodes. Source: sigs.k8s.io/scheduler-plugins,
pkg/noderesources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes.objects import CPU, MAX_AMOUNT, MEMORY, Pod
from scoring.arguments import CheckedArguments, not_empty
from scoring.arrays import Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import rescaled
from scoring.plugins.base import Rows, ScorePlugin, Terms
from scoring.plugins.node_resources_fit import ResourceWeight
from scoring.table.node_table import NodeTable

# One millicore counts as much as one MiB.
_DEFAULT_RESOURCES = (ResourceWeight(MEMORY, 1), ResourceWeight(CPU, 1 << 20))


@dataclass(frozen=True)
class NodeResourcesAllocatable(CheckedArguments, ScorePlugin):
    """Arguments of NodeResourcesAllocatable.

    Attributes:
        mode: ``Least`` prefers nodes with small amounts, ``Most`` nodes with large amounts.
        resources: resources whose amounts are averaged, with weights.
    """

    mode: Literal["Least", "Most"] = "Least"
    resources: Annotated[tuple[ResourceWeight, ...], not_empty] = _DEFAULT_RESOURCES

    name: ClassVar[str] = "NodeResourcesAllocatable"
    normalizes: ClassVar[bool] = True
    reads_pods: ClassVar[bool] = False  # the pods on a node do not matter

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return the allocatable amount of each resource, and their weighted mean, which is negative for mode Least."""
        sign = -1 if self.mode == "Least" else 1
        terms: Terms = {
            f"{r.name}.allocatable": np.minimum(nodes.allocatable(r.name), MAX_AMOUNT) for r in self.resources
        }
        highest = sum(r.weight * int(terms[f"{r.name}.allocatable"].max(initial=0)) for r in self.resources)
        # If weight times amount could overflow 64 bits, compute in Python integers; the mean always fits.
        dtype = np.int64 if highest < 1 << 63 else object
        total = np.zeros(len(nodes), dtype)
        for resource in self.resources:
            total = total + resource.weight * terms[f"{resource.name}.allocatable"].astype(dtype)
        mean = total // sum(resource.weight for resource in self.resources)
        terms["weighted_mean"] = sign * mean.astype(np.int64)
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score, which is the same for every pod."""
        return {"score": node["weighted_mean"]}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, shape (nodes,)."""
        return rescaled(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the mode and the node's allocatable amounts as a sentence."""
        amounts = ", ".join(f"{r.name} {terms[f'{r.name}.allocatable']} (weight {r.weight})" for r in self.resources)
        return f"mode {self.mode}: allocatable {amounts}"
