"""Part of the Decisions page about ``trimaran scheduler``: attempts and queues, in shadow mode comparisons."""

from collections.abc import Mapping
from typing import Any

from dash import html

from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.components import node_link, table
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.scheduler_state import SchedulerStatus

_UNKNOWN = "-"
_HINT = (
    "Regret: points of our node above those of the other scheduler's node, by our scores at that time; unknown where "
    "the other node is not feasible by our filters."
)


def scheduler_part(context: PageContext) -> list[Any]:
    """Return the section on the scheduler's attempts or comparisons; [] if no scheduler is configured."""
    if context.scheduler is None:
        return []
    head = html.H2("trimaran scheduler")
    try:
        state = context.scheduler.read()
    except ServiceUnavailable as error:
        return [head, html.P(str(error), role="alert")]
    return [head, *(_bound(state) if state.shadow is None else _compared(state.shadow))]


def _bound(state: SchedulerStatus) -> list[Any]:
    role = "it places pods" if state.leads else "it waits for the Lease, and another replica places the pods"
    return [
        html.P(f"Mode bind: {role}. The Events of a pod have its node, or why there is none.", role="status"),
        html.Div(
            [
                html.Div(table(name, [of, "Number"], count_rows(counts)), className="chart")
                for name, of, counts in (
                    ("Attempts since its start, by result", "Result", state.attempts),
                    ("Pods that wait now, by queue", "Queue", state.pending),
                )
            ],
            className="charts",
        ),
    ]


def count_rows(counts: Mapping[str, int]) -> list[list[str]]:
    """Return a row for each name with its number, the largest first."""
    return [[name, str(number)] for name, number in sorted(counts.items(), key=lambda each: (-each[1], each[0]))]


def _compared(shadow: Mapping[str, Any]) -> list[Any]:
    regret = shadow["regret"]
    known = (
        "" if regret["mean"] is None else f"; regret {regret['mean']:.1f} points on average, p95 {regret['p95']:.0f}"
    )
    text = (
        f"Mode shadow: it binds nothing. {shadow['compared']} pods compared, {shadow['agreed']} on the same "
        f"node{known}; {shadow['missed']} were bound before its decision, {shadow['infeasible']} to nodes that it "
        "would not have used."
    )
    return [
        html.P(text, role="status"),
        table(
            "Newest comparisons, the newest first",
            ["Pod", "Our node", "Node of the other scheduler", "Regret, points"],
            comparison_rows(shadow),
        ),
        html.P(_HINT, className="hint"),
    ]


def comparison_rows(shadow: Mapping[str, Any]) -> list[list[Any]]:
    """Return a row for each of the newest comparisons, the newest first."""
    return [
        [
            each["pod"],
            node_link(each["ours"]),
            node_link(each["theirs"]),
            _UNKNOWN if each["regret"] is None else str(each["regret"]),
        ]
        for each in reversed(shadow["newest"])
    ]
