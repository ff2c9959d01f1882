"""Cluster page: a scatter plot of every node by mean and standard deviation, with lines of equal risk, over a day."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from dash import Dash, Input, Output, Patch, State, ctx, dcc, html, no_update
from plotly import graph_objects as go
from pydantic import FiniteFloat, validate_call

from trimaran.dashboard.components import (
    GRID_COLOR,
    CurrentData,
    Query,
    history_alert,
    label_input,
    labeled_control,
    link_choice,
    matching_nodes,
    pool_input,
    search_box,
    selected_option,
)
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.loads import ResourceLoads, Values, resource_loads
from trimaran.dashboard.page_context import PageContext
from watcher.model import WatcherMetrics

PATH, TITLE = "/cluster", "Cluster"
_RISKS = (0.1, 0.2, 0.3, 0.4, 0.5)
_HOT = 0.4  # for example a mean of 70 % with a deviation of 10
_NODES = 0  # index of the plotly trace with the nodes
_MAX_SINGLE_DOTS = 1000  # with more nodes, those close to each other share a dot
_COLUMNS, _ROWS = 80, 40
# A translucent fill color: plotly's marker opacity draws each dot on a layer of its own, ten times as slow.
_DOTS = "rgba(47,111,222,.6)"
_SIZE = {"height": "62vh", "minHeight": "20rem"}


def layout(data: DashboardData, query: Query, context: PageContext) -> list[Any]:
    """Return the content of the Cluster page."""
    snapshot = data.snapshot()
    types = _types(snapshot)
    type_ = selected_option(query, "type", types, "CPU")
    newest = resource_loads(data, type_).steps.count
    return [
        html.P(
            "Each dot is a node, placed by the mean and the standard deviation of its load. Dotted lines connect "
            "points of equal risk, (mean + deviation) / 2, as in LoadVariationRiskBalancing. Risk grows up and to the "
            "right."
        ),
        html.Div(
            [
                link_choice("plane-type", "Resource", query, "type", types, "CPU"),
                pool_input("plane-pool", snapshot),
                label_input("plane-label", context.labels.by_node(snapshot)),
                search_box("plane-search"),
            ],
            className="controls",
        ),
        labeled_control(
            "plane-time",
            "Time, over the last 24 hours",
            dcc.Input(id="plane-time", type="range", min=0, max=newest, step=1, value=newest),
        ),
        *history_alert(data, (type_, "AVG"), (type_, "STD")),
        html.P("", id="plane-status", role="status"),
        dcc.Graph(id="plane", figure=_empty(), config={"displaylogo": False}, className="plane", style=_SIZE),
        html.P("The Nodes page has the same values as a sortable, searchable table.", className="hint"),
    ]  # fmt: skip


def register(app: Dash, current: CurrentData, context: PageContext) -> None:
    """Register the callbacks of the Cluster page."""

    @app.callback(
        Output("plane", "figure"),
        Output("plane-status", "children"),
        Input("plane-type", "data"),
        Input("plane-pool", "value"),
        Input("plane-label", "value"),
        Input("plane-search", "value"),
        Input("plane-time", "value"),
        State("plane-time", "max"),
    )
    @validate_call
    def show(
        type_: str,
        pool: str | None,
        label: str | None,
        search: str | None,
        time: FiniteFloat | Literal[""] | None,
        newest: int,
    ) -> tuple[Any, Any]:
        data = current()
        if time is None or time == "":
            return no_update, no_update
        snapshot = data.snapshot()
        # Loads are cached by resource: an unknown name would stay in the cache for ever.
        if type_ not in _types(snapshot):
            return no_update, f"Unknown resource {type_[:60]!r}."
        loads = resource_loads(data, type_)
        try:
            names = matching_nodes(snapshot, context.labels.by_node(snapshot), search or "", pool or "", label or "")
        except ValueError as error:
            return no_update, str(error)
        step = int(time)
        mean, deviation, when = node_points(loads, names, None if step >= newest else step)
        patch = Patch()
        for attribute, values in merge_dots(names, mean, deviation, loads.top).items():
            patch["data"][_NODES][attribute] = values
        if ctx.triggered_id is None or ctx.triggered_id == "plane-type":
            patch["layout"]["xaxis"]["title"]["text"] = f"{type_}, mean, % of capacity"
            patch["layout"]["yaxis"]["range"] = [0, loads.top]
        return patch, summary(mean, deviation, when)


def node_points(loads: ResourceLoads, names: Sequence[str], step: int | None) -> tuple[Values, Values, float]:
    """Return means and standard deviations of the named nodes' loads, percent, shape (names,), and their Unix time.

    Args:
        loads: loads of all nodes.
        names: nodes to return, in the order of ``loads``.
        step: step of the history; None for the present.
    """
    mean, deviation, when = loads.at(step)
    if len(names) == len(loads.names):
        return mean, deviation, when
    wanted = set(names)
    rows = [row for row, name in enumerate(loads.names) if name in wanted]
    return mean[rows], deviation[rows], when


def merge_dots(names: Sequence[str], mean: Values, deviation: Values, top: float) -> dict[str, Any]:
    """Return the plotly attributes of the dots; with many nodes, the nodes in a grid cell share a larger dot.

    Args:
        names: node names.
        mean: mean load of each node, percent; NaN if unknown.
        deviation: standard deviation of each node's load, percent.
        top: largest deviation on the vertical axis, percent.
    """
    known = np.flatnonzero(~np.isnan(mean))
    if len(known) <= _MAX_SINGLE_DOTS:
        return {
            "x": np.round(mean[known], 2).tolist(), "y": np.round(deviation[known], 2).tolist(),
            "text": [names[row] for row in known.tolist()], "marker": _marker([5] * len(known)),
        }  # fmt: skip
    # Number the cells of the grid, and place each dot at the average of its nodes.
    columns = np.minimum(mean[known] // (100 / _COLUMNS), _COLUMNS - 1).astype(np.int64)
    rows = np.minimum(deviation[known] // (top / _ROWS), _ROWS - 1).astype(np.int64)
    cells = columns * _ROWS + rows
    _, first, cell_of, counts = np.unique(cells, return_index=True, return_inverse=True, return_counts=True)
    x = np.bincount(cell_of, mean[known]) / counts
    y = np.bincount(cell_of, deviation[known]) / counts
    text = [
        names[row] if count == 1 else f"{names[row]} and {count - 1} more"
        for row, count in zip(known[first].tolist(), counts.tolist(), strict=True)
    ]
    sizes = np.round(4 + 2 * np.sqrt(counts), 1).tolist()
    return {"x": np.round(x, 2).tolist(), "y": np.round(y, 2).tolist(), "text": text, "marker": _marker(sizes)}


def summary(mean: Values, deviation: Values, when: float) -> str:
    """Return a text summary of the plot, also for screen readers: number of nodes, time, mean load, nodes at risk."""
    known = ~np.isnan(mean)
    hot = int((((mean + deviation) / 200)[known] > _HOT).sum())
    average = f", {mean[known].mean():.1f}% on average" if known.any() else ""
    moment = datetime.fromtimestamp(when, UTC)
    return f"{known.sum()} of {len(mean)} nodes at {moment:%Y-%m-%d %H:%M:%S} UTC{average}; {hot} above risk {_HOT}"


def _marker(sizes: list[float]) -> dict[str, Any]:
    return {"size": sizes, "color": _DOTS, "opacity": 1, "line": {"width": 0}}


def _types(snapshot: WatcherMetrics) -> list[str]:
    types = {metric.type for node in list(snapshot.data.values())[:50] for metric in node.metrics}
    return sorted(types) or ["CPU"]


def _empty() -> go.Figure:
    nodes = go.Scatter(
        x=[], y=[], text=[], mode="markers", marker=_marker([]),
        hovertemplate="%{text}<br>mean %{x}%, deviation %{y}%<extra></extra>", showlegend=False,
    )  # fmt: skip
    # All lines are one trace, since each trace adds time to every redraw of the nodes. Their labels are a second trace:
    # plotly mixes labels up if only some points of a trace have one.
    lines = go.Scatter(
        x=[x for risk in _RISKS for x in (200 * risk - 100, 200 * risk, None)], y=[100, 0, None] * len(_RISKS),
        mode="lines", hoverinfo="skip", showlegend=False, line={"color": "#8a8f98", "width": 1, "dash": "dot"},
    )  # fmt: skip
    risks = go.Scatter(
        x=[200 * risk for risk in _RISKS], y=[0] * len(_RISKS), text=[f"risk {risk}" for risk in _RISKS],
        mode="text", textposition="top left", hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    figure = go.Figure([nodes, lines, risks])
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#7a808a"},
        margin={"l": 60, "r": 20, "t": 10, "b": 50},
        dragmode="pan",
        xaxis={"title": {"text": "mean"}, "range": [0, 100], "gridcolor": GRID_COLOR, "zeroline": False},
        yaxis={
            "title": {"text": "standard deviation, %"},
            "range": [0, 20],
            "gridcolor": GRID_COLOR,
            "zerolinecolor": GRID_COLOR,
        },
        uirevision="kept",
    )
    return figure
