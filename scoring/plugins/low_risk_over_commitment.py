"""LowRiskOverCommitment: prefer nodes whose limits are not far above capacity and whose load leaves room.

For each resource, ``request`` and ``limit`` are sums over the node's pods and the pending pod, ``requestMinusPod`` and
``limitMinusPod`` are the sums without the pending pod, and w is the resource's risk limit weight:

    riskLimit = (limit - allocatable) / (limit - request)   when limit > allocatable, else 0
    riskLoad  = 1 - P(use <= requestMinusPod)               P: probability by a beta distribution that is fitted to the
                                                            measured load; if limitMinusPod is below allocatable, under
                                                            the condition use <= limitMinusPod
    risk      = w * riskLimit + (1 - w) * riskLoad
    score     = (1 - largest risk) * 100

The score is rounded to an integer, halves away from zero. Best-effort pods, and nodes without metrics, score 0. Source:
sigs.k8s.io/scheduler-plugins, pkg/trimaran/lowriskovercommitment.

riskLoad does not depend on the pending pod, so it is computed once per snapshot and updated for nodes whose pods
changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Pod
from scoring.arguments import LARGEST_INT, Between, CheckedArguments
from scoring.arrays import Float64s
from scoring.beta_distribution import distribution, max_variance, probability_at_most
from scoring.go_math import rounded_score
from scoring.load import measured_distribution, recent_pods
from scoring.load.measured_resource import CPU_AND_MEMORY, MeasuredResource, MeasuredResources
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.table.node_table import NodeTable

# The fit needs a variance below the largest possible one.
_MAX_VARIANCE_ALLOWANCE = 0.99
DEFAULT_RISK_LIMIT_WEIGHT = 0.5


@dataclass(frozen=True)
class LowRiskOverCommitment(CheckedArguments, ScorePlugin):
    """Arguments of LowRiskOverCommitment.

    Attributes:
        smoothing_window_size: number of samples that were averaged into each value before the deviation of the values
            was computed; the deviation is multiplied by the square root of this number to undo the averaging. 1 if the
            values were not averaged.
        risk_limit_weights: weight of the limits' risk by resource, 0 to 1; 0.5 for a resource that is left out. The
            load's risk has the remaining weight.
        resources: our option: resources to consider.
        distribution: our option: ``measured`` computes the load's risk from the measured percentiles, where a node has
            any, instead of the fitted beta distribution.
        count_recent_pods: our option: add to the average use the requests of recently placed pods, as far as the
            average does not include these pods yet; see :mod:`scoring.load.recent_pods`.
    """

    smoothing_window_size: Annotated[int, Between(1, LARGEST_INT)] = 5
    risk_limit_weights: Mapping[str, Annotated[float, Between(0, 1)]] = field(
        default_factory=lambda: dict.fromkeys((CPU, MEMORY), DEFAULT_RISK_LIMIT_WEIGHT)
    )
    resources: MeasuredResources = CPU_AND_MEMORY
    distribution: Literal["fitted", "measured"] = "fitted"
    count_recent_pods: bool = False

    name: ClassVar[str] = "LowRiskOverCommitment"
    scores_replicas_alike: ClassVar[bool] = True
    reads_metrics: ClassVar[bool] = True

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return, for each resource, the sums of requests and limits, the fitted distribution and the load's risk."""
        terms: Terms = {"measured": metrics.present}
        for resource in self.resources:
            load = self._load_terms(resource, nodes, metrics)
            terms |= {f"{resource.name}.{name}": term for name, term in load.items()}
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return, for each resource, request, limit, the limits' risk and the whole risk, and the node's score."""
        terms: Terms = {}
        largest: Float64s = np.full((1, 1), -np.inf)
        best_effort = np.ones((len(pods), 1), np.bool_)
        for resource in self.resources:
            name = resource.name
            pod_request = per_pod(pods, pod_demand.requests, name)
            pod_limit = per_pod(pods, pod_demand.limits, name)
            allocatable = node[f"{name}.allocatable"]
            request = np.minimum(node[f"{name}.pod_requests"] + pod_request, allocatable)
            limit = node[f"{name}.limit_minus_pod"] + pod_limit
            with np.errstate(divide="ignore", invalid="ignore"):
                over = (limit - allocatable) / (limit - request)
            risk_limit = np.where(limit > allocatable, over, 0.0)
            weight = self.risk_limit_weights.get(name, DEFAULT_RISK_LIMIT_WEIGHT)
            risk = np.clip(weight * risk_limit + (1 - weight) * node[f"{name}.risk_load"], 0.0, 1.0)
            terms[f"{name}.request"], terms[f"{name}.limit"] = request, limit
            terms[f"{name}.risk_limit"], terms[f"{name}.risk"] = risk_limit, risk
            largest = np.maximum(largest, risk)
            best_effort &= (pod_request == 0) & (pod_limit == 0)
        terms["best_effort"] = best_effort
        terms["rank"] = 1 - largest
        terms["score"] = np.where(node["measured"] & ~best_effort, rounded_score(terms["rank"] * MAX_NODE_SCORE), 0)
        return terms

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the limits' risk and the load's risk of each resource as a sentence."""
        if terms["best_effort"]:
            return "the pod has no requests and limits, so the minimum"
        if not terms["measured"]:
            return "no metrics, so the minimum"
        return "; ".join(
            f"{r.name} risk {terms[f'{r.name}.risk']:.3f} (limits {terms[f'{r.name}.risk_limit']:.3f}, "
            f"load {terms[f'{r.name}.risk_load']:.3f})"
            for r in self.resources
        )

    def _load_terms(self, resource: MeasuredResource, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return a resource's load risk (riskLoad in the module's formula), and the values it is computed from."""
        # Mean and deviation of the load, in parts of allocatable.
        use = metrics.of(resource.metric_type)
        allocatable, pod_requests = nodes.allocatable(resource.name), nodes.requests(resource.name)
        request, limit = np.minimum(pod_requests, allocatable), nodes.limits(resource.name)
        rise: Float64s = np.zeros(len(nodes))
        if self.count_recent_pods:
            demand = partial(pod_demand.requests, resource=resource.name)
            rise = recent_pods.unreported(nodes, metrics, demand) / np.where(allocatable > 0, allocatable, np.inf)
        mu, sigma = self._mean_and_deviation(resource.scaled(allocatable), use.average + 100 * rise, use.deviation)
        # P(use <= request), and where the limits are below allocatable, P(use <= limit) to condition on.
        with np.errstate(divide="ignore", invalid="ignore"):  # nodes with nothing allocatable
            threshold = np.clip(request / allocatable, 0.0, 1.0)
            limit_threshold = limit / allocatable
        probability, fit = probability_at_most(mu, sigma, threshold)
        conditioned = (limit < allocatable) & (request <= limit)
        certain = conditioned & (limit_threshold == 0)
        divided = conditioned & ~certain & fit.fitted
        at_limit = np.zeros_like(mu)
        at_limit[divided] = distribution(fit.alpha[divided], fit.beta[divided], limit_threshold[divided])
        # On nodes with measured percentiles, take both probabilities from these.
        if self.distribution == "measured":
            received = measured_distribution.percentiles(use)
            percentiles = {name: np.maximum(value + rise, np.minimum(value, 0.0)) for name, value in received.items()}
            known = measured_distribution.has_percentiles(percentiles)
            within = np.where(allocatable > 0, threshold, 0.0), np.where(conditioned, limit_threshold, 0.0)
            measured = [measured_distribution.probability_at_most(mu, percentiles, x) for x in within]
            probability = np.where(known, measured[0], probability)
            at_limit = np.where(known & conditioned, measured[1], at_limit)
        # The conditional probability: divide by P(use <= limit).
        positive = at_limit > 0
        probability[positive] = np.clip(probability[positive] / at_limit[positive], 0.0, 1.0)
        probability = np.where(certain, 1.0, probability)
        return {
            "allocatable": allocatable,
            "pod_requests": pod_requests,
            "request_minus_pod": request,
            "limit_minus_pod": limit,
            "mu": mu,
            "sigma": sigma,
            "alpha": np.where(fit.fitted, fit.alpha, np.nan),
            "beta": np.where(fit.fitted, fit.beta, np.nan),
            "threshold": threshold,
            "probability": probability,
            "risk_load": np.where(use.valid, 1 - probability, 0.0),
        }

    def _mean_and_deviation(
        self, allocatable: Float64s, average: Float64s, deviation: Float64s
    ) -> tuple[Float64s, Float64s]:
        """Return mean and deviation of the load in parts of allocatable, limited to those of a beta distribution.

        Args:
            allocatable: allocatable amount of each node.
            average: average load in percent of capacity.
            deviation: standard deviation of the load in percent of capacity.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            mu = np.where(allocatable > 0, np.clip(average * allocatable / 100 / allocatable, 0.0, 1.0), 0.0)
            sigma = np.where(allocatable > 0, np.clip(deviation * allocatable / 100 / allocatable, 0.0, 1.0), 0.0)
        sigma = sigma * np.sqrt(float(self.smoothing_window_size))
        return mu, np.minimum(sigma, np.sqrt(max_variance(mu) * _MAX_VARIANCE_ALLOWANCE))
