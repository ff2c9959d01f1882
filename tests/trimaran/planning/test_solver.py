"""``--exact`` with OR-tools, which ``make solver`` installs; elsewhere pytest skips this file."""

import json

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from support.placing import NODES, every_plan, pod, small

from trimaran.cli.main import main
from trimaran.planning.exact import solve_exactly
from trimaran.planning.local_search import SearchSettings, local_search
from trimaran.planning.problem import cost


@pytest.mark.parametrize("seed", range(3))
def test_the_best_is_found_and_proven(seed: int) -> None:
    """The plan is the best of all plans, by exhaustive search, and the bound is just below its cost."""
    problem = small(seed)
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start, workers=1)
    assert result.proven
    assert result.cost == pytest.approx(best, rel=1e-3)
    assert result.bound <= best + 1e-9
    assert result.bound == pytest.approx(best, rel=2e-3)


def test_time_that_ran_out_proves_nothing() -> None:
    """The result is the first plan and the bound that was already known."""
    problem = small(0)
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start, seconds=0.0, known_bound=0.001, workers=1)
    assert not result.proven
    assert (result.plan == start).all()
    assert result.bound == 0.001


def test_a_plan_that_meets_the_known_bound_is_proven() -> None:
    """No search is needed."""
    problem = small(0)
    start = local_search(problem, np.random.default_rng(0), SearchSettings(rounds=1))
    result = solve_exactly(problem, start, seconds=0.0, known_bound=cost(problem, start, 1.0), workers=1)
    assert result.proven


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
