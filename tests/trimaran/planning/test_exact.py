"""``--exact``: integer programs prove that a plan is the best."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from support.placing import NODES, every_plan, pod, small

from research.tbesk.generated import generated_cluster
from trimaran.cli.main import main
from trimaran.planning.exact import solve_exactly
from trimaran.planning.local_search import SearchSettings, local_search
from trimaran.planning.problem import UNPLACED, Problem, cost


@pytest.mark.parametrize("seed", range(3))
def test_the_best_is_found_and_proven(seed: int) -> None:
    """The plan is the best of all plans, by exhaustive search, and the bound is just below its cost."""
    problem = small(seed)
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start)
    assert result.proven
    assert result.cost == pytest.approx(best, rel=1e-3)
    assert result.bound <= best + 1e-9
    assert result.bound == pytest.approx(best, rel=2e-3)


def test_fractions_are_placed() -> None:
    """Requests need not be integers."""
    problem = replace(small(0), demand=small(0).demand + 0.5)
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start)
    assert result.proven
    assert result.cost == pytest.approx(best, rel=1e-3)


def test_constraints_are_kept() -> None:
    """Pods stay off nodes that are not allowed, and off nodes without a resource that is not balanced."""
    problem = small(1)
    gpus = np.zeros((problem.pods, 1))
    gpus[0] = 1
    problem = replace(
        problem,
        demand=np.hstack([problem.demand, gpus]),
        room=np.hstack([problem.room, [[0.0], [0.0], [1.0]]]),
        allowed=np.array([[True, True, True], [False, True, True]]),
        group=np.array([0, 0, 0, 1, 1, 1]),
    )
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    start = next(every_plan(problem))
    result = solve_exactly(problem, start)
    assert result.proven
    assert result.cost == pytest.approx(best, rel=1e-3)
    assert result.plan[0] == 2
    assert (result.plan[3:] > 0).all()


def test_a_node_is_not_overfull_by_a_ten_millionth() -> None:
    """The integer program alone accepts this, and would put the two pods on the first node, which is the best plan."""
    capacity = np.array([[1e9, 1e9], [4e9, 4e9]])
    demand = np.array([[500_000_050.0, 500_000_050.0]] * 2)
    problem = Problem.of(capacity, [[0.0, 0.0], [4e9 - 6e8, 4e9 - 6e8]], demand, ("cpu", "memory"))
    result = solve_exactly(problem, np.array([1, 0]))
    assert result.proven
    assert sorted(result.plan.tolist()) == [0, 1]


def test_time_that_ran_out_proves_nothing() -> None:
    """The result is the first plan and the bound that was already known."""
    problem = small(0)
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start, seconds=0.0, known_bound=0.001)
    assert not result.proven
    assert (result.plan == start).all()
    assert result.bound == 0.001


def test_a_plan_that_meets_the_known_bound_is_proven() -> None:
    """No search is needed."""
    problem = small(0)
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start, seconds=0.0, known_bound=cost(problem, start, 1.0))
    assert result.proven


@pytest.mark.parametrize(
    ("problem", "start", "named"),
    [
        (generated_cluster(31, 1800), np.zeros(1800, np.int64), "too many"),
        (small(0), np.full(6, UNPLACED), "places all pods"),
    ],
)
def test_a_problem_that_cannot_be_solved_is_refused(problem: Problem, start, named: str) -> None:
    """The error says why."""
    with pytest.raises(ValueError, match=named):
        solve_exactly(problem, start)


def test_the_command_reports_the_proof(tmp_path) -> None:
    """The bound is the cost of the best plan to within a thousandth."""
    pods = [pod(f"web-{number}", f"{number + 1}00m", f"{9 - number}Gi") for number in range(8)]
    for name, items in (("nodes", NODES[:2]), ("pods", pods)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"kind": "List", "items": items}))
    files = ["--nodes", str(tmp_path / "nodes.yaml"), "--pods", str(tmp_path / "pods.yaml")]
    result = CliRunner().invoke(main, ["place", *files, "--rounds", "1", "--exact", "--output", "json"])
    document = json.loads(result.stdout)
    assert document["bound_exact"] is True
    (method,) = document["methods"]
    assert document["methods"][method]["cost"] == pytest.approx(document["bound"], rel=1.1e-3)
