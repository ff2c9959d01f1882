"""Charts of the cluster over the last day: capacity, requests and use of all pods together."""

from typing import Any

import numpy as np
from dash import dcc, html
from plotly import graph_objects as go

from trimaran.dashboard.components import GRID_COLOR
from watcher.workload_table import ClusterTotals

#: Name, color and dash of each line.
_LINES = (("capacity", "#8a8f98", "dash"), ("requested", "#c77700", "solid"), ("used", "#2f6fde", "solid"))
_RESOURCES = (("CPU", "cores", 1.0), ("Memory", "GiB", 2.0**30))


def totals_charts(totals: ClusterTotals) -> html.Div:
    """Return a chart of capacity, requests and use over the last day for each resource, with a text of its end."""
    times = (totals.times * 1000).astype("datetime64[ms]").astype(str).tolist()
    blocks = []
    for resource, (name, unit, scale) in enumerate(_RESOURCES):
        values = {line: getattr(totals, line)[resource] / scale for line, _, _ in _LINES}
        figure = go.Figure([
            go.Scatter(
                x=times, y=np.round(values[line], 2).tolist(), name=line, mode="lines", hoverinfo="skip",
                line={"color": color, "dash": dash, "width": 2},
            )
            for line, color, dash in _LINES
            if np.isfinite(values[line]).any()
        ])  # fmt: skip
        figure.update_layout(
            paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#7a808a"}, height=220,
            margin={"l": 60, "r": 10, "t": 10, "b": 45}, showlegend=True, legend={"orientation": "h", "y": 1.15},
            xaxis={"gridcolor": GRID_COLOR, "tickformat": "%H:%M", "title": {"text": "UTC"}},
            yaxis={
                "title": {"text": f"{name}, {unit}"}, "rangemode": "tozero", "gridcolor": GRID_COLOR,
                "zerolinecolor": GRID_COLOR,
            },
        )  # fmt: skip
        graph = dcc.Graph(
            figure=figure, config={"displayModeBar": False, "staticPlot": True}, id=f"totals-{name.lower()}"
        )
        blocks.append(html.Div([graph, html.P(totals_text(name, unit, values), className="hint")], className="chart"))
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
        shares = [f"{each:.1f} ({100 * each / capacity:.0f} %)" for each in (requested, used)]
        return f"{name}: of {capacity:.1f} {unit} that pods may request, {shares[0]} requested, {shares[1]} used"
    why = "capacity unknown: the watcher cannot list nodes, and has no kube-state-metrics"
    return f"{name}: {requested:.1f} {unit} requested, {used:.1f} used ({why})"
