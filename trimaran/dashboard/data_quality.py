"""Quality of the data on the Overview page: source of each window, nodes by freshness and grade, single findings."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dash import html

from trimaran.dashboard.components import age_seconds, duration_text, node_link, table, time_ago
from trimaran.dashboard.data import DashboardData
from watcher.findings import Kind
from watcher.model import WatcherMetrics, grades

_AGES = ((30, "under 30 s"), (90, "30 to 90 s"), (180, "90 s to 3 min"), (300, "3 to 5 min"), (float("inf"), "older"))
_GRADES = ("measured", "unchecked", "suspect", "shorter_window", "last_good", "incomplete")
_MAX_FINDINGS = 200

#: Settings to change, by kind of finding; the finding's own message has the details.
RELATED_SETTINGS = {
    Kind.FETCH_FAILED: "provider.address, provider.token, watch.fetch_timeout_seconds",
    Kind.FELL_BACK: "provider.address, fallback.providers",
    Kind.DISAGREEMENT: "quality.corroborate",
    Kind.QUERY_FAILED: "prometheus.queries, prometheus.matchers",
    Kind.PARTIAL_ANSWER: "prometheus.matchers, watch.fetch_timeout_seconds",
    Kind.BAD_NODE_NAME: "prometheus.node_label, signalfx.host_name_suffix, datadog.host_name_suffix",
    Kind.UNVERIFIED: "provider.insecure_skip_verify, provider.ca_file",
    Kind.UNMATCHED_NODE: "prometheus.node_label",
    Kind.NO_METRICS: "prometheus.query_set, prometheus.queries",
    Kind.BAD_VALUE: "prometheus.queries",
    Kind.BAD_LABEL: "prometheus.node_label",
    Kind.DUPLICATE: "prometheus.matchers",
    Kind.NOT_FINITE: "prometheus.queries",
    Kind.OUT_OF_RANGE: "prometheus.queries",
    Kind.NO_AVERAGE: "watch.operators",
    Kind.LOW_COVERAGE: "watch.sample_interval_seconds",
    Kind.STALE: "quality.stale_seconds",
    Kind.WRONG_SCALE: "prometheus.queries",
    Kind.DOUBLE_SMOOTHING: "prometheus.queries",
    Kind.DUPLICATE_NODE: "prometheus.node_label",
}


def data_quality(data: DashboardData, now: float) -> list[Any]:
    """Return the source of each window, the nodes by freshness and grade, and each finding by node and window."""
    counts = freshness_counts(data.snapshot(), now)
    ages = [text for _, text in _AGES]
    known = sorted({grade for _, grade in counts}.union(_GRADES), key=_grade_order)
    count_rows = [[grade, *(str(counts[age, grade]) for age in ages)] for grade in known]
    findings = sorted(data.findings(), key=lambda finding: (str(finding.get("kind")), str(finding.get("node"))))
    rows = [
        [
            str(finding.get("kind")), _node(finding), str(finding.get("window")) or "all",
            _since(finding.get("since")), str(finding.get("message")),
        ]
        for finding in findings[:_MAX_FINDINGS]
    ]  # fmt: skip
    caption = f"The first {len(rows)} of {len(findings)} findings" if len(findings) > len(rows) else "Findings"
    return [
        *([table(caption, ["Kind", "Node", "Window", "Since", "Message"], rows, wraps=True)] if rows else []),
        html.H2("Quality of the data"),
        table("Providers", ["Window", "Provider", "Nodes", "Age", "Problems"], provider_rows(data, now)),
        table("Number of nodes by grade and age", ["Grade", *ages], count_rows),
    ]


def freshness_counts(snapshot: WatcherMetrics, now: float) -> Counter[tuple[str, str]]:
    """Return the number of nodes by age range and grade of their values, such as ``("under 30 s", "measured")``."""
    counts: Counter[tuple[str, str]] = Counter()
    for name, grade in grades(snapshot).items():
        age = age_seconds(snapshot, snapshot.data[name], now)
        counts[next(text for limit, text in _AGES if age < limit), grade] += 1
    return counts


def provider_rows(data: DashboardData, now: float) -> list[list[str]]:
    """Return a row of texts for each window: window, provider, number of nodes, age, problems that affect all nodes."""
    findings = [finding for finding in data.findings() if not finding.get("node")]
    rows = []
    for window, snapshot in data.windows().items():
        problems = [
            str(finding.get("message")) for finding in findings if str(finding.get("window") or window) == window
        ]
        age = duration_text(now - snapshot.window.end)
        rows.append([window, snapshot.source, str(len(snapshot.data)), age, "; ".join(problems) or "-"])
    return rows


def related_settings(kind: str) -> str:
    """Return the settings to check for a kind of finding, comma-separated; ``-`` if there are none."""
    return RELATED_SETTINGS.get(Kind(kind), "-") if kind in set(Kind) else "-"


def _grade_order(grade: str) -> int:
    return _GRADES.index(grade) if grade in _GRADES else len(_GRADES)


def _node(finding: Mapping[str, Any]) -> Any:
    return node_link(str(finding["node"])) if finding.get("node") else "all"


def _since(since: Any) -> Any:
    return time_ago(since) if isinstance(since, int) else "-"
