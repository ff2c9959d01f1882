"""The TBESK paper redrawn: metaheuristics on functions with a known minimum, pods that come and go, and the script."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from research.tbesk.__main__ import main
from research.tbesk.arrivals import churn, follow, in_batches, rebalanced
from research.tbesk.bald_eagle import bald_eagle_search, tbesk, tbesk_original, tent_map
from research.tbesk.fitness import BALANCED, COMPRESSIBLE, INCOMPRESSIBLE, Fitness, classes, fitness_rule
from research.tbesk.functions import FUNCTIONS, shifted
from research.tbesk.generated import generated_cluster
from research.tbesk.metaheuristics import place_by_metaheuristic
from research.tbesk.methods import METHODS
from research.tbesk.objective import Objective
from research.tbesk.topsis import cwt_topsis, entropy_weights
from research.tbesk.trials import OPTIMIZERS, compare, contests, rounds_to_converge
from trimaran.planning.bound import lower_bound
from trimaran.planning.local_search import SearchSettings, local_search
from trimaran.planning.problem import UNPLACED, Problem, cost, measure, why_unplaced
from trimaran.planning.rules import place_by_rule

SPHERE = FUNCTIONS["sphere"]
STEPS = {"start": 40, "rounds": 3, "share": 0.25, "seed": 1}


def objective(**budget: float) -> Objective:
    """Return the sphere in five dimensions."""
    return Objective(SPHERE.function, SPHERE.low, SPHERE.high, 5, **budget)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_zero_at_their_minimum(name: str) -> None:
    """The minimum of a plain function is at the origin, that of a shifted one elsewhere."""
    benchmark = FUNCTIONS[name]
    assert benchmark.function(np.zeros((1, 30)))[0] == pytest.approx(0, abs=1e-12)
    assert (benchmark.function(np.random.default_rng(0).uniform(-1, 1, (50, 30))) > 0).all()
    moved = shifted(benchmark, 30, seed=7)
    offset = moved.high * 0.8 * np.random.default_rng(7).uniform(-1, 1, 30)
    assert moved.function(offset[None])[0] == pytest.approx(0, abs=1e-9)
    assert moved.function(np.zeros((1, 30)))[0] > 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_to_their_budget_and_bounds(name: str) -> None:
    """They evaluate exactly as often as allowed, within the bounds, reproducibly, and keep the best position."""
    seen = []

    def watched(x):
        seen.append(x)
        return SPHERE.function(x)

    best = []
    for _ in range(2):
        seen.clear()
        goal = Objective(watched, -3.0, 3.0, 5, evaluations=1001)
        OPTIMIZERS[name](goal, np.random.default_rng(1))
        best.append(goal.best)
    evaluated = np.concatenate(seen)
    assert len(evaluated) == goal.evaluated == 1001
    assert np.abs(evaluated).max() <= 3
    assert best[0] == best[1] == SPHERE.function(evaluated).min()
    assert goal.best == SPHERE.function(goal.position[None])[0]
    assert (np.diff(goal.trace) <= 0).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_approach_a_shifted_minimum(name: str) -> None:
    """On a shifted sphere of few dimensions all of them get a hundred times lower than their start."""
    moved = shifted(SPHERE, 5, seed=3)
    start, end = (Objective(moved.function, moved.low, moved.high, 5, evaluations=count) for count in (30, 20_000))
    for goal in (start, end):
        OPTIMIZERS[name](goal, np.random.default_rng(2))
    assert end.best < start.best / 100


def test_seconds_are_a_budget_too() -> None:
    """An optimizer stops when its processor time is over; an objective without a budget is refused."""
    goal = objective(seconds=0.05)
    bald_eagle_search(goal, np.random.default_rng(0))
    assert goal.evaluated > 0
    assert not goal.trace or goal.trace[-1] == goal.best
    with pytest.raises(ValueError, match="budget"):
        objective()


def test_a_round_of_eagles_takes_three_evaluations_a_bird_but_one() -> None:
    """As in the original, the last bird of the second stage has no bird after it."""
    goal = objective(evaluations=30 + 89)
    bald_eagle_search(goal, np.random.default_rng(0))
    assert len(goal.trace) == 1


def test_the_third_stages_differ() -> None:
    """TBESK as printed and with the original third stage take different ways from one start."""
    goals = [objective(evaluations=500) for _ in range(2)]
    for goal, optimizer in zip(goals, (tbesk, tbesk_original), strict=True):
        optimizer(goal, np.random.default_rng(5))
    assert goals[0].best != goals[1].best


def test_the_tent_map_does_not_collapse() -> None:
    """After a thousand steps it still has many values; the map with its peak in the middle is 0 by then."""
    steps = tent_map(1000, 3, np.random.default_rng(0))
    late = steps[-100:]
    assert ((late > 0) & (late < 1)).all()
    assert late.std(axis=0).min() > 0.2
    value = np.random.default_rng(0).random(3)
    for _ in range(1000):
        value = np.where(value < 0.5, 2 * value, 2 - 2 * value)
    assert (value == 0).all()


def test_only_strictly_better_candidates_are_accepted() -> None:
    """An equal value does not replace a position."""
    goal = Objective(lambda x: x[:, 0], 0.0, 2.0, 1, evaluations=10)
    positions, values = np.array([[1.0], [1.0]]), np.array([1.0, 1.5])
    goal.improve(positions, values, np.array([[1.0], [0.5]]))
    assert positions.ravel().tolist() == [1.0, 0.5]
    assert values.tolist() == [1.0, 0.5]


def test_rounds_to_converge() -> None:
    """Convergence is the round after which the value hardly improved."""
    assert rounds_to_converge([5.0, 2.0, 1.0 + 1e-9, 1.0, 1.0]) == 3
    assert rounds_to_converge([]) == 0


def test_every_optimizer_meets_every_function() -> None:
    """All run on plain and shifted functions, once for each seed, with equal budgets."""
    runs = compare([0, 1], evaluations=200, dimensions=4)
    assert len(runs) == 2 * len(FUNCTIONS)
    assert all(list(objectives) == list(OPTIMIZERS) for objectives in runs.values())
    evaluated = {tuple(run.evaluated for run in own) for each in runs.values() for own in each.values()}
    assert evaluated == {(200, 200)}


def test_wilcoxon_tells_better_from_alike() -> None:
    """Lower values for all 30 seeds are better, equal values are alike."""

    def runs(values):
        return [Objective(SPHERE.function, -1, 1, 5, evaluations=1, best=float(value)) for value in values]

    values = np.arange(30.0)
    rivals = {"f": {"a": runs(values), "b": runs(values + 1 + values / 10), "c": runs(values)}}
    assert dict(contests(rivals, "a")) == {"f": {"b": "30-0 better", "c": "0-0 alike"}}
    assert dict(contests(rivals, "b")) == {"f": {"a": "0-30 worse", "c": "0-30 worse"}}


def test_the_script_prints_table_2_and_the_tests(capsys: pytest.CaptureFixture[str]) -> None:
    """Each function has a row for each optimizer, and a row in each test."""
    main(["functions", "--seeds", "2", "--evaluations", "60", "--seconds", "0.0001"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| sphere, shifted | tPSO |") for line in lines) == 1
    assert sum(line.startswith("| Ackley |") for line in lines) == len(OPTIMIZERS) + 4


def test_batches_see_the_batches_before() -> None:
    """A rule makes one plan, whether pods are placed one by one or all at once."""
    problem = generated_cluster(5, 40, seed=1)
    rng = np.random.default_rng(0)
    for name in ("lra", "bra", "cwt", "fitness"):
        assert (in_batches(METHODS[name], problem, 7, rng) == METHODS[name](problem, rng)).all()


def test_pods_come_and_go() -> None:
    """Local search beats a rule at every step; moving a few running pods lowers the cost."""
    problem = generated_cluster(6, 240, seed=2)
    steps = list(churn(240, start=120, rounds=3, share=0.2, seed=1))

    def search(problem, rng):
        return local_search(problem, rng, SearchSettings(rounds=300, seconds=60))

    by_rule, by_search = (follow(problem, method, steps, seed=1) for method in (METHODS["lra"], search))
    assert len(by_rule) == len(by_search) == 4
    assert all(ours.cost() < rule.cost() for ours, rule in zip(by_search, by_rule, strict=True))
    plan = METHODS["lra"](problem, np.random.default_rng(0))
    better = rebalanced(problem, plan, 20, np.random.default_rng(0))
    assert 0 < (better != plan).sum() <= 20
    assert cost(problem, better, 1.0) < cost(problem, plan, 1.0)


def test_pods_leave_and_arrive_in_order() -> None:
    """Only present pods leave, new ones arrive in their order, and the measures are of the present pods."""
    problem = generated_cluster(4, 100, seed=4)
    steps = list(churn(problem.pods, **STEPS))
    assert [step.new.tolist() for step in steps] == [
        [*range(start, end)] for start, end in ((0, 40), (40, 50), (50, 60), (60, 70))
    ]
    for before, after in itertools.pairwise(steps):
        assert sorted([*after.gone, *after.staying]) == sorted(before.present)
    for step, found in zip(steps, follow(problem, METHODS["lra"], steps, seed=1), strict=True):
        bound = lower_bound(problem.take(step.present), tolerance=0.01)
        assert bound.gap(found.cost()) > 0


def test_classes_compare_shares_of_the_node() -> None:
    """The class of a pod depends on the proportions of the node; a tie is balanced."""
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
    """R and L match a computation by hand; a plan counts all pods of a node; a pod that does not fit is worst."""
    problem = Problem.of([[10.0] * 4, [20.0] * 4], [[2.0] * 4, [0.0] * 4], [[4.0] * 4, [4.0] * 4])
    alone = fitness_rule(problem.balanced[0], problem.used + 4, problem.capacity)
    assert alone[0] == pytest.approx((1 - 4 / 8) + (0.9 - 0.6))
    assert alone[1] == pytest.approx((1 - 4 / 20) + (0.9 - 0.2))
    together, separate = Fitness(problem).of(np.array([[1, 1], [0, 1]]))
    assert together == pytest.approx((1 - 4 / 16) + (0.9 - 0.4))
    assert separate == pytest.approx(np.mean(alone))
    crowded = Problem.of([[10.0] * 4, [20.0] * 4], [[2.0] * 4, [0.0] * 4], [[5.0] * 4, [5.0] * 4])
    assert Fitness(crowded).of(np.array([[0, 0]]))[0] < -1
    forbidden = replace(crowded, allowed=np.array([[False, True]]))
    assert Fitness(forbidden).of(np.array([[0, 1]]))[0] < Fitness(crowded).of(np.array([[0, 1]]))[0]


def test_topsis_weights_a_resource_by_its_differences_between_nodes() -> None:
    """A resource of which all nodes have as much has no weight."""
    assert entropy_weights(np.array([[1.0, 1.0], [1.0, 3.0]])).tolist() == pytest.approx([0.0, 1.0])
    used, capacity = np.array([[5.0, 5, 5, 9], [5, 5, 5, 1]]), np.full((2, 4), 10.0)
    assert cwt_topsis(used[0], used, capacity).tolist() == pytest.approx([0.0, 1.0])


def test_a_pod_that_does_not_fit_on_its_preferred_node_goes_elsewhere() -> None:
    """The first pod stays, the second follows the rule, and the third fits nowhere: it is unplaced, not dropped."""
    problem = Problem.of([[10.0] * 4, [10.0] * 4], [[0.0] * 4] * 2, [[8.0] * 4] * 3)
    plan = place_by_rule(problem, fitness_rule, preferred=np.array([0, 0, 0]))
    assert plan.tolist() == [0, 1, UNPLACED]
    assert "no room is left" in why_unplaced(problem, 2)


def test_metaheuristics_place_pods() -> None:
    """TBESK's plan fits, is reproducible, and has a better fitness than its first birds."""
    problem = generated_cluster(5, 40, seed=1)
    short, long = (partial(place_by_metaheuristic, optimizer=tbesk, evaluations=count) for count in (30, 2000))
    first, last = (method(problem, np.random.default_rng(4)) for method in (short, long))
    assert measure(problem, last).overloaded == 0
    assert Fitness(problem).of(last[None])[0] > Fitness(problem).of(first[None])[0]
    assert (last == long(problem, np.random.default_rng(4))).all()


def test_local_search_is_better_than_the_paper_s_methods() -> None:
    """On a small cluster of the paper's shape every other method costs more."""
    problem = generated_cluster(6, 200, seed=5)
    plan = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=400))
    best = measure(problem, plan)
    assert (best.overloaded, best.unplaced) == (0, 0)
    for name, method in METHODS.items():
        assert measure(problem, method(problem, np.random.default_rng(0))).cost() > best.cost(), name
