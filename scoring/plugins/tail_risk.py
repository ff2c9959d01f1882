"""TailRisk: the probability that a node exceeds its target use once the pod is placed. Our own plugin, not upstream's.

For each resource, let U be the node's use in parts of capacity, a random variable, d the request of the pending pod
plus the requests of pods too new to be measured, and t the target:

    exceeds = P(U + d / capacity > t) = 1 - F(t - d / capacity)
    risk    = 1 - product over resources of (1 - exceeds)        score = round((1 - risk) * 100)

A resource without metrics is left out; a node without any metrics scores 0. F is the distribution function of U: a beta
distribution fitted to the measured mean and deviation, or a distribution through the measured percentiles (argument
``distribution``). The product assumes that the resources are independent. ``together="union"`` computes risk = min(1,
sum of exceeds), an upper bound that holds for every dependence.

Limitations: use in the next window is assumed to be distributed as in the last window, so trends and daily cycles are
missed. A pod is assumed to use exactly its request, so bursts of the pod are missed. A beta distribution has one mode,
so the risk of a node that is either idle or full is wrong (use percentiles instead). Deviations of smoothed series are
too small: ``smoothing_window_size`` corrects this for independent samples, but too much for slowly varying samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring.arguments import LARGEST_INT, Between, check_arguments
from scoring.arrays import Float64s
from scoring.beta_distribution import max_variance, probability_at_most
from scoring.go_math import rounded_score
from scoring.load import measured_distribution, recent_pods
from scoring.load.measured_resource import CPU_AND_MEMORY, MeasuredResources
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.table.node_table import NodeTable
from watcher.model import QUANTILES

# The fit needs a variance below the largest possible one.
_MAX_VARIANCE_ALLOWANCE = 0.99


@dataclass(frozen=True)
class TailRisk(ScorePlugin):
    """Arguments of TailRisk.

    Attributes:
        target: use that a node must not exceed, in percent of capacity.
        smoothing_window_size: number of samples that were averaged into each value before the deviation of the values
            was computed; 1 if the values were not averaged.
        distribution: ``fitted`` for a beta distribution with the measured mean and deviation; ``measured`` for a
            distribution through the measured percentiles, where a node has any.
        together: combination of the resources' risks: ``independent`` or ``union``.
        resources: resources to consider.
        count_recent_pods: for a pod that ran for a part of the window, add that part of its request that the metrics do
            not include. If false, add the whole request or nothing, as TargetLoadPacking does by default. See
            :mod:`scoring.load.recent_pods`.
    """

    target: Annotated[float, Between(0, 100, above=True)] = 100.0
    smoothing_window_size: Annotated[int, Between(1, LARGEST_INT)] = 5
    distribution: Literal["fitted", "measured"] = "fitted"
    together: Literal["independent", "union"] = "independent"
    resources: MeasuredResources = CPU_AND_MEMORY
    count_recent_pods: bool = False

    name: ClassVar[str] = "TailRisk"
    scores_replicas_alike: ClassVar[bool] = True
    reads_metrics: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_arguments(self)

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return, by resource, whether it is measured, capacity, mean, deviation, requests too new, and percentiles."""
        terms: Terms = {"measured": np.zeros(len(nodes), np.bool_)}
        missing = recent_pods.unreported if self.count_recent_pods else recent_pods.unmeasured
        for resource in self.resources:
            use = metrics.of(resource.metric_type)
            mu = np.clip(use.average / 100, 0.0, 1.0)
            sigma = np.clip(use.deviation / 100, 0.0, 1.0) * np.sqrt(float(self.smoothing_window_size))
            terms["measured"] = terms["measured"] | use.valid
            terms[f"{resource.name}.valid"] = use.valid
            terms[f"{resource.name}.capacity"] = nodes.capacity(resource.name)
            terms[f"{resource.name}.mu"] = mu
            terms[f"{resource.name}.sigma"] = np.minimum(sigma, np.sqrt(max_variance(mu) * _MAX_VARIANCE_ALLOWANCE))
            request = partial(pod_demand.requests, resource=resource.name)
            use_now = mu * terms[f"{resource.name}.capacity"]
            terms[f"{resource.name}.missing"] = recent_pods.clip_to_measured(missing(nodes, metrics, request), use_now)
            if self.distribution == "measured":
                measured = measured_distribution.percentiles(use)
                terms |= {f"{resource.name}.{percentile}": values for percentile, values in measured.items()}
        return terms

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return, by resource, the pod's request, a threshold of use, the probability to exceed it; and the score."""
        terms: Terms = {}
        none_exceeds: Float64s = np.ones((1, 1))
        expected: Float64s = np.zeros((1, 1))
        for resource in self.resources:
            name = resource.name
            request = per_pod(pods, pod_demand.requests, name)
            with np.errstate(divide="ignore", invalid="ignore"):  # nodes without the resource
                added = (node[f"{name}.missing"] + request) / node[f"{name}.capacity"]
            threshold = np.where(node[f"{name}.capacity"] > 0, self.target / 100 - added, -1.0)
            exceeds = np.where(node[f"{name}.valid"], 1 - self._at_most(node, name, threshold), 0.0)
            terms[f"{name}.request"], terms[f"{name}.threshold"] = request, threshold
            terms[f"{name}.exceeds"] = exceeds
            none_exceeds, expected = none_exceeds * (1 - exceeds), expected + exceeds
        risk = 1 - none_exceeds if self.together == "independent" else np.minimum(expected, 1.0)
        terms["risk"] = risk
        terms["score"] = np.where(node["measured"], rounded_score((1 - risk) * MAX_NODE_SCORE), 0)
        return terms

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the probability that each resource exceeds the target as a sentence."""
        if not terms["measured"]:
            return "no metrics, so the minimum"
        parts = ", ".join(
            f"{r.name} {100 * terms[f'{r.name}.exceeds']:.2g}%" for r in self.resources if terms[f"{r.name}.valid"]
        )
        return f"use exceeds {self.target:g}% of capacity with probability {100 * terms['risk']:.2g}% ({parts})"

    def _at_most(self, node: Terms, name: str, threshold: Float64s) -> Float64s:
        within = np.clip(threshold, 0.0, 1.0)
        probability, _ = probability_at_most(node[f"{name}.mu"], node[f"{name}.sigma"], within)
        if self.distribution == "measured":
            percentiles: dict[str, Float64s] = {p: node[f"{name}.{p}"] for p in QUANTILES}
            measured = measured_distribution.probability_at_most(node[f"{name}.mu"], percentiles, within)
            probability = np.where(measured_distribution.has_percentiles(percentiles), measured, probability)
        return np.where(threshold < 0, 0.0, np.where(threshold >= 1, 1.0, probability))
