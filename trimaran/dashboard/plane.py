"""The cluster at one look: every node in the plane of mean and deviation, with lines of equal risk, over a day."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from dash import Dash, Input, Output, Patch, State, ctx, dcc, html, no_update
from plotly import graph_objects as go

from trimaran.dashboard.components import (
    LINES,
    Current,
    Query,
    choice,
    chosen_of,
    label_choice,
    labelled,
    matching,
    pool_choice,
    search_box,
)
from trimaran.dashboard.data import Data
from trimaran.dashboard.loads import Loads, Values, loads_of
from trimaran.dashboard.page_context import Beside
from watcher.model import WatcherMetrics

PATH, TITLE = "/", "Cluster"
_RISKS = (0.1, 0.2, 0.3, 0.4, 0.5)
_HOT = 0.4  # such as 70 % on average with a deviation of 10
_NODES = 0  # the trace of the nodes
_SINGLE = 1000  # no more nodes than these are drawn each by itself
_COLUMNS, _ROWS = 80, 40
# The fill is translucent, not the dot: that would be drawn by itself first, which takes ten times as long.
_DOTS = "rgba(47,111,222,.6)"
_SIZE = {"height": "62vh", "minHeight": "20rem"}


def layout(data: Data, query: Query, beside: Beside) -> list[Any]:
    """Return the screen."""
    snapshot = data.snapshot()
    types = _types(snapshot)
    last = loads_of(data, chosen_of(query, "type", types, "CPU")).steps.count
    return [
        html.P(
            "Each node by the mean and the deviation of its load. Lines join equal risk, (mean + deviation) / 2, as "
            "LoadVariationRiskBalancing has it: up and to the right is worse."
        ),
        html.Div(
            [
                choice("plane-type", "Resource", query, "type", types, "CPU"),
                pool_choice("plane-pool", snapshot),
                label_choice("plane-label", beside.labels.of(snapshot)),
                search_box("plane-search"),
            ],
            className="controls",
        ),
        labelled(
            "plane-time",
            "Time: a day ago to now",
            dcc.Input(id="plane-time", type="range", min=0, max=last, step=1, value=last),
        ),
        html.P("", id="plane-said", role="status"),
        dcc.Graph(id="plane", figure=_empty(), config={"displaylogo": False}, className="plane", style=_SIZE),
        html.P("The same as a table, to sort and search: Nodes.", className="hint"),
    ]  # fmt: skip


def register(app: Dash, current: Current, beside: Beside) -> None:
    """Add what the screen does."""

    @app.callback(
        Output("plane", "figure"),
        Output("plane-said", "children"),
        Input("plane-type", "data"),
        Input("plane-pool", "value"),
        Input("plane-label", "value"),
        Input("plane-search", "value"),
        Input("plane-time", "value"),
        State("plane-time", "max"),
    )
    def show(
        type_: str, pool: str | None, label: str | None, search: str | None, time: float | str | None, newest: int
    ) -> tuple[Any, Any]:
        data = current()
        if time is None or time == "":
            return no_update, no_update
        snapshot = data.snapshot()
        if type_ not in _types(snapshot):  # what is made of each is kept: only of those there are
            return no_update, f"There is no resource {str(type_)[:60]!r}."
        loads = loads_of(data, type_)
        try:
            names = matching(snapshot, beside.labels.of(snapshot), search or "", pool or "", label or "")
        except ValueError as error:
            return no_update, str(error)
        step = int(float(time))
        mean, deviation, when = points(loads, names, None if step >= newest else step)
        patch = Patch()
        for part, values in merged(names, mean, deviation, loads.top).items():
            patch["data"][_NODES][part] = values
        if ctx.triggered_id is None or ctx.triggered_id == "plane-type":
            patch["layout"]["xaxis"]["title"]["text"] = f"{type_}, mean, % of capacity"
            patch["layout"]["yaxis"]["range"] = [0, loads.top]
        return patch, said(mean, deviation, when)


def points(loads: Loads, names: Sequence[str], step: int | None) -> tuple[Values, Values, float]:
    """Return the means and deviations of some nodes in percent, and when that was.

    Args:
        loads: of all nodes.
        names: some of them.
        step: of the history; now when None.
    """
    mean, deviation, when = loads.at(step)
    if len(names) == len(loads.names):
        return mean, deviation, when
    wanted = set(names)
    rows = [row for row, name in enumerate(loads.names) if name in wanted]
    return mean[rows], deviation[rows], when


def merged(names: Sequence[str], mean: Values, deviation: Values, top: float) -> dict[str, Any]:
    """Return what is drawn: nodes that would lie on each other are one dot, the larger the more of them.

    Args:
        names: the nodes.
        mean: their means, percent; NaN where that is not known.
        deviation: their deviations.
        top: how high the plane is.
    """
    known = np.flatnonzero(~np.isnan(mean))
    if len(known) <= _SINGLE:
        return {
            "x": np.round(mean[known], 2).tolist(), "y": np.round(deviation[known], 2).tolist(),
            "text": [names[row] for row in known.tolist()], "marker": _marker([5] * len(known)),
        }  # fmt: skip
    columns = np.minimum(mean[known] // (100 / _COLUMNS), _COLUMNS - 1).astype(np.int64)
    rows = np.minimum(deviation[known] // (top / _ROWS), _ROWS - 1).astype(np.int64)
    _, first, of, counts = np.unique(columns * _ROWS + rows, return_index=True, return_inverse=True, return_counts=True)
    x = np.bincount(of, mean[known]) / counts
    y = np.bincount(of, deviation[known]) / counts
    text = [
        names[row] if count == 1 else f"{names[row]} and {count - 1} more"
        for row, count in zip(known[first].tolist(), counts.tolist(), strict=True)
    ]
    sizes = np.round(4 + 2 * np.sqrt(counts), 1).tolist()
    return {"x": np.round(x, 2).tolist(), "y": np.round(y, 2).tolist(), "text": text, "marker": _marker(sizes)}


def said(mean: Values, deviation: Values, when: float) -> str:
    """Return in words what the plane shows, for those who do not see it."""
    known = ~np.isnan(mean)
    hot = int((((mean + deviation) / 200)[known] > _HOT).sum())
    average = f", {mean[known].mean():.1f}% on average" if known.any() else ""
    moment = datetime.fromtimestamp(when, UTC)
    return f"{known.sum()} of {len(mean)} nodes at {moment:%Y-%m-%d %H:%M:%S} UTC{average}; {hot} above risk {_HOT}"


def _marker(sizes: list[float]) -> dict[str, Any]:
    return {"size": sizes, "color": _DOTS, "opacity": 1, "line": {"width": 0}}


def _types(snapshot: WatcherMetrics) -> list[str]:
    found = {metric.type for node in list(snapshot.data.values())[:50] for metric in node.metrics}
    return sorted(found) or ["CPU"]


def _empty() -> go.Figure:
    nodes = go.Scatter(
        x=[], y=[], text=[], mode="markers", marker=_marker([]),
        hovertemplate="%{text}<br>mean %{x}%, deviation %{y}%<extra></extra>", showlegend=False,
    )  # fmt: skip
    # One trace for all lines, as each takes time whenever the nodes are drawn. Their names are another, as plotly mixes
    # names up where some points of a trace have none.
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
        xaxis={"title": {"text": "mean"}, "range": [0, 100], "gridcolor": LINES, "zeroline": False},
        yaxis={"title": {"text": "deviation, %"}, "range": [0, 20], "gridcolor": LINES, "zerolinecolor": LINES},
        uirevision="kept",
    )
    return figure
