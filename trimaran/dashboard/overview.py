"""Overview page, for the person on call: state of the data, hot nodes, the cluster over a day, findings, services."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from dash import Dash, Input, Output, dcc, html
from pydantic import validate_call

from client.errors import ClientError
from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.actors import actor_tiles
from trimaran.dashboard.alerts import Alert
from trimaran.dashboard.components import (
    HOT_PERCENT,
    CurrentData,
    Query,
    Tone,
    duration_text,
    history_alert,
    load_bar,
    load_legend,
    node_link,
    table,
    tile,
    time_ago,
    workload_link,
)
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.data_quality import data_quality, related_settings
from trimaran.dashboard.hot_nodes import HOT_TYPES, RankedNodes, hot_since, ranked_nodes
from trimaran.dashboard.node_pods import WorkloadOnNode, workloads_by_node
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.totals import totals_charts
from watcher.model import grades

PATH, TITLE = "/", "Overview"
_SECONDS = 30
_NODES, _WORKLOADS = 10, 2
_NOTHING = "-"


def layout(_data: DashboardData, _query: Query, _context: PageContext) -> list[Any]:
    """Return the content of the Overview page; callbacks fill in its blocks at once and every 30 seconds."""
    return [
        html.Div(
            [html.Div(id="overview-data"), html.Div(id="overview-worst"), html.Div(id="overview-actors")],
            className="tiles",
        ),
        html.Div(id="overview-watcher"),
        html.Div(id="overview-alerts"),
        dcc.Interval(id="overview-tick", interval=1000 * _SECONDS),
    ]


def register(app: Dash, current: CurrentData, context: PageContext) -> None:
    """Register the callbacks of the Overview page. A service that does not answer delays its own block only."""

    @app.callback([Output("overview-data", "children")], Input("overview-tick", "n_intervals"))
    @validate_call
    def show_data(_turn: int | None) -> tuple[Any]:
        try:
            return (data_tile(current(), time.time()),)
        except ClientError as error:
            return (tile("Data", "none", [html.Span(str(error), role="alert")], None, Tone.BAD),)

    @app.callback(
        Output("overview-worst", "children"),
        Output("overview-watcher", "children"),
        Input("overview-tick", "n_intervals"),
    )
    @validate_call
    def show_watcher(_turn: int | None) -> tuple[Any, Any]:
        data = current()
        try:
            blocks = [
                *_hot_nodes(data, context), *_cluster(data), *_findings(data), *data_quality(data, time.time()),
            ]  # fmt: skip
            return worst_tile(data, time.time()), blocks
        except ClientError:  # the first tile has the reason
            return None, None

    @app.callback([Output("overview-actors", "children")], Input("overview-tick", "n_intervals"))
    @validate_call
    def show_actors(_turn: int | None) -> tuple[Any]:
        return (actor_tiles(context),)

    @app.callback([Output("overview-alerts", "children")], Input("overview-tick", "n_intervals"))
    @validate_call
    def show_alerts(_turn: int | None) -> tuple[Any]:
        return (_alerts(context),)


def data_tile(data: DashboardData, now: float) -> html.Div:
    """Return the tile with the state and the age of the watcher's data."""
    snapshot, reasons = data.snapshot(), data.health()
    others = sum(grade != "measured" for grade in grades(snapshot).values())
    age = duration_text(now - snapshot.window.end)
    source = f"{len(snapshot.data)} nodes, {snapshot.window.duration} window of {snapshot.source}"
    if reasons:
        return tile("Data", f"not good, {age} old", [*reasons, source], None, Tone.BAD)
    details = [source, f"{others} of them without values of their own"] if others else [source]
    return tile("Data", f"good, {age} old", details, None, Tone.WARNING if others else Tone.GOOD)


def worst_tile(data: DashboardData, now: float) -> html.Div:
    """Return the tile of the hottest node: its load, since when it is hot, and the number of hot nodes."""
    ranked = ranked_nodes(data)
    if not ranked.names:
        return tile("Hottest node", "none", ["the watcher knows no node"], "nodes", Tone.BAD)
    name, (cpu, memory) = ranked.names[0], ranked.loads[:, 0].tolist()
    type_, load = ("Memory", memory) if np.isnan(cpu) or memory > cpu else ("CPU", cpu)
    others = f"hot nodes in all: {ranked.hot}; {ranked.warm} more may become hot"
    at = f"{type_} {load:.0f} %" if np.isfinite(load) else "load unknown"
    if not ranked.hot:
        details = [f"{at}: no node is hot, {ranked.warm} may become hot"]
        return tile("Hottest node", node_link(name), details, "nodes", Tone.WARNING if ranked.warm else Tone.GOOD)
    since = hot_since(data, [name]).get(name)
    begun: list[Any] = ["since when is unknown"]
    if since is not None:
        begun = [f"hot for {duration_text(now - since)}, since ", _clock(since)]
    return tile("Hottest node", node_link(name), [[at, ", ", *begun], others], "nodes", Tone.BAD)


def _clock(at: float) -> html.Time:
    """Return the time of a moment of the last day, UTC."""
    moment = datetime.fromtimestamp(at, UTC)
    return html.Time(f"{moment:%H:%M} UTC", dateTime=moment.isoformat(), title=f"{moment:%Y-%m-%d %H:%M:%S} UTC")


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
        *history_alert(data, *((type_, "AVG") for type_ in HOT_TYPES)),
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
    """Return a row for each of the ten hottest nodes: loads, since when it is hot, taints, and workloads."""
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
    """Return links to the largest workloads of a node, and the number of its other workloads."""
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
    if not rows:
        return [html.H2("Open findings"), html.P("None.")]
    header = ["Kind", "Nodes", "Since", "Newest message", "Settings to check"]
    return [html.H2("Open findings"), table(f"{len(findings)} open findings by kind", header, rows)]


def finding_rows(findings: Iterable[Mapping[str, Any]], now: float) -> list[list[Any]]:
    """Return a row for each kind of finding, the oldest first: nodes, start, newest message, and settings to check."""
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


def _alerts(context: PageContext) -> list[Any]:
    head = html.H2("Alerts")
    if context.alerts is None:
        text = "No Prometheus with trimaran's rules is configured: --alerts URL (in a watcher: dashboard.alerts)."
        return [head, html.P(text, className="hint")]
    try:
        alerts = context.alerts.read()
    except ServiceUnavailable as error:
        return [head, html.P(str(error), role="alert")]
    if not alerts:
        return [head, html.P("None.")]
    header = ["Alert", "Severity", "State", "Since", "Problem", "Cause and remedy"]
    return [head, table(f"{len(alerts)} alerts", header, alert_rows(alerts, time.time()))]


def alert_rows(alerts: Iterable[Alert], now: float) -> list[list[Any]]:
    """Return a row for each alert: name, severity, state, start, problem, and remedy."""
    return [
        [each.name, each.severity, each.state, time_ago(each.since, now), each.summary, each.description]
        for each in alerts
    ]
