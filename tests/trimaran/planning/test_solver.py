"""``--exact`` with OR-tools itself, which ``make solver`` installs: elsewhere pytest passes this file over."""

import json

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from support.placing import NODES, every_plan, pod, small

from trimaran.cli.main import main
from trimaran.planning.exact import solve_exactly
from trimaran.planning.local_search import Search, local_search
from trimaran.planning.problem import cost


@pytest.mark.parametrize("seed", range(3))
def test_the_best_is_found_and_proven(seed: int) -> None:
    """The plan is the best of all that can be counted through, and the bound is just below."""
    problem = small(seed)
    best = min(cost(problem, plan, 1.0) for plan in every_plan(problem))
    start = local_search(problem, np.random.default_rng(0), Search(rounds=1))
    found = solve_exactly(problem, start, workers=1)
    assert found.proven
    assert found.cost == pytest.approx(best, rel=1e-3)
    assert found.bound <= best + 1e-9
    assert found.bound == pytest.approx(best, rel=2e-3)


def test_time_that_ran_out_proves_nothing() -> None:
    """The plan to begin with is what is left, and what was known of the bound."""
    problem = small(0)
    start = local_search(problem, np.random.default_rng(0), Search(rounds=1))
    found = solve_exactly(problem, start, seconds=0.0, known=0.001, workers=1)
    assert not found.proven
    assert (found.plan == start).all()
    assert found.bound == 0.001


def test_a_plan_that_meets_what_is_known_is_the_best() -> None:
    """Nothing is looked for then."""
    problem = small(0)
    start = local_search(problem, np.random.default_rng(0), Search(rounds=1))
    found = solve_exactly(problem, start, seconds=0.0, known=cost(problem, start, 1.0), workers=1)
    assert found.proven


def test_the_command_tells_what_was_proven(tmp_path) -> None:
    """The bound is the cost of the best plan, within a thousandth."""
    pods = [pod(f"web-{number}", f"{number + 1}00m", f"{9 - number}Gi") for number in range(8)]
    for name, items in (("nodes", NODES[:2]), ("pods", pods)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"kind": "List", "items": items}))
    files = ["--nodes", str(tmp_path / "nodes.yaml"), "--pods", str(tmp_path / "pods.yaml")]
    result = CliRunner().invoke(main, ["place", *files, "--rounds", "1", "--exact", "--output", "json"])
    document = json.loads(result.stdout)
    assert document["bound_exact"] is True
    (method,) = document["methods"]
    assert document["methods"][method]["cost"] == pytest.approx(document["bound"], rel=1.1e-3)
