"""Search for moves: the plan of a simple search that computes everything in each step, faster."""

import os
import resource
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.planning.moves import GainRule, Move, MoveCosts, MovePlanner, MoveProblem
from trimaran.planning.moves.gains import block_count

COSTS, RULE = MoveCosts(), GainRule()


def problem(
    seed: int, *, nodes: int = 6, pods: int = 40, steps: int = 24, scale: float = 1.0, **changes
) -> MoveProblem:
    """Return a random cluster of nodes with 8 cores and 32 GiB, in which some nodes are hot."""
    dice = np.random.default_rng(seed)
    rows = dice.integers(nodes, size=pods)
    capacity = np.array([[8.0] * nodes, [32.0] * nodes])
    mean = dice.gamma(1.0, 8 * nodes * 0.6 / pods, pods) * scale
    cpu = mean[:, None] * dice.gamma(2.0, 0.5, (pods, steps))
    memory = (dice.gamma(2.0, 32 * nodes * 0.25 / pods, pods)[:, None] * np.ones(max(steps // 3, 1))) * scale
    requests = np.array([dice.uniform(0.1, 1.0, pods), dice.uniform(0.1, 3.0, pods)]) * min(1.0, 8 * nodes / pods)
    free = capacity - np.array([np.bincount(rows, request, nodes) for request in requests])
    arrays = {
        "capacity": capacity, "free": free, "rows": rows, "requests": requests, "cpu": cpu, "memory": memory,
        "movable": dice.random(pods) < 0.8,
    }  # fmt: skip
    return MoveProblem(**{**arrays, **changes})


def simple_plan(given: MoveProblem, count: int, min_gain: float, rule: GainRule = RULE, tried: int = 40) -> list[Move]:
    """Return the plan of a search that computes all reliefs, rises and intervals again for each move."""
    use, rows, free = given.node_use(), given.rows.copy(), given.free.copy()
    scale, moved, moves = COSTS.scale(given.capacity), np.zeros(rows.size, bool), []
    blocks, at_least = block_count(given.cpu.shape[1]), 1e-9
    steps = given.cpu.shape[1] // blocks
    while len(moves) < count:
        cost = COSTS.blocks(use, scale, blocks)
        candidates = np.flatnonzero(given.movable & ~moved)
        if not candidates.size:
            break
        on = rows[candidates]
        without = use[0][on] - given.cpu[candidates], use[1][on] - given.memory[candidates]
        relief = cost[on] - COSTS.blocks(without, scale[:, on], blocks)
        share = given.cpu[candidates].sum(axis=1) / np.maximum(use[0][on].sum(axis=1), at_least)
        worth = np.where(rule.lower_end(relief, share, steps) > 0, relief.mean(axis=1), 0)
        best = None
        for place in np.argsort(-worth, kind="stable")[:tried].tolist():
            pod = int(candidates[place])
            with_pod = use[0] + given.cpu[pod], use[1] + given.memory[pod]
            rise = COSTS.mean(with_pod, scale) - cost.mean(axis=1)
            fits = np.all(free >= given.requests[:, pod, None], axis=0)
            fits[rows[pod]] = False
            if given.accepts is not None:
                fits &= given.accepts(pod)
            gain = np.where(fits, worth[place] - rise, -np.inf)
            target = int(gain.argmax())
            if gain[target] <= min_gain or (best is not None and gain[target] <= best.gain):
                continue
            by_block = relief[place] - (COSTS.blocks(with_pod, scale, blocks)[target] - cost[target])
            low = float(rule.lower_end(by_block, share[place], steps))
            if low > 0:
                best = Move(pod, int(rows[pod]), target, float(gain[target]), low)
        if best is None:
            break
        moves.append(best)
        moved[best.pod] = True
        for kind, pods in enumerate((given.cpu, given.memory)):
            use[kind][best.source] -= pods[best.pod]
            use[kind][best.target] += pods[best.pod]
        free[:, best.source] += given.requests[:, best.pod]
        free[:, best.target] -= given.requests[:, best.pod]
    return moves


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_plan_equals_the_simple_search(first):
    """A thousand random clusters get the plan of the simple search, move by move, with the same gains."""
    planned = 0
    for seed in range(first, first + 250):
        dice = np.random.default_rng(seed)
        nodes, pods = int(dice.integers(2, 12)), int(dice.integers(1, 80))
        steps = int(dice.choice([6, 24, 60, 288]))
        one = problem(seed, nodes=nodes, pods=pods, steps=steps, scale=float(dice.uniform(0.5, 1.6)))
        rule = GainRule(startup_seconds=float(dice.choice([0, 30, 600])))
        plan, simple = MovePlanner(one, COSTS, 0.01, rule=rule).best(10), simple_plan(one, 10, 0.01, rule)
        assert [move[:3] for move in plan] == [move[:3] for move in simple]
        np.testing.assert_allclose([move[3:] for move in plan], [move[3:] for move in simple], rtol=1e-9)
        planned += len(plan)
    assert planned > 500


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 10), st.integers(1, 80), st.integers(1, 20))
def test_plan_keeps_requests_constraints_and_budget(seed, nodes, pods, count):
    """Each plan fits by requests after each move, keeps constraints, moves a pod once, and lowers the cost."""
    check_plan(seed, nodes, pods, count)


@pytest.mark.slow
def test_many_plans_keep_requests_constraints_and_budget():
    """A thousand random plans of small clusters, ten thousand in `make soak`, keep these properties; many move pods."""
    dice, count = np.random.default_rng(36), int(os.environ.get("RANDOM_PLANS", "1000"))
    drawn = [(int(dice.integers(2, 9)), int(dice.integers(4, 40)), int(dice.integers(1, 6))) for _ in range(count)]
    assert sum(check_plan(seed, *sizes) > 0 for seed, sizes in enumerate(drawn)) > 0.3 * count


def check_plan(seed, nodes, pods, count):
    """Check the properties of a random plan, and of a plan that follows it; return the number of moves."""
    dice = np.random.default_rng(seed)
    accepted = dice.random((pods, nodes)) < 0.7
    one = problem(seed, nodes=nodes, pods=pods, scale=1.4, accepts=accepted.__getitem__)
    plan = MovePlanner(one, COSTS, 0.01).best(count)
    free, cost = one.free.copy(), COSTS.mean(one.node_use(), COSTS.scale(one.capacity)).sum()
    rows = one.rows.copy()
    for move in plan:
        assert one.movable[move.pod]
        assert accepted[move.pod, move.target]
        assert move.source == rows[move.pod] != move.target
        free[:, move.source] += one.requests[:, move.pod]
        free[:, move.target] -= one.requests[:, move.pod]
        assert (free[:, move.target] >= -1e-9).all()
        rows[move.pod] = move.target
    assert len({move.pod for move in plan}) == len(plan) <= count
    after = MoveProblem(one.capacity, one.free, rows, one.requests, one.cpu, one.memory, one.movable).node_use()
    saved = cost - COSTS.mean(after, COSTS.scale(one.capacity)).sum()
    assert saved == pytest.approx(sum(move.gain for move in plan), abs=1e-9 * max(cost, 1))

    # After the plan, with a pause for the moved pods, nothing moves back.
    rested = one.movable.copy()
    rested[[move.pod for move in plan]] = False
    next_problem = replace(one, free=free, rows=rows, movable=rested)
    assert not {move.pod for move in plan} & {move.pod for move in MovePlanner(next_problem, COSTS, 0.01).best(count)}
    return len(plan)


def test_half_precision_changes_no_move_of_a_clear_case():
    """Use as float16 gives the move that full precision gives: from the only hot node to the coolest one."""
    rows = np.array([0, 0, 0, 1, 2])
    cpu = np.array([[3.0], [2.5], [2.0], [4.0], [1.0]]) * np.ones((1, 288))
    use = {"cpu": cpu.astype(np.float16), "memory": np.ones((5, 96), np.float16)}
    one = MoveProblem(
        np.array([[8.0] * 3, [32.0] * 3]), np.full((2, 3), 4.0), rows, np.full((2, 5), 1.0), **use,
        movable=np.ones(5, bool),
    )  # fmt: skip
    (move,) = MovePlanner(one, COSTS, 0.01).best(1)
    assert (move.source, move.target) == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.array([0] * 39 + [9])}, "rows: the node of each pod must be from 0 to 5"),
        ({"free": np.zeros((2, 5))}, r"free has the shape \(2, 5\), expected \(2, 6\)"),
        ({"movable": np.ones(3, bool)}, r"movable has the shape \(3,\), expected \(40,\)"),
    ],
)
def test_wrong_shapes_are_named(change, message):
    """Arrays that do not match are refused with the name of the array."""
    with pytest.raises(ValueError, match=message):
        problem(0, **change)


@pytest.mark.slow
def test_a_large_cluster_takes_seconds():
    """A plan of 100 moves of 100,000 pods on 5,000 nodes takes a few seconds and less than 1 GiB more."""
    one = problem(1, nodes=5000, pods=100_000, steps=288)
    compact = MoveProblem(
        one.capacity, one.free, one.rows, one.requests, one.cpu.astype(np.float16), one.memory.astype(np.float16),
        one.movable,
    )  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    plan = MovePlanner(compact, COSTS, 0.01).best(100)
    seconds = time.process_time() - started
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert len(plan) == 100
    assert (seconds < 15, more < 1024) == (True, True), f"{seconds:.1f} s, {more:.0f} MiB"  # 5 s on a quiet machine


def test_a_smaller_pod_that_gains_enough_is_preferred():
    """Of two pods that gain alike the one with the lower use moves, unless only the best gain suffices."""
    cpu = np.array([[3.0], [2.6], [2.4], [0.5]]) * np.ones((1, 24))
    one = MoveProblem(
        np.array([[8.0] * 2, [32.0] * 2]), np.full((2, 2), 4.0), np.array([0, 0, 0, 1]), np.full((2, 4), 1.0), cpu,
        np.ones((4, 8)), movable=np.ones(4, bool),
    )  # fmt: skip
    (best,) = MovePlanner(one, COSTS, 0.01).best(1)
    (smaller,) = MovePlanner(one, COSTS, 0.01, enough=0.8).best(1)
    assert cpu[smaller.pod, 0] < cpu[best.pod, 0]
    assert best.gain > smaller.gain >= 0.8 * best.gain


def test_excluded_pods_and_closed_nodes_take_no_part():
    """After the exclusion of the first move's pod and target, the plan continues with other pods and nodes."""
    one = problem(3, nodes=8, pods=80, scale=1.4)
    planner = MovePlanner(one, COSTS, 0.01)
    assert set(planner.worth_relieving()) >= {move.source for move in MovePlanner(one, COSTS, 0.01).best(1)}
    (first,) = MovePlanner(one, COSTS, 0.01).best(1)
    excluded = one.rows == first.source
    planner.exclude(excluded)
    planner.close(first.target)
    plan = planner.best(20)
    assert plan
    assert not {first.source} & {move.source for move in plan}
    assert first.target not in {move.target for move in plan}
