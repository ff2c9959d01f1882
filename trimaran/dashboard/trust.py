"""How far to trust what is shown: how fresh, how obtained, what is wrong, and which setting mends it."""

import time
from collections import Counter
from typing import Any

from dash import Dash, dcc, html
from plotly import graph_objects as go

from trimaran.dashboard.components import Current, Query, age_of, grade_of, table
from trimaran.dashboard.data import Data
from trimaran.dashboard.page_context import Beside
from watcher.findings import Kind
from watcher.model import WatcherMetrics

PATH, TITLE = "/trust", "Trust"
_AGES = ((30, "under 30 s"), (90, "30 to 90 s"), (180, "90 s to 3 min"), (300, "3 to 5 min"), (float("inf"), "older"))
_GRADES = ("measured", "suspect", "shorter_window", "last_good")
_MOST_FINDINGS = 200
_SCALE = ((0, "#3f73c8"), (1, "#123f8c"))  # white can be read on both; where there is nothing the page's ground shows

#: Which settings mend what; a finding's own message says more.
MENDING = {
    Kind.FETCH_FAILED: "provider.address, provider.token, watch.fetch_timeout_seconds",
    Kind.FELL_BACK: "provider.address, fallback.providers",
    Kind.DISAGREEMENT: "quality.disagreement_percent, quality.corroborate",
    Kind.QUERY_FAILED: "prometheus.queries, prometheus.matchers",
    Kind.PARTIAL_ANSWER: "prometheus.matchers, watch.fetch_timeout_seconds",
    Kind.BAD_NODE_NAME: "prometheus.node_label, signalfx.host_name_suffix, datadog.host_name_suffix",
    Kind.UNVERIFIED: "provider.insecure_skip_verify, provider.ca_file",
    Kind.TOO_MANY_NODES: "watch.max_nodes",
    Kind.UNMATCHED_NODE: "prometheus.node_label",
    Kind.NO_METRICS: "prometheus.query_set, prometheus.queries",
    Kind.BAD_VALUE: "prometheus.queries",
    Kind.BAD_LABEL: "prometheus.node_label",
    Kind.DUPLICATE: "prometheus.matchers",
    Kind.NOT_FINITE: "prometheus.queries",
    Kind.OUT_OF_RANGE: "prometheus.queries",
    Kind.NO_AVERAGE: "watch.operators",
    Kind.LOW_COVERAGE: "quality.min_coverage, watch.sample_interval_seconds",
    Kind.MISSING: "quality.missing_seconds",
    Kind.STALE: "quality.stale_seconds",
    Kind.CLOCK_SKEW: "quality.clock_skew_seconds",
    Kind.FROZEN: "quality.frozen_seconds, quality.frozen_resting_seconds",
    Kind.SPIKE: "quality.spike_factor",
    Kind.WRONG_SCALE: "prometheus.queries, quality.wrong_scale_action",
    Kind.DOUBLE_SMOOTHING: "quality.smoothing_ratio, prometheus.queries",
    Kind.FLATLINE: "quality.flatline_action",
    Kind.CHANGEPOINT: "quality.anomaly_action",
    Kind.DRIFT: "quality.anomaly_action",
    Kind.DUPLICATE_NODE: "prometheus.node_label, quality.duplicate_node_action",
}


def layout(data: Data, _query: Query, _beside: Beside) -> list[Any]:
    """Return the screen."""
    counts = by_freshness(data.snapshot(), time.time())
    ages, grades = [text for _, text in _AGES], sorted({grade for _, grade in counts}.union(_GRADES), key=_grade_order)
    cells = [[counts[age, grade] for age in ages] for grade in grades]
    figure = go.Figure(
        go.Heatmap(
            z=[[count or None for count in row] for row in cells],
            x=ages,
            y=grades,
            colorscale=_SCALE,
            zmin=0,
            showscale=False,
            texttemplate="%{z}",
            textfont={"color": "#fff"},
            hoverinfo="skip",
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#7a808a"},
        margin={"l": 110, "r": 10, "t": 10, "b": 40}, height=260,
        xaxis={"showgrid": False, "categoryorder": "array", "categoryarray": ages}, yaxis={"showgrid": False},
    )  # fmt: skip
    reasons = data.health()
    found = sorted(data.findings(), key=lambda each: (str(each.get("kind")), str(each.get("node"))))
    rows = [
        [
            str(each.get("kind")), str(each.get("node")) or "all", str(each.get("window")) or "all",
            _since(each.get("since")), str(each.get("message")), mending(str(each.get("kind"))),
        ]
        for each in found[:_MOST_FINDINGS]
    ]  # fmt: skip
    counted = [[grade, *map(str, row)] for grade, row in zip(grades, cells, strict=True)]
    more = f", the first {_MOST_FINDINGS} of them below" if len(found) > _MOST_FINDINGS else ""
    return [
        html.H2("The watcher"),
        html.P("It is healthy." if not reasons else "It is not healthy:", role="status"),
        html.Ul([html.Li(reason) for reason in reasons]),
        table("Providers", ["Window", "Provider", "Nodes", "Age", "What is wrong"], providers(data, time.time())),
        html.H2("Nodes by freshness and grade"),
        dcc.Graph(figure=figure, config={"displayModeBar": False, "staticPlot": True}, id="trust-map"),
        table("The same as a table", ["Grade", *ages], counted),
        html.H2("Findings"),
        html.P(f"{len(found)} findings{more}."),
        table("Findings", ["Kind", "Node", "Window", "Since (UTC)", "What", "Settings that mend it"], rows),
    ]


def register(_app: Dash, _current: Current, _beside: Beside) -> None:
    """Nothing is to be done here but to look."""


def by_freshness(snapshot: WatcherMetrics, now: float) -> Counter[tuple[str, str]]:
    """Count nodes by how old their values are, and how they were obtained."""
    counts: Counter[tuple[str, str]] = Counter()
    for node in snapshot.data.values():
        age = age_of(snapshot, node, now)
        counts[next(text for most, text in _AGES if age < most), grade_of(node)] += 1
    return counts


def providers(data: Data, now: float) -> list[list[str]]:
    """Return by window where its metrics came from, of how many nodes, how old they are, what is wrong with all."""
    found = [each for each in data.findings() if not each.get("node")]
    rows = []
    for window, snapshot in data.windows().items():
        wrong = [str(each.get("message")) for each in found if str(each.get("window") or window) == window]
        age = f"{max(0.0, now - snapshot.window.end):.0f} s"
        rows.append([window, snapshot.source, str(len(snapshot.data)), age, "; ".join(wrong) or "-"])
    return rows


def mending(kind: str) -> str:
    """Return the settings that a finding of this kind is mended by."""
    return MENDING[Kind(kind)] if kind in set(Kind) else "-"


def _grade_order(grade: str) -> int:
    return _GRADES.index(grade) if grade in _GRADES else len(_GRADES)


def _since(since: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(since)) if isinstance(since, int) and since > 0 else "-"
