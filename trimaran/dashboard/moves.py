"""Moves page: moves of a rebalancer with their reasons and gains, and the used share of its caps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dash import Dash, html

from client.errors import ClientError
from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.components import (
    CurrentData,
    Query,
    history_alert,
    load_bar,
    load_legend,
    node_link,
    table,
    time_ago,
    workload_link,
)
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.page_context import PageContext
from trimaran.rebalancer.eligibility import REASONS
from watcher.history import History

PATH, TITLE = "/moves", "Moves"
_CAPS = {"hour": "moves in the last hour", "day": "moves in the last day", "open": "moves waiting for a replacement"}
_GROUPS = {"moved": "moved", "held": "held back to compare"}
_REASONS = {str(reason): text for reason, text in REASONS.items()}
_GAIN_HEADER = ["Pods", "Number", "Predicted", "Measured"]
MOVE_HEADER = (
    "Pod", "Workload", "Planned", "State", "From", "CPU then", "CPU now", "To", "Predicted gain", "Measured gain",
)  # fmt: skip
_WHEN = ("before", "after")
_UNKNOWN = "-"
HOW_TO_BEGIN = (
    "No rebalancer is configured. To see what it would move: trimaran rebalance --watcher URL, which only plans and "
    "writes nothing. Then start the dashboard with --rebalancer URL (in a watcher: dashboard.rebalancer)."
)


def layout(data: DashboardData, _query: Query, context: PageContext) -> list[Any]:
    """Return the content of the Moves page."""
    if context.rebalancer is None:
        return [html.P(HOW_TO_BEGIN, role="status")]
    try:
        state = context.rebalancer.read()
    except ServiceUnavailable as error:
        return [html.P(str(error), role="alert")]
    return [
        *summary(state),
        html.Div(
            [
                html.Div(table("Caps", ["Cap", "Used", "Of", "Share"], cap_rows(state)), className="chart"),
                html.Div(
                    table("Mean gain of a move whose gain is measured, in hot nodes", _GAIN_HEADER, gain_rows(state)),
                    className="chart",
                ),
            ],
            className="charts",
        ),
        html.H2("Planned by the last search"),
        *_planned(state["planned"]),
        html.H2("Moves of the last day"),
        _made(state["moves"], data),
        load_legend(),
        html.H2("Pods that stay"),
        table("Pods that may not move, by reason", ["Reason", "Pods"], stay_rows(state)),
    ]


def register(_app: Dash, _current: CurrentData, _context: PageContext) -> None:
    """Do nothing: the Moves page has no callbacks."""


def mode_text(state: Mapping[str, Any]) -> str:
    """Return what a rebalancer does now: its mode, and the share of its hourly cap that is used."""
    doing = "moves pods" if state["acts"] else "plans only, and writes nothing"
    if state["mode"] == "act" and not state["acts"]:
        doing = "does not move pods now"
    return f"mode {state['mode']}: {doing}{used_text(state)}"


def used_text(state: Mapping[str, Any]) -> str:
    """Return how much of a rebalancer's hourly cap is used, after a semicolon; empty without a cap."""
    used, most = state["caps"].get("hour", (0, 0))
    kind = "moves" if state["mode"] == "act" else "planned moves"
    return f"; {used} of {most} {kind} of this hour used ({100 * used / most:.0f} %)" if most else ""


def brake_text(brake: Mapping[str, Any]) -> str:
    """Return why a rebalancer's brake is set, and how to release it."""
    return f"the brake is set ({brake['reason']}): {brake['text']}; to release it: trimaran rebalance resume"


def summary(state: Mapping[str, Any]) -> list[Any]:
    """Return lines on what the rebalancer does now, its last search, and its brake."""
    searched_at = state.get("searched_at")  # rebalancers of earlier versions do not send this field
    searched: list[Any] = [", the last one ", time_ago(searched_at)] if searched_at else []
    lines: list[Any] = [html.P([f"{mode_text(state)}; searches: {state['searches']}", *searched], role="status")]
    if state["brake"] is not None:
        lines.append(html.P([f"{brake_text(state['brake'])}; set ", time_ago(state["brake"]["at"])], role="alert"))
    if state["nothing"]:
        lines.append(html.P(f"No search: {state['nothing']}"))
    return lines


def cap_rows(state: Mapping[str, Any]) -> list[list[Any]]:
    """Return a row for each cap: name, moves, limit, and their ratio as a bar."""
    return [
        [_CAPS.get(name, name), str(used), str(most), load_bar(100 * used / most if most else None)]
        for name, (used, most) in state["caps"].items()
    ]


def gain_rows(state: Mapping[str, Any]) -> list[list[str]]:
    """Return a row of gains for the moves that were made, and one for the moves that were held back to compare."""
    return [
        [
            text,
            str(state["measured"].get(group, 0)),
            *(_gain(state["gains"].get(f"{group}/{kind}")) for kind in ("predicted", "measured")),
        ]
        for group, text in _GROUPS.items()
    ]


def stay_rows(state: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each reason why pods may not move, the most frequent first."""
    ordered = sorted(state["stays"].items(), key=lambda each: -each[1])
    return [[_REASONS.get(reason, reason.replace("_", " ")), str(number)] for reason, number in ordered]


def load_at(history: History, node: str, at: float) -> float | None:
    """Return a node's CPU load at a Unix time, percent; None if the history does not have it."""
    steps = history.steps
    if not history.series or node not in history.nodes or not steps.count:
        return None
    step = min(int(at - steps.start) // steps.seconds, steps.count - 1)
    value = float(history.of("CPU", "AVG")[history.nodes.index(node)][step]) if step >= 0 else np.nan
    return None if np.isnan(value) else value


def move_rows(moves: Sequence[Mapping[str, Any]], data: DashboardData) -> list[list[Any]]:
    """Return a row for each move, the newest first: pod, state, source with its loads, target and gains."""
    history, now = data.history("CPU", "AVG"), _present_loads(data)
    return [
        [
            move["name"],
            workload_link(f"{move['name'].partition('/')[0]}/{move['workload']}"),
            time_ago(move["planned_at"]),
            move["state"],
            node_link(move["source"]),
            load_bar(load_at(history, move["source"], move["planned_at"])),
            load_bar(now.get(move["source"])),
            node_link(move["landed_on"] or move["target"]),
            _gain(move["gain"]),
            _gain(move["measured"]),
        ]
        for move in reversed(moves)
    ]


def _present_loads(data: DashboardData) -> Mapping[str, float]:
    """Return the CPU load of each node, percent; empty if the watcher has no metrics."""
    try:
        nodes = data.snapshot().data
    except ClientError:
        return {}
    return {name: node.cpu.avg for name, node in nodes.items() if node.cpu.avg is not None}


def _made(moves: Sequence[Mapping[str, Any]], data: DashboardData) -> Any:
    if not moves:
        return html.P("No pod was moved in the last day.")
    return html.Div([*history_alert(data), table("Moves, the newest first", MOVE_HEADER, move_rows(moves, data))])


def _planned(moves: Sequence[Mapping[str, Any]]) -> list[Any]:
    if not moves:
        return [html.P("No move is planned.")]
    header = ["Pod", "From", "CPU", "Memory", "To", "CPU", "Memory", "Predicted gain", "At least"]
    rows = [
        [
            move["name"],
            *(
                cell
                for end in ("source", "target")
                for cell in (node_link(move[end]), *map(_change, *(move[f"{end}_load"][when] for when in _WHEN)))
            ),
            _gain(move["gain"]),
            f"{move['low']:.1f} min",
        ]
        for move in moves
    ]
    return [
        table("Planned moves, with the loads of both nodes before and after", header, rows),
        html.P(
            "Gain: hot nodes fewer. At least: minutes of a hot node less in the next two hours, the lower end of an "
            "80 % interval.",
            className="hint",
        ),
    ]


def _change(before: float, after: float) -> Any:
    return load_bar(before, f"{before:.0f} → {after:.0f} %")


def _gain(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:+.2f}"
