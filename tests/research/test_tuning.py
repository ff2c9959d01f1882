"""The tuning study of the policies: its settings, its rule of choice, and its table."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import imported

from trimaran.simulator.comparison import ReplayResult, ReplayTask, ResultStore
from trimaran.simulator.measures import HOT_PERCENTS, measures
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

ONE, TWO = Path("one"), Path("two")


@pytest.fixture
def tuning() -> Iterator[ModuleType]:
    with imported("tuning") as module:
        yield module


def test_every_policy_has_as_many_settings_and_the_first_is_the_shipped_one(tuning: ModuleType) -> None:
    """Eight different ones each; every policy with a setting is there."""
    trace = Synthetic(1, 4, 120, 30).trace()
    known = {**policies(trace), **sys.modules["rivals"].rivals()}
    assert set(known) - set(tuning.TUNED_POLICIES) == {
        "random", "clairvoyant", "oracle", "congestion-cost+right-sized",
    }  # fmt: skip
    for name, tuned in tuning.TUNED_POLICIES.items():
        variants = [tuned.build(trace, change) for change in tuned.changes]
        assert variants[0] == known[name]
        assert len(variants) == 8
        assert all(variant not in variants[:place] for place, variant in enumerate(variants)), name


def test_the_objective_is_not_reported(tuning: ModuleType) -> None:
    """Neither of the two percentages of the objective is in the table."""
    assert not set(tuning.TUNED_PERCENTS) & set(HOT_PERCENTS)


Pair = tuple[int, int]


def results_with(tuning: ModuleType, rival: tuple[Pair, Pair, Pair]) -> dict:
    """Return measures of Volcano in two worlds, in which the default scheduler has 100 and 1,000 hot minutes.

    Args:
        tuning: the study.
        rival: hot minutes at 85 percent, overruns and unplaced pods with a weight of 1, each in both worlds. As shipped
            Volcano has 70 and 900 hot minutes, at 75 percent, and 100 minutes of overruns in the first world.
    """
    measured = {
        tuning.label("default", {}): ((100, 1000), (0, 0), (0, 0), (0, 0)),
        **{
            tuning.label("volcano", other): ((10**6, 10**6), *rival)
            for other in tuning.TUNED_POLICIES["volcano"].changes
        },
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
    """The rule is hot minutes at 75 and 85 percent next to the default's; overruns and unplaced pods may not rise."""
    assert tuning.choose(results_with(tuning, rival), (ONE, TWO), "volcano") == chosen


def test_a_study_runs_and_resumes(
    tuning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chosen setting is judged in the other world next to the shipped one; stored replays do not run again."""
    worlds = [tmp_path / "tune", tmp_path / "judge"]
    for seed, world in enumerate(worlds, 1):
        write_trace(Synthetic(seed, 6, 200, 40, mean_use=0.75).trace(), world)
    finished: list[ReplayResult] = []
    run_replay = tuning.run_replay

    def counted(task: ReplayTask) -> ReplayResult:
        finished.append(run_replay(task))
        return finished[-1]

    monkeypatch.setattr(tuning, "run_replay", counted)
    arguments = ([worlds[0]], [worlds[1]], ["volcano"])
    tuning.main(*arguments, ResultStore(tmp_path / "keep", "1"), 1)
    printed = capsys.readouterr().out
    count = len(finished)
    assert count == len({(done.task.folder, done.task.policy) for done in finished})
    tuning.main(*arguments, ResultStore(tmp_path / "keep", "1"), 1)
    assert (capsys.readouterr().out, len(finished)) == (printed, count)

    trace = read_trace(worlds[1])
    rival = sys.modules["rivals"].rivals()["volcano"]
    default, volcano, clairvoyant = (
        measures(Replay(trace, policy).run())
        for policy in (policies(trace)["default"], rival, policies(trace)["clairvoyant"])
    )
    row = next(line for line in printed.splitlines() if line.startswith("| `volcano` |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1].startswith("shipped: threshold_percent 80.0, weight 5")
    parts = [volcano[f"hot_minutes_{p}"] / default[f"hot_minutes_{p}"] for p in HOT_PERCENTS]
    assert cells[3:6] == [f"{100 * (part - 1):.0f}" for part in parts]
    hot = [measured["hot_minutes_80"] for measured in (default, volcano, clairvoyant)]
    assert cells[6] == f"{100 * (hot[0] - hot[1]) / (hot[0] - hot[2]):.0f}"
    best = tuning.choose({(d.task.folder, d.task.policy): d.measures for d in finished}, worlds[:1], "volcano")
    assert (f"|  | {tuning.describe(best)} |" in printed) == bool(best)
