"""Scripts that are run by hand, benchmarks, research and the soak tests: their imports must resolve."""

import runpy
import sys
from pathlib import Path

import pytest
from support.snapshots import WRITER

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "benchmarks", ROOT / "research", ROOT / "tests" / "soak")
SCRIPTS = [path for folder in FOLDERS for path in sorted(folder.glob("*.py")) if path.name != "__main__.py"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_can_be_loaded(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every import of the script resolves; the script does nothing on import."""
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    runpy.run_path(str(script), run_name="imported")


@pytest.mark.slow
def test_a_short_soak_fails_as_the_long_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kill suffices to find that a writer reports fetches that it has not committed."""
    folder = ROOT / "tests" / "soak"
    monkeypatch.setattr(sys, "argv", ["kills.py", "--most-seconds", "0"])
    lying = WRITER.replace("store.save_snapshots", "number > 1 or store.save_snapshots")
    monkeypatch.setattr("support.snapshots.WRITER", lying)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(folder / "kills.py"), run_name="__main__")
    assert ended.value.code == 1
    monkeypatch.setattr("support.snapshots.WRITER", WRITER)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(folder / "kills.py"), run_name="__main__")
    assert ended.value.code == 0


@pytest.mark.slow
def test_loops_and_arrays_still_give_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain loop and the arrays agree for every plugin: the benchmark fails at the first difference."""
    folder = ROOT / "benchmarks"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "argv", ["score_speed.py", "50"])
    runpy.run_path(str(folder / "score_speed.py"), run_name="__main__")
