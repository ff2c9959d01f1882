"""Charts of the cluster over the last day: capacity, requests and use of all pods together."""

from typing import Any

import numpy as np
from dash import html

from trimaran.dashboard.line_chart import Line, line_chart
from watcher.workload_table import ClusterTotals

#: Name, color of each line, and whether it is dashed.
_LINES = (("capacity", "#8a8f98", True), ("requested", "#c77700", False), ("used", "#2f6fde", False))
_LARGE = 1000.0  # amounts from this one have no decimals
_RESOURCES = (("CPU", "cores", 1.0), ("Memory", "GiB", 2.0**30))


def totals_charts(totals: ClusterTotals) -> html.Div:
    """Return a chart of capacity, requests and use over the last day for each resource, with its newest values."""
    blocks = []
    for resource, (name, unit, scale) in enumerate(_RESOURCES):
        values = {line: getattr(totals, line)[resource] / scale for line, _, _ in _LINES}
        text = totals_text(name, unit, values)
        lines = [Line(f"{line}, {unit}", color, is_dashed, values[line]) for line, color, is_dashed in _LINES]
        chart = line_chart(totals.times, lines, text, f"totals-{name.lower()}")
        blocks.append(html.Div([chart, html.P(text, className="hint")], className="chart"))
    return html.Div(blocks, className="charts")


def totals_text(name: str, unit: str, values: dict[str, Any]) -> str:
    """Return the newest values of a resource as text, also for screen readers.

    Args:
        name: name of the resource.
        unit: unit of the values.
        values: capacity, requests and use over time, by name.
    """
    capacity, requested, used = (float(values[line][-1]) for line, _, _ in _LINES)
    if np.isfinite(capacity) and capacity > 0:
        shares = [f"{_amount(each)} ({100 * each / capacity:.0f} %)" for each in (requested, used)]
        return f"{name}: of {_amount(capacity)} {unit} that pods may request, {shares[0]} requested, {shares[1]} used"
    why = "capacity unknown: the watcher cannot list nodes, and has no kube-state-metrics"
    return f"{name}: {_amount(requested)} {unit} requested, {_amount(used)} used ({why})"


def _amount(value: float) -> str:
    return f"{value:.1f}" if abs(value) < _LARGE else f"{value:,.0f}"
