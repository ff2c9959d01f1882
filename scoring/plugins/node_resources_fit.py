"""NodeResourcesFit: kube-scheduler's score by resource requests.

For each resource, let r be the sum of the requests of the node's pods and the pending pod, and a the allocatable amount
of the node:

    LeastAllocated            (a - r) * 100 / a, 0 when r > a
    MostAllocated             min(r, a) * 100 / a
    RequestedToCapacityRatio  a piecewise linear function of r * 100 / a (100 when r > a)

The node's score is the weighted mean of its resources' scores. Integer divisions truncate. The mean for
RequestedToCapacityRatio is rounded, halves away from zero, and leaves out resources that score 0. A container without a
request counts as 100m CPU or 200 MiB. A resource is left out if the node does not have it, and an extended resource
also if the pod does not request it. Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, EPHEMERAL_STORAGE, MAX_AMOUNT, MEMORY, Pod
from scoring.arguments import LARGEST_INT, Between, CheckedArguments, Distinct, Problems, not_empty
from scoring.arrays import Bools, Int64s
from scoring.go_math import truncating_divide
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import EVERY_ROW, Rows, ScorePlugin, Terms, per_pod
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict
from scoring.table.feasibility import Requests, fitting, shortages, too_small
from scoring.table.node_table import NodeTable

NATIVE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_MAX_SHAPE_SCORE = 10
_MAX_SUM = 2**62

Strategy = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


@dataclass(frozen=True, slots=True)
class ResourceWeight(CheckedArguments):
    """Name of a resource, and its weight in a score."""

    name: Annotated[str, not_empty]
    weight: Annotated[int, Between(1, LARGEST_INT)] = 1


@dataclass(frozen=True, slots=True)
class ShapePoint(CheckedArguments):
    """Point of the piecewise linear function of RequestedToCapacityRatio: utilization 0 to 100, score 0 to 10."""

    utilization: Annotated[int, Between(0, 100)]
    score: Annotated[int, Between(0, _MAX_SHAPE_SCORE)]


EQUAL_CPU_AND_MEMORY = (ResourceWeight(CPU), ResourceWeight(MEMORY))


@dataclass(frozen=True, slots=True)
class WeightsUpTo:
    """Constraint: no weight above a limit, as kube-scheduler requires.

    Attributes:
        highest: largest valid weight.
    """

    highest: int

    def __call__(self, resources: tuple[ResourceWeight, ...]) -> Problems:
        """Yield a problem for each weight outside 1 to ``highest``."""
        bounds = Between(1, self.highest)
        for index, resource in enumerate(resources):
            for _, problem in bounds(resource.weight):
                yield f"[{index}].weight", problem


ResourceWeights = Annotated[tuple[ResourceWeight, ...], not_empty, WeightsUpTo(100)]
"""Resources of a weighted mean of scores."""
DistinctWeights = Annotated[ResourceWeights, Distinct(attrgetter("name"))]
"""Resources of a weighted mean of scores, each listed once."""


def ascending(shape: tuple[ShapePoint, ...]) -> Problems:
    """Constraint: the points of a shape are in the order of their utilization."""
    for index, (left, right) in enumerate(pairwise(shape), 1):
        if left.utilization >= right.utilization:
            yield f"[{index}].utilization", f"must be above that of the previous point, got {right.utilization}"


@dataclass(frozen=True)
class NodeResourcesFit(CheckedArguments, ScorePlugin, FilterPlugin):
    """Arguments of NodeResourcesFit.

    Attributes:
        strategy: type of the scoring strategy.
        resources: the resources to score, with weights.
        shape: function of RequestedToCapacityRatio, by ascending utilization.
        ignored_resources: extended resources that the filter does not compare.
        ignored_resource_groups: prefixes (before the slash) of further resources that the filter does not compare.
    """

    strategy: Strategy = "LeastAllocated"
    resources: ResourceWeights = EQUAL_CPU_AND_MEMORY
    shape: Annotated[tuple[ShapePoint, ...], not_empty, ascending] = (ShapePoint(0, 0), ShapePoint(100, 10))
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    name: ClassVar[str] = "NodeResourcesFit"
    scores_replicas_alike: ClassVar[bool] = True
    reads_pods: ClassVar[bool] = False  # the pods' requests are read when a pod is scored
    counts_nominated: ClassVar[bool] = True
    depends_on: ClassVar[Dependence] = Dependence.REQUESTS
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset(
        {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_CHANGED, ClusterEvent.POD_GONE}
    )

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
        """Return which nodes have enough free resources. A node that is too small even without pods is unresolvable.

        Nominated pods of the same or a higher priority count as if they ran on their nominated node.
        """
        occupancy = nodes.occupancy
        wanted = self._compared(pod_demand.filter_requests(pod))
        allowed = fitting(pod, occupancy, wanted)[rows]
        if allowed.all():
            return FilterVerdict(allowed, "")

        @cache  # computed once, and only if a message needs it
        def lacking() -> Mapping[str, Bools]:
            return {reason: mask[rows] for reason, mask in shortages(pod, occupancy, wanted).items()}

        def why(index: int) -> tuple[str, ...]:
            return tuple(reason for reason, mask in lacking().items() if mask[index])

        def counts(refused: Bools) -> Mapping[str, int]:
            return {reason: int(np.count_nonzero(mask & refused)) for reason, mask in lacking().items()}

        return FilterVerdict(allowed, why, too_small(occupancy, wanted)[rows], counts)

    def _compared(self, requests: Requests) -> Requests:
        if not self.ignored_resources and not self.ignored_resource_groups:
            return requests
        return tuple(
            (name, amount)
            for name, amount in requests
            if name not in self.ignored_resources and name.partition("/")[0] not in self.ignored_resource_groups
        )

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return the allocatable amount of each resource."""
        return allocatable_terms(nodes, self.resources)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the node's score, and the terms of each resource: requests, score, and whether the resource counts."""
        terms: Terms = {}
        total: Int64s = np.zeros((1, 1), np.int64)
        # A single number as long as every resource counts everywhere: dividing by it is several times faster.
        weights: Int64s | int = 0
        for resource in self.resources:
            name = resource.name
            requested = terms[f"{name}.requested"] = requested_on(nodes, rows, name, non_zero=True)
            request, counted = counted_requests(pods, node, name, non_zero=True)
            score = self._resource_score(requested + request, node[f"{name}.divisor"])
            in_mean = counted & (score > 0) if self.strategy == "RequestedToCapacityRatio" else counted
            if in_mean.all():
                total = total + score * resource.weight
                weights = weights + resource.weight
            else:
                total = total + np.where(in_mean, score * resource.weight, 0)
                weights = weights + np.where(in_mean, resource.weight, 0)
            terms[f"{name}.request"], terms[f"{name}.counted"], terms[f"{name}.score"] = request, counted, score
        weights = np.maximum(weights, 1)
        if self.strategy == "RequestedToCapacityRatio":
            terms["score"] = (2 * total + weights) // (2 * weights)  # rounds half up; the operands are not negative
        else:
            terms["score"] = total // weights
        return terms

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the requests and score of each resource as a sentence."""
        return f"{self.strategy}: " + ("; ".join(requested_lines(terms, self.resources)) or "no resource counts")

    def _resource_score(self, requested: Int64s, allocatable: Int64s) -> Int64s:
        result: Int64s
        if self.strategy == "LeastAllocated":
            result = np.maximum(allocatable - requested, 0) * MAX_NODE_SCORE // allocatable
        elif self.strategy == "MostAllocated":
            result = np.minimum(requested, allocatable) * MAX_NODE_SCORE // allocatable
        else:
            utilization = np.minimum(requested, allocatable) * 100 // allocatable
            result = self._score_by_percent.take(utilization)
        return result

    @cached_property
    def _score_by_percent(self) -> Int64s:
        """Score from 0 to 100 at every utilization from 0 to 100 percent, by the function ``shape``."""
        scale = MAX_NODE_SCORE // _MAX_SHAPE_SCORE
        return broken_linear([(point.utilization, point.score * scale) for point in self.shape], np.arange(101))


def broken_linear(points: Sequence[tuple[int, int]], x: Int64s) -> Int64s:
    """Evaluate a piecewise linear function of integers, truncated between the points and constant outside.

    Args:
        points: points (x, y) that the function passes through, by ascending x.
        x: integers at which to evaluate the function, any shape.
    """
    result = np.full(x.shape, points[-1][1], np.int64)
    for (left_x, left_y), (right_x, right_y) in reversed(list(pairwise(points))):
        between = left_y + truncating_divide((right_y - left_y) * (x - left_x), right_x - left_x)
        result = np.where(x <= right_x, between, result)
    return np.where(x <= points[0][0], points[0][1], result)


def allocatable_terms(nodes: NodeTable, resources: Sequence[ResourceWeight]) -> Terms:
    """Return terms of each resource: ``allocatable``, ``divisor`` (the same amount, but at least 1) and ``counted``.

    ``counted`` is a mask of the nodes that have the resource.
    """
    terms: Terms = {}
    for resource in resources:
        allocatable = np.minimum(nodes.allocatable(resource.name), MAX_AMOUNT)  # 100 times as much fits 64 bits
        terms[f"{resource.name}.allocatable"] = allocatable
        terms[f"{resource.name}.divisor"] = np.maximum(allocatable, 1)  # avoids division by 0 where not counted
        terms[f"{resource.name}.counted"] = allocatable != 0
    return terms


def requested_on(nodes: NodeTable, rows: Rows, name: str, *, non_zero: bool) -> Int64s:
    """Return the sums of the requests of the pods on each row, as kube-scheduler counts them, shape (rows,).

    The sums are at most 2^62, so that the request of a pending pod can be added.

    Args:
        nodes: nodes with their pods.
        rows: rows to return.
        name: name of the resource.
        non_zero: count a container without a request as 100m CPU or 200 MiB.
    """
    spread = non_zero and name in pod_demand.NON_ZERO_REQUESTS
    requested = nodes.in_tree_requests(name, non_zero=spread)
    return np.minimum(requested[rows] if isinstance(rows, slice) else requested.take(rows), _MAX_SUM)


def counted_requests(pods: Sequence[Pod], node: Terms, name: str, *, non_zero: bool) -> tuple[Int64s, Bools]:
    """Return the requests of the pending pods, shape (pods, 1), and a mask of the pods and nodes where they count.

    A resource does not count on nodes without it; an extended resource counts only for pods that request it.

    Args:
        pods: pending pods.
        node: result of :func:`allocatable_terms`.
        name: name of the resource.
        non_zero: count a container without a request as 100m CPU or 200 MiB.
    """
    request = per_pod(pods, pod_demand.fit_score_requests if non_zero else pod_demand.in_tree_requests, name)
    counted = node[f"{name}.counted"]
    if name not in NATIVE:
        counted = counted & (request > 0)
    return request, counted


def requested_lines(terms: Mapping[str, Any], resources: Sequence[ResourceWeight]) -> list[str]:
    """Return a phrase for each resource that counts, such as "cpu 1000 + 500 of 4000", for explanations."""
    return [
        f"{r.name} {terms[f'{r.name}.requested']} + {terms[f'{r.name}.request']} of {terms[f'{r.name}.allocatable']}"
        + (f" scores {terms[f'{r.name}.score']}" if f"{r.name}.score" in terms else "")
        + (f" (weight {r.weight})" if r.weight != 1 else "")
        for r in resources
        if terms[f"{r.name}.counted"]
    ]


def fits(pod: Pod, nodes: NodeTable) -> Bools:
    """Return a mask of the nodes with enough free resources for the pod, shape (nodes,): the plugin's filter.

    Nominated pods of the same or a higher priority count as if they ran on their nominated node. Only resources that
    the pod requests are compared, and the number of pods with the node's allocatable ``pods``, if the node lists it.
    :meth:`scoring.NodeTable.feasible` also checks constraints such as taints.
    """
    return fitting(pod, nodes.occupancy)
