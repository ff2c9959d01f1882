"""Moves page: what a rebalancer moves and why, read over HTTP from its own routes, with a real controller."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flask import Flask
from support.controlling import Controlled
from support.page import SCREEN, callback_request
from support.ports import nowhere
from support.rebalancing import hot_and_cold
from support.servers import served_app

pytest.importorskip("dash")

from client.errors import NoMetrics
from runtime.http.json_service import JsonService
from runtime.server.access import AccessCheck
from trimaran.dashboard import app as dashboard
from trimaran.dashboard import moves
from trimaran.dashboard.components import duration_text, load_bar, time_ago
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.rebalancer import RebalancerState
from trimaran.rebalancer.app import create_app
from trimaran.rebalancer.status import status_document
from watcher.history import History, HistorySeries, Steps

NOW = 1_795_000_000.0


class Watcher:
    """Watcher with a history of one node, and without present metrics."""

    def history(self, *, type: str, operator: str) -> History:  # noqa: A002  the word of the contract
        values = np.array([[90.0, 95.0, np.nan]], np.float32)
        return History(
            ("node-hot",), Steps(int(NOW) // 300 * 300 - 600, 300, 3), (HistorySeries(type, type, operator, values),)
        )

    def metrics(self, window: str | None = None) -> Any:
        raise NoMetrics(window or "no window")


@contextmanager
def served(controlled: Controlled, mode: str) -> Iterator[PageContext]:
    """Serve a controller's state as ``trimaran rebalance`` does; yield the dashboard's context."""
    rebalancer = controlled.rebalancer
    status = partial(status_document, rebalancer, mode, leads=True)
    app = create_app(rebalancer, status, dict, lambda: True, str, lambda: True, AccessCheck())
    with served_app(app) as url:
        yield PageContext(rebalancer=RebalancerState(JsonService("rebalancer", url)))


def texts(content: Any) -> str:
    """Return a part of the page as JSON text."""
    return json.dumps(content, default=lambda part: part.to_plotly_json(), ensure_ascii=False)


def layout(context: PageContext) -> str:
    return texts(moves.layout(DashboardData(Watcher()), {}, context))  # type: ignore[arg-type]


def test_without_a_rebalancer_the_page_says_how_to_begin() -> None:
    """One line names the command and the option; nothing is read."""
    assert layout(PageContext()).count("trimaran rebalance --watcher URL") == 1


def test_a_rebalancer_that_does_not_answer_is_reported() -> None:
    """The page has the address and the reason."""
    address = nowhere()
    content = layout(PageContext(rebalancer=RebalancerState(JsonService("rebalancer", address))))
    assert f"{address}: Connection refused" in content


def test_planned_moves_have_nodes_loads_and_gain() -> None:
    """In mode observe the page has every planned move of the rebalancer, and says that nothing is written."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run()
    plan = controlled.rebalancer.published.plan
    assert plan.moves
    with served(controlled, "observe") as context:
        content = layout(context)
    assert f"writes nothing; {len(plan.moves)} of " in content
    for move in plan.moves:
        assert f"{move.record.namespace}/{move.record.name}" in content
        assert f"{move.source.before[0]:.0f} → {move.source.after[0]:.0f} %" in content
        assert f"{move.record.gain:+.2f}" in content
    assert "nodes?node=node-hot" in content


def test_moves_have_state_caps_and_worth() -> None:
    """In mode act the page has the moves that were made, the share of each cap that is used, and why pods stay."""
    controlled = Controlled(hot_and_cold())
    controlled.run()
    made = len(controlled.api.evicted)
    assert made
    with served(controlled, "act") as context:
        content = layout(context)
        state = context.rebalancer.read()  # type: ignore[union-attr]
    used, most = state["caps"]["hour"]
    assert used == made
    assert f"{used} of {most} moves of this hour used ({100 * used / most:.0f} %)" in content
    assert content.count("<td>evicted</td>") == made
    for number in state["stays"].values():
        assert f"<td>{number}</td>" in content
    assert "not a source" in content


def test_the_brake_names_its_reason_and_the_way_out() -> None:
    """A set brake is an alert with reason and command."""
    state = {
        "mode": "act", "acts": False, "caps": {}, "searches": 3, "searched_at": NOW, "nothing": "",
        "brake": {"reason": "lost", "text": "no replacement", "at": NOW},
    }  # fmt: skip
    lines = moves.summary(state)
    assert lines[1].role == "alert"
    assert "trimaran rebalance resume" in texts(lines)
    assert "mode act: does not move pods now" in texts(lines)


@pytest.mark.parametrize("field", [{}, {"searched_at": None}, {"searched_at": 0.0}])
def test_a_rebalancer_may_not_tell_when_it_searched(field: dict[str, Any]) -> None:
    """An earlier version has no time of the last search, and the page shows the rest of its state."""
    state = {"mode": "observe", "acts": False, "caps": {}, "searches": 3, "nothing": "", "brake": None, **field}
    assert 'searches: 3"]' in texts(moves.summary(state))


@pytest.mark.parametrize("change", [{"caps": None}, {"moves": [{}]}, {"caps": {"hour": [1]}}, {"gains": "none"}, None])
def test_a_state_of_another_version_is_told(change: dict[str, Any] | None) -> None:
    """A page whose service answers with other fields says so, in place of an error without a text."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run()
    state: dict[str, Any] = {"leads": True}
    if change is not None:
        state = {**status_document(controlled.rebalancer, "observe", leads=True), **change}
    answering = Flask("rebalancer")
    answering.add_url_rule("/status", view_func=lambda: state)
    with served_app(answering) as url:
        context = PageContext(rebalancer=RebalancerState(JsonService("rebalancer", url)))
        access = SimpleNamespace(admit=lambda _token: DashboardData(Watcher()))  # type: ignore[arg-type]
        page = dashboard.create_app(access, context).test_client()
        request = callback_request(SCREEN, location={"pathname": "/moves", "search": ""})
        answer = page.post("/_dash-update-component", json=request)
    assert answer.status_code == 200
    assert "unexpected fields" in answer.text


def test_the_newest_move_is_first_with_the_load_when_it_was_planned() -> None:
    """Rows are in descending order of time; the source's load is that of the history at the time of the plan."""
    made = [
        {"name": name, "workload": "Deployment/web", "state": "landed", "source": "node-hot", "target": "node-idle",
         "landed_on": "node-other", "planned_at": at, "gain": 0.5, "measured": measured}
        for name, at, measured in (("default/web-1", NOW - 600, None), ("default/web-2", NOW - 300, -0.25))
    ]  # fmt: skip
    rows = moves.move_rows(made, DashboardData(Watcher()))  # type: ignore[arg-type]
    assert [row[0] for row in rows] == ["default/web-2", "default/web-1"]
    assert "95 %" in texts(rows[0])
    assert "90 %" in texts(rows[1])
    assert [row[-2:] for row in rows] == [["+0.50", "-0.25"], ["+0.50", "-"]]
    assert "node-other" in texts(rows[0])


def test_times_are_relative_and_bars_have_their_number() -> None:
    """A time is its distance from now, with the moment as a tooltip; a bar is colored by level and has its number."""
    now = time.time()
    assert [time_ago(now - age, now).children for age in (5, 200, 7300, 200_000)] == [
        "5 s ago", "3 min ago", "2 h ago", "2 d ago",
    ]  # fmt: skip
    assert time_ago(now + 90, now).children == "in 2 min"
    assert time_ago(0.0) == time_ago(float("nan")) == time_ago(1e300) == "-"
    assert duration_text(-1) == "0 s"
    levels = [load_bar(percent).children[0].children.className for percent in (0, 49, 50, 75, 80, 89.9, 90, 140)]
    assert levels == [f"load-{level}" for level in (0, 0, 1, 2, 3, 3, 4, 4)]
    assert load_bar(140).children[1] == "140 %"
    assert load_bar(None) == load_bar(float("nan")) == "-"
