"""LoadVariationRiskBalancing: balance the risk of the nodes, which rises with a node's load and with its variation.

For each resource, with mu and sigma clamped to 0 to 1:

    mu    = (average use + the pod's request) / allocatable
    sigma = margin * (deviation of use / allocatable) ^ (1 / sensitivity)
    risk  = (mu + sigma) / 2
    score = (1 - risk) * 100

The node's score is the lowest score of its resources, rounded to an integer, halves away from zero; resources without
metrics are left out. Source: sigs.k8s.io/scheduler-plugins, pkg/trimaran/loadvariationriskbalancing and
resourcestats.go.

Our options change the risk. With ``formula="kep"``, risk = min((average + margin * deviation + request) / allocatable,
1), as in the plugin's proposal, KEP 61. ``balance`` selects one of four quantities as the risk:

    risk                  (mu + sigma) / 2, the default
    load                  mu
    variability           sigma
    relative-variability  sigma / mu, at most 1
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arguments import Between, CheckedArguments
from scoring.arrays import Float64s, Int64s
from scoring.go_math import rounded_score
from scoring.load import recent_pods
from scoring.load.measured_resource import CPU_AND_MEMORY, MeasuredResource, MeasuredResources
from scoring.load.metrics_table import MeasuredUse, MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.table.node_table import NodeTable

_NORMAL_QUANTILES = {"P90": 1.2815515655446004, "P95": 1.6448536269514722, "P99": 2.3263478740408408}


@dataclass(frozen=True)
class LoadVariationRiskBalancing(CheckedArguments, ScorePlugin):
    """Arguments of LoadVariationRiskBalancing.

    Attributes:
        safe_variance_margin: factor on the deviation; 0 ignores variation, larger values avoid it more strongly.
        safe_variance_sensitivity: the deviation, 0 to 1, is raised to the power 1 / sensitivity. Above 1, small
            deviations count more, below 1 less; with 0 only the largest possible deviation counts.
        resources: our option: resources to consider.
        formula: our option: ``trimaran`` computes the risk as upstream's plugin does, ``kep`` as its proposal KEP 61.
        balance: our option for the formula ``trimaran``: quantity that counts as the risk: ``risk`` (mean of load and
            variability), ``load``, ``variability``, or ``relative-variability`` (variability / load).
        percentile: our option: for a node with this percentile, the deviation is (percentile - average) / z, with z the
            quantile of the standard normal distribution, so that only the upper tail counts. "" reads STD.
        count_recent_pods: our option: add to the average use the requests of recently placed pods, as far as the
            average does not include these pods yet; see :mod:`scoring.load.recent_pods`.
    """

    safe_variance_margin: Annotated[float, Between(0)] = 1.0
    safe_variance_sensitivity: Annotated[float, Between(0)] = 1.0
    resources: MeasuredResources = CPU_AND_MEMORY
    formula: Literal["trimaran", "kep"] = "trimaran"
    balance: Literal["risk", "load", "variability", "relative-variability"] = "risk"
    percentile: Literal["", "P90", "P95", "P99"] = ""
    count_recent_pods: bool = False

    name: ClassVar[str] = "LoadVariationRiskBalancing"
    scores_replicas_alike: ClassVar[bool] = True
    reads_metrics: ClassVar[bool] = True

    @property
    def reads_pods(self) -> bool:
        """True if the requests of recently placed pods are added to the average use."""
        return self.count_recent_pods

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return, for each resource, whether it is measured, allocatable amount, average use, deviation and sigma."""
        terms: Terms = {"measured": metrics.present}
        for resource in self.resources:
            use = metrics.of(resource.metric_type)
            allocatable = resource.scaled(nodes.allocatable(resource.name))
            deviation = _within(self._deviation_percent(use) * allocatable / 100, allocatable)
            # A node with nothing allocatable scores 0, as upstream.
            divisor = terms[f"_{resource.name}.divisor"] = _divisor(allocatable)
            terms[f"_{resource.name}.highest"] = np.where(allocatable > 0, float(MAX_NODE_SCORE), 0.0)
            terms[f"{resource.name}.valid"] = use.valid
            terms[f"{resource.name}.allocatable"] = allocatable
            terms[f"_{resource.name}.measured"] = use.average * allocatable / 100
            terms[f"{resource.name}.deviation_use"] = deviation
            terms[f"{resource.name}.sigma"] = self._sigma(_part(deviation, divisor))
            terms |= self._use(resource, terms, nodes, metrics)
        return terms

    def changed_terms(self, node: Terms, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> Terms | None:
        """Return, by resource, the use of recently placed pods and the average use including it, for changed rows."""
        terms: Terms = {}
        for resource in self.resources:
            parts = ("allocatable", "deviation_use") if self.formula == "kep" else ("allocatable",)
            names = [f"_{resource.name}.measured", *(f"{resource.name}.{part}" for part in parts)]
            terms |= self._use(resource, {name: node[name].take(rows) for name in names}, nodes, metrics, rows)
        return terms

    def _use(
        self,
        resource: MeasuredResource,
        node: Terms,
        nodes: NodeTable,
        metrics: MetricsTable,
        rows: Int64s | None = None,
    ) -> Terms:
        """Return the terms of a resource that depend on pods, for ``rows``, or for all rows if it is None."""
        terms: Terms = {}
        average = node[f"_{resource.name}.measured"]
        if self.count_recent_pods:
            request = partial(pod_demand.requests, resource=resource.name)
            unreported = resource.scaled(recent_pods.unreported(nodes, metrics, request, rows))
            terms[f"{resource.name}.unreported"] = unreported
            average = average + unreported
        average = terms[f"{resource.name}.average_use"] = _within(average, node[f"{resource.name}.allocatable"])
        if self.formula == "kep":
            deviation = node[f"{resource.name}.deviation_use"]
            terms[f"{resource.name}.deviated_use"] = average + self.safe_variance_margin * deviation
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the pod's request, mu (use with the pod), risk and score of each resource, and the node's score."""
        terms: Terms = {}
        lowest: Float64s | None = None
        for resource in self.resources:
            request = resource.scaled(per_pod(pods, pod_demand.requests, resource.name))
            divisor = node[f"_{resource.name}.divisor"]
            mu = _mean(node[f"{resource.name}.average_use"], request, divisor)
            if self.formula == "kep":  # adding the pod last reproduces the proposal's example exactly
                risk = _part(node[f"{resource.name}.deviated_use"] + request, divisor)
            else:
                risk = self.risk(mu, node[f"{resource.name}.sigma"])
            score = (1.0 - risk) * node[f"_{resource.name}.highest"]
            terms[f"{resource.name}.request"] = request
            terms[f"{resource.name}.mu"] = mu
            terms[f"{resource.name}.risk"] = risk
            terms[f"{resource.name}.score"] = score
            counted = np.where(node[f"{resource.name}.valid"], score, np.inf)
            lowest = counted if lowest is None else np.minimum(lowest, counted)
        terms["score"] = rounded_score(0.0 if lowest is None else np.where(lowest == np.inf, 0.0, lowest))
        return terms

    def sigma(self, deviation: Float64s, allocatable: Float64s) -> Float64s:
        """Return the part of the risk that comes from variation, 0 to 1.

        Args:
            deviation: standard deviation of use.
            allocatable: allocatable amount, in the same unit.
        """
        return self._sigma(_part(deviation, _divisor(allocatable)))

    def _sigma(self, sigma: Float64s) -> Float64s:
        if self.safe_variance_sensitivity == 0:
            sigma = np.power(sigma, np.inf)
        else:
            sigma = np.power(sigma, 1 / self.safe_variance_sensitivity)
        return np.minimum(np.maximum(sigma * self.safe_variance_margin, 0.0), 1.0)

    def risk(self, mu: Float64s, sigma: Float64s) -> Float64s:
        """Return the risk, 0 to 1: the quantity that ``balance`` selects.

        Args:
            mu: mean use with the pod, 0 to 1, as :meth:`mu` returns it.
            sigma: part of the risk that comes from variation, as :meth:`sigma` returns it.
        """
        if self.balance == "load":
            return mu
        if self.balance == "variability":
            return np.broadcast_to(sigma, np.broadcast_shapes(mu.shape, sigma.shape))
        if self.balance == "relative-variability":
            with np.errstate(divide="ignore", invalid="ignore"):  # without load there is no variability
                return np.where(mu > 0, np.minimum(sigma / mu, 1.0), 0.0)
        return (mu + sigma) / 2

    @staticmethod
    def mu(average: Float64s, request: Float64s, allocatable: Float64s) -> Float64s:
        """Return (average use + request) / allocatable, clamped to 0 to 1; all arguments are in the same unit."""
        return _mean(average, request, _divisor(allocatable))

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return score, mu and sigma of each resource as a sentence, which marks the resource with the lowest score."""
        valid = [resource.name for resource in self.resources if terms[f"{resource.name}.valid"]]
        if not valid:
            return "no metrics, so the minimum"
        worst = min(valid, key=lambda name: float(terms[f"{name}.score"]))
        return "; ".join(
            f"{name} {terms[f'{name}.score']:.1f} (mu {terms[f'{name}.mu']:.3f}, sigma {terms[f'{name}.sigma']:.3f})"
            + (" decides" if name == worst and len(valid) > 1 else "")
            for name in valid
        )

    def _deviation_percent(self, use: MeasuredUse) -> Float64s:
        if self.percentile not in use.percentiles:
            return use.deviation
        percentile = use.percentiles[self.percentile]
        spread = np.maximum(percentile - use.average, 0.0) / _NORMAL_QUANTILES[self.percentile]
        return np.where(np.isnan(percentile), use.deviation, spread)


def _divisor(allocatable: Float64s) -> Float64s:
    return np.where(allocatable > 0, allocatable, np.inf)


def _mean(average: Float64s, request: Float64s, divisor: Float64s) -> Float64s:
    return _part(average + np.maximum(request, 0.0), divisor)


def _part(amount: Float64s, divisor: Float64s) -> Float64s:
    return np.minimum(np.maximum(amount / divisor, 0.0), 1.0)


def _within(amount: Float64s, allocatable: Float64s) -> Float64s:
    return np.maximum(np.minimum(amount, allocatable), 0.0)
