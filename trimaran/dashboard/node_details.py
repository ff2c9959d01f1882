"""Page of one node: load by window and over a day, pods by workload, decisions, moves and findings."""

import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import numpy as np
from dash import Dash, Input, Output, dcc, html
from pydantic import validate_call

from client.errors import ClientError
from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.components import (
    HOT_PERCENT,
    age_seconds,
    duration_text,
    history_alert,
    load_bar,
    load_legend,
    table,
    time_ago,
    workload_link,
)
from trimaran.dashboard.data import DashboardData, aligned_values
from trimaran.dashboard.data_quality import related_settings
from trimaran.dashboard.hot_nodes import hot_since
from trimaran.dashboard.line_chart import Line, line_chart
from trimaran.dashboard.moves import MOVE_HEADER, move_rows
from trimaran.dashboard.node_pods import workloads_by_node
from trimaran.dashboard.page_context import PageContext
from watcher.model import MetricType, grades

_LINES = ((MetricType.CPU, "#2f6fde", False), (MetricType.MEMORY, "#c77700", True))
_DECISIONS = 20


def layout(data: DashboardData, name: str, context: PageContext) -> list[Any]:
    """Return the page of a node."""
    back = html.P(dcc.Link("All nodes", href="?"))
    snapshot = data.snapshot()
    node = snapshot.data.get(name)
    if node is None:
        return [html.P(f"no metrics of node {name[:200]!r}", role="alert"), back]
    now = time.time()
    facts = [f"{grades(snapshot)[name]}, {duration_text(age_seconds(snapshot, node, now))} old"]
    if since := hot_since(data, [name]):
        facts.append(f"hot ({HOT_PERCENT} % or more) for {duration_text(now - since[name])}")
    facts += [
        f"tainted {key}{f' for {duration_text(now - at)}' if at else ''}"
        for key, at in context.labels.soft_taints().get(name, {}).items()
    ]
    findings = [each for each in data.findings() if each.get("node") == name]
    return [
        html.H2(name),
        html.P("; ".join(facts), role="status"),
        table("Load by window", ["Window", *_types(data, name)], window_rows(data, name)),
        load_legend(),
        html.H2("Last 24 hours"),
        _day(data, name),
        html.H2("Pods by workload"),
        _pods(data, name),
        html.H2("Decisions and moves"),
        dcc.Store("node-name", data=name),
        html.Div(id="node-acts"),
        html.H2("Findings"),
        table("Findings", ["Kind", "Since", "Message", "Settings to check"], _finding_rows(findings, now))
        if findings
        else html.P("None."),
        back,
    ]


def register(app: Dash, context: PageContext, current: Any) -> None:
    """Register the callback that fills in decisions and moves: a slow extender or rebalancer delays only these."""

    @app.callback([Output("node-acts", "children")], Input("node-name", "data"))
    @validate_call
    def show(name: str | None) -> tuple[Any]:
        return ([*_decisions(name or "", context), *_moves(current(), name or "", context)],)


def _types(data: DashboardData, name: str) -> list[str]:
    """Return the types of the node's metrics, CPU and memory first."""
    present = {metric.type for snapshot in data.windows().values() for metric in _metrics(snapshot.data.get(name))}
    first = [str(type_) for type_, _, _ in _LINES if type_ in present]
    return [*first, *sorted(present - set(first))]


def _metrics(node: Any) -> Iterable[Any]:
    return node.metrics if node else ()


def window_rows(data: DashboardData, name: str) -> list[list[Any]]:
    """Return a row for each window, with the average and the standard deviation of each type."""
    rows = []
    for window, snapshot in data.windows().items():
        node = snapshot.data.get(name)
        loads = [node.load(type_) if node else None for type_ in _types(data, name)]
        rows.append([
            window,
            *(
                "-" if load is None or load.avg is None
                else load_bar(load.avg, f"{load.avg:.1f} %" + (f" ±{load.std:.1f}" if load.std is not None else ""))
                for load in loads
            ),
        ])  # fmt: skip
    return rows


def _day(data: DashboardData, name: str) -> Any:
    lines, texts, times = list[Line](), [], np.zeros(0)
    for type_, color, is_dashed in _LINES:
        history = data.history(type_, "AVG")
        values = aligned_values((name,), history, type_, "AVG")[0].astype(np.float64)
        if not np.isfinite(values).any():
            continue
        times = history.times.astype(np.float64)
        lines.append(Line(f"{type_}, % of capacity", color, is_dashed, values))
        texts.append(
            f"{type_}: {np.nanmin(values):.0f} to {np.nanmax(values):.0f} %, {np.nanmean(values):.0f} % on average"
        )
    if not texts:
        alerts = history_alert(data, *((type_, "AVG") for type_, _, _ in _LINES))
        return html.Div(alerts or html.P("The watcher has no history of this node."))
    text = "; ".join(texts)
    lines = [line for line in lines if len(line.values) == len(times)]  # the second history may have one step more
    return html.Div([line_chart(times, lines, text, "node-day", top=100.0), html.P(text, className="hint")])


def _pods(data: DashboardData, name: str) -> Any:
    try:
        workloads = workloads_by_node(data.pods_on([name])).get(name, ())
    except ClientError as error:
        return html.P(str(error))
    rows = [
        [
            workload_link("/".join(each.workload)),
            each.workload.namespace,
            str(each.pods),
            f"{each.cores:.2f}",
            f"{each.gib:.1f} GiB",
        ]
        for each in workloads
    ]
    return table(
        "Measured pods, the largest CPU use first", ["Workload", "Namespace", "Pods", "CPU, cores", "Memory"], rows
    )


def _decisions(name: str, context: PageContext) -> list[Any]:
    if context.decisions is None:
        return [html.P("No extender is configured: --extender URL (in a watcher: dashboard.extender).")]
    try:
        decisions = [each for each in context.decisions.recent() if (each.get("chosen") or {}).get("node") == name]
    except ServiceUnavailable as error:
        return [html.P(str(error), role="alert")]
    if not decisions:
        return [html.P("No pod of the extender's last decisions runs here.")]
    rows = [
        [
            dcc.Link(each["pod"], href=f"decisions?{urlencode({'pod': each['pod']})}"),
            time_ago(each["at"]),
            each["mode"],
            "-" if each["chosen"].get("rank") is None else str(each["chosen"]["rank"]),
        ]
        for each in decisions[:_DECISIONS]
    ]
    return [
        table("Pods that were placed here, the newest first", ["Pod", "Decided", "Mode", "Rank of this node"], rows)
    ]


def _moves(data: DashboardData, name: str, context: PageContext) -> list[Any]:
    if context.rebalancer is None:
        return [html.P(["No rebalancer is configured: ", dcc.Link("how to begin", href="moves"), "."])]
    try:
        moves = context.rebalancer.read()["moves"]
    except ServiceUnavailable as error:
        return [html.P(str(error), role="alert")]
    of_node = [each for each in moves if name in {each["source"], each["target"], each["landed_on"]}]
    if not of_node:
        return [html.P("No pod moved from or to this node in the last day.")]
    return [table("Moves from and to this node, the newest first", MOVE_HEADER, move_rows(of_node, data))]


def _finding_rows(findings: Iterable[Mapping[str, Any]], now: float) -> list[list[Any]]:
    return [
        [
            str(each.get("kind")),
            time_ago(float(each["since"]), now) if isinstance(each.get("since"), int) else "-",
            str(each.get("message")),
            related_settings(str(each.get("kind"))),
        ]
        for each in findings
    ]
