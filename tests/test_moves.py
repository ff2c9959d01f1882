"""Moves: a few pods go where congestion falls most, under a budget."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.worlds import small_world

from simulator.measures import measures
from simulator.moves import Moves, whole_power
from simulator.policies.catalogue import policies
from simulator.replay import Options, Replay
from simulator.saving import fewer_nodes, nodes_saved
from simulator.synthetic import Synthetic
from simulator.trace import Trace


@pytest.fixture
def crowded() -> Trace:
    """Three nodes; most-allocated puts the first five pods, four of which are hot, on one."""
    return small_world(3, [("Deployment", 1.9)] * 4 + [("Deployment", 0.1)])


def moved(trace: Trace, **settings):
    policy = replace(policies(trace)["most-allocated"], spread=0, moves=Moves(**settings))
    return Replay(trace, policy).run()


def test_moves_cool_the_hot_node(crowded: Trace) -> None:
    """With a large budget hot pods are spread, and no node is hot any more."""
    still = Replay(crowded, replace(policies(crowded)["most-allocated"], spread=0)).run()
    assert measures(still)["hot_minutes_80"] == 180
    spread = moved(crowded, percent_per_hour=1000, every_minutes=10, after_minutes=30)
    assert 0 < spread.moves <= 3
    assert measures(spread)["hot_minutes_80"] == 0
    assert measures(spread)["moves"] == spread.moves


def test_the_first_move_takes_the_pod_that_relieves_most(crowded: Trace) -> None:
    """It is a hot one, as soon as moves may be made, and not the one that uses next to nothing."""
    spread = moved(crowded, percent_per_hour=1000, every_minutes=10, after_minutes=30)
    first = next(stay for stay in spread.cluster.stays if stay.start > 0)
    assert first.pod != 4
    assert first.start == 30


@pytest.mark.parametrize("percent", [5.0, 10.0, 40.0])
def test_the_budget_is_kept(percent: float) -> None:
    """No more pods are moved than so many percent of those that run, each hour."""
    trace = Synthetic(seed=5, nodes=8, minutes=500, warm_up_minutes=100).trace()
    outcome = moved(trace, percent_per_hour=percent, every_minutes=5, after_minutes=10)
    assert outcome.moves > 0
    assert measures(outcome)["moves_percent_per_hour"] <= percent


def test_jobs_stay(crowded: Trace) -> None:
    """A job would begin anew, so it is never moved."""
    jobs = replace(crowded, owner_kinds=("Job",) * 5)
    assert moved(jobs, percent_per_hour=1000, every_minutes=10, after_minutes=30).moves == 0


def test_a_moved_pod_goes_on(crowded: Trace) -> None:
    """Each minute of a moved pod is on one node, and its use is counted once."""
    outcome = moved(crowded, percent_per_hour=1000, every_minutes=10, after_minutes=30)
    total = outcome.cluster.ledger.cpu_milli.sum(axis=0)
    assert total == pytest.approx(np.full(240, 4 * 3800 + 200), rel=1e-3)
    for pod in range(5):
        stays = sorted((s for s in outcome.cluster.stays if s.pod == pod), key=lambda stay: stay.start)
        assert [stays[0].start, stays[-1].end] == [0, 240]
        assert all(before.end == after.start for before, after in pairwise(stays))


def test_a_pod_only_goes_where_it_fits(crowded: Trace) -> None:
    """A node whose requests leave no room is not a target."""
    full = small_world(2, [("Deployment", 2.0)] * 4 + [("Deployment", 0.0)] * 6)
    outcome = moved(full, percent_per_hour=1000, every_minutes=10, after_minutes=30)
    nodes = outcome.cluster.nodes
    assert (nodes.in_tree_requests("cpu") <= nodes.allocatable("cpu")).all()


@pytest.mark.parametrize("power", [1, 2, 5, 8, 16])
def test_whole_powers(power: int) -> None:
    """Squaring gives what the general function gives."""
    values = np.linspace(0, 2, 50)
    assert whole_power(values, power) == pytest.approx(values**power)


def test_fewer_nodes_keep_the_share_that_is_requested() -> None:
    """Of each size as many go, and requests are divided by so much more."""
    trace = Synthetic(seed=1, nodes=40, minutes=120, warm_up_minutes=20).trace()
    fewer = fewer_nodes(trace, 8)
    assert len(fewer.nodes) == 32
    for factor, was, now in (
        (0, trace.cpu_capacity_milli, fewer.cpu_capacity_milli),
        (1, trace.memory_capacity_bytes, fewer.memory_capacity_bytes),
    ):
        assert fewer.overcommit[factor] * now.sum() == pytest.approx(trace.overcommit[factor] * was.sum())
    assert fewer_nodes(trace, 0).nodes == trace.nodes


def test_saved_nodes_are_those_without_which_it_is_as_good() -> None:
    """On one node less it is still as good, and on one less than that no more."""
    trace = Synthetic(seed=6, nodes=12, minutes=400, warm_up_minutes=100).trace()
    made = policies(trace)
    default = measures(Replay(trace, made["default"]).run())
    saved = nodes_saved(trace, made["clairvoyant"], default, Options())
    assert saved > 0
    good = measures(Replay(fewer_nodes(trace, saved), made["clairvoyant"]).run())
    worse = measures(Replay(fewer_nodes(trace, saved + 1), made["clairvoyant"]).run())
    assert good["hot_minutes_80"] <= default["hot_minutes_80"]
    assert any(worse[name] > default[name] for name in ("hot_minutes_80", "memory_overrun_minutes"))
