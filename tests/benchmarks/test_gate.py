"""The gate on speed names each figure that takes longer, and passes the others."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.scripts import imported

FOLDER = Path(__file__).parents[2] / "benchmarks"


def figures() -> list[str]:
    with imported("gate", FOLDER) as gate:
        return list(gate.FIGURES)


def run_gate(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "gate.py"), "--turns", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("figure", figures())
def test_a_figure_at_a_third_of_its_speed_is_named(figure: str) -> None:
    """If the function that a figure measures takes three times as long, the gate fails and names the figure."""
    gate = run_gate("--only", figure, "--slow", "3", "--tries", "1")
    assert (gate.returncode, gate.stderr) == (1, f"{figure}: more than 2 times the reference\n"), gate.stdout


@pytest.mark.slow
def test_a_figure_at_its_speed_passes() -> None:
    """The gate passes a figure that takes as long as its reference."""
    gate = run_gate("--only", "score 5,000 nodes")
    assert (gate.returncode, gate.stderr) == (0, ""), gate.stdout
