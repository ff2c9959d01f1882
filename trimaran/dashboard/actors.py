"""Tiles of the Overview page for the extender, the rebalancer and the scheduler."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from dash import html

from runtime.http.json_service import ServiceUnavailable
from trimaran.dashboard.components import Tone, tile, time_ago
from trimaran.dashboard.extender import MAX_DECISIONS, Decisions
from trimaran.dashboard.moves import brake_text, used_text
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.rebalancer import RebalancerState
from trimaran.dashboard.scheduler_state import SchedulerState

_HOUR = 3600.0
#: State in a few words, details, and tone of a tile.
Content = tuple[str, list[Any], Tone]
Source = TypeVar("Source")


def actor_tiles(context: PageContext) -> list[html.Div]:
    """Return a tile for the extender, the rebalancer and the scheduler: its state now and its recent actions."""
    return [
        _tile_of("Extender", "decisions", context.decisions, _extender_tile),
        _tile_of("Rebalancer", "moves", context.rebalancer, _rebalancer_tile),
        _tile_of("Scheduler", "decisions", context.scheduler, _scheduler_tile),
    ]


def _tile_of(title: str, page: str, source: Source | None, show: Callable[[Source], Content]) -> html.Div:
    """Return the tile of a service, which also shows whether the service is not configured or does not answer."""
    if source is None:
        option = title.lower()
        return tile(title, "not configured", [f"--{option} URL, in a watcher dashboard.{option}"], None, Tone.NONE)
    try:
        word, details, tone = show(source)
    except ServiceUnavailable as error:
        return tile(title, "does not answer", [str(error)], page, Tone.BAD)
    return tile(title, word, details, page, tone)


def _extender_tile(decisions: Decisions) -> Content:
    state = decisions.status()
    did = _recent_decisions(decisions)
    if not state["ready"]:
        return "cannot score pods", [state["reason"], *did], Tone.BAD
    outage = [f"the metrics are out: {state['outage']}"] if state["outage"] else []
    mode = f"mode {state['mode']}, scores {state['cluster']['nodes']} nodes"
    if state["mode"] == "active" and state["percent"]:
        word = f"acts on {state['percent']:g} % of pods"
    else:
        word = "does not act, only compares"
    return word, [*outage, mode, *did], Tone.BAD if outage else Tone.GOOD


def _recent_decisions(decisions: Decisions) -> list[Any]:
    """Return texts on the decisions of the last hour and the last decision; [] if decisions cannot be read."""
    try:
        recent = decisions.recent()
    except ServiceUnavailable:  # the token may not suffice to read decisions; the extender's state is shown anyway
        return []
    if not recent:
        return ["no pod scored yet"]
    number = sum(each["at"] > time.time() - _HOUR for each in recent)
    more = "+" if number == MAX_DECISIONS else ""
    return [[f"{number}{more} pods scored in the last hour, the last ", time_ago(recent[0]["at"])]]


def _rebalancer_tile(rebalancer: RebalancerState) -> Content:
    state = rebalancer.read()
    made = sum(move["state"] != "held" for move in state["moves"])
    details = [
        f"mode {state['mode']}{used_text(state)}",
        f"{made} moves in the last day, {len(state['planned'])} planned",
    ]
    if state["nothing"]:
        details.insert(0, state["nothing"])
    if state["brake"]:
        return "stopped by its brake", [brake_text(state["brake"]), *details], Tone.BAD
    if state["acts"]:
        return "moves pods", details, Tone.GOOD
    word = "does not move pods now" if state["mode"] == "act" else "plans only, moves nothing"
    return word, details, Tone.GOOD


def _scheduler_tile(scheduler: SchedulerState) -> Content:
    state = scheduler.read()
    load = "scores by measured load" if state.knows_load else "scores by requests: no load is known"
    tone = Tone.GOOD if state.knows_load else Tone.BAD
    unschedulable = state.pending.get("unschedulable", 0)
    pending = f"{sum(state.pending.values())} pods wait, {unschedulable} of them fit no node"
    if state.shadow is not None:
        compared, agreed = int(state.shadow["compared"]), int(state.shadow["agreed"])
        did = f"{compared} pods compared" + (f", {100 * agreed / compared:.0f} % on the same node" if compared else "")
        return "does not act, only compares", [f"mode shadow, {load}", did], tone
    if not state.leads:
        return "waits for the Lease", ["another replica places the pods"], Tone.GOOD
    attempts, placed = sum(state.attempts.values()), state.attempts.get("scheduled", 0)
    share = f"since its start, in {100 * placed / attempts:.0f} % of its attempts" if attempts else "since its start"
    if tone is Tone.GOOD and unschedulable:
        tone = Tone.WARNING
    return f"placed {placed} pods", [share, f"mode bind, {load}", pending], tone
