"""Statistics of nodes with samples out of range, computed without these samples.

Prometheus computes averages over all samples. The same query compares the lowest and the highest sample of each node
with the possible range. Only for nodes that fail this check are the samples themselves read.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from watcher.findings import Finding, Kind
from watcher.model import Operator, Window
from watcher.providers.node_names import NodeLabels
from watcher.providers.prometheus.queries import Expression, ResourceQuery
from watcher.providers.prometheus.selectors import any_of
from watcher.windows.operators import Floats, statistics
from watcher.windows.sample_range import leave_out, left_out

Run = Callable[[str, str], list[dict[str, Any]]]
_Series = list[dict[float, float]]  # of each series, time to value
_STEP = "5s"  # a divisor of every usual scrape interval, so that each sample counts equally often
_MOST_NAMED = 100  # a query lists at most so many nodes; for more nodes it selects all


@dataclass(frozen=True, slots=True)
class RefusedSeries:
    """Reads the samples of nodes, and computes statistics without the samples out of range.

    Attributes:
        run: runs PromQL, with further label matchers, and returns the series with their samples.
        labels_of: returns the node labels of a series.
        label_names: names of the node labels.
        operators: the operators to compute.
    """

    run: Run
    labels_of: Callable[[dict[str, Any]], NodeLabels]
    label_names: Sequence[str]
    operators: Sequence[Operator]

    def read(
        self, query: ResourceQuery, expression: Expression, refused: Mapping[NodeLabels, str], window: Window
    ) -> tuple[dict[tuple[NodeLabels, Operator], float], list[Finding]]:
        """Return the statistics of nodes, in the expression's unit, and a finding for each of them.

        Args:
            query: the query of the metric.
            expression: the expression that has series.
            refused: node labels of each series to read, to the name of its node.
            window: the window.
        """
        samples = self._values(expression.separate(window.duration, _STEP), refused)
        rates = expression.rates(window.duration, window.end)
        averaged = self._values(rates, refused) if rates else samples
        found: dict[tuple[NodeLabels, Operator], float] = {}
        findings = []
        for labels, node in refused.items():
            if not samples.get(labels):  # the result of the query may have labels that its series lack
                message = "samples out of range remain: no series has this node's labels (prometheus.queries)"
                findings.append(Finding(Kind.OUT_OF_RANGE, message, window.duration, node, expression.name))
                continue
            valid, dropped, example = self._valid(samples, labels, query.scale)
            if dropped:
                numbers = dropped, dropped + int((~np.isnan(valid)).sum()), example
                findings.append(left_out(node, expression.name, window.duration, *numbers))
            _, computed = statistics(valid, self.operators)
            if rates:
                valid, _, _ = self._valid(averaged, labels, query.scale)
                computed |= statistics(valid, [Operator.AVG])[1]
            if not np.isnan(valid).all():
                found |= {(labels, each): float(result[0]) / query.scale for each, result in computed.items()}
        return found, findings

    def _valid(
        self, values: Mapping[NodeLabels, _Series], labels: NodeLabels, scale: float
    ) -> tuple[Floats, int, float]:
        """Return a node's possible values in percent, shape (1, times), the number of others, and one of them.

        A value is the mean of all series at that time, such as the series of replicas or devices.
        """
        series = values.get(labels, [])
        times = sorted({at for points in series for at in points})
        percent = np.array([[points.get(at, math.nan) * scale for at in times] for points in series])
        valid, dropped, example = leave_out(percent.reshape(1, -1))
        counts, computed = statistics(valid.reshape(len(series), len(times)).T, [Operator.AVG])
        means = np.where(counts > 0, computed[Operator.AVG], math.nan)
        return means[None], int(dropped[0]), float(example[0])

    def _values(self, promql: str, refused: Collection[NodeLabels]) -> dict[NodeLabels, _Series]:
        """Return the samples of the series of the given nodes."""
        matcher = self._matcher(refused)
        values = self._grouped(self.run(promql, matcher))
        if matcher and set(refused) - values.keys():  # as above, the series may lack a label of the result
            values = self._grouped(self.run(promql, ""))
        return values

    def _grouped(self, series: list[dict[str, Any]]) -> dict[NodeLabels, _Series]:
        values: dict[NodeLabels, _Series] = {}
        for item in series:
            values.setdefault(self.labels_of(item), []).append(_floats(item.get("values")))
        return values

    def _matcher(self, refused: Collection[NodeLabels]) -> str:
        """Return a label matcher that selects the nodes; empty if there are too many, or no label names all of them."""
        if len(refused) > _MOST_NAMED:
            return ""
        for name, values in zip(self.label_names, zip(*refused, strict=True), strict=True):
            if all(values):
                return f'{name}=~"{any_of(sorted(set(values)))}"'
        return ""


def _floats(samples: Any) -> dict[float, float]:
    try:
        # A NaN in the response is an impossible sample; a missing sample is not in the response.
        return {float(at): math.inf if math.isnan(value := float(text)) else value for at, text in samples or ()}
    except (TypeError, ValueError):
        return {}
