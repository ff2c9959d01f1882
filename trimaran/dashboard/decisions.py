"""Decisions page: the extender's best node and the bound node of each pod; attempts of ``trimaran scheduler``."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, dcc, html
from plotly import graph_objects as go
from pydantic import validate_call

from runtime.http.json_service import ServiceUnavailable
from scoring.load.pod_expectation import expectation_line
from trimaran.dashboard.components import (
    GRID_COLOR,
    CurrentData,
    Query,
    link_choice,
    node_link,
    search_box,
    table,
    time_ago,
)
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.extender import MAX_DECISIONS, Decisions
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.scheduler_decisions import scheduler_part
from trimaran.extender.decisions.regret_table import regret_rows

PATH, TITLE = "/decisions", "Decisions"
ROWS = 100
_MODES = ("all", "active", "shadow")
_RANKS = ((1, "best"), (3, "2 to 3"), (10, "4 to 10"), (float("inf"), "below 10"))
_COLORS = {"active": "#2f6fde", "shadow": "#c77700"}
_NONE = "-"


def layout(_data: DashboardData, query: Query, context: PageContext) -> list[Any]:
    """Return the content of the Decisions page."""
    if context.decisions is None:
        return scheduler_part(context)
    decisions = context.decisions
    explanation = _explanation(decisions, query["pod"]) if query.get("pod") else []
    return [
        html.P(
            "The best node by the extender's scores, and the node that kube-scheduler chose. In shadow mode the "
            "extender gives all nodes the same score, so it does not influence the choice. Regret is the load of the "
            "chosen node one window later, minus the load that the best node would have had with the pod: above 0, "
            "the best node was the better choice."
        ),
        *explanation,
        html.H2("Regret"),
        html.Div(_or_alert(lambda: _regret_table(decisions.regret()))),
        html.H2("Placements"),
        html.Div(
            [
                link_choice("decisions-mode", "Mode", query, "mode", _MODES, "all"),
                search_box("decisions-search", "Pod name contains"),
            ],
            className="controls",
        ),
        html.P("", id="decisions-status", role="status"),
        html.Div(id="decisions-list"),
        *scheduler_part(context),
    ]  # fmt: skip


def register(app: Dash, _current: CurrentData, context: PageContext) -> None:
    """Register the callbacks of the Decisions page."""
    if (extender := context.decisions) is None:
        return

    @app.callback(
        Output("decisions-list", "children"),
        Output("decisions-status", "children"),
        Input("decisions-mode", "data"),
        Input("decisions-search", "value"),
    )
    @validate_call
    def show(mode: str, search: str | None) -> tuple[Any, str]:
        try:
            matches = matching_decisions(extender.recent(), mode, search or "")
        except ServiceUnavailable as error:
            return None, str(error)
        placed = sum(decision.get("chosen") is not None for decision in matches)
        more = f"; the first {ROWS} are shown" if len(matches) > ROWS else ""
        status = f"{len(matches)} of the last {MAX_DECISIONS} decisions; {placed} of their pods run on a node{more}"
        return [_rank_chart(matches), _table(matches[:ROWS])], status


def matching_decisions(decisions: Iterable[Mapping[str, Any]], mode: str, search: str) -> list[Mapping[str, Any]]:
    """Return the decisions of a mode (active, shadow or all) whose ``namespace/name`` contains a text."""
    return [decision for decision in decisions if mode in {"all", decision["mode"]} and search in decision["pod"]]


def rank_counts(decisions: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Return the number of pods by mode and by rank of the chosen node: best, 2 to 3, 4 to 10, or below 10."""
    counts: dict[str, Counter[str]] = {}
    for decision in decisions:
        rank = (decision.get("chosen") or {}).get("rank")
        if rank is not None:
            counts.setdefault(decision["mode"], Counter())[next(text for limit, text in _RANKS if rank <= limit)] += 1
    return counts


def _or_alert(render: Any) -> Any:
    try:
        return render()
    except ServiceUnavailable as error:
        return html.P(str(error), role="alert")


def _regret_table(regret: Mapping[str, Any]) -> list[Any]:
    header = [
        "Scheduler", "Mode", "Pods", "On best node", "Load of chosen", "Load of best", "Est. regret",
        "Est. regret, p95", "Chosen hot", "Best hot",
    ]  # fmt: skip
    hint = (
        f"A node is hot at {regret['hot_percent']:g}% or more. "
        f"{regret['waiting']} pods are not counted yet: their first window is not complete. "
        f"{regret['left_out']} are left out: they ended before it, or a node was not measured. The regret is an "
        "estimate: a pod is expected to use the same share of its requests as all pods together."
    )
    return [table("Estimated regret by scheduler", header, regret_rows(regret)), html.P(hint, className="hint")]


def _rank_chart(decisions: Sequence[Mapping[str, Any]]) -> Any:
    counts, texts = rank_counts(decisions), [text for _, text in _RANKS]
    if not counts:
        return html.P("No ranks yet: the rank of the chosen node is known once a pod runs.", className="hint")
    figure = go.Figure([
        go.Bar(name=mode, x=texts, y=[count[text] for text in texts], marker={"color": _COLORS[mode]}, hoverinfo="skip")
        for mode, count in sorted(counts.items())
    ])  # fmt: skip
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#7a808a"}, height=220,
        margin={"l": 50, "r": 10, "t": 10, "b": 40}, showlegend=True,
        xaxis={"title": {"text": "rank of the chosen node by score"}},
        yaxis={"title": {"text": "pods"}, "gridcolor": GRID_COLOR, "zerolinecolor": GRID_COLOR},
    )  # fmt: skip
    rows = [[mode, *(str(count[text]) for text in texts)] for mode, count in sorted(counts.items())]
    return html.Div(
        [
            dcc.Graph(figure=figure, config={"displayModeBar": False, "staticPlot": True}, id="decisions-ranks"),
            table("Rank of the chosen node", ["Mode", *texts], rows),
        ]
    )


def _table(decisions: Iterable[Mapping[str, Any]]) -> Any:
    header = [
        "Pod", "Decided", "Mode", "Outcome", "Best, score", "Chosen, score", "Rank", "Below best", "Est. regret",
    ]  # fmt: skip
    rows = []
    for decision in decisions:
        best, chosen, after = decision.get("best"), decision.get("chosen") or {}, decision.get("after")
        link = dcc.Link(decision["pod"], href=f"?{urlencode({'pod': decision['pod']})}")
        rows.append([
            link, time_ago(decision["at"]), decision["mode"], decision["outcome"],
            [node_link(best["node"]), f", {best['score']}"] if best else _NONE,
            [node_link(chosen["node"]), f", {chosen['score']}" if chosen.get("score") is not None else ""]
            if chosen else _NONE,
            _or_dash(chosen.get("rank")), _or_dash(chosen.get("margin")), f"{after['regret']:+.1f}" if after else _NONE,
        ])  # fmt: skip
    return table("Last decisions", header, rows)


def _or_dash(value: object) -> str:
    return _NONE if value is None else str(value)


def _explanation(decisions: Decisions, pod: str) -> list[Any]:
    """Return a section that explains a pod's last decision: its best candidates, their scores and the reasons."""
    title = html.H2(f"Placement of {pod}")
    try:
        decision = decisions.explain(pod)
    except ServiceUnavailable as error:
        return [title, html.P(str(error), role="alert")]
    if decision["outcome"] == "not_asked":
        text = (
            f"The pod runs on {decision['chosen']['node']}; the extender was not asked to score it. Possible reasons:"
        )
        return [title, html.P(text), html.Ul([html.Li(reason) for reason in decision["why"]])]
    data = decision["data"]
    facts = [f"{decision['candidates']} candidates, {decision['in_flight']} pods in flight"]
    if data:
        facts.append(f"{data['window']} window of {data['source']}, {data['age_seconds']:.0f} s old")
    if expected := decision.get("expected"):  # an older extender sends none
        facts.append(f"expected use: {expectation_line(expected)}")
    if planned := decision.get("planned"):
        facts.append(f"planned by the rebalancer: from {planned['source']} to {planned['target']}")
    if after := decision["after"]:
        facts += [
            f"{which}: {', '.join(f'{name} {value:.1f}%' for name, value in after[key].items())} one window later"
            for which, key in (("chosen node", "chosen_percent"), ("best node with the pod", "best_percent"))
        ]
    plugins = [plugin["name"] for plugin in decision["nodes"][0]["plugins"]] if decision["nodes"] else []
    rows = [
        [
            node_link(node["name"]), "yes" if node["chosen"] else "", str(node["answered"]), node["grade"],
            *(f"{plugin['score']}: {plugin['why']}" for plugin in node["plugins"]),
        ]
        for node in decision["nodes"]
    ]  # fmt: skip
    header = ["Node", "Chosen", "Score", "Grade", *plugins]
    candidates = table("Best candidates and the chosen node", header, rows, wraps=True)
    link = dcc.Link("Score this pod with other weights and arguments", href=f"pod?{urlencode({'pod': pod})}")
    return [title, html.P("; ".join(facts)), candidates, html.P(link)]
