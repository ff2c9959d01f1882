"""TargetLoadPacking: pack nodes up to a target utilization, then spread.

With T = target_utilization and p the node's predicted use with the pod, both in percent of capacity:

    p = 100 * (measured use + the pod's predicted use + predicted use of pods too new to be measured) / capacity
    score = (100 - T) * p / T + T          for p <= T: from T on an empty node up to 100 at the target
          = T * (100 - p) / (100 - T)      for p > T: from T down to 0 on a full node
          = 0                              for p > 100

The score is rounded to an integer, halves away from zero. A node without an AVG or Latest CPU metric scores 0. Source:
sigs.k8s.io/scheduler-plugins, pkg/trimaran/targetloadpacking, and its KEP 61.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes.objects import CPU, GPU, MAX_AMOUNT, Container, Pod
from scoring.arguments import Between, CheckedArguments, Distinct, Problems
from scoring.arrays import Float64s, Int64s
from scoring.go_math import round_half_away, rounded_score
from scoring.load import recent_pods
from scoring.load.measured_resource import MEASURED_RESOURCES, measured
from scoring.load.metrics_table import MetricsTable
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.table.node_table import NodeTable

_UNITS = {CPU: "m", GPU: " GPUs"}


@dataclass(frozen=True)
class TargetLoadPacking(CheckedArguments, ScorePlugin):
    """Arguments of TargetLoadPacking.

    Attributes:
        target_utilization: use up to which nodes are packed, in percent of capacity, above 0 and at most 100.
        default_requests: expected use of a container without request and limit, in millicores, or bytes for memory.
        default_requests_multiplier: expected use of a container that has only a request, as a multiple of the request.
        resource: our option: pack on ``cpu`` or on another measured resource, such as ``memory``.
        predict_from: our option: ``limits`` predicts that a container uses its limit, if it has one, as upstream does.
            ``requests`` prefers the request times the multiplier, for clusters whose limits are far above use.
        percentile: our option: operator of the metric that replaces AVG, such as ``P95``, on nodes that have it. ""
            reads AVG, as upstream.
        count_recent_pods: our option: for a pod that ran for a part of the window, add that part of its expected use
            that the metrics do not include. Upstream adds the whole expected use or nothing. See
            :mod:`scoring.load.recent_pods`.
        parts: our option: pack several resources. Each part is a TargetLoadPacking for one resource, and its weight.
            The score is the weighted mean over the resources that the node has and that are measured there. The other
            arguments are then ignored.
    """

    target_utilization: Annotated[int, Between(1, 100)] = 40
    default_requests: Annotated[int, Between(0, MAX_AMOUNT)] = 1000
    default_requests_multiplier: Annotated[float, Between(0, 1000)] = 1.5
    resource: Annotated[str, measured] = CPU
    predict_from: Literal["limits", "requests"] = "limits"
    percentile: Literal["", "P90", "P95", "P99", "MAX"] = ""
    count_recent_pods: bool = False
    parts: "_Parts" = ()

    name: ClassVar[str] = "TargetLoadPacking"
    scores_replicas_alike: ClassVar[bool] = True
    reads_metrics: ClassVar[bool] = True

    def predicted_use(self, pod: Pod) -> int:
        """Return the expected use of a pod's containers and overhead, in millicores for cpu, otherwise in bytes.

        Init containers are not counted, because they finish before the pod's load is measured.
        """
        use = sum(map(self._container_use, pod.containers)) + pod.overhead.amount(self.resource)
        return use or pod.annotated.amount(self.resource)

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the capacity, the measured use, and the predicted use of pods that the metrics do not include yet."""
        if self.parts:
            parts = [(part.resource, part.node_terms(nodes, metrics)) for part, _ in self.parts]
            return {f"{name}.{term}": values for name, terms in parts for term, values in terms.items()}
        use = metrics.of(MEASURED_RESOURCES[self.resource].metric_type)
        measured_percent = use.last
        if self.percentile in use.percentiles:
            percentile = use.percentiles[self.percentile]
            measured_percent = np.where(np.isnan(percentile), use.last, percentile)
        capacity = nodes.capacity(self.resource).astype(np.float64)
        measured_use = (measured_percent / 100) * capacity
        return {
            "measured": use.averaged,
            "measured_percent": measured_percent,
            "capacity": capacity,
            "measured_use": measured_use,
            "missing_use": self._missing_use(nodes, metrics, measured_use),
            "divisor": np.where(capacity != 0, capacity, np.inf),  # no capacity: 0 percent, as upstream
        }

    def changed_terms(self, node: Terms, nodes: NodeTable, metrics: MetricsTable, rows: Int64s) -> Terms | None:
        """Return the predicted use of pods that the metrics do not include yet, for changed rows.

        With several resources (``parts``) the result is None, so all terms of these rows are recomputed.
        """
        if self.parts:
            return None
        return {"missing_use": self._missing_use(nodes, metrics, node["measured_use"].take(rows), rows)}

    def _missing_use(
        self, nodes: NodeTable, metrics: MetricsTable, measured_use: Float64s, rows: Int64s | None = None
    ) -> Float64s:
        missing = recent_pods.unreported if self.count_recent_pods else recent_pods.unmeasured
        return recent_pods.clip_to_measured(missing(nodes, metrics, self.predicted_use, rows), measured_use)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the pod's predicted use, the node's predicted percent (by resource with ``parts``), and the score."""
        if self.parts:
            return self._weighted(pods, node)
        terms = self._packed(pods, node)
        return {**terms, "score": rounded_score(terms.pop("raw"))}

    def _weighted(self, pods: Sequence[Pod], node: Terms) -> Terms:
        terms: Terms = {}
        total, weights = np.zeros((1, 1)), np.zeros((1, 1))
        for part, weight in self.parts:
            prefix = f"{part.resource}."
            part_terms = {name.removeprefix(prefix): term for name, term in node.items() if name.startswith(prefix)}
            packed = part._packed(pods, part_terms)  # noqa: SLF001  of this class
            counted = part_terms["measured"] & (part_terms["capacity"] > 0)
            total = total + np.where(counted, weight * packed["raw"], 0.0)
            weights = weights + np.where(counted, weight, 0)
            terms |= {f"{prefix}{name}": term for name, term in packed.items()}
        terms["score"] = rounded_score(total / np.maximum(weights, 1))
        return terms

    def _packed(self, pods: Sequence[Pod], node: Terms) -> Terms:
        """Return the pod's predicted use, the node's predicted percent, and the score before rounding."""
        target = float(self.target_utilization)
        predicted_use = per_pod(pods, self.predicted_use)
        percent = 100 * (node["measured_use"] + predicted_use + node["missing_use"]) / node["divisor"]
        rising = (100 - target) * percent / target + target
        # With a target of 100 the score never falls gradually: above 100 percent it is 0.
        falling = target * (100 - percent) / (100 - target) if target < 100 else 0.0
        counts = node["measured"] & (percent <= max(target, 100.0))
        raw = np.where(counts, np.where(percent > target, falling, rising), 0.0)
        return {"predicted_use": predicted_use, "predicted_percent": percent, "raw": raw}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the predicted utilization and the target as a sentence."""
        if self.parts:
            lines = []
            for part, weight in self.parts:
                prefix = f"{part.resource}."
                own_terms = {name.removeprefix(prefix): term for name, term in terms.items() if name.startswith(prefix)}
                scored = f" scores {own_terms['raw']:.1f}" if own_terms["measured"] else ""
                lines.append(f"{part.resource} (weight {weight}){scored}: {part.line(own_terms)}")
            return "; ".join(lines)
        if not terms["measured"]:
            return f"no {MEASURED_RESOURCES[self.resource].metric_type} metric, so the minimum"
        unit = _UNITS.get(self.resource, " bytes")
        side = "over 100%" if terms["predicted_percent"] > 100 else "of"
        return (
            f"measured {terms['measured_use']:.0f}{unit} + pod {terms['predicted_use']}{unit} + not yet measured "
            f"{terms['missing_use']:.0f}{unit} = {terms['predicted_percent']:.1f}% {side} capacity "
            f"{terms['capacity']:.0f}{unit}, target {self.target_utilization}%"
        )

    def _container_use(self, container: Container) -> int:
        name, limits, requests = self.resource, container.limits, container.requests
        if name in limits and (self.predict_from == "limits" or name not in requests):
            return limits[name]
        if name in requests:
            return int(round_half_away(requests[name] * self.default_requests_multiplier))
        return self.default_requests


def _without_parts(parts: tuple[tuple[TargetLoadPacking, int], ...]) -> Problems:
    """Constraint: no part has parts itself."""
    for index, (part, _) in enumerate(parts):
        if part.parts:
            yield f"[{index}]", "must not have parts of its own"


_distinct = Distinct(lambda part: part[0].resource)
_Parts = Annotated[tuple[tuple[TargetLoadPacking, Annotated[int, Between(1, 100)]], ...], _without_parts, _distinct]
