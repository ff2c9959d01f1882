"""Overview page, for the person on call: state of the data, hot nodes, the cluster over a day, findings, what acts."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dash import Dash, Input, Output, dcc, html
from pydantic import validate_call

from client.errors import ClientError
from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.components import (
    HOT_PERCENT,
    CurrentData,
    Query,
    duration_text,
    load_bar,
    load_legend,
    node_link,
    table,
    time_ago,
    workload_link,
)
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.hot_nodes import RankedNodes, hot_since, ranked_nodes
from trimaran.dashboard.moves import brake_text, mode_text
from trimaran.dashboard.node_pods import WorkloadOnNode, workloads_by_node
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.totals import totals_charts
from trimaran.dashboard.trust import related_settings
from watcher.model import grades

PATH, TITLE = "/", "Overview"
_SECONDS = 30
_NODES, _FINDINGS, _WORKLOADS = 10, 8, 3
_NOTHING = "-"


def layout(_data: DashboardData, _query: Query, _context: PageContext) -> list[Any]:
    """Return the content of the Overview page; its blocks are filled by callbacks, and again every 30 seconds."""
    return [
        html.Div(id="overview-data"),
        html.Div(id="overview-actors"),
        html.Div(id="overview-watcher"),
        dcc.Interval(id="overview-tick", interval=1000 * _SECONDS),
    ]


def register(app: Dash, current: CurrentData, context: PageContext) -> None:
    """Register the callbacks of the Overview page. An extender that does not answer delays its own block only."""

    @app.callback(
        Output("overview-data", "children"),
        Output("overview-watcher", "children"),
        Input("overview-tick", "n_intervals"),
    )
    @validate_call
    def show_watcher(_turn: int | None) -> tuple[Any, Any]:
        data = current()
        try:
            return _data_state(data), [*_hot_nodes(data, context), *_cluster(data), *_findings(data)]
        except ClientError as error:
            return html.P(str(error), role="alert"), None

    @app.callback([Output("overview-actors", "children")], Input("overview-tick", "n_intervals"))
    @validate_call
    def show_actors(_turn: int | None) -> tuple[Any]:
        return (table("What acts on the cluster", ["Part", "State", "Details"], actor_rows(context), wraps=True),)


def data_text(data: DashboardData, now: float) -> str:
    """Return whether the data is good, and how old it is, in one line."""
    snapshot, reasons = data.snapshot(), data.health()
    others = sum(grade != "measured" for grade in grades(snapshot).values())
    word = "NOT GOOD" if reasons else f"good, but {others} nodes have no values of their own" if others else "good"
    return (
        f"Data: {word}. {len(snapshot.data)} nodes, {duration_text(now - snapshot.window.end)} old "
        f"({snapshot.window.duration} window of {snapshot.source})"
    )


def _data_state(data: DashboardData) -> list[Any]:
    reasons = data.health()
    line = html.P(
        [data_text(data, time.time()), ". ", dcc.Link("Trust", href="trust")], role="status", className="line"
    )
    return [line, html.Ul([html.Li(reason) for reason in reasons])] if reasons else [line]


def _hot_nodes(data: DashboardData, context: PageContext) -> list[Any]:
    ranked = ranked_nodes(data)
    title = f"{ranked.hot} hot nodes, {ranked.warm} that may become hot"
    header = ["Node", "CPU", "Memory", "State", "Tainted", "Largest workloads by CPU"]
    hint = (
        f"Hot: CPU or memory at {HOT_PERCENT} % or more. May become hot: the load plus two standard deviations "
        f"reaches {HOT_PERCENT} %."
    )
    try:
        runs, reason = workloads_by_node(data.pods_on(ranked.names[:_NODES])) if ranked.names else {}, ""
    except ClientError as error:
        runs, reason = {}, f" Workloads: {error}."
    rows = hot_node_rows(data, context, ranked, runs, time.time())
    return [
        html.H2(title),
        table(f"The {len(rows)} hottest of {len(ranked.names)} nodes", header, rows),
        load_legend(),
        html.P(
            [f"{hint}{reason} ", dcc.Link("All nodes", href="nodes"), ", ", dcc.Link("as a plot", href="cluster")],
            className="hint",
        ),
    ]


def hot_node_rows(
    data: DashboardData,
    context: PageContext,
    ranked: RankedNodes,
    runs: Mapping[str, Sequence[WorkloadOnNode]],
    now: float,
) -> list[list[Any]]:
    """Return a row for each of the ten hottest nodes: loads, since when it is hot, taints, and what runs there."""
    names = ranked.names[:_NODES]
    since, taints = hot_since(data, names), context.labels.soft_taints()
    rows = []
    for row, name in enumerate(names):
        cpu, memory = ranked.loads[:, row].tolist()
        if row < ranked.hot:
            state = f"hot for {duration_text(now - since[name])}" if name in since else "hot"
        elif row < ranked.hot + ranked.warm:
            state = f"may become hot: up to {ranked.high[row]:.0f} %"
        else:
            state = "normal"
        tainted = [
            part
            for key, at in taints.get(name, {}).items()
            for part in ([key, " ", time_ago(at, now), " "] if at else [key, " "])
        ]
        rows.append(
            [
                node_link(name),
                load_bar(cpu),
                load_bar(memory),
                state,
                tainted or _NOTHING,
                workload_cells(runs.get(name, ())),
            ]
        )
    return rows


def workload_cells(workloads: Sequence[WorkloadOnNode]) -> Any:
    """Return links to the largest workloads of a node, and the number of the others."""
    parts: list[Any] = []
    for each in workloads[:_WORKLOADS]:
        parts += [", " if parts else "", workload_link("/".join(each.workload))]
    more = len(workloads) - _WORKLOADS
    return [*parts, f" and {more} more"] if more > 0 else parts or _NOTHING


def _cluster(data: DashboardData) -> list[Any]:
    try:
        return [html.H2("Cluster, last 24 hours"), totals_charts(data.totals())]
    except ClientError as error:
        return [html.H2("Cluster, last 24 hours"), html.P(str(error))]


def _findings(data: DashboardData) -> list[Any]:
    findings = data.findings()
    rows = finding_rows(findings, time.time())
    more = (
        [html.P([f"{len(rows) - _FINDINGS} more kinds: ", dcc.Link("Trust", href="trust")])]
        if len(rows) > _FINDINGS
        else []
    )
    if not rows:
        return [html.H2("Open findings"), html.P("None.")]
    header = ["Kind", "Nodes", "Since", "Newest message", "Settings to check"]
    return [html.H2("Open findings"), table(f"{len(findings)} open findings by kind", header, rows[:_FINDINGS]), *more]


def finding_rows(findings: Iterable[Mapping[str, Any]], now: float) -> list[list[Any]]:
    """Return a row for each kind of finding, the oldest first: nodes, start, a message, and settings that mend it."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        by_kind.setdefault(str(finding.get("kind")), []).append(finding)

    def start(of: Sequence[Mapping[str, Any]]) -> float:
        return min((float(each["since"]) for each in of if isinstance(each.get("since"), int)), default=0.0)

    return [
        [
            kind,
            str(len({each.get("node") for each in of if each.get("node")}) or "all"),
            time_ago(start(of), now),
            str(of[-1].get("message")),
            related_settings(kind),
        ]
        for kind, of in sorted(by_kind.items(), key=lambda each: start(each[1]))
    ]


def actor_rows(context: PageContext) -> list[list[Any]]:
    """Return a row for the extender and one for the rebalancer: mode, percent, and what needs attention."""
    return [_extender_row(context), _rebalancer_row(context)]


def _extender_row(context: PageContext) -> list[Any]:
    if context.decisions is None:
        return [
            "Extender",
            "not configured",
            "--extender URL, in a watcher dashboard.extender",
        ]
    link = dcc.Link("Extender", href="decisions")
    try:
        state = context.decisions.status()
    except ServiceUnavailable as error:
        return [link, "does not answer", str(error)]
    reason = state["reason"] or ("the metrics are out" if state["outage"] else "")
    return [
        link,
        f"mode {state['mode']}, for {state['percent']:g} % of the pods" if state["ready"] else "cannot score pods",
        reason or f"scores {state['cluster']['nodes']} nodes",
    ]


def _rebalancer_row(context: PageContext) -> list[Any]:
    if context.rebalancer is None:
        return ["Rebalancer", "not configured", dcc.Link("how to begin", href="moves")]
    link = dcc.Link("Rebalancer", href="moves")
    try:
        state = context.rebalancer.read()
    except ServiceUnavailable as error:
        return [link, "does not answer", str(error)]
    made = sum(move["state"] != "held" for move in state["moves"])
    details = f"{made} moves in the last day, {len(state['planned'])} planned"
    return [link, mode_text(state), brake_text(state["brake"]) if state["brake"] else state["nothing"] or details]
