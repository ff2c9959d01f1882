"""Files of results of replays, and their tables."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import imported

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("replay_rows") as module:
        yield module


def write(path: Path, rows: list[tuple[str, str, int, float]]) -> Path:
    names = ("world", "variant", "seed", "hot")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def test_only_missing_replays_are_made(script: ModuleType, tmp_path: Path) -> None:
    """A second call with more seeds replays only these, and the file has one row for each."""
    write_trace(Synthetic(seed=1, nodes=2, minutes=20, warm_up_minutes=5).trace(), tmp_path / "small")
    made = []

    def measured(trace, variant, seed):
        made.append((variant, seed))
        return {"pods": len(trace.pods)}

    for seeds in ([0], [0, 1]):
        script.replay_missing([tmp_path / "small"], ["a", "b"], seeds, tmp_path / "rows", measured)
    assert made == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    rows = list(script.read(tmp_path / "rows"))
    assert [(row["world"], row["variant"], row["seed"]) for row in rows] == [("small", *each) for each in made]
    assert all(row["pods"] > 0 for row in rows)


def test_differences_are_of_the_same_world_and_seed(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means over common seeds are added up; a seed that one of both lacks does not count."""
    first = [("w-1", "a", 0, 10), ("w-1", "a", 1, 30), ("w-1", "b", 0, 20), ("w-1", "b", 1, 40), ("w-1", "b", 2, 99)]
    others = [("w-2", "a", 0, 100), ("w-2", "b", 0, 60), ("x-1", "a", 0, 7), ("x-1", "b", 0, 7)]
    path = write(tmp_path / "rows", [*first, *others])
    script.table([path], "w-", "a")
    printed = capsys.readouterr().out
    assert "b: 2 worlds, 3 replays" in printed
    line = next(line for line in printed.split("b: ")[1].splitlines() if "hot" in line)
    assert line.split() == ["hot", "90", "a", "120", "-25.0", "%", "(-40", "to", "+50),", "worse", "in", "1"]


def test_a_csv_has_the_means_over_seeds(script: ModuleType, tmp_path: Path) -> None:
    """There is a line for each world and variant; a later row of the same replay replaces the earlier one."""
    first = write(tmp_path / "first", [("w", "a", 0, 1), ("w", "a", 1, 4), ("v", "a", 0, 9)])
    second = write(tmp_path / "second", [("w", "a", 0, 2)])
    file = StringIO()
    script.write_means([first, second], "w", file)
    assert file.getvalue() == "world,variant,seeds,hot\nw,a,2,3\n"
