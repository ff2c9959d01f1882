"""CongestionCost: place the pod where congestion rises least. Ours, not upstream's.

Every measured resource of a node costs (use / target) ^ power: next to nothing far below its target, and many times
more with each step above. With u the node's use and d what is expected of the pending pod, both in parts of capacity,
t the target and p the power:

    rise  = (sum over resources of ((u + d) / t) ^ p - (u / t) ^ p + 0.01 * ((a + r) ^ 8 - a ^ 8))
            * crowding ^ (20 * c)
    score = 100 where the rise is the smallest, 0 where it is the largest, by its logarithm between them, truncated

    u = (1 - learnt) * (measured + in flight) + learnt * expected

``a`` is what the pods that are there request and r what the pending pod does, both in parts of allocatable: where no
node has room for another request later pods have no choice, however cool it is, and what was asked for tells a little
of use that was not seen yet. ``c`` is what the pods of the same owner that are there request of CPU, in parts of the
node's.

``in flight`` is what recently placed pods use that the average does not show yet (:mod:`scoring.load.recent_pods`).
``expected`` is what the pods that are there should use by the levels of their owners (:class:`scoring.UseLevels`):
slower than the last window, so it knows of hours that are not now. Without levels, u is what is measured and in
flight. What a pod is expected to use is its request times its owner's level, and the request without levels.

Pods of one owner rise and fall together, and are misjudged together. Where levels come with deviations, use is taken to
be normally distributed, with the mean u and the variance v, and the cost is how likely it is above the target and how
much of it is above the capacity; far below both the power still decides:

    cost = P(use > t) + 5 * E(max(use - 1, 0)) + 0.0001 * (u / t) ^ p

With s(o) the deviations of an owner's pods on the node, added up, and e that of the pending pod of the owner q, in
parts of capacity:

    v = sum over owners of s(o) ^ 2,    and with the pod    v + (s(q) + e) ^ 2 - s(q) ^ 2

so a node that has much of q already is dearer, and one that holds much of what nobody knows yet. No use is taken to
be known better than to a twentieth of the target, and that of memory, which is steadier, to three hundredths. A burst
of an owner is more than deviations tell: each 5 percent of the node that its pods there request makes it dearer by
``crowding``, with deviations and without.

A resource without metrics is left out; a node without any scores 0 and has no part in the normalization.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Owner, Pod
from scoring.arrays import Float64s, Int64s
from scoring.load import recent_pods
from scoring.load.measured_resource import CPU_LOAD, MEMORY_LOAD, MeasuredResource
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import NO_LEVELS, UseLevels
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.profiles.normalization import MAX_NODE_SCORE
from scoring.table.node_table import NodeTable
from scoring.table.occupancy import OwnedPods

# Logarithms are compared to a millionth. The smallest rise that counts is that of a pod which uses nothing.
_STEPS = 2.0**20
_SMALLEST = 2.0**-500
_HIGHEST_USE = 1000.0
# What crowding is told for, in parts of the node's CPU, and of how many such parts at most.
_CROWD = 0.05
_MOST_CROWDS = 50
# A node that is all requested costs so much.
_REQUESTED_SHARE = 0.01
# Beside the probability: so much of a node above its capacity is as bad as being hot; the power; the least deviation,
# in parts of the target: the mean of the last minutes and of the past say no more of the next hours, though of memory.
_EXCESS_SHARE = 5.0
_POWER_SHARE = 1e-4
_LEAST_DEVIATION = 0.05
_LEAST_DEVIATION_OF_MEMORY = 0.03
# Of the normal distribution at its middle.
_DENSITY = 1 / math.sqrt(2 * math.pi)
# Below what any rise gives; a marker that survives until normalization.
_UNMEASURED = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class CongestedResource:
    """A resource and what congestion of it costs.

    Attributes:
        resource: what is measured.
        target: percent of capacity from where on it hurts: there the cost is 1.
        power: how fast the cost rises; 1 is proportional.
    """

    resource: MeasuredResource
    target: float
    power: float


CONGESTED_CPU_AND_MEMORY = (CongestedResource(CPU_LOAD, 75.0, 8.0), CongestedResource(MEMORY_LOAD, 95.0, 16.0))


@dataclass(frozen=True)
class CongestionCost(ScorePlugin):
    """Arguments of CongestionCost.

    Attributes:
        resources: what congestion costs.
        learnt: the share of learnt levels in a node's use, 0 to 1; it counts where levels are given.
        crowding: by what each 5 percent of the node's CPU that pods of the same owner request multiplies the rise; 1
            does not look at owners.
        levels: what pods are known to use; :meth:`scoring.Profile.prepare` sets it.
    """

    resources: tuple[CongestedResource, ...] = CONGESTED_CPU_AND_MEMORY
    learnt: float = 0.5
    crowding: float = 32.0
    levels: UseLevels = NO_LEVELS

    name: ClassVar[str] = "CongestionCost"
    reads_metrics: ClassVar[bool] = True
    normalizes: ClassVar[bool] = True

    def with_levels(self, levels: UseLevels) -> Self:
        """Return the plugin with what is known of pods."""
        return replace(self, levels=levels)

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return for each resource what is there, requested, measured, in flight and expected, and the use at last."""
        terms: Terms = {"measured": np.zeros(len(nodes), np.bool_)}
        rows = np.arange(len(nodes))
        unreported = self._unreported(nodes, metrics)
        for each in self.resources:
            name = each.resource.name
            measured = metrics.of(each.resource.metric_type)
            capacity = nodes.capacity(name).astype(np.float64)
            counted = measured.valid & (capacity > 0)
            terms["measured"] = terms["measured"] | counted
            terms[f"{name}.valid"], terms[f"{name}.capacity"] = counted, capacity
            terms[f"{name}.measured_use"] = np.clip(measured.average / 100, 0.0, _HIGHEST_USE) * capacity
            # A resource that does not count has room without end.
            terms[f"_{name}.divisor"] = np.where(counted, capacity * (each.target / 100), np.inf)
            allocatable = nodes.allocatable(name).astype(np.float64)
            terms[f"_{name}.allocatable"] = np.where(counted & (allocatable > 0), allocatable, np.inf)
            terms |= self._use(each, terms, nodes, unreported, rows)
        if self.crowding != 1:
            terms["_crowd"] = np.maximum(_CROWD * nodes.capacity(CPU), 1.0)
        return terms | self._owners(nodes, rows)

    def changed_terms(self, node: Terms, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> Terms | None:
        """Return for each resource what is in flight, expected, requested, and the use at last."""
        terms = self._owners(nodes, rows)
        unreported = self._unreported(nodes, metrics, rows)
        for each in self.resources:
            terms |= self._use(each, node, nodes, unreported, rows)
        return terms

    def _unreported(self, nodes: NodeTable, metrics: MetricsTable, rows: Int64s | None = None) -> Terms:
        """Return what metrics of some rows do not show yet, or show too much, by resource."""
        pods = recent_pods.unreported_use(nodes, metrics, rows)
        names = [each.resource.name for each in self.resources]
        return {n: pods.use(use) for n, use in zip(names, self.levels.expected_uses(pods.pods, names), strict=True)}

    def _use(self, each: CongestedResource, node: Terms, nodes: NodeTable, unreported: Terms, rows: Int64s) -> Terms:
        """Return the terms of a resource that depend on the pods of some rows."""
        name, levels = each.resource.name, self.levels
        shown, divisor = node[f"{name}.measured_use"].take(rows), node[f"_{name}.divisor"].take(rows)
        missing = recent_pods.clip_to_measured(unreported[name], shown)
        terms: Terms = {f"{name}.missing_use": missing}
        use, variance = shown + missing, None
        if levels is not NO_LEVELS:
            expected, strays = levels.expected_on(nodes, rows, name)
            terms[f"{name}.expected_use"] = expected
            use = (1 - self.learnt) * use + self.learnt * expected
            if levels.has_deviations(name):
                variance = terms[f"{name}.variance"] = strays
        terms[f"{name}.use"] = use
        terms[f"{name}.cost"] = _cost(each, use, variance, divisor)
        requested = terms[f"{name}.requested"] = nodes.in_tree_requests(name).take(rows).astype(np.float64)
        terms[f"{name}.requested_cost"] = _requested_cost(requested, node[f"_{name}.allocatable"].take(rows))
        return terms

    @staticmethod
    def _owners(nodes: NodeTable, rows: Int64s) -> Terms:
        return {"_owners": _objects([nodes.owners_on(row) for row in rows.tolist()])}

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return for each resource the expected use and by how much it raises the cost; and the node's score."""
        terms: Terms = {}
        rise: Float64s = np.zeros((1, 1))
        owners = node["_owners"].tolist()
        rows_of = [[] if pod.owner is None else _rows_with(pod.owner, owners) for pod in pods]
        for each in self.resources:
            name = each.resource.name
            expected = np.array([[self.levels.expected_use(pod, name)] for pod in pods])
            use, divisor = node[f"{name}.use"] + expected, node[f"_{name}.divisor"]
            variance = node.get(f"{name}.variance")
            if variance is None:
                cost = _cost(each, use, None, divisor)
            else:
                more = variance + self._more_variance(pods, name, owners, rows_of)
                terms[f"{name}.deviation"] = np.sqrt(more)
                # Above the target more deviation makes it likelier to be below: no reason to go there.
                both = np.empty((2, *more.shape))
                both[0], both[1] = variance, more
                cost = np.maximum(*_cost(each, use, both, divisor))
            terms[f"{name}.pod_use"], terms[f"{name}.rise"] = expected, cost - node[f"{name}.cost"]
            request = per_pod(pods, pod_demand.in_tree_requests, name)
            cost = _requested_cost(node[f"{name}.requested"] + request, node[f"_{name}.allocatable"])
            terms[f"{name}.requested_rise"] = cost - node[f"{name}.requested_cost"]
            rise = rise + terms[f"{name}.rise"] + terms[f"{name}.requested_rise"]
        if self.crowding != 1:
            terms["same_owner"], cpu_milli = _same_owner(pods, owners, rows_of)
            terms["crowding"] = np.power(self.crowding, np.minimum(cpu_milli / node["_crowd"], _MOST_CROWDS))
            rise = rise * terms["crowding"]
        terms["rise"] = rise
        score = -_STEPS * np.log2(np.maximum(rise, _SMALLEST))
        terms["score"] = np.where(node["measured"], score, 0.0).astype(np.int64)
        terms["score"] = np.where(node["measured"], terms["score"], _UNMEASURED)
        return terms

    def _more_variance(
        self, pods: Sequence[Pod], name: str, owners: Sequence[Mapping[Owner, OwnedPods]], rows_of: list[list[int]]
    ) -> Float64s:
        """Return by how much each pod raises the variance of each node's use, shape (pods, nodes)."""
        deviation = np.array([[self.levels.deviation(pod.owner, name)] for pod in pods])
        own = deviation * per_pod(pods, pod_demand.requests, name)
        there = np.zeros((len(pods), len(owners)))
        for place, (pod, rows) in enumerate(zip(pods, rows_of, strict=True)):
            if pod.owner is not None:
                there[place, rows] = [owners[row][pod.owner].requests.get(name, 0) for row in rows]
        more: Float64s = own * (own + 2 * deviation * there)
        return more

    def normalize(self, scores: Int64s) -> Int64s:
        """Return 100 where the rise is the smallest, 0 where it is the largest; 100 for all when all are equal."""
        known = scores != _UNMEASURED
        result = np.zeros_like(scores)
        if known.any():
            measured = scores[known]
            lowest = measured.min()
            spread = measured.max() - lowest
            result[known] = (measured - lowest) * MAX_NODE_SCORE // spread if spread else MAX_NODE_SCORE
        return result

    def line(self, terms: Mapping[str, Any]) -> str:
        """Say how full each resource would be, and what that costs."""
        if not terms["measured"]:
            return "no metrics, so the minimum"
        each = "; ".join(
            f"{c.resource.name} {100 * self._after(terms, c.resource.name):.1f}% of capacity with the pod, "
            f"target {c.target:g}%, rises by {terms[f'{c.resource.name}.rise']:.3g}"
            for c in self.resources
            if terms[f"{c.resource.name}.valid"]
        )
        crowd = f", {terms['same_owner']} of this owner are there" if terms.get("same_owner") else ""
        return f"congestion rises by {terms['rise']:.3g}: {each}{crowd}"

    @staticmethod
    def _after(terms: Mapping[str, Any], name: str) -> float:
        return float((terms[f"{name}.use"] + terms[f"{name}.pod_use"]) / terms[f"{name}.capacity"])


def cost_of_mean(levels: Float64s, resource: CongestedResource) -> Float64s:
    """Return what a use costs of which nothing is known but its mean.

    Args:
        levels: the means, in parts of the target.
        resource: what is used.
    """
    return _uncertain_cost(levels, _least_deviation(resource), resource)


def _cost(each: CongestedResource, use: Float64s, variance: Float64s | None, divisor: Float64s) -> Float64s:
    """Return the cost of a use; with a variance, that of a use which is normally distributed."""
    # Calls count, not nodes: np.clip takes as long as five of these.
    level = np.minimum(np.maximum(use / divisor, 0.0), _HIGHEST_USE)
    if variance is None:
        cost: Float64s = np.power(level, each.power)
        return cost
    return _uncertain_cost(level, np.hypot(np.sqrt(variance) / divisor, _least_deviation(each)), each)


def _uncertain_cost(level: Float64s, deviation: Float64s | float, each: CongestedResource) -> Float64s:
    """Return the cost of a use with this mean and deviation, both in parts of the target."""
    from scipy.special import ndtr  # a tenth of a second that most importers never need

    target = each.target / 100
    beyond = (level - 1 / target) / deviation
    density = _DENSITY * np.exp(-0.5 * (beyond * beyond))
    excess = deviation * (beyond * ndtr(beyond) + density)
    power = np.power(level, each.power)
    total: Float64s = ndtr((level - 1) / deviation) + (_EXCESS_SHARE * target) * excess + _POWER_SHARE * power
    return total


def _least_deviation(each: CongestedResource) -> float:
    return _LEAST_DEVIATION_OF_MEMORY if each.resource.name == MEMORY else _LEAST_DEVIATION


def _requested_cost(requested: Float64s, divisor: Float64s) -> Float64s:
    """Return the cost of what is requested of nodes: the eighth power of its share."""
    level = np.minimum(requested / divisor, _HIGHEST_USE)
    square = level * level
    cost: Float64s = _REQUESTED_SHARE * (square * square) ** 2
    return cost


def _rows_with(owner: Owner, owners: Sequence[Mapping[Owner, OwnedPods]]) -> list[int]:
    """Return the rows that have pods of an owner."""
    return [row for row, on in enumerate(owners) if owner in on]


def _same_owner(
    pods: Sequence[Pod], owners: Sequence[Mapping[Owner, OwnedPods]], rows_of: Sequence[list[int]]
) -> tuple[Int64s, Int64s]:
    """Return how many pods of a pod's owner each node has, and what they request of CPU, both (pods, nodes)."""
    count, cpu_milli = np.zeros((2, len(pods), len(owners)), np.int64)
    for place, (pod, rows) in enumerate(zip(pods, rows_of, strict=True)):
        owner = pod.owner
        if owner is not None:
            count[place, rows] = [owners[row][owner].count for row in rows]
            cpu_milli[place, rows] = [owners[row][owner].cpu_milli for row in rows]
    return count, cpu_milli


def _objects(values: Sequence[object]) -> NDArray[Any]:
    """Return values as an array of one axis, whatever they are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
