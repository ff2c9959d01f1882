"""Caps and pauses from the moves of the past day: which moves count, for how long, and for what."""

from typing import Any

import pytest
from support.rebalancing import NOW

from runtime.kubernetes.workloads import Workload
from trimaran.rebalancer.caps import DAY, Caps
from trimaran.rebalancer.lineage import CooldownClock, refused
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.rules import CapLimits, Cooldowns

COOLDOWNS = Cooldowns(pod=1000, workload=200, node=100, refusal=50)
WEB = Workload("default", "Deployment", "web")


def move(number: int = 0, **fields: Any) -> MoveRecord:
    """Return a move of a pod of the Deployment web that has landed, planned now."""
    given: dict[str, Any] = {
        "uid": f"uid-{number}", "namespace": "default", "name": f"web-{number}", "kind": "Deployment",
        "workload": "web", "revision": "a", "lineage": "first", "source": "node-a", "target": "node-b",
        "state": MoveState.LANDED, "planned_at": NOW,
    }  # fmt: skip
    return MoveRecord(**{**given, **fields})


def caps(*moves: MoveRecord, **limits: Any) -> Caps:
    """Return the caps after some moves, of 1000 running pods."""
    return Caps(CapLimits(**{"percent_per_hour": 100, **limits}), moves, 1000, NOW)


@pytest.mark.parametrize(
    ("limits", "age", "left"),
    [
        ({"per_hour": 3}, 3599, 2), ({"per_hour": 3}, 3600, 3), ({"per_hour": 3}, -600, 2),
        ({"per_day": 3}, DAY - 1, 2), ({"per_day": 3}, DAY, 3), ({"per_day": 3}, -600, 2),
        ({"percent_per_hour": 0.3}, 0, 2), ({"percent_per_hour": 0.3}, 3600, 3), ({"percent_per_hour": 0.01}, 3600, 1),
    ],
)  # fmt: skip
def test_a_move_counts_for_an_hour_and_a_day(limits: dict[str, float], age: float, left: int) -> None:
    """A move counts for its hour and its day, also if the clock was set back; one move an hour is always allowed."""
    assert caps(move(planned_at=NOW - age), **limits).left == left


def test_open_moves_count_until_they_end() -> None:
    """A move whose replacement is awaited counts for ``open_moves``, however old it is."""
    waiting = [move(number, state=MoveState.EVICTED, planned_at=NOW - 2 * DAY) for number in range(2)]
    assert caps(*waiting, move(2), open_moves=3).left == 1
    assert caps(*waiting, open_moves=1).left == 0


@pytest.mark.parametrize("state", [MoveState.HELD, MoveState.REFUSED])
def test_moves_that_were_not_made_count_for_no_cap(state: MoveState) -> None:
    """A held or refused move disturbed nobody."""
    counted = caps(move(state=state), per_hour=1, node_per_hour=1)
    assert (counted.left, counted.allows_source("node-a"), counted.allows_target("node-b")) == (1, True, True)


def test_each_cap_is_by_its_own_subject() -> None:
    """Source, the node on which the replacement landed, namespace and workload are counted each by its own limit."""
    landed = move(landed_on="node-c")
    by_node = caps(landed, node_per_hour=1)
    assert [by_node.allows_source(name) for name in ("node-a", "node-b", "node-c")] == [False, True, True]
    assert [by_node.allows_target(name) for name in ("node-a", "node-b", "node-c")] == [True, True, False]
    assert not caps(landed, namespace_per_hour=1).allows_namespace("default")
    assert not caps(landed, namespace_per_hour=1).allows_workload(WEB)
    assert not caps(landed, workload_per_hour=1).allows_workload(WEB)
    assert caps(landed, workload_per_hour=1).allows_workload(Workload("default", "Deployment", "other"))
    assert caps(landed, namespace_per_hour=1).allows_namespace("other")


def test_a_move_that_begins_counts_at_once() -> None:
    """A move that is added while planning counts for all caps."""
    counted = caps(per_hour=2, node_per_hour=1, workload_per_hour=1, namespace_per_hour=1)
    counted.add(move(state=MoveState.PLANNED))
    assert counted.left == 1
    assert not counted.allows_source("node-a")
    assert not counted.allows_target("node-b")
    assert not counted.allows_workload(WEB)
    assert not counted.allows_namespace("default")


def test_a_lineage_rests_ever_longer_up_to_a_day() -> None:
    """The pause of a lineage begins when its replacement is Ready, doubles with each move, and ends after a day."""
    once = [move(planned_at=NOW - 30, evicted_at=NOW - 20, ready_at=NOW)]
    assert CooldownClock(COOLDOWNS, once).pod_until("first") == NOW + 1000
    assert CooldownClock(COOLDOWNS, [*once, move(1)]).pod_until("first") == NOW + 2000
    often = [move(number) for number in range(30)]
    assert CooldownClock(COOLDOWNS, often).pod_until("first") == NOW + DAY
    assert CooldownClock(COOLDOWNS, often).pod_until("other") == 0.0


def test_workload_and_nodes_rest_after_a_move() -> None:
    """The workload, the source, and the node on which the replacement landed rest, each for its own time."""
    clock = CooldownClock(COOLDOWNS, [move(landed_on="node-c", planned_at=NOW - 50, evicted_at=NOW - 50, ready_at=NOW)])
    assert clock.workload_until(WEB) == NOW + 200
    assert [clock.source_until(name) for name in ("node-a", "node-b", "node-c")] == [NOW + 100, 0.0, 0.0]
    assert [clock.target_until(name) for name in ("node-a", "node-b", "node-c")] == [0.0, 0.0, NOW + 100]


def test_pauses_begin_while_planning() -> None:
    """A move that is added while planning begins all pauses."""
    clock = CooldownClock(COOLDOWNS, ())
    clock.add(move(state=MoveState.PLANNED))
    found = (
        clock.pod_until("first"),
        clock.workload_until(WEB),
        clock.source_until("node-a"),
        clock.target_until("node-b"),
    )
    assert found == (NOW + 1000, NOW + 200, NOW + 100, NOW + 100)


def test_held_and_refused_lineages_rest() -> None:
    """A held lineage rests for a day, a refused one for its own pause; neither workload nor nodes rest."""
    held, denied = move(state=MoveState.HELD), move(1, lineage="second", state=MoveState.REFUSED, wait=70.0)
    clock = CooldownClock(COOLDOWNS, [held, denied])
    assert (clock.pod_until("first"), clock.pod_until("second")) == (NOW + DAY, NOW + 70)
    assert (clock.workload_until(WEB), clock.source_until("node-a"), clock.target_until("node-b")) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("refusals", "least", "wait"), [(0, 0.0, 50.0), (0, 70.0, 70.0), (2, 70.0, 200.0), (30, 0.0, DAY)]
)
def test_the_pause_after_a_refusal_doubles_up_to_a_day(refusals: int, least: float, wait: float) -> None:
    """Each refusal in a row doubles the pause, which is never shorter than the API server asked for."""
    found = refused(move(refusals=refusals), COOLDOWNS, least)
    assert (found.state, found.refusals, found.wait) == (MoveState.REFUSED, refusals + 1, wait)


def test_lineages_that_moved_twice_are_counted() -> None:
    """Two moves of one lineage are a loop; two moves of two lineages, or a held one, are none."""
    assert CooldownClock(COOLDOWNS, [move(), move(1)]).moved_twice() == 1
    assert (
        CooldownClock(COOLDOWNS, [move(), move(1, lineage="other"), move(2, state=MoveState.HELD)]).moved_twice() == 0
    )
