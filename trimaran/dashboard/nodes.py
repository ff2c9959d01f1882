"""The nodes as a table: all windows, a day as a line, grade, age, coverage, findings; to sort and to search."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import numpy as np
from dash import Dash, Input, Output, dcc, html, no_update
from numpy.typing import NDArray

from trimaran.dashboard.components import (
    Current,
    Query,
    age_of,
    choice,
    grade_of,
    label_choice,
    labelled,
    matching,
    pool_choice,
    search_box,
    table,
)
from trimaran.dashboard.data import Data, aligned
from trimaran.dashboard.page_context import Beside
from watcher.model import MetricType, NodeMetrics

PATH, TITLE = "/nodes", "Nodes"
ROWS = 50
_WIDTH, _HEIGHT = 96, 20
_SORTS = ("name", "CPU", "Memory", "age", "coverage", "grade", "findings")
_TYPES = (MetricType.CPU, MetricType.MEMORY)


def layout(data: Data, query: Query, beside: Beside) -> list[Any]:
    """Return the screen."""
    return [
        html.Div(
            [
                search_box("nodes-search"),
                pool_choice("nodes-pool", data.snapshot()),
                label_choice("nodes-label", beside.labels.of(data.snapshot())),
                choice("nodes-sort", "Sort by", query, "sort", _SORTS, "CPU"),
                labelled("nodes-page", "Page", dcc.Input(id="nodes-page", type="number", min=1, step=1, value=1)),
            ],
            className="controls",
        ),
        html.P("", id="nodes-said", role="status"),
        html.Div(id="nodes-table"),
    ]


def register(app: Dash, current: Current, beside: Beside) -> None:
    """Add what the screen does."""

    @app.callback(
        Output("nodes-table", "children"),
        Output("nodes-said", "children"),
        Input("nodes-search", "value"),
        Input("nodes-pool", "value"),
        Input("nodes-label", "value"),
        Input("nodes-sort", "data"),
        Input("nodes-page", "value"),
    )
    def show(search: str | None, pool: str | None, label: str | None, sort: str, page: int | None) -> tuple[Any, str]:
        data = current()
        snapshot = data.snapshot()
        try:
            found = matching(snapshot, beside.labels.of(snapshot), search or "", pool or "", label or "")
        except ValueError as error:
            return no_update, str(error)
        names = in_order(data, found, sort)
        pages = max(1, -(-len(names) // ROWS))
        page = min(max(1, page or 1), pages)
        shown = names[(page - 1) * ROWS : page * ROWS]
        return _table(data, shown), f"{len(names)} nodes, page {page} of {pages}"


def in_order(data: Data, names: Iterable[str], sort: str) -> list[str]:
    """Return nodes in the order of a table: the highest load, the oldest, the least covered, the worst first."""
    snapshot, now = data.snapshot(), time.time()
    counts = Counter(str(each.get("node", "")) for each in data.findings())
    grades = ("last_good", "shorter_window", "suspect", "measured")

    def key(name: str) -> Any:
        node = snapshot.data[name]
        match sort:
            case "CPU" | "Memory":
                average = node.load(sort).avg
                return (-1.0 if average is None else average) * -1, name
            case "age":
                return -age_of(snapshot, node, now), name
            case "coverage":
                return float(node.metadata.get("coverage", 1)), name
            case "grade":
                return grades.index(grade_of(node)) if grade_of(node) in grades else 0, name
            case "findings":
                return -counts[name], name
            case _:
                return 0, name

    return sorted(names, key=key)


def _table(data: Data, names: list[str]) -> Any:
    windows, snapshot, now = data.windows(), data.snapshot(), time.time()
    day = aligned(tuple(names), data.history("CPU", "AVG"), "CPU", "AVG")
    counts = Counter(str(each.get("node", "")) for each in data.findings())
    header = ["Node", *(f"{type_} {window}" for type_ in _TYPES for window in windows), "CPU, 24 h", "Grade", "Age"]
    rows = []
    for row, name in enumerate(names):
        node = snapshot.data[name]
        loads = [load_text(each.data.get(name), type_) for type_ in _TYPES for each in windows.values()]
        coverage = f"{100 * float(node.metadata.get('coverage', 1)):.0f}%"
        age = f"{age_of(snapshot, node, now):.0f} s"
        rows.append([name, *loads, _spark(name, day[row]), grade_of(node), age, coverage, str(counts[name])])
    return table("Nodes", [*header, "Coverage", "Findings"], rows)


def load_text(node: NodeMetrics | None, type_: str) -> str:
    """Return average and deviation of one window."""
    load = node.load(type_) if node else None
    if load is None or load.avg is None:
        return "-"
    return f"{load.avg:.1f}%" + (f" ±{load.std:.1f}" if load.std is not None else "")


def _spark(name: str, values: NDArray[np.float32]) -> Any:
    """Return a day as a small picture, 0 to 100 percent."""
    known = np.flatnonzero(~np.isnan(values))
    if not known.size:
        return "-"
    x = known * (_WIDTH / max(1, len(values) - 1))
    y = _HEIGHT - values[known] * (_HEIGHT / 100)
    points = " ".join(f"{left:.0f},{top:.1f}" for left, top in zip(x.tolist(), y.tolist(), strict=True))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<polyline fill="none" stroke="#2f6fde" points="{points}"/></svg>'
    )
    least, most = values[known].min(), values[known].max()
    return html.Img(src=f"data:image/svg+xml,{quote(svg)}", alt=f"{least:.0f} to {most:.0f}%", title=name, width=_WIDTH)
