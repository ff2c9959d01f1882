"""Errors of predictions of use, which a research script measures in replays."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from support.scripts import imported

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

FOLDER = Path(__file__).parents[2] / "research"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with imported("use_prediction") as module:
        yield module


def test_both_tables_are_printed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Each formula has a row with its error, relative to that of the plugin, and so has each group of pods."""
    write_trace(Synthetic(3, nodes=3, minutes=180, warm_up_minutes=40).trace(), tmp_path / "small")
    monkeypatch.setattr(sys, "argv", ["use_prediction.py", str(tmp_path / "small")])
    script.main()
    nodes, pods = capsys.readouterr().out.split("\n\n")
    rows = {line[:28].strip(): line[28:].split() for line in nodes.splitlines()[1:]}
    assert list(rows)[:3] == ["u", "measured", "learned"]
    assert rows["u"][1] == "+0.0%"
    assert all(0 < float(error) < 50 for error, _ in rows.values())
    assert {line.split()[0] for line in pods.splitlines()[1:]} == {"job", "service"}


def test_errors_of_a_formula_are_relative_to_the_plugin(script: ModuleType) -> None:
    """An error twice that of u is 100 % more."""
    rows = script.node_table({"u": [np.array([0.1, -0.1])], "other": [np.array([0.2, -0.2])]})
    assert [row.split()[-2:] for row in rows[1:]] == [["10.00", "+0.0%"], ["20.00", "+100.0%"]]


def test_a_policy_without_profile_is_rejected(script: ModuleType, tmp_path: Path) -> None:
    """A policy that does not score by a profile predicts nothing; the message names it."""
    write_trace(Synthetic(3, nodes=4, minutes=120, warm_up_minutes=60).trace(), tmp_path / "small")
    with pytest.raises(SystemExit, match="--policy random"):
        script.record([tmp_path / "small"], "random", 0)
