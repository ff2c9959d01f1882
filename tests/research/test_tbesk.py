"""The metaheuristics on functions whose lowest points are known."""

import numpy as np
import pytest

from research.tbesk.functions import FUNCTIONS, shifted
from research.tbesk.trials import OPTIMIZERS, Runs, compare, contests
from trimaran.planning.bald_eagle import BaldEagleSearch, tbesk, tent_map
from trimaran.planning.objective import Objective, accept

SPHERE = FUNCTIONS["sphere"]


def objective(**budget: float) -> Objective:
    """Return the sphere in five dimensions."""
    return Objective(SPHERE.function, SPHERE.low, SPHERE.high, 5, **budget)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_zero_at_their_lowest_point(name: str) -> None:
    """The plain ones at the origin; the shifted ones elsewhere, and not at the origin."""
    benchmark = FUNCTIONS[name]
    assert benchmark.function(np.zeros((1, 30)))[0] == pytest.approx(0, abs=1e-12)
    assert (benchmark.function(np.random.default_rng(0).uniform(-1, 1, (50, 30))) > 0).all()
    moved = shifted(benchmark, 30, seed=7)
    offset = moved.high * 0.8 * np.random.default_rng(7).uniform(-1, 1, 30)
    assert moved.function(offset[None])[0] == pytest.approx(0, abs=1e-9)
    assert moved.function(np.zeros((1, 30)))[0] > 1


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda each: each.name)
def test_optimizers_keep_to_their_budget_and_bounds(optimizer) -> None:
    """Exactly so many evaluations, all within the bounds; the same seed gives the same; what was best is kept."""
    seen = []

    def watched(x):
        seen.append(x)
        return SPHERE.function(x)

    found = []
    for _ in range(2):
        seen.clear()
        made = Objective(watched, -3.0, 3.0, 5, evaluations=1001)
        optimizer.minimize(made, np.random.default_rng(1))
        found.append(made.best)
    asked = np.concatenate(seen)
    assert len(asked) == made.asked == 1001
    assert np.abs(asked).max() <= 3
    assert found[0] == found[1] == SPHERE.function(asked).min()
    assert made.best == SPHERE.function(made.position[None])[0]
    assert (np.diff(made.trace) <= 0).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda each: each.name)
def test_optimizers_find_the_lowest_point_wherever_it_is(optimizer) -> None:
    """On a shifted sphere of few dimensions all come a hundred times lower than where they began."""
    moved = shifted(SPHERE, 5, seed=3)
    began, ended = (Objective(moved.function, moved.low, moved.high, 5, evaluations=count) for count in (30, 20_000))
    for each in (began, ended):
        optimizer.minimize(each, np.random.default_rng(2))
    assert ended.best < began.best / 100


def test_seconds_are_a_budget_too() -> None:
    """An optimizer stops when its processor time is over; without any budget it would never."""
    made = objective(seconds=0.05)
    BaldEagleSearch().minimize(made, np.random.default_rng(0))
    assert made.asked > 0
    assert not made.trace or made.trace[-1] == made.best
    with pytest.raises(ValueError, match="needs a budget"):
        objective()


def test_an_eagles_round_costs_three_evaluations_a_bird_but_one() -> None:
    """As the original counts them: the last bird of the second stage has none after it."""
    made = objective(evaluations=30 + 89)
    BaldEagleSearch(birds=30).minimize(made, np.random.default_rng(0))
    assert len(made.trace) == 1


def test_the_third_stages_differ() -> None:
    """TBESK as printed and with the original third stage go other ways from the same start."""
    ways = []
    for stage3 in ("paper", "original"):
        made = objective(evaluations=500)
        tbesk(stage3).minimize(made, np.random.default_rng(5))
        ways.append(made.best)
    assert ways[0] != ways[1]


def test_the_tent_map_does_not_collapse() -> None:
    """After a thousand steps it still takes all kinds of values; the map with its peak in the middle is 0 by then."""
    steps = tent_map(1000, 3, np.random.default_rng(0))
    late = steps[-100:]
    assert ((late > 0) & (late < 1)).all()
    assert late.std(axis=0).min() > 0.2
    value = np.random.default_rng(0).random(3)
    for _ in range(1000):
        value = np.where(value < 0.5, 2 * value, 2 - 2 * value)
    assert (value == 0).all()


def test_only_what_is_strictly_better_is_accepted() -> None:
    """Equal is not enough."""
    positions, values = np.zeros((2, 1)), np.array([1.0, 1.0])
    accept(positions, values, np.ones((2, 1)), np.array([1.0, 0.5]))
    assert positions.ravel().tolist() == [0.0, 1.0]
    assert values.tolist() == [1.0, 0.5]


def test_iterations_to_converge() -> None:
    """The round after which nothing got better that counts."""
    made = objective(evaluations=1)
    made.trace = [5.0, 2.0, 1.0 + 1e-9, 1.0, 1.0]
    assert made.iterations_to_converge == 3


def test_every_optimizer_meets_every_function() -> None:
    """Plain and shifted, with equal budgets, and as many runs as seeds."""
    done = []
    runs = compare([0, 1], evaluations=200, dimensions=4, progress=lambda: done.append(1))
    assert len(runs) == 2 * len(FUNCTIONS) * len(OPTIMIZERS)
    assert len(done) == 2 * len(runs)
    assert {tuple(each.evaluations) for each in runs} == {(200.0, 200.0)}


def test_wilcoxon_tells_better_from_alike() -> None:
    """Lower in all of 30 seeds is better; the same in all is alike; of a champion without runs nothing can be said."""

    def runs(name: str, values) -> Runs:
        return Runs(name, "f", np.asarray(values, float), np.zeros(30), np.zeros(30))

    values = np.arange(30.0)
    found = contests([runs("a", values), runs("b", values + 1 + values / 10), runs("c", values)], "a")
    assert [(each.rival, each.verdict, each.wins) for each in found] == [("b", "better", 30), ("c", "alike", 0)]
    assert contests([runs("a", values), runs("b", values + 1)], "b")[0].verdict == "worse"
    with pytest.raises(ValueError, match="no runs of 'd'"):
        contests([runs("a", values)], "d")
