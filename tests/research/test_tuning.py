"""The tuning study of the policies: what it tries, what it chooses by, and what it says."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trimaran.simulator.comparison import ReplayResult, ReplayTask, ResultStore
from trimaran.simulator.measures import HOT_PERCENTS, measures
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import read_trace, write_trace

FOLDER = Path(__file__).parents[2] / "research"
ONE, TWO = Path("one"), Path("two")


@pytest.fixture
def tuning(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("tuning")
    for name in ("tuning", "tuning_settings"):
        sys.modules.pop(name)


def test_every_policy_has_as_many_settings_and_the_first_is_the_shipped_one(tuning: ModuleType) -> None:
    """Eight different ones each; nothing that can be set is left out."""
    trace = Synthetic(1, 4, 120, 30).trace()
    known = policies(trace)
    assert set(known) - set(tuning.TRIED) == {"random", "clairvoyant", "oracle"}
    for name, tried in tuning.TRIED.items():
        made = [tried.policy(name, trace, different) for different in tried.settings()]
        assert made[0] == known[name]
        assert len(made) == 8
        assert all(each not in made[:place] for place, each in enumerate(made)), name


def test_what_is_tuned_by_is_not_reported(tuning: ModuleType) -> None:
    """Neither of the two percents is one of those in the table."""
    assert not set(tuning.TUNED_PERCENTS) & set(HOT_PERCENTS)


Pair = tuple[int, int]


def seen(tuning: ModuleType, rival: tuple[Pair, Pair, Pair]) -> dict:
    """Return what was measured of Volcano in two worlds, in which the default scheduler has 100 and 1,000 hot minutes.

    Args:
        tuning: the study.
        rival: of its weight 1: hot minutes at 85 percent, overruns and unplaced pods, each in both worlds. As shipped
            it has 70 and 900 hot minutes, at 75 percent, and 100 minutes of overruns in the first world.
    """
    measured = {
        tuning.label("default", {}): ((100, 1000), (0, 0), (0, 0), (0, 0)),
        **{tuning.label("volcano", each): ((10**6, 10**6), *rival) for each in tuning.TRIED["volcano"].settings()},
        tuning.label("volcano", {}): ((70, 900), (0, 0), (100, 0), (0, 0)),
        tuning.label("volcano", {"weight": 1}): ((0, 0), *rival),
    }
    names = ("hot_minutes_75", "hot_minutes_85", "memory_overrun_minutes", "unplaced_pods")
    return {
        (world, label): {name: pair[place] for name, pair in zip(names, pairs, strict=True)}
        for label, pairs in measured.items()
        for place, world in enumerate((ONE, TWO))
    }


@pytest.mark.parametrize(
    ("rival", "chosen"),
    [
        (((60, 900), (0, 0), (0, 0)), {"weight": 1}),  # 0.75 of the default's on average, and 0.8 as shipped
        (((80, 850), (0, 0), (0, 0)), {}),  # 0.825, though 40 minutes less: each world counts as much
        (((60, 900), (120, 0), (0, 0)), {"weight": 1}),  # a tenth more than 100, and 5 for each world
        (((60, 900), (100, 21), (0, 0)), {}),
        (((60, 900), (0, 0), (5, 5)), {"weight": 1}),
        (((60, 900), (0, 0), (0, 11)), {}),
    ],
)
def test_the_best_setting_that_does_no_more_harm_is_chosen(
    tuning: ModuleType, rival: tuple[Pair, Pair, Pair], chosen: dict[str, int]
) -> None:
    """Best is by hot minutes at 75 and 85 percent beside the default's; overruns and unplaced pods may not rise."""
    assert tuning.chosen(seen(tuning, rival), (ONE, TWO), "volcano") == chosen


def test_a_study_is_made_and_gone_on_with(
    tuning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chosen setting is judged in the other world beside the shipped one; what was kept is not made again."""
    worlds = [tmp_path / "tune", tmp_path / "judge"]
    for seed, world in enumerate(worlds, 1):
        write_trace(Synthetic(seed, 6, 200, 40, mean_use=0.75).trace(), world)
    made: list[ReplayResult] = []
    make = tuning.make

    def counted(task: ReplayTask) -> ReplayResult:
        made.append(make(task))
        return made[-1]

    monkeypatch.setattr(tuning, "make", counted)
    arguments = ([worlds[0]], [worlds[1]], ["volcano"])
    tuning.main(*arguments, ResultStore(tmp_path / "keep", "1"), 1)
    told = capsys.readouterr().out
    count = len(made)
    assert count == len({(done.task.folder, done.task.policy) for done in made})
    tuning.main(*arguments, ResultStore(tmp_path / "keep", "1"), 1)
    assert (capsys.readouterr().out, len(made)) == (told, count)

    trace = read_trace(worlds[1])
    default, volcano, clairvoyant = (
        measures(Replay(trace, policies(trace)[name]).run()) for name in ("default", "volcano", "clairvoyant")
    )
    row = next(line for line in told.splitlines() if line.startswith("| `volcano` |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1].startswith("shipped: threshold_percent 80.0, weight 5")
    parts = [volcano[f"hot_minutes_{p}"] / default[f"hot_minutes_{p}"] for p in HOT_PERCENTS]
    assert cells[3:6] == [f"{100 * (part - 1):.0f}" for part in parts]
    hot = [each["hot_minutes_80"] for each in (default, volcano, clairvoyant)]
    assert cells[6] == f"{100 * (hot[0] - hot[1]) / (hot[0] - hot[2]):.0f}"
    best = tuning.chosen({(d.task.folder, d.task.policy): d.measures for d in made}, worlds[:1], "volcano")
    assert (f"|  | {tuning.setting(best)} |" in told) == bool(best)
