"""Tiles of the Overview page about what acts on the cluster: extender, rebalancer and scheduler."""

import time
from typing import Any

from dash import html

from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.components import Tone, tile, time_ago
from trimaran.dashboard.extender import MAX_DECISIONS, Decisions
from trimaran.dashboard.moves import brake_text, used_text
from trimaran.dashboard.page_context import PageContext

_HOUR = 3600.0
_NO_ANSWER = "does not answer"


def actor_tiles(context: PageContext) -> list[html.Div]:
    """Return a tile for the extender, the rebalancer and the scheduler: what it does now, and what it did."""
    return [_extender_tile(context), _rebalancer_tile(context), _scheduler_tile(context)]


def _extender_tile(context: PageContext) -> html.Div:
    title = "Extender"
    if context.decisions is None:
        return _missing(title, "extender")
    try:
        state = context.decisions.status()
    except ServiceUnavailable as error:
        return tile(title, _NO_ANSWER, [str(error)], "decisions", Tone.BAD)
    did = _recent_decisions(context.decisions)
    if not state["ready"]:
        return tile(title, "cannot score pods", [state["reason"], *did], "decisions", Tone.BAD)
    outage = [f"the metrics are out: {state['outage']}"] if state["outage"] else []
    mode = f"mode {state['mode']}, scores {state['cluster']['nodes']} nodes"
    if state["mode"] == "active" and state["percent"]:
        word = f"acts on {state['percent']:g} % of pods"
    else:
        word = "does not act, only compares"
    return tile(title, word, [*outage, mode, *did], "decisions", Tone.BAD if outage else Tone.GOOD)


def _recent_decisions(decisions: Decisions) -> list[Any]:
    """Return the number of decisions in the last hour, and the time of the last one; nothing if they are refused."""
    try:
        recent = decisions.recent()
    except ServiceUnavailable:  # pods may be hidden from the dashboard, which does not concern the extender's state
        return []
    if not recent:
        return ["no pod scored yet"]
    number = sum(each["at"] > time.time() - _HOUR for each in recent)
    more = "+" if number == MAX_DECISIONS else ""
    return [[f"{number}{more} pods scored in the last hour, the last ", time_ago(recent[0]["at"])]]


def _rebalancer_tile(context: PageContext) -> html.Div:
    title = "Rebalancer"
    if context.rebalancer is None:
        return _missing(title, "rebalancer")
    try:
        state = context.rebalancer.read()
    except ServiceUnavailable as error:
        return tile(title, _NO_ANSWER, [str(error)], "moves", Tone.BAD)
    made = sum(move["state"] != "held" for move in state["moves"])
    details = [
        f"mode {state['mode']}{used_text(state)}",
        f"{made} moves in the last day, {len(state['planned'])} planned",
    ]
    if state["nothing"]:
        details.insert(0, state["nothing"])
    if state["brake"]:
        return tile(title, "stopped by its brake", [brake_text(state["brake"]), *details], "moves", Tone.BAD)
    if state["acts"]:
        return tile(title, "moves pods", details, "moves", Tone.GOOD)
    word = "does not move pods now" if state["mode"] == "act" else "plans only, moves nothing"
    return tile(title, word, details, "moves", Tone.GOOD)


def _scheduler_tile(context: PageContext) -> html.Div:
    title = "Scheduler"
    if context.scheduler is None:
        return _missing(title, "scheduler")
    try:
        state = context.scheduler.read()
    except ServiceUnavailable as error:
        return tile(title, _NO_ANSWER, [str(error)], "decisions", Tone.BAD)
    load = "scores by measured load" if state.knows_load else "scores by requests: no load is known"
    tone = Tone.GOOD if state.knows_load else Tone.BAD
    pending = f"{sum(state.pending.values())} pods wait, {state.pending.get('unschedulable', 0)} of them fit no node"
    if state.shadow is not None:
        compared, agreed = int(state.shadow["compared"]), int(state.shadow["agreed"])
        did = f"{compared} pods compared" + (f", {100 * agreed / compared:.0f} % on the same node" if compared else "")
        return tile(title, "does not act, only compares", [f"mode shadow, {load}", did], "decisions", tone)
    if not state.leads:
        return tile(title, "waits for the Lease", ["another replica places the pods"], "decisions", Tone.GOOD)
    attempts, placed = sum(state.attempts.values()), state.attempts.get("scheduled", 0)
    share = f", {100 * placed / attempts:.0f} % of its attempts" if attempts else ""
    return tile(
        title, f"placed {placed} pods", [f"mode bind, {load}", f"since its start{share}", pending], "decisions", tone
    )


def _missing(title: str, option: str) -> html.Div:
    return tile(title, "not configured", [f"--{option} URL, in a watcher dashboard.{option}"], None, Tone.NONE)
