"""Nodes page: a sortable, searchable table of loads per window, last day, grade, age, coverage and findings."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import numpy as np
from dash import Dash, Input, Output, dcc, html, no_update
from numpy.typing import NDArray
from pydantic import validate_call

from trimaran.dashboard import node_details
from trimaran.dashboard.components import (
    CurrentData,
    Query,
    age_seconds,
    duration_text,
    history_alert,
    label_input,
    labeled_control,
    link_choice,
    load_bar,
    load_legend,
    matching_nodes,
    node_link,
    pool_input,
    search_box,
    table,
)
from trimaran.dashboard.data import DashboardData, aligned_values
from trimaran.dashboard.page_context import PageContext
from watcher.model import MetricType, NodeMetrics, coverage_text, grades

PATH, TITLE = "/nodes", "Nodes"
ROWS = 50
_WIDTH, _HEIGHT = 96, 20
_SORTS = ("name", "CPU", "Memory", "age", "coverage", "grade", "findings")
_TYPES = (MetricType.CPU, MetricType.MEMORY)


def layout(data: DashboardData, query: Query, context: PageContext) -> list[Any]:
    """Return the content of the Nodes page, or the page of the node that the query names."""
    if query.get("node"):
        return node_details.layout(data, query["node"], context)
    return [
        html.Div(
            [
                search_box("nodes-search"),
                pool_input("nodes-pool", data.snapshot()),
                label_input("nodes-label", context.labels.by_node(data.snapshot())),
                link_choice("nodes-sort", "Sort by", query, "sort", _SORTS, "CPU"),
                labeled_control(
                    "nodes-page", "Page", dcc.Input(id="nodes-page", type="number", min=1, step=1, value=1)
                ),
            ],
            className="controls",
        ),
        html.P("", id="nodes-status", role="status"),
        html.Div(id="nodes-table"),
    ]


def register(app: Dash, current: CurrentData, context: PageContext) -> None:
    """Register the callbacks of the Nodes page."""
    node_details.register(app, context, current)

    @app.callback(
        Output("nodes-table", "children"),
        Output("nodes-status", "children"),
        Input("nodes-search", "value"),
        Input("nodes-pool", "value"),
        Input("nodes-label", "value"),
        Input("nodes-sort", "data"),
        Input("nodes-page", "value"),
    )
    @validate_call
    def show(search: str | None, pool: str | None, label: str | None, sort: str, page: int | None) -> tuple[Any, str]:
        data = current()
        snapshot = data.snapshot()
        try:
            matches = matching_nodes(snapshot, context.labels.by_node(snapshot), search or "", pool or "", label or "")
        except ValueError as error:
            return no_update, str(error)
        names = sorted_names(data, matches, sort)
        pages = max(1, -(-len(names) // ROWS))
        page = min(max(1, page or 1), pages)
        shown = names[(page - 1) * ROWS : page * ROWS]
        return _table(data, shown), f"{len(names)} nodes, page {page} of {pages}"


def sorted_names(data: DashboardData, names: Iterable[str], sort: str) -> list[str]:
    """Return node names in the order of ``sort``.

    Sorted by name, or with the highest load, oldest data, lowest coverage, worst grade or most findings first.
    """
    snapshot, now = data.snapshot(), time.time()
    counts = Counter(str(finding.get("node", "")) for finding in data.findings())
    by_name = grades(snapshot)
    worst_first = ("incomplete", "last_good", "shorter_window", "suspect", "unchecked", "measured")

    def key(name: str) -> Any:
        node = snapshot.data[name]
        match sort:
            case "CPU" | "Memory":
                average = node.load(sort).avg
                return (-1.0 if average is None else average) * -1, name
            case "age":
                return -age_seconds(snapshot, node, now), name
            case "coverage":
                return float(node.metadata.get("coverage", 1)), name
            case "grade":
                return worst_first.index(by_name[name]) if by_name[name] in worst_first else 0, name
            case "findings":
                return -counts[name], name
            case _:
                return 0, name

    return sorted(names, key=key)


def _table(data: DashboardData, names: list[str]) -> Any:
    windows, snapshot, now = data.windows(), data.snapshot(), time.time()
    day = aligned_values(tuple(names), data.history("CPU", "AVG"), "CPU", "AVG")
    counts = Counter(str(finding.get("node", "")) for finding in data.findings())
    header = ["Node", *(f"{type_} {window}" for type_ in _TYPES for window in windows), "CPU, 24 h", "Grade", "Age"]
    rows, by_name = [], grades(snapshot)
    for row, name in enumerate(names):
        node = snapshot.data[name]
        loads = [
            _load_cell(metrics.data.get(name), type_, is_bar=place == 0)
            for type_ in _TYPES
            for place, metrics in enumerate(windows.values())
        ]
        coverage = coverage_text(node)
        age = duration_text(age_seconds(snapshot, node, now))
        rows.append(
            [node_link(name), *loads, _sparkline(name, day[row]), by_name[name], age, coverage, str(counts[name])]
        )
    return [*history_alert(data), load_legend(), table("Nodes", [*header, "Coverage", "Findings"], rows)]


def _load_cell(node: NodeMetrics | None, type_: str, *, is_bar: bool) -> Any:
    """Return a node's average load and its standard deviation as text; with ``is_bar``, next to a bar."""
    text = load_text(node, type_)
    return load_bar(node.load(type_).avg, text) if node is not None and is_bar else text


def load_text(node: NodeMetrics | None, type_: str) -> str:
    """Return a node's average load and its standard deviation as text, such as ``42.0% ±3.1``; ``-`` if unknown."""
    load = node.load(type_) if node else None
    if load is None or load.avg is None:
        return "-"
    return f"{load.avg:.1f}%" + (f" ±{load.std:.1f}" if load.std is not None else "")


def _sparkline(name: str, values: NDArray[np.float32]) -> Any:
    """Return a day of values as a small line chart, from 0 to 100 percent."""
    known = np.flatnonzero(~np.isnan(values))
    if not known.size:
        return "-"
    # Draw only the highest value of each pixel: a browser's time to draw grows with the number of points.
    pixels = np.rint(known * (_WIDTH / max(1, len(values) - 1))).astype(np.intp)
    starts = np.flatnonzero(np.diff(pixels, prepend=-1))
    y = _HEIGHT - np.maximum.reduceat(values[known], starts) * (_HEIGHT / 100)
    points = " ".join(f"{left},{top:.1f}" for left, top in zip(pixels[starts].tolist(), y.tolist(), strict=True))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<polyline fill="none" stroke="#2f6fde" points="{points}"/></svg>'
    )
    least, most = values[known].min(), values[known].max()
    return html.Img(src=f"data:image/svg+xml,{quote(svg)}", alt=f"{least:.0f} to {most:.0f}%", title=name, width=_WIDTH)
