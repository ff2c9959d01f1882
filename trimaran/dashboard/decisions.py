"""Decisions of an extender: what it would have chosen, where pods went, and what that was worth."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, dcc, html
from plotly import graph_objects as go

from trimaran.dashboard.components import LINES, Current, Query, choice, search_box, table
from trimaran.dashboard.data import Data
from trimaran.dashboard.extender import MOST, Decisions
from trimaran.dashboard.page_context import Beside
from trimaran.extender.decisions.decisions_client import NoAnswer, regret_rows

PATH, TITLE = "/decisions", "Decisions"
ROWS = 100
_MODES = ("all", "active", "shadow")
_PLACES = ((1, "best"), (3, "2 to 3"), (10, "4 to 10"), (float("inf"), "below 10"))
_COLORS = {"active": "#2f6fde", "shadow": "#c77700"}
_NONE = "-"


def layout(_data: Data, query: Query, beside: Beside) -> list[Any]:
    """Return the screen."""
    decisions = _named(beside)
    explained = _explained(decisions, query["pod"]) if query.get("pod") else []
    return [
        html.P(
            "The best node by the extender's scores, and the one that kube-scheduler chose. In shadow the extender "
            "answers all nodes alike, so that the choice is without it. Regret is the load of the chosen node a window "
            "later, less what the best would have had with the pod: above 0 the best was better."
        ),
        *explained,
        html.H2("Regret"),
        html.Div(_said(lambda: _regrets(decisions.regret()))),
        html.H2("Where pods went"),
        html.Div(
            [
                choice("decisions-mode", "Mode", query, "mode", _MODES, "all"),
                search_box("decisions-search", "Pod has"),
            ],
            className="controls",
        ),
        html.P("", id="decisions-said", role="status"),
        html.Div(id="decisions-shown"),
    ]  # fmt: skip


def register(app: Dash, _current: Current, beside: Beside) -> None:
    """Add what the screen does."""

    @app.callback(
        Output("decisions-shown", "children"),
        Output("decisions-said", "children"),
        Input("decisions-mode", "data"),
        Input("decisions-search", "value"),
    )
    def show(mode: str, search: str | None) -> tuple[Any, str]:
        try:
            found = matching(_named(beside).recent(), mode, search or "")
        except NoAnswer as error:
            return None, str(error)
        placed = sum(each.get("chosen") is not None for each in found)
        more = f", the first {ROWS} of them below" if len(found) > ROWS else ""
        said = f"{len(found)} of the last {MOST} decisions, {placed} of whose pods run{more}"
        return [_places(found), _table(found[:ROWS])], said


def matching(decisions: Iterable[Mapping[str, Any]], mode: str, search: str) -> list[Mapping[str, Any]]:
    """Return the decisions of a mode whose pod has a text in its name."""
    return [each for each in decisions if mode in {"all", each["mode"]} and search in each["pod"]]


def places(decisions: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Count by mode the places that the nodes where pods went have among the scores."""
    counts: dict[str, Counter[str]] = {}
    for each in decisions:
        rank = (each.get("chosen") or {}).get("rank")
        if rank is not None:
            counts.setdefault(each["mode"], Counter())[next(text for most, text in _PLACES if rank <= most)] += 1
    return counts


def _named(beside: Beside) -> Decisions:
    assert beside.decisions is not None  # noqa: S101  else there is no such screen
    return beside.decisions


def _said(make: Any) -> Any:
    try:
        return make()
    except NoAnswer as error:
        return html.P(str(error), role="alert")


def _regrets(found: Mapping[str, Any]) -> list[Any]:
    header = [
        "Scheduler", "Mode", "Pods", "On the best", "Load of chosen", "Load of best", "Regret", "Regret, p95",
        "Chosen hot", "Best hot",
    ]  # fmt: skip
    hot = f"Hot is {found['hot_percent']:g}% or more. {found['waiting']} pods wait for their first whole window."
    return [table("Regret by scheduler", header, regret_rows(found)), html.P(hot, className="hint")]


def _places(found: Sequence[Mapping[str, Any]]) -> Any:
    counts, texts = places(found), [text for _, text in _PLACES]
    if not counts:
        return html.P("None of them has a place yet: it is known once a pod runs.", className="hint")
    figure = go.Figure([
        go.Bar(name=mode, x=texts, y=[count[text] for text in texts], marker={"color": _COLORS[mode]}, hoverinfo="skip")
        for mode, count in sorted(counts.items())
    ])  # fmt: skip
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#7a808a"}, height=220,
        margin={"l": 50, "r": 10, "t": 10, "b": 40}, showlegend=True,
        xaxis={"title": {"text": "place of the chosen node among the scores"}},
        yaxis={"title": {"text": "pods"}, "gridcolor": LINES, "zerolinecolor": LINES},
    )  # fmt: skip
    rows = [[mode, *(str(count[text]) for text in texts)] for mode, count in sorted(counts.items())]
    return html.Div(
        [
            dcc.Graph(figure=figure, config={"displayModeBar": False, "staticPlot": True}, id="decisions-places"),
            table("Place of the chosen node", ["Mode", *texts], rows),
        ]
    )


def _table(found: Iterable[Mapping[str, Any]]) -> Any:
    header = ["Pod", "When (UTC)", "Mode", "Outcome", "Best, score", "Chosen, score", "Place", "Below best", "Regret"]
    rows = []
    for each in found:
        best, chosen, after = each.get("best"), each.get("chosen") or {}, each.get("after")
        link = dcc.Link(each["pod"], href=f"?{urlencode({'pod': each['pod']})}")
        rows.append([
            link, time.strftime("%m-%d %H:%M:%S", time.gmtime(each["at"])), each["mode"], each["outcome"],
            f"{best['node']}, {best['score']}" if best else _NONE,
            chosen["node"] + (f", {chosen['score']}" if chosen.get("score") is not None else "") if chosen else _NONE,
            _or_none(chosen.get("rank")), _or_none(chosen.get("margin")), f"{after['regret']:+.1f}" if after else _NONE,
        ])  # fmt: skip
    return table("The last decisions", header, rows)


def _or_none(value: object) -> str:
    return _NONE if value is None else str(value)


def _explained(decisions: Decisions, pod: str) -> list[Any]:
    """Return why a pod went where it went."""
    title = html.H2(f"Why {pod} went where it went")
    try:
        found = decisions.explain(pod)
    except NoAnswer as error:
        return [title, html.P(str(error), role="alert")]
    if found["outcome"] == "not_asked":
        told = html.P(f"It runs on {found['chosen']['node']}, and the extender was not asked about it. Either:")
        return [title, told, html.Ul([html.Li(reason) for reason in found["why"]])]
    data = found["data"]
    said = [f"{found['candidates']} candidates, {found['in_flight']} pods on their way"]
    if data:
        said.append(f"{data['window']} window of {data['source']}, {data['age_seconds']:.0f} s old")
    if after := found["after"]:
        said += [
            f"{which}: {', '.join(f'{name} {value:.1f}%' for name, value in after[key].items())} a window later"
            for which, key in (("the chosen node", "chosen_percent"), ("the best with the pod", "best_percent"))
        ]
    plugins = [plugin["name"] for plugin in found["nodes"][0]["plugins"]] if found["nodes"] else []
    rows = [
        [
            node["name"], "yes" if node["chosen"] else "", str(node["answered"]), node["grade"],
            *(f"{plugin['score']}: {plugin['why']}" for plugin in node["plugins"]),
        ]
        for node in found["nodes"]
    ]  # fmt: skip
    header = ["Node", "Chosen", "Score", "Grade", *plugins]
    candidates = table("The best candidates, and the chosen one", header, rows)
    again = dcc.Link("Score it again, with other weights and arguments", href=f"pod?{urlencode({'pod': pod})}")
    return [title, html.P("; ".join(said)), candidates, html.P(again)]
