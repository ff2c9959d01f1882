"""Workloads page: requests next to their use, by workload and by namespace, and charts of the cluster over a day."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, dcc, html
from pydantic import validate_call

from client.errors import ClientError
from runtime.kubernetes.workloads import Workload
from trimaran.dashboard import workload_details
from trimaran.dashboard.components import (
    CurrentData,
    Query,
    labeled_control,
    link_choice,
    search_box,
    suggested_input,
    table,
)
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.totals import totals_charts
from trimaran.dashboard.workload_list import CHANGES, WorkloadRow
from trimaran.workload_advice import cpu_quantity, memory_quantity

PATH, TITLE = "/workloads", "Workloads"
ROWS = 50
_SORTS = ("waste CPU", "waste memory", "requested CPU", "requested memory", "used CPU", "used memory", "pods", "name")
_VIEWS = ("workload", "namespace")
_ANY = "all"
_GIB = 2**30


def layout(data: DashboardData, query: Query, _context: PageContext) -> list[Any]:
    """Return the content of the Workloads page, or the page of the workload that the query names."""
    if query.get("workload"):
        return workload_details.layout(data, query["workload"])
    lines: list[Any] = []
    try:
        lines = [totals_charts(data.totals())]
        workloads = data.workloads()
    except ClientError as error:
        return [html.P(str(error), role="alert"), *lines]
    namespaces = sorted({workload.namespace for workload in workloads.workloads})
    return [
        html.P(
            "What the containers of the running pods request, what they use, and the requests that the watcher "
            "recommends. Waste is the unused part of the requests. Nothing in the cluster is changed."
        ),
        *lines,
        html.Div(
            [
                link_choice("workloads-by", "By", query, "by", _VIEWS, _VIEWS[0]),
                link_choice("workloads-change", "Change", query, "change", (_ANY, *CHANGES), _ANY),
                link_choice("workloads-sort", "Sort by", query, "sort", _SORTS, _SORTS[0]),
            ],
            className="controls",
        ),
        html.Div(
            [
                search_box("workloads-search", "Kind/name contains"),
                suggested_input("workloads-namespace", "Namespace", namespaces, query.get("namespace", "")),
                labeled_control(
                    "workloads-page", "Page", dcc.Input(id="workloads-page", type="number", min=1, step=1, value=1)
                ),
            ],
            className="controls",
        ),
        html.P("", id="workloads-status", role="status"),
        html.Div(id="workloads-table"),
        html.Div(id="workloads-unmeasured"),
    ]


def register(app: Dash, current: CurrentData, _context: PageContext) -> None:
    """Register the callbacks of the Workloads page."""

    @app.callback(
        Output("workloads-table", "children"),
        Output("workloads-status", "children"),
        Output("workloads-unmeasured", "children"),
        Input("workloads-by", "data"),
        Input("workloads-change", "data"),
        Input("workloads-sort", "data"),
        Input("workloads-search", "value"),
        Input("workloads-namespace", "value"),
        Input("workloads-page", "value"),
    )
    @validate_call
    def show(
        by: str, change: str, sort: str, search: str | None, namespace: str | None, page: int | None
    ) -> tuple[Any, str, Any]:
        try:
            workloads = current().workloads()
        except ClientError as error:
            return None, str(error), None
        unmeasured = _unmeasured_table(workloads.matching_unmeasured(search or "", namespace or ""))
        chosen = workloads.matching(search or "", namespace or "", change)
        if by == "namespace":
            return *_shown(workloads.by_namespace(chosen, sort), page, "namespaces"), unmeasured
        ordered = workloads.order(chosen, sort).tolist()
        shown, status = _page(ordered, page, "workloads")
        return _table(workloads.rows(shown)), status, unmeasured


def _shown(rows: Sequence[WorkloadRow], page: int | None, what: str) -> tuple[Any, str]:
    shown, status = _page(rows, page, what)
    return _table(shown), status


def _page(items: Sequence[Any], page: int | None, what: str) -> tuple[Sequence[Any], str]:
    """Return the items of a page, and a text with the number of items and of the page."""
    pages = max(1, -(-len(items) // ROWS))
    page = min(max(1, page or 1), pages)
    return items[(page - 1) * ROWS : page * ROWS], f"{len(items)} {what}, page {page} of {pages}"


def _unmeasured_table(containers: Sequence[tuple[Workload, str, int, str]]) -> Any:
    """Return a table of the first 50 containers that were never measured; None if all were measured."""
    if not containers:
        return None
    more = f", the first {ROWS} of {len(containers)}" if len(containers) > ROWS else ""
    rows = [
        [f"{workload.kind}/{workload.name}", workload.namespace, container, str(pods), reason]
        for workload, container, pods, reason in containers[:ROWS]
    ]
    return table(f"Not measured{more}", ["Workload", "Namespace", "Container", "Pods", "Reason"], rows, wraps=True)


def _table(rows: Sequence[WorkloadRow]) -> Any:
    is_by_namespace = bool(rows) and rows[0].workload is None
    names = ["Namespace"] if is_by_namespace else ["Workload", "Namespace"]
    header = [*names, "Pods", "CPU requested", "CPU used", "CPU waste", "Memory requested", "Memory used"]
    header += ["Memory waste", "Workloads"] if is_by_namespace else ["Memory waste", "Change", "Reason"]
    return table("Requests and use", header, [_cells(row) for row in rows])


def _cells(row: WorkloadRow) -> list[Any]:
    """Return the cells of a row; a request that should change is followed by an arrow and the recommended one."""
    workload = row.workload
    if workload is None:
        name: list[Any] = [dcc.Link(row.name, href=f"?{urlencode({'namespace': row.name})}")]
        end = [row.change]
    else:
        link = dcc.Link(row.name, href=f"?{urlencode({'workload': '/'.join(workload)})}")
        name, end = [link, workload.namespace], [row.change or "-", row.reason or "-"]
    amounts = [
        text
        for resource, write in enumerate((_cores, _gib))
        for text in (
            _arrow(write(row.requested[resource]), write(row.recommended[resource])),
            write(row.used[resource]),
            write(row.wasted[resource]),
        )
    ]
    return [*name, f"{row.pods:.0f}", *amounts, *end]


def _arrow(present: str, recommended: str) -> str:
    return present if present == recommended else f"{present} → {recommended}"


def _cores(cores: float) -> str:
    return f"{cores:.1f}" if cores >= 1 else cpu_quantity(cores)


def _gib(amount: float) -> str:
    return f"{amount / _GIB:.1f} GiB" if amount >= _GIB else memory_quantity(amount)
