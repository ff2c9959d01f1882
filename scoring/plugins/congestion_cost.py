"""CongestionCost: place the pod where congestion rises least. Our own plugin, not upstream's.

docs/scores/congestion-cost.md derives and explains the formula. The congestion of a resource costs (use / target) ^
power: almost nothing far below the target, and ever more steeply rising. Let u be the node's use and d the expected use
of the pending pod, a the requests of the node's pods and r the pod's request, t the target and p the power:

    rise  = (sum over resources of ((u + d) / t) ^ p - (u / t) ^ p + 0.01 * ((a + r) ^ 8 - a ^ 8))
            * crowding ^ min(20 * c, 1) * stranding ^ s
    score = 100 where the rise is the smallest, 0 where it is the largest, by its logarithm between them, truncated

    u = (1 - learnt) * (measured + in flight) + learnt * expected

``c`` is the share of the node's CPU that pods of the pending pod's owner request (:mod:`scoring.plugins.same_owner`).
``s`` is how far the pod enlarges the room that no pod can use (:mod:`scoring.plugins.stranding`). ``in flight`` is the
use of recent pods that the average does not include yet (:mod:`scoring.load.recent_pods`). ``expected`` is the expected
use of the node's pods (:class:`scoring.UseLevels`); without levels u has no such part, and d is the pod's request.

If levels come with deviations, the cost is that of normally distributed use with mean u and variance v:

    cost = P(use > t) + 5 * E(max(use - 1, 0)) + 0.0001 * (u / t) ^ p

The use of pods of one owner rises and falls together. With s(o) the sum of the deviations of owner o's pods on the
node, and e the deviation of the pending pod, whose owner is q, all in parts of capacity:

    v = sum over owners of s(o) ^ 2,    and with the pod    v + (s(q) + e) ^ 2 - s(q) ^ 2

A resource without metrics is left out; a node without any metrics scores 0 and is left out of the normalization.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, Pod
from scoring.arguments import Between, CheckedArguments, Distinct, not_empty
from scoring.arrays import Float64s, Int64s
from scoring.load import recent_pods
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import NO_LEVELS, UseLevels
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.plugins.congestion import (
    CONGESTED_CPU_AND_MEMORY,
    HIGHEST_USE,
    CongestedResource,
    cost_of_requests,
    cost_of_use,
    costs_of_use,
    level_of,
)
from scoring.plugins.same_owner import CROWD, added_variance, crowding_factors, owners_pods
from scoring.plugins.stranding import size_terms, stranded_by, unmatched_room
from scoring.table.node_table import NodeTable

# Logarithms are compared to a millionth. The smallest rise stands for a pod without use.
_STEPS = 2.0**20
_SMALLEST = 2.0**-500
# Marks unmeasured nodes until normalization; below the score of any rise.
_UNMEASURED = np.iinfo(np.int64).min

_distinct = Distinct(lambda congested: congested.resource.name)


@dataclass(frozen=True)
class CongestionCost(CheckedArguments, ScorePlugin):
    """Plugin CongestionCost, with its arguments.

    Attributes:
        resources: resources whose congestion has a cost.
        learnt: weight of the expected use of a node's pods in the node's use, 0 to 1; the measured use has the rest. It
            applies only if ``levels`` are given.
        crowding: factor on the rise in cost where pods of the pending pod's owner request 5 percent of the node's CPU
            or more; below, its logarithm is proportional to their share. 1 ignores owners.
        stranding: factor on the rise in cost if the pod only enlarges the stranded room of the node, and divisor if it
            only uses such room; 1 ignores it.
        levels: expected use of pods by owner, set by :meth:`scoring.Profile.prepare`.
    """

    resources: Annotated[tuple[CongestedResource, ...], not_empty, _distinct] = CONGESTED_CPU_AND_MEMORY
    learnt: Annotated[float, Between(0, 1)] = 0.5
    crowding: Annotated[float, Between(1, 1000)] = 32.0
    stranding: Annotated[float, Between(1, 1000)] = 4.0
    levels: UseLevels = NO_LEVELS

    name: ClassVar[str] = "CongestionCost"
    scores_replicas_alike: ClassVar[bool] = True
    reads_metrics: ClassVar[bool] = True
    normalizes: ClassVar[bool] = True

    def with_levels(self, levels: UseLevels) -> Self:
        """Return a copy of the plugin that takes the expected use of pods into account."""
        return replace(self, levels=levels)

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the use and the cost of each resource, and the values from which they are computed."""
        terms: Terms = {"measured": np.zeros(len(nodes), np.bool_)}
        for congested in self.resources:
            name = congested.resource.name
            measured = metrics.of(congested.resource.metric_type)
            capacity = nodes.capacity(name).astype(np.float64)
            counted = measured.valid & (capacity > 0)
            terms["measured"] = terms["measured"] | counted
            terms[f"{name}.valid"], terms[f"{name}.capacity"] = counted, capacity
            terms[f"{name}.measured_use"] = np.clip(measured.average / 100, 0.0, HIGHEST_USE) * capacity
            # A resource that does not count has infinite room, so its cost is 0.
            terms[f"_{name}.divisor"] = np.where(counted, capacity * (congested.target / 100), np.inf)
            allocatable = nodes.allocatable(name).astype(np.float64)
            terms[f"_{name}.allocatable"] = np.where(counted & (allocatable > 0), allocatable, np.inf)
        terms |= self._use(terms, nodes, metrics, np.arange(len(nodes)))
        # All terms of a resource follow each other in explanations.
        prefixes = tuple(f"{congested.resource.name}." for congested in self.resources)
        terms |= {key: terms.pop(key) for prefix in prefixes for key in [*terms] if key.startswith(prefix)}
        if self.crowding != 1:
            terms["_crowd"] = np.maximum(CROWD * nodes.capacity(CPU), 1.0)
        if self.stranding != 1:
            terms |= size_terms(nodes)
        return terms

    def changed_terms(self, node: Terms, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> Terms | None:
        """Return the terms that depend on pods, such as the use and the cost of each resource, for changed rows."""
        return self._use(node, nodes, metrics, rows)

    def _use(self, node: Terms, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> Terms:
        """Return the terms that depend on pods, such as use and cost of each resource, for the given rows.

        Args:
            node: terms that do not depend on pods, of all rows.
            nodes: nodes with their pods.
            metrics: metrics aligned to the nodes.
            rows: rows to compute, shape (k,).
        """
        # Often these are few rows, so that the number of numpy calls decides the speed: all resources at once.
        names, levels = tuple(congested.resource.name for congested in self.resources), self.levels
        measured, divisor, allocatable = (
            np.array([node[key.format(name)].take(rows) for name in names])
            for key in ("{}.measured_use", "_{}.divisor", "_{}.allocatable")
        )
        recent = recent_pods.unreported_use(nodes, metrics, rows)
        unreported = np.array([recent.use(expected) for expected in levels.expected_uses(recent.pods, names)])
        missing = recent_pods.clip_to_measured(unreported, measured)
        terms = {"missing_use": missing}
        use: Float64s = measured + missing
        variances: list[Float64s | None] = [None] * len(names)
        if levels is not NO_LEVELS:
            terms["expected_use"], terms["variance"] = levels.expected_uses_on(nodes, rows, names)
            use = (1 - self.learnt) * use + self.learnt * terms["expected_use"]
            variances = [
                row if levels.has_deviations(name) else None for name, row in zip(names, terms["variance"], strict=True)
            ]
        terms["use"] = use
        terms["cost"] = costs_of_use(self.resources, level_of(use, divisor), variances, divisor)
        terms["requested"] = np.array([nodes.in_tree_requests(name).take(rows) for name in names], np.float64)
        terms["requested_cost"] = cost_of_requests(terms["requested"], allocatable)
        result = {
            f"{name}.{term}": values[place]
            for place, name in enumerate(names)
            for term, values in terms.items()
            if term != "variance" or levels.has_deviations(name)
        }
        if self.stranding != 1:
            result["_unmatched"] = unmatched_room(nodes, rows)
        return result

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the pod's expected use and the rise in cost of each resource, and the node's raw score."""
        terms: Terms = {}
        rise: Float64s = np.zeros((1, 1))
        owners = [owners_pods(pod.kin, nodes, rows) for pod in pods]
        expected_uses = self.levels.expected_uses(pods, [congested.resource.name for congested in self.resources])
        for congested, expected in zip(self.resources, expected_uses[:, :, None], strict=True):
            # Expected use shows the contention that a pod causes ...
            name = congested.resource.name
            divisor = node[f"_{name}.divisor"]
            level = level_of(node[f"{name}.use"] + expected, divisor)
            variance = node.get(f"{name}.variance")
            if variance is None:
                cost = cost_of_use(congested, level, None, divisor)
            else:
                variance_after = variance + added_variance(self.levels, pods, name, owners, len(variance))
                terms[f"{name}.deviation"] = np.sqrt(variance_after)
                cost = cost_of_use(congested, level, variance_after, divisor)
                # Above the target, more deviation lowers the probability of exceeding it. That must not attract pods,
                # so take the higher of the costs with the variance before and after. Elsewhere the latter is higher.
                above = (level > 1).nonzero()
                if above[0].size:
                    nodes_above = above[1]
                    before = cost_of_use(congested, level[above], variance.take(nodes_above), divisor.take(nodes_above))
                    cost[above] = np.maximum(before, cost[above])
            terms[f"{name}.pod_use"], terms[f"{name}.rise"] = expected, cost - node[f"{name}.cost"]
            # ... and requests the room that it takes from later pods, whose requests must fit.
            request = per_pod(pods, pod_demand.in_tree_requests, name)
            cost = cost_of_requests(node[f"{name}.requested"] + request, node[f"_{name}.allocatable"])
            terms[f"{name}.requested_rise"] = cost - node[f"{name}.requested_cost"]
            rise = rise + terms[f"{name}.rise"] + terms[f"{name}.requested_rise"]
        # The owner's pods on the node and stranded room multiply the rise; the score is its negated logarithm.
        if self.crowding != 1:
            terms["same_owner"], terms["crowding"] = crowding_factors(self.crowding, owners, node["_crowd"])
            rise = rise * terms["crowding"]
        if self.stranding != 1:
            terms["stranding"] = stranded_by(pods, node, node["_unmatched"])
            rise = rise * np.exp2(math.log2(self.stranding) * terms["stranding"])
        terms["rise"] = rise
        score = -_STEPS * np.log2(np.maximum(rise, _SMALLEST))
        terms["score"] = np.where(node["measured"], score, float(_UNMEASURED)).astype(np.int64)
        return terms

    def normalize(self, scores: Int64s) -> Int64s:
        """Return 100 for the smallest rise in cost and 0 for the largest; 100 for all nodes if all rises are equal.

        Nodes without metrics get 0.
        """
        if scores.min(initial=0) != _UNMEASURED:
            return _between_extremes(scores)
        known = scores != _UNMEASURED
        result = np.zeros_like(scores)
        result[known] = _between_extremes(scores[known])
        return result

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the use with the pod and the rise in cost of each resource as a sentence."""
        if not terms["measured"]:
            return "no metrics, so the minimum"
        parts = "; ".join(
            f"{c.resource.name} {100 * self._after(terms, c.resource.name):.1f}% of capacity with the pod, "
            f"target {c.target:g}%, rises by {terms[f'{c.resource.name}.rise']:.3g}"
            for c in self.resources
            if terms[f"{c.resource.name}.valid"]
        )
        crowd = f", {terms['same_owner']} of this owner are there" if terms.get("same_owner") else ""
        stranded = f", stranded room {share:+.2f}" if (share := terms.get("stranding")) else ""
        return f"congestion rises by {terms['rise']:.3g}: {parts}{crowd}{stranded}"

    @staticmethod
    def _after(terms: Mapping[str, Any], name: str) -> float:
        return float((terms[f"{name}.use"] + terms[f"{name}.pod_use"]) / terms[f"{name}.capacity"])


def _between_extremes(scores: Int64s) -> Int64s:
    """Return 100 for the highest score and 0 for the lowest; 100 for all if all are equal."""
    if not scores.size:
        return scores
    lowest = scores.min()
    spread = scores.max() - lowest
    if not spread:
        return np.full_like(scores, MAX_NODE_SCORE)
    return np.asarray((scores - lowest) * MAX_NODE_SCORE // spread)
