"""Tables of the evidence page: combination of files."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RESEARCH = Path(__file__).parents[2] / "research"


@pytest.fixture
def evidence_tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RESEARCH))
    return importlib.import_module("evidence_tables")


def write(file: Path, document: Any) -> Path:
    file.write_text(json.dumps(document))
    return file


def hot(minutes: float, deviation: float | None = None) -> dict[str, float]:
    measures = dict.fromkeys(("hot_minutes_70", "hot_minutes_80", "hot_minutes_90"), minutes)
    measures |= dict.fromkeys(
        ("throttled_core_seconds", "p99_node_cpu_percent", "memory_overrun_minutes", "unplaced_pods", "moves"), 0.0
    )
    return measures if deviation is None else measures | {"hot_minutes_80_seed_deviation": deviation}


def test_seeds_are_averaged_and_policies_combined(evidence_tables: ModuleType, tmp_path: Path) -> None:
    """Files with the same policy and world are seeds of it; a world that lacks a policy is left out."""
    minutes = "hot_minutes_80"
    files = [
        write(tmp_path / "seed-0.json", {"a": {"default": {minutes: 10.0}}, "b": {"default": {minutes: 1.0}}}),
        write(tmp_path / "seed-1.json", {"a": {"default": {minutes: 20.0}}}),
        write(tmp_path / "oracle.json", {"a": {"oracle": {minutes: 3.0}}}),
    ]
    averaged = {minutes: 15.0, f"{minutes}_seed_deviation": pytest.approx(50**0.5)}
    assert evidence_tables.read(files) == {"a": {"default": averaged, "oracle": {minutes: 3.0}}}


@pytest.mark.parametrize("text", [None, "", "[]", '{"a": 1}', "| a table |"])
def test_a_file_without_worlds_is_named(evidence_tables: ModuleType, tmp_path: Path, text: str | None) -> None:
    """The file of another command, or one that is cut off or missing, is one line with the command that writes it."""
    file = tmp_path / "compared.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match=r"compared\.json.*simulate compare -o json"):
        evidence_tables.read([file])


def test_a_row_has_the_change_against_the_baseline_and_the_spread(
    evidence_tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """With --baseline changes are relative to that policy, and the spread adds up the deviations of all worlds."""
    worlds = {
        "a": {"default": hot(200.0), "learned": hot(90.0, 20.0), "requests": hot(100.0, 10.0)},
        "b": {"default": hot(300.0), "learned": hot(210.0, 10.0), "requests": hot(100.0, 30.0)},
    }
    file = write(tmp_path / "compared.json", worlds)
    monkeypatch.setattr("sys.argv", ["evidence_tables.py", str(file), "--baseline", "requests"])
    evidence_tables.main()
    rows = {line.split("`")[1]: line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]}
    assert rows["learned"][1:6] == ["50", "50", "50", "10", "1"]
    assert rows["requests"][1:6] == ["100", "100", "100", "20", ""]
    assert rows["default"][4] == ""


@pytest.mark.parametrize("together", [[], ["--together"]])
@pytest.mark.parametrize("worlds", [1, 7])
def test_worlds_without_hot_minutes_have_no_change(
    evidence_tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
    together: list[str], worlds: int,
) -> None:  # fmt: skip
    """A change or a gap of nothing is a dash; hot minutes in one world of many have no interval."""
    cool = {"default": hot(0.0, 0.0), "ours": hot(0.0, 0.0), "clairvoyant": hot(0.0, 0.0)}
    warm = {"default": hot(200.0, 1.0), "ours": hot(100.0, 1.0), "clairvoyant": hot(50.0, 1.0)}
    for name, last, expected in (("cool", cool, "-"), ("warm", warm, "-50")):
        compared = {**{f"w{number}": cool for number in range(worlds - 1)}, "last": last}
        file = write(tmp_path / f"{name}.json", compared)
        monkeypatch.setattr("sys.argv", ["evidence_tables.py", str(file), *together])
        evidence_tables.main()
        rows = {line.split("`")[1]: line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]}
        assert rows["ours"][1:4] == [expected] * 3
        assert rows["ours"][11] == ("-" if last is cool else "67")


@pytest.mark.parametrize(
    ("compared", "arguments", "problem"),
    [
        ({"a": {"default": hot(1.0)}}, ["--baseline", "mine"], "--baseline mine: the files have default"),
        ({"a": {"default": hot(1.0)}, "b": {"ours": hot(1.0)}}, [], "no world has all policies of the files"),
        ({}, [], "no world has all policies of the files"),
    ],
)
def test_files_without_a_row_to_compare_are_refused(
    evidence_tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
    compared: Any, arguments: list[str], problem: str,
) -> None:  # fmt: skip
    """Without a world with all policies, or without the baseline, the message says so, not a traceback."""
    file = write(tmp_path / "compared.json", compared)
    monkeypatch.setattr("sys.argv", ["evidence_tables.py", str(file), *arguments])
    with pytest.raises(SystemExit):
        evidence_tables.main()
    assert problem in capsys.readouterr().err
