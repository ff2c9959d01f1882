"""Replays of moves with what is known live: a watcher that loses its past, and start-ups."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from support.rebalancing import WIDE_RULES
from support.scripts import imported
from support.worlds import small_world

from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.policies.catalogue import policies


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("moves_known_live") as module:
        yield module


def test_a_lost_past_and_start_ups_count(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that lost its past moves an hour later, so that a node stays hot for longer; start-ups are counted."""
    trace = small_world(3, [("Deployment", 1.9)] * 4 + [("Deployment", 0.1)])
    monkeypatch.setattr(script, "LOST_AT", 60)
    moves = CostMovePolicy(2000.0, every_minutes=10, after_minutes=30, rules=WIDE_RULES)
    policy = replace(policies(trace)["most-allocated"], spread=0, move_policy=moves)
    live, _, lost, *_, slow = (row.replay(trace, policy, 0) for row in script.ROWS)
    assert 0 < live["hot_minutes_80"] < lost["hot_minutes_80"] < 180
    assert slow["starting_pod_minutes"] == 10 * slow["moves"] > 0
