"""Peaks: place the pod where electric power rises least.

A node's power model is K0 + K1 * exp(K2 * x), with x its CPU utilization in percent. With p the utilization including
the pod:

    raw   = trunc(K1 * (exp(K2 * p) - exp(K2 * x)) * 1e15)
    score = 100 - trunc(100 * (raw - lowest) / (highest - lowest))      100 for all when all are equal and not zero

Source: sigs.k8s.io/scheduler-plugins, pkg/trimaran/peaks.

Upstream gives a node without metrics, without a model, or above 100 percent the raw score 0. That is the smallest
possible rise, so the node becomes the best one. ``missing="worst"`` corrects this: such a node scores 0 and is left out
of the normalization.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, Pod
from scoring.arguments import FINITE, CheckedArguments
from scoring.arrays import Int64s
from scoring.load import recent_pods
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms, per_pod
from scoring.table.node_table import NodeTable
from watcher.model import MetricType

_TO_INTEGER = 1e15
_LARGEST = np.nextafter(2.0**63, 0.0)
# Marks nodes to exclude from the normalization. No power model can reach it, because it is above _LARGEST.
_WORST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class PowerModel(CheckedArguments):
    """Power in watts at x percent of CPU: ``k0 + k1 * exp(k2 * x)``; idle power is ``k0 + k1``."""

    k0: Annotated[float, FINITE] = 0.0
    k1: Annotated[float, FINITE] = 0.0
    k2: Annotated[float, FINITE] = 0.0


@dataclass(frozen=True)
class Peaks(CheckedArguments, ScorePlugin):
    """Arguments of Peaks.

    Attributes:
        node_power_model: power model by node name.
        missing: our option: treat a node without metrics, without a model or above 100 percent as the ``best`` node, as
            upstream does, or as the ``worst``.
        count_recent_pods: our option: add to the measured utilization the requests of recently placed pods, as far as
            the average does not include these pods yet; see :mod:`scoring.load.recent_pods`.
    """

    node_power_model: Mapping[str, PowerModel] = field(default_factory=dict)
    missing: Literal["best", "worst"] = "best"
    count_recent_pods: bool = False

    name: ClassVar[str] = "Peaks"
    scores_replicas_alike: ClassVar[bool] = True
    reads_metrics: ClassVar[bool] = True
    normalizes: ClassVar[bool] = True

    @property
    def reads_pods(self) -> bool:
        """True if the requests of recently placed pods are added to the measured utilization."""
        return self.count_recent_pods

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:
        """Return the CPU capacity, the measured utilization and the power model of each node."""
        use = metrics.of(MetricType.CPU)
        capacity = nodes.capacity(CPU).astype(np.float64)
        models = [self.node_power_model.get(name) for name in nodes.names]
        k1 = np.array([model.k1 if model else 0.0 for model in models], np.float64)
        k2 = np.array([model.k2 if model else 0.0 for model in models], np.float64)
        percent = use.first
        if self.count_recent_pods:
            unreported = recent_pods.unreported(nodes, metrics, pod_demand.peaks_cpu)
            missing_percent = 100 * unreported / np.where(capacity != 0, capacity, np.inf)
            percent = percent + recent_pods.clip_to_measured(missing_percent, percent)
        with np.errstate(over="ignore"):
            power_now = np.exp(k2 * percent)
        return {
            "measured": use.averaged,
            "modeled": np.array([model is not None for model in models], np.bool_),
            "measured_percent": percent,
            "capacity": capacity,
            "measured_use": (percent / 100) * capacity,
            "k1": k1,
            "k2": k2,
            "power_now": power_now,
        }

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the CPU utilization in percent with the pod, the rise in watts and the raw score of each node."""
        request = per_pod(pods, pod_demand.peaks_cpu)
        with np.errstate(divide="ignore", invalid="ignore"):  # nodes without capacity
            percent = 100 * (node["measured_use"] + request) / node["capacity"]
        percent = np.where(node["capacity"] != 0, percent, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # a model whose power overflows
            rise = node["k1"] * (np.exp(node["k2"] * percent) - node["power_now"])
            raw = rise * _TO_INTEGER
        # A rise that overflows 64 bits (about 9,000 watts) is undefined upstream; here it is clipped.
        raw = np.nan_to_num(np.clip(raw, -_LARGEST, _LARGEST)).astype(np.int64)
        full = percent > 100
        if self.missing == "worst":
            raw = np.where(node["measured"] & node["modeled"] & ~full, raw, _WORST)
        else:
            raw = np.where(node["measured"] & ~full, raw, 0)
        return {"request": request, "predicted_percent": percent, "rise_watts": rise, "score": raw}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, highest for the smallest rise, shape (nodes,)."""
        counted = scores != _WORST if self.missing == "worst" else np.ones(scores.shape, np.bool_)
        if not counted.any():
            return np.zeros_like(scores)
        lowest, highest = scores[counted].min(), scores[counted].max()
        if self.missing == "best" and lowest == 0 and highest == 0:
            return scores
        if lowest == highest:
            return np.where(counted, MAX_NODE_SCORE, 0)
        spread = int(highest) - int(lowest)
        if spread <= np.iinfo(np.int64).max:
            above = (scores - lowest).astype(np.float64)  # exact, as upstream
        else:
            above = scores.astype(np.float64) - np.float64(lowest)
        share = MAX_NODE_SCORE * above / np.float64(spread)
        return np.where(counted, MAX_NODE_SCORE - np.where(counted, share, 0.0).astype(np.int64), 0)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the rise in power as a sentence."""
        reasons = [
            reason
            for reason, applies in (
                ("no CPU metric", not terms["measured"]),
                ("no power model", not terms["modeled"]),
                ("over 100% with the pod", terms["predicted_percent"] > 100),
            )
            if applies
        ]
        if reasons:
            becomes = (
                "the worst node" if self.missing == "worst" else "no rise, as upstream, which makes it the best node"
            )
            return f"{', '.join(reasons)}: counts as {becomes}"
        return (
            f"CPU {terms['measured_percent']:.1f}% -> {terms['predicted_percent']:.1f}%, "
            f"power {terms['rise_watts']:+.4g} W"
        )
