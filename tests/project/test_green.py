"""The list of runs in each situation: a run is done once for a commit, a cut one again, and all stay in the list."""

import runpy
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
SITUATIONS = {
    "good": "test -d tests && echo '=== 3 passed in 1.00s ==='",
    "bad": "echo '=== 1 failed in 2.00s ==='; exit 2",
}


def test_each_run_is_listed_and_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second start repeats what was cut off, not what has ended; failed runs stay in the list and are its status."""
    monkeypatch.syspath_prepend(str(TOOLS))
    green = runpy.run_path(str(TOOLS / "green.py"))
    assert green["run_all"](tmp_path, ["bad"], SITUATIONS) == 1
    green["Runs"](tmp_path).add(situation="good", commit="0123abcd", begin="2026-01-01 00:00:00")
    capsys.readouterr()
    assert green["run_all"](tmp_path, ["good"], SITUATIONS) == 0
    assert green["run_all"](tmp_path, ["good", "bad"], SITUATIONS) == 1
    lines = [line.split("  ", 2)[2].split() for line in capsys.readouterr().out.splitlines()]
    bad, cut, good = ("bad failed 1 failed in 2.00s", "good cut off", "good passed 3 passed in 1.00s")
    assert [" ".join(words) for words in lines] == [bad, cut, good, bad, cut, good]
    assert not (tmp_path / "good").exists()
    assert (tmp_path / "bad" / "tests").exists()
