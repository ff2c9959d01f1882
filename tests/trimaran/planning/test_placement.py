"""Batch placement: what a plan is worth, the paper's methods, ours, and the bound."""

import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest
from support.placing import every_plan, small

from research.tbesk.arrivals import Churn, follow, turns
from research.tbesk.generated import generated_cluster
from trimaran.planning.assignment import Assignment
from trimaran.planning.bald_eagle import tbesk
from trimaran.planning.bound import lower_bound
from trimaran.planning.exact import SolverMissing, solve_exactly
from trimaran.planning.exchanges import Exchanges
from trimaran.planning.fitness import BALANCED, COMPRESSIBLE, INCOMPRESSIBLE, Fitness, classes, fitness_rule
from trimaran.planning.greedy import greedy
from trimaran.planning.local_search import Search, improve, local_search, moved
from trimaran.planning.metaheuristics import Searched
from trimaran.planning.methods import RIVALS, in_batches, ours
from trimaran.planning.problem import UNPLACED, Problem, cost, imbalances, measure, why_unplaced
from trimaran.planning.refits import Refits, _State
from trimaran.planning.rules import (
    balanced_resources,
    cwt_topsis,
    entropy_weights,
    least_requested,
    place_by_rule,
    settle,
)

QUICK = Search(rounds=300, seconds=60)


def test_measures_are_the_paper_s() -> None:
    """Z has no 1/m inside; the spread is between nodes' means; a node is overloaded by any resource."""
    problem = Problem.of([[10, 10, 10, 10]] * 2, [[1, 1, 1, 1], [0, 0, 0, 0]], [[8, 4, 4, 4], [11, 0, 0, 1]])
    found = measure(problem, np.array([0, 1]))
    # Node 0: 0.9, 0.5, 0.5, 0.5 with mean 0.6; node 1: 1.1, 0, 0, 0.1 with mean 0.3.
    first = np.sqrt(0.3**2 + 3 * 0.1**2)
    second = np.sqrt(0.8**2 + 2 * 0.3**2 + 0.2**2)
    assert found.imbalance == pytest.approx((first + second) / 2)
    assert found.spread == pytest.approx(0.15)
    assert found.cost == pytest.approx((first + second) / 2 + 0.15)
    assert (found.overloaded, found.unplaced, found.highest) == (1, 0, pytest.approx(1.1))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"capacity": [[0.0, 1.0]]}, "every node must have some"),
        ({"demand": [[np.nan, 1.0]]}, "finite"),
        ({"demand": [[-1.0, 1.0]]}, "not negative"),
        ({"capacity": np.zeros((0, 2)), "used": np.zeros((0, 2))}, "no nodes"),
        ({"used": [[0.0]]}, "a column for each"),
    ],
)
def test_what_is_no_problem_is_refused(change, named: str) -> None:
    """Each with what is wrong with it."""
    given = {"capacity": [[1.0, 1.0]], "used": [[0.0, 0.0]], "demand": [[0.5, 0.5]], **change}
    with pytest.raises(ValueError, match=named):
        Problem.of(**given, resources=("cpu", "memory"))


def test_classes_compare_shares_of_the_node() -> None:
    """A pod is of another class on a node of other proportions; a tie is balanced."""
    demand = np.array([[2.0, 1, 2, 1], [1, 2, 1, 2], [2, 1, 1, 2], [1, 1, 1, 1]])
    capacity = np.array([[10.0, 10, 10, 10], [40, 10, 40, 10]])
    expected = [
        [COMPRESSIBLE, INCOMPRESSIBLE],
        [INCOMPRESSIBLE, INCOMPRESSIBLE],
        [BALANCED, INCOMPRESSIBLE],
        [BALANCED, INCOMPRESSIBLE],
    ]
    assert classes(demand, capacity).tolist() == expected


def test_fitness_is_the_paper_s() -> None:
    """R and L by hand; in a plan pods see each other, and what does not fit is worse than all that does."""
    problem = Problem.of([[10.0] * 4, [20.0] * 4], [[2.0] * 4, [0.0] * 4], [[4.0] * 4, [4.0] * 4])
    alone = fitness_rule()(problem.balanced[0], problem.used + 4, problem.capacity)
    assert alone[0] == pytest.approx((1 - 4 / 8) + (0.9 - 0.6))
    assert alone[1] == pytest.approx((1 - 4 / 20) + (0.9 - 0.2))
    together, apart = Fitness(problem).of(np.array([[1, 1], [0, 1]]))
    assert together == pytest.approx((1 - 4 / 16) + (0.9 - 0.4))
    assert apart == pytest.approx(np.mean(alone))
    crowded = Problem.of([[10.0] * 4, [20.0] * 4], [[2.0] * 4, [0.0] * 4], [[5.0] * 4, [5.0] * 4])
    assert Fitness(crowded).of(np.array([[0, 0]]))[0] < -1
    barred = replace(crowded, allowed=np.array([[False, True]]))
    assert Fitness(barred).of(np.array([[0, 1]]))[0] < Fitness(crowded).of(np.array([[0, 1]]))[0]


def test_rules_of_schedulers() -> None:
    """LRA and BRA look at CPU and memory alone; TOPSIS weighs what tells nodes apart."""
    used, capacity = np.array([[5.0, 1, 9, 9], [4, 4, 0, 0]]), np.full((2, 4), 10.0)
    assert least_requested(used[0], used, capacity).tolist() == pytest.approx([7.0, 6.0])
    assert balanced_resources(used[0], used, capacity).tolist() == pytest.approx([6.0, 10.0])
    assert entropy_weights(np.array([[1.0, 1.0], [1.0, 3.0]])).tolist() == pytest.approx([0.0, 1.0])
    assert cwt_topsis(used[0], np.array([[5.0, 5, 5, 9], [5, 5, 5, 1]]), capacity).tolist() == pytest.approx([0.0, 1.0])


def test_a_rule_fills_only_what_it_looks_at() -> None:
    """With two columns bandwidth is asked for beyond what there is; with all of them the pod stays unplaced."""
    problem = Problem.of([[10.0] * 4], [[0.0] * 4], [[1, 1, 8, 1], [1, 1, 8, 1]])
    assert place_by_rule(problem, least_requested, columns=2).tolist() == [0, 0]
    assert place_by_rule(problem, least_requested).tolist() == [0, UNPLACED]


def test_what_does_not_fit_is_settled_elsewhere_or_reported() -> None:
    """The first stays, the second goes where the rule says, the third fits nowhere and is unplaced, not dropped."""
    problem = Problem.of([[10.0] * 4, [10.0] * 4], [[0.0] * 4] * 2, [[8.0] * 4] * 3)
    plan = settle(problem, np.array([0, 0, 0]), fitness_rule())
    assert plan.tolist() == [0, 1, UNPLACED]
    assert "no room is left" in why_unplaced(problem, 2)


@pytest.mark.parametrize("spread_weight", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_below_every_plan(seed: int, spread_weight: float) -> None:
    """Counted through: no plan of a small case costs less, whether nodes are alike or not."""
    problem = small(seed)
    best = min(cost(problem, plan, spread_weight) for plan in every_plan(problem))
    bound = lower_bound(problem, spread_weight=spread_weight)
    assert 0 <= bound.cost <= best + 1e-9
    assert bound.gap(best) == pytest.approx(best / bound.cost - 1 if bound.cost else np.inf)


def test_the_bound_is_met_where_pods_can_be_split_evenly() -> None:
    """Pods like dust: the fractional optimum is a plan's cost, so the bound is not just anything below it."""
    problem = Problem.of([[100.0, 100], [100, 100]], [[0, 0], [0, 0]], [[1.0, 0.5]] * 80, ("cpu", "memory"))
    bound = lower_bound(problem)
    assert bound.exact
    assert bound.cost == pytest.approx(cost(problem, np.arange(80) % 2, 1.0), rel=1e-3)
    assert lower_bound(replace(problem, allowed=np.array([[True, False]]))).cost > 2 * bound.cost


def test_a_bound_that_ran_out_of_time_is_one_still() -> None:
    """It is lower, and says that it is not the last word."""
    problem = generated_cluster(8, 80)
    early, late = lower_bound(problem, seconds=0), lower_bound(problem)
    assert not early.exact
    assert late.exact
    assert early.cost <= late.cost


def test_the_bound_is_looked_for_to_the_end_where_presolve_fails() -> None:
    """Some 70 planes on, HiGHS's presolve leaves a program unsolved that is solved without; time was not short."""
    cluster = generated_cluster(31, 1800)
    turn = list(turns(cluster.pods, Churn(start=900, rounds=1, share=0.1), seed=0))[-1]
    assert lower_bound(cluster.take(turn.here), seconds=600).exact


@pytest.mark.parametrize("seed", range(3))
def test_local_search_comes_near_the_best(seed: int) -> None:
    """Against all plans of a small case it is within 5 %, fits, and is the same again with the same seed."""
    problem = small(seed)
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    plan = local_search(problem, np.random.default_rng(0), QUICK)
    assert measure(problem, plan).overloaded == 0
    assert cost(problem, plan, 1.0) <= 1.05 * best
    assert (plan == local_search(problem, np.random.default_rng(0), QUICK)).all()


def test_improving_never_makes_worse_nor_breaks_a_rule() -> None:
    """Not even with no time to get better; pods stay where they may go, and no node is filled beyond its room."""
    problem = generated_cluster(6, 120, seed=3)
    allowed = np.ones((2, 6), np.bool_)
    allowed[1, :3] = False
    problem = replace(problem, allowed=allowed, group=np.arange(120) % 2)
    plan, _ = greedy(problem)
    for rounds in (1, 40, 400):
        better = improve(problem, plan, np.random.default_rng(rounds), Search(rounds=rounds))
        assert cost(problem, better, 1.0) <= cost(problem, plan, 1.0)
        assert problem.allowed[problem.group, better].all()
        assert measure(problem, better).overloaded == 0
        assert (better >= 0).all()


def test_some_pods_must_go_together() -> None:
    """One pod of five for two of two makes both nodes alike; no exchange of single pods helps, and none is made."""
    problem = Problem.of(
        [[100.0, 100]] * 2, [[0, 0]] * 2, [[size, size] for size in (11.0, 5, 2, 2, 5, 5)], ("cpu", "memory")
    )
    start = np.array([0, 0, 1, 1, 1, 1])
    nodes = np.array([0]), np.array([1])
    rng = np.random.default_rng(0)
    plans = [Assignment(problem, start) for _ in range(2)]
    alone, together = (Exchanges(plan, 1.0, drawn=5, together=most) for plan, most in zip(plans, (1, 3), strict=True))
    assert alone.exchange(nodes, 0.0, 0.0, rng) == 0
    assert plans[0].cost(1.0) == pytest.approx(0.01)
    assert together.exchange(nodes, 0.0, 0.0, rng) == 1
    assert plans[1].cost(1.0) == pytest.approx(0, abs=1e-12)
    assert sorted(problem.demand[plans[1].plan == 0, 0]) in ([2, 2, 11], [5, 5, 5])
    assert start.tolist() == [0, 0, 1, 1, 1, 1]


def test_even_nodes_are_made_exact_out_of_lopsided_ones() -> None:
    """Many small nodes: rounds of refits make even nodes more even, and no rule is broken."""
    problem = generated_cluster(80, 800, seed=1)
    allowed = np.ones((2, 80), np.bool_)
    allowed[1, ::3] = False
    problem = replace(problem, allowed=allowed, group=np.arange(800) % 2)
    rng = np.random.default_rng(0)
    plan = improve(problem, greedy(problem)[0], rng, Search(rounds=8))
    assignment = Assignment(problem, plan)
    exchanges = Exchanges(assignment, 1.0, drawn=8, together=2)
    refits = Refits(assignment, 1.0, exchanges)
    before = _beyond_even(problem, plan)
    assert sum(refits.round(rng, lambda: False) for _ in range(12)) > 20
    after = assignment.plan
    assert _beyond_even(problem, after) < 0.8 * before
    assert measure(problem, after).overloaded == 0
    assert problem.allowed[problem.group, after].all()
    assert (after >= 0).all()
    assert assignment.load == pytest.approx(problem.load(after))
    assert Refits(Assignment(problem, plan), 1.0, exchanges).round(rng, lambda: True) == 0


@pytest.mark.parametrize("spread_weight", [0.0, 1.0])
def test_no_refit_that_gains_is_out_of_reach(spread_weight: float) -> None:
    """Whatever use costs less than a node does is no farther from the average than is looked."""
    rng = np.random.default_rng(0)
    problem = generated_cluster(70, 500, seed=1)
    state = _State.of(Assignment(problem, greedy(problem)[0]), spread_weight)
    use = state.average + rng.normal(0, 0.05, (10_000, 1)) + rng.normal(0, 0.05, (10_000, 4))
    away, costs = np.linalg.norm(use - state.average, axis=1), state.cost(use)
    for most in np.quantile(costs, (0.01, 0.1, 0.5)):
        assert away[costs < most].max() <= state.reach(float(most))


def _beyond_even(problem: Problem, plan) -> float:
    """Return the median imbalance: that of an even node."""
    return float(np.median(imbalances(problem.use(plan))))


def test_many_bundles_are_compared_in_the_order_of_their_size() -> None:
    """Windows find an exchange as good as all against all do, nearly always."""
    problem = generated_cluster(60, 600, seed=2)
    plan, _ = greedy(problem)
    rises = []
    for drawn in (8, 9):  # 256 bundles, all against all; 512, by windows
        assignment = Assignment(problem, plan)
        exchanges = Exchanges(assignment, 1.0, drawn=drawn, together=drawn)
        pairs = exchanges.pair_off(np.random.default_rng(0), opposites=True)
        assert exchanges.exchange(pairs, 0.0, 0.01, np.random.default_rng(0)) > 20
        assert assignment.load == pytest.approx(problem.load(assignment.plan))
        rises.append(assignment.cost(1.0))
    assert rises[1] < 1.03 * rises[0] < cost(problem, plan, 1.0)


def test_what_must_only_fit_is_held_to() -> None:
    """A column that is not balanced, such as GPUs, keeps pods off nodes that have too few."""
    problem = Problem.of([[100.0, 100]] * 2, [[0, 0]] * 2, [[5.0, 5]] * 4, ("cpu", "memory"))
    problem = replace(
        problem,
        demand=np.concatenate([problem.demand, [[1], [1], [1], [0]]], axis=1),
        room=np.concatenate([problem.room, [[3], [0]]], axis=1),
    )
    assert local_search(problem, np.random.default_rng(0), QUICK)[:3].tolist() == [0, 0, 0]


def test_the_urgent_are_placed_first() -> None:
    """Where there is room for one, it is the one of the higher priority, though the other is larger."""
    problem = Problem.of([[10.0, 10]], [[0, 0]], [[9.0, 9], [8, 8]], ("cpu", "memory"))
    problem = replace(problem, priority=np.array([0, 5]))
    assert local_search(problem, np.random.default_rng(0), QUICK).tolist() == [UNPLACED, 0]


def test_gangs_are_whole_and_within_one_domain() -> None:
    """One gang takes the rack that has room for it, one that fits into no rack stays out, others fill up."""
    problem = Problem.of([[10.0, 10]] * 4, [[0, 0]] * 4, [[4.0, 4]] * 9, ("cpu", "memory"))
    gangs = np.array([0, 0, 0, 0, -1, 1, 1, 1, 1])
    problem = replace(problem, gang=gangs, domain=np.array([0, 0, 1, -1]))
    plan = local_search(problem, np.random.default_rng(0), QUICK)
    assert set(plan[:4]) == {0, 1}
    assert plan[4] >= 0
    assert plan[5:].tolist() == [UNPLACED] * 4
    assert "gang" in why_unplaced(problem, 5)
    anywhere = local_search(replace(problem, domain=None), np.random.default_rng(0), QUICK)
    assert (anywhere >= 0).tolist() == [True] * 4 + [False] + [True] * 4  # eight places, gangs first


@pytest.mark.parametrize("domain", [None, np.array([0, 0])])
def test_a_gang_that_fits_in_sum_only_stays_out_whole(domain) -> None:
    """Two nodes have room for three pods together, but not for any two of them on one: none is placed."""
    problem = Problem.of([[10.0, 10]] * 2, [[0, 0]] * 2, [[6.0, 6]] * 3 + [[1, 1]], ("cpu", "memory"))
    problem = replace(problem, gang=np.array([0, 0, 0, -1]), domain=domain)
    plan = local_search(problem, np.random.default_rng(0), QUICK)
    assert (plan >= 0).tolist() == [False, False, False, True]


def test_why_a_pod_has_no_node() -> None:
    """Kept off by its constraints, too large, or nothing left: each is said."""
    problem = Problem.of([[10.0, 10]], [[0, 0]], [[4.0, 4], [40, 4]], ("cpu", "memory"))
    problem = replace(problem, group=np.array([1, 0]), allowed=np.array([[True], [False]]))
    assert "no node is allowed" in why_unplaced(problem, 0)
    assert "fits on no node" in why_unplaced(problem, 1)


def test_metaheuristics_search_pods() -> None:
    """TBESK's plan fits, is repeatable, and is fitter than where its first birds were."""
    problem = generated_cluster(5, 40, seed=1)
    short, long = (Searched(tbesk(), evaluations=count) for count in (30, 2000))
    first, last = (method(problem, np.random.default_rng(4)) for method in (short, long))
    assert measure(problem, last).overloaded == 0
    assert Fitness(problem).of(last[None])[0] > Fitness(problem).of(first[None])[0]
    assert (last == long(problem, np.random.default_rng(4))).all()


def test_batches_see_what_came_before() -> None:
    """Placed one by one or all at once, a rule's plan is the same; no batch is too small but an empty one."""
    problem = generated_cluster(5, 40, seed=1)
    rng = np.random.default_rng(0)
    for name in ("lra", "bra", "cwt", "fitness"):
        assert (in_batches(RIVALS[name], problem, 7, rng) == RIVALS[name](problem, rng)).all()
    with pytest.raises(ValueError, match="at least one pod"):
        in_batches(RIVALS["lra"], problem, 0, rng)


def test_pods_come_and_go() -> None:
    """Every method sees the same departures; moving a few running pods costs no more than moving none."""
    problem = generated_cluster(6, 240, seed=2)
    churn = Churn(start=120, rounds=3, share=0.2)
    by_rule = follow(problem, RIVALS["lra"], churn, seed=1)
    by_search = follow(problem, ours(QUICK), churn, seed=1)
    assert len(by_rule) == len(by_search) == 4
    assert all(each.cost < other.cost for each, other in zip(by_search, by_rule, strict=True))
    plan = RIVALS["lra"](problem, np.random.default_rng(0))
    better = moved(problem, plan, 20, np.random.default_rng(0), Search(rounds=30))
    assert 0 < (better != plan).sum() <= 20
    assert cost(problem, better, 1.0) < cost(problem, plan, 1.0)
    with pytest.raises(ValueError, match="share from 0 to 1"):
        Churn(start=1, rounds=1, share=2)


def test_who_comes_and_goes_is_the_same_for_all() -> None:
    """Pods leave that were there, new ones come in their order, and what is measured is of those that are there."""
    problem, churn = generated_cluster(4, 100, seed=4), Churn(start=40, rounds=3, share=0.25)
    found = list(turns(problem.pods, churn, seed=1))
    assert [turn.new.tolist() for turn in found] == [
        [*range(each, end)] for each, end in ((0, 40), (40, 50), (50, 60), (60, 70))
    ]
    for before, after in itertools.pairwise(found):
        assert sorted([*after.gone, *after.staying]) == sorted(before.here)
    for turn, each in zip(found, follow(problem, RIVALS["lra"], churn, seed=1), strict=True):
        bound = lower_bound(problem.take(turn.here), tolerance=0.01)
        assert bound.gap(each.cost) > 0


def test_ours_is_better_than_the_paper_s_methods() -> None:
    """On a small cluster of the paper's shape every other method's imbalance is higher, and nothing is overloaded."""
    problem = generated_cluster(6, 200, seed=5)
    plan = local_search(problem, np.random.default_rng(0), Search(rounds=400))
    best = measure(problem, plan)
    assert (best.overloaded, best.unplaced) == (0, 0)
    for name, method in RIVALS.items():
        assert measure(problem, method(problem, np.random.default_rng(0))).cost > best.cost, name


def test_a_missing_solver_is_said(monkeypatch) -> None:
    """Without OR-tools the error says what to install."""
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(SolverMissing, match="pip install 'trimaran\\[placement\\]'"):
        solve_exactly(small(0), np.zeros(6, np.int64))


@pytest.mark.parametrize(
    ("problem", "start", "named"),
    [
        (generated_cluster(31, 1800), np.zeros(1800, np.int64), "too many"),
        (small(0), np.full(6, UNPLACED), "places all pods"),
        (replace(small(0), demand=small(0).demand + 0.5), np.zeros(6, np.int64), "whole amounts"),
    ],
)
def test_what_is_no_case_for_the_solver_is_refused(problem: Problem, start, named: str) -> None:
    """Before it is looked for."""
    with pytest.raises(ValueError, match=named):
        solve_exactly(problem, start)
