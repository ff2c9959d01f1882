"""Benchmarks are run by hand, so what they import and compare with must not be gone when they are."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "__main__.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_all_that_a_benchmark_imports_is_there(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each can be loaded; nothing runs until it is the main program."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    runpy.run_path(str(FOLDER / script), run_name="imported")


@pytest.mark.slow
def test_loops_and_arrays_still_give_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured against is what is measured, for every plugin: the benchmark stops where they differ."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setattr(sys, "argv", ["score_speed.py", "50"])
    runpy.run_path(str(FOLDER / "score_speed.py"), run_name="__main__")
