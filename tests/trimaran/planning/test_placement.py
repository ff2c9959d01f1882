"""Batch placement: measures of plans, the paper's methods, local search, and the lower bound."""

from dataclasses import replace

import numpy as np
import pytest
from support.placing import every_plan, small

from research.tbesk.arrivals import churn
from research.tbesk.generated import generated_cluster
from trimaran.planning.assignment import Assignment
from trimaran.planning.bound import lower_bound
from trimaran.planning.exchanges import Exchanges
from trimaran.planning.greedy import greedy
from trimaran.planning.local_search import SearchSettings, improve, local_search
from trimaran.planning.problem import UNPLACED, Problem, cost, imbalances, measure, why_unplaced
from trimaran.planning.refits import Refits, _RoundStart
from trimaran.planning.rules import (
    balanced_resources,
    least_requested,
    place_by_rule,
)

QUICK = SearchSettings(rounds=300, seconds=60)


def test_measures_are_the_paper_s() -> None:
    """Z has no 1/m inside; the spread is the deviation of the nodes' means; any resource can overload a node."""
    problem = Problem.of([[10, 10, 10, 10]] * 2, [[1, 1, 1, 1], [0, 0, 0, 0]], [[8, 4, 4, 4], [11, 0, 0, 1]])
    found = measure(problem, np.array([0, 1]))
    # Node 0: 0.9, 0.5, 0.5, 0.5 with mean 0.6; node 1: 1.1, 0, 0, 0.1 with mean 0.3.
    first = np.sqrt(0.3**2 + 3 * 0.1**2)
    second = np.sqrt(0.8**2 + 2 * 0.3**2 + 0.2**2)
    assert found.imbalance == pytest.approx((first + second) / 2)
    assert found.spread == pytest.approx(0.15)
    assert found.cost() == pytest.approx((first + second) / 2 + 0.15)
    assert (found.overloaded, found.unplaced, found.highest) == (1, 0, pytest.approx(1.1))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"capacity": [[0.0, 1.0]]}, "capacity must be above 0 for every node"),
        ({"demand": [[np.nan, 1.0]]}, "finite"),
        ({"demand": [[-1.0, 1.0]]}, "not negative"),
        ({"capacity": np.zeros((0, 2)), "used": np.zeros((0, 2))}, "no nodes"),
        ({"used": [[0.0]]}, "a column for each"),
    ],
)
def test_an_invalid_problem_is_refused(change, named: str) -> None:
    """The error names the fault."""
    arguments = {"capacity": [[1.0, 1.0]], "used": [[0.0, 0.0]], "demand": [[0.5, 0.5]], **change}
    with pytest.raises(ValueError, match=named):
        Problem.of(**arguments, resources=("cpu", "memory"))


def test_rules_of_schedulers() -> None:
    """LRA and BRA use CPU and memory alone."""
    used, capacity = np.array([[5.0, 1, 9, 9], [4, 4, 0, 0]]), np.full((2, 4), 10.0)
    assert least_requested(used[0], used, capacity).tolist() == pytest.approx([7.0, 6.0])
    assert balanced_resources(used[0], used, capacity).tolist() == pytest.approx([6.0, 10.0])


def test_a_rule_checks_only_its_columns() -> None:
    """With two columns the requests exceed the bandwidth; with all columns the pod stays unplaced."""
    problem = Problem.of([[10.0] * 4], [[0.0] * 4], [[1, 1, 8, 1], [1, 1, 8, 1]])
    assert place_by_rule(problem, least_requested, columns=2).tolist() == [0, 0]
    assert place_by_rule(problem, least_requested).tolist() == [0, UNPLACED]


@pytest.mark.parametrize("spread_weight", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_below_every_plan(seed: int, spread_weight: float) -> None:
    """No plan of a small problem costs less than the bound, by exhaustive search."""
    problem = small(seed)
    best = min(cost(problem, plan, spread_weight) for plan in every_plan(problem))
    bound = lower_bound(problem, spread_weight=spread_weight)
    assert 0 <= bound.cost <= best + 1e-9
    assert bound.gap(best) == pytest.approx(best / bound.cost - 1 if bound.cost else np.inf)


def test_the_bound_is_met_where_pods_can_be_split_evenly() -> None:
    """With many tiny pods the fractional optimum is the cost of a plan, and the bound reaches it."""
    problem = Problem.of([[100.0, 100], [100, 100]], [[0, 0], [0, 0]], [[1.0, 0.5]] * 80, ("cpu", "memory"))
    bound = lower_bound(problem)
    assert bound.exact
    assert bound.cost == pytest.approx(cost(problem, np.arange(80) % 2, 1.0), rel=1e-3)
    assert lower_bound(replace(problem, allowed=np.array([[True, False]]))).cost > 2 * bound.cost


def test_a_bound_that_ran_out_of_time_is_valid() -> None:
    """It is lower than the final bound, and not exact."""
    problem = generated_cluster(8, 80)
    early, late = lower_bound(problem, seconds=0), lower_bound(problem)
    assert not early.exact
    assert late.exact
    assert early.cost <= late.cost


def test_the_bound_is_exact_although_presolve_fails() -> None:
    """After some 70 planes HiGHS fails with presolve; the program is then solved without."""
    cluster = generated_cluster(31, 1800)
    *_, step = churn(cluster.pods, start=900, rounds=1, share=0.1, seed=0)
    assert lower_bound(cluster.take(step.present), seconds=600).exact


@pytest.mark.parametrize("seed", range(3))
def test_local_search_comes_near_the_best(seed: int) -> None:
    """The plan of a small problem is within 5 % of the best, it fits, and one seed gives one plan."""
    problem = small(seed)
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    plan = local_search(problem, np.random.default_rng(0), QUICK)
    assert measure(problem, plan).overloaded == 0
    assert cost(problem, plan, 1.0) <= 1.05 * best
    assert (plan == local_search(problem, np.random.default_rng(0), QUICK)).all()


def test_improving_never_raises_the_cost_nor_breaks_a_constraint() -> None:
    """A short search also keeps pods on allowed nodes, and loads within the room."""
    problem = generated_cluster(6, 120, seed=3)
    allowed = np.ones((2, 6), np.bool_)
    allowed[1, :3] = False
    problem = replace(problem, allowed=allowed, group=np.arange(120) % 2)
    plan, _ = greedy(problem)
    for rounds in (1, 40, 400):
        better = improve(problem, plan, np.random.default_rng(rounds), SearchSettings(rounds=rounds))
        assert cost(problem, better, 1.0) <= cost(problem, plan, 1.0)
        assert problem.allowed[problem.group, better].all()
        assert measure(problem, better).overloaded == 0
        assert (better >= 0).all()


def test_some_pods_must_go_together() -> None:
    """A pod of size 5 for two of size 2 makes both nodes equal; no exchange of single pods helps, and none is made."""
    problem = Problem.of(
        [[100.0, 100]] * 2, [[0, 0]] * 2, [[size, size] for size in (11.0, 5, 2, 2, 5, 5)], ("cpu", "memory")
    )
    start = np.array([0, 0, 1, 1, 1, 1])
    nodes = np.array([0]), np.array([1])
    rng = np.random.default_rng(0)
    plans = [Assignment(problem, start) for _ in range(2)]
    single, several = (
        Exchanges(plan, 1.0, sampled=5, max_moved=most) for plan, most in zip(plans, (1, 3), strict=True)
    )
    assert single.exchange(nodes, 0.0, 0.0, rng) == 0
    assert plans[0].cost(1.0) == pytest.approx(0.01)
    assert several.exchange(nodes, 0.0, 0.0, rng) == 1
    assert plans[1].cost(1.0) == pytest.approx(0, abs=1e-12)
    assert sorted(problem.demand[plans[1].plan == 0, 0]) in ([2, 2, 11], [5, 5, 5])
    assert start.tolist() == [0, 0, 1, 1, 1, 1]


def test_refits_balance_even_nodes_with_pods_of_uneven_ones() -> None:
    """With many small nodes, refits make even nodes more even, and break no constraint."""
    problem = generated_cluster(80, 800, seed=1)
    allowed = np.ones((2, 80), np.bool_)
    allowed[1, ::3] = False
    problem = replace(problem, allowed=allowed, group=np.arange(800) % 2)
    rng = np.random.default_rng(0)
    plan = improve(problem, greedy(problem)[0], rng, SearchSettings(rounds=8))
    assignment = Assignment(problem, plan)
    exchanges = Exchanges(assignment, 1.0, sampled=8, max_moved=2)
    refits = Refits(assignment, 1.0, exchanges)
    before = median_imbalance(problem, plan)
    assert sum(refits.run_round(rng, lambda: False) for _ in range(12)) > 20
    after = assignment.plan
    assert median_imbalance(problem, after) < 0.8 * before
    assert measure(problem, after).overloaded == 0
    assert problem.allowed[problem.group, after].all()
    assert (after >= 0).all()
    assert assignment.load == pytest.approx(problem.load(after))
    assert Refits(Assignment(problem, plan), 1.0, exchanges).run_round(rng, lambda: True) == 0


@pytest.mark.parametrize("spread_weight", [0.0, 1.0])
def test_no_refit_that_gains_is_out_of_reach(spread_weight: float) -> None:
    """Every use that costs less than a limit is within the reach of that limit."""
    rng = np.random.default_rng(0)
    problem = generated_cluster(70, 500, seed=1)
    state = _RoundStart.of(Assignment(problem, greedy(problem)[0]), spread_weight)
    use = state.average + rng.normal(0, 0.05, (10_000, 1)) + rng.normal(0, 0.05, (10_000, 4))
    distances, costs = np.linalg.norm(use - state.average, axis=1), state.cost(use)
    for limit in np.quantile(costs, (0.01, 0.1, 0.5)):
        assert distances[costs < limit].max() <= state.reach(float(limit))


def median_imbalance(problem: Problem, plan) -> float:
    """Return the median imbalance, which is that of an even node."""
    return float(np.median(imbalances(problem.use(plan))))


def test_many_bundles_are_compared_by_windows() -> None:
    """Windows nearly always find an exchange as good as a comparison of all with all."""
    problem = generated_cluster(60, 600, seed=2)
    plan, _ = greedy(problem)
    rises = []
    for sampled in (8, 9):  # 256 bundles are compared all with all, 512 by windows
        assignment = Assignment(problem, plan)
        exchanges = Exchanges(assignment, 1.0, sampled=sampled, max_moved=sampled)
        pairs = exchanges.pair_nodes(np.random.default_rng(0), opposite=True)
        assert exchanges.exchange(pairs, 0.0, 0.01, np.random.default_rng(0)) > 20
        assert assignment.load == pytest.approx(problem.load(assignment.plan))
        rises.append(assignment.cost(1.0))
    assert rises[1] < 1.03 * rises[0] < cost(problem, plan, 1.0)


def test_resources_that_are_not_balanced_must_fit() -> None:
    """A column such as GPUs keeps pods off nodes with too few."""
    problem = Problem.of([[100.0, 100]] * 2, [[0, 0]] * 2, [[5.0, 5]] * 4, ("cpu", "memory"))
    problem = replace(
        problem,
        demand=np.concatenate([problem.demand, [[1], [1], [1], [0]]], axis=1),
        room=np.concatenate([problem.room, [[3], [0]]], axis=1),
    )
    assert local_search(problem, np.random.default_rng(0), QUICK)[:3].tolist() == [0, 0, 0]


def test_the_highest_priority_is_placed_first() -> None:
    """With room for one pod the one with the higher priority wins, although the other is larger."""
    problem = Problem.of([[10.0, 10]], [[0, 0]], [[9.0, 9], [8, 8]], ("cpu", "memory"))
    problem = replace(problem, priority=np.array([0, 5]))
    assert local_search(problem, np.random.default_rng(0), QUICK).tolist() == [UNPLACED, 0]


def test_gangs_are_placed_whole_and_within_one_domain() -> None:
    """One gang gets the rack with room for it, the other fits into no rack and stays unplaced."""
    problem = Problem.of([[10.0, 10]] * 4, [[0, 0]] * 4, [[4.0, 4]] * 9, ("cpu", "memory"))
    gangs = np.array([0, 0, 0, 0, -1, 1, 1, 1, 1])
    problem = replace(problem, gang=gangs, domain=np.array([0, 0, 1, -1]))
    plan = local_search(problem, np.random.default_rng(0), QUICK)
    assert set(plan[:4]) == {0, 1}
    assert plan[4] >= 0
    assert plan[5:].tolist() == [UNPLACED] * 4
    assert "gang" in why_unplaced(problem, 5)
    anywhere = local_search(replace(problem, domain=None), np.random.default_rng(0), QUICK)
    assert (anywhere >= 0).tolist() == [True] * 4 + [False] + [True] * 4  # eight places; gangs come first


def test_a_gang_may_go_to_a_domain_without_a_resource_that_it_does_not_request() -> None:
    """Another pod requests a GPU; the gang does not, and the only rack with room for it has no GPUs."""
    problem = Problem.of([[4.0, 4], [10, 10]], [[0, 0]] * 2, [[4.0, 4], [4, 4], [1, 1]], ("cpu", "memory"))
    problem = replace(
        problem,
        demand=np.concatenate([problem.demand, [[0], [0], [1]]], axis=1),
        room=np.concatenate([problem.room, [[1], [0]]], axis=1),
        gang=np.array([0, 0, -1]),
        domain=np.array([0, 1]),
    )
    assert local_search(problem, np.random.default_rng(0), QUICK).tolist() == [1, 1, 0]


@pytest.mark.parametrize("domain", [None, np.array([0, 0])])
def test_a_gang_that_fits_in_sum_only_stays_unplaced(domain) -> None:
    """Two nodes have room for three pods in sum, but neither for two of them: no pod is placed."""
    problem = Problem.of([[10.0, 10]] * 2, [[0, 0]] * 2, [[6.0, 6]] * 3 + [[1, 1]], ("cpu", "memory"))
    problem = replace(problem, gang=np.array([0, 0, 0, -1]), domain=domain)
    plan = local_search(problem, np.random.default_rng(0), QUICK)
    assert (plan >= 0).tolist() == [False, False, False, True]


def test_the_reason_why_a_pod_has_no_node() -> None:
    """Constraints that allow no node, and requests beyond every node, have different reasons."""
    problem = Problem.of([[10.0, 10]], [[0, 0]], [[4.0, 4], [40, 4]], ("cpu", "memory"))
    problem = replace(problem, group=np.array([1, 0]), allowed=np.array([[True], [False]]))
    assert "no node is allowed" in why_unplaced(problem, 0)
    assert "fits on no node" in why_unplaced(problem, 1)
