"""Quotas in a synthetic world of three teams."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.trace import JOB, PodUse, Trace

FOLDER = str(Path(__file__).parents[2] / "research")
QUOTAS = {"none": None, "max equals min": 2, "lent": 6}


@pytest.fixture
def quota_worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the script, and let its world have one node of six accelerators, two for each team, for twelve hours."""
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module("quota_worlds")
    for name, value in {"NODES": 1, "ACCELERATORS": 6, "GUARANTEE": 2, "MINUTES": 720}.items():
        monkeypatch.setattr(module, name, value)
    yield module
    for name in ("quota_worlds", "gang_worlds"):
        del sys.modules[name]


def small_world(module: ModuleType, comes: int) -> Trace:
    """Return a world with six pods of red for three hours, and two of green for one, which come half an hour apart."""
    owners = ("red/job",) * 6 + ("green/job",) * 2
    arrival = np.array([0] * 6 + [comes, comes + 30])
    life = np.array([180] * 6 + [60] * 2)
    offsets = np.concatenate([[0], np.cumsum(life)])
    full = np.ones(int(offsets[-1]), np.float16)
    one_core, one_gib = np.full(8, 1000), np.full(8, 1 << 30)
    base: Trace = module.world(0)
    return replace(
        base, pods=tuple(f"pod-{number}" for number in range(8)), owner_kinds=(JOB,) * 8, owners=owners,
        arrival_minute=arrival, end_minute=arrival + life, use=PodUse(offsets, full, full),
        cpu_request_milli=one_core, cpu_limit_milli=one_core,
        memory_request_bytes=one_gib, memory_limit_bytes=one_gib,
    )  # fmt: skip


def replay(module: ModuleType, trace: Trace, title: str) -> ReplayOutcome:
    return Replay(trace, module.policy(title, QUOTAS[title]), ReplayOptions(seed=0)).run()


def test_a_busy_team_asks_for_more_than_its_guarantee(
    quota_worlds: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its turns a team asks for 1.9 times its guarantee, and between them for nothing; a seed gives one world."""
    monkeypatch.setattr(quota_worlds, "MINUTES", 100 * quota_worlds.TURN)
    trace, again = quota_worlds.world(3), quota_worlds.world(3)
    life = trace.end_minute - trace.arrival_minute
    assert (trace.owners, life.tolist()) == (again.owners, (again.end_minute - again.arrival_minute).tolist())
    assert trace.owners != quota_worlds.world(4).owners
    assert (np.diff(trace.arrival_minute) >= 0).all()
    assert trace.cpu_capacity_milli.tolist() == [6 * 1000]
    assert set(trace.cpu_request_milli.tolist()) == {1000}
    assert np.median(life) == pytest.approx(60, rel=0.05)
    teams = np.array([owner.partition("/")[0] for owner in trace.owners])
    for number, team in enumerate(("red", "green", "blue")):
        of_team = teams == team
        turns = np.unique((trace.arrival_minute[of_team] + number * 180) // 360)
        assert 35 <= turns.size <= 65
        assert life[of_team].sum() / (turns.size * 360) == pytest.approx(1.9 * 2, rel=0.1)


@pytest.mark.parametrize(("title", "most"), QUOTAS.items())
def test_each_team_has_the_quota_of_the_variant(quota_worlds: ModuleType, title: str, most: int | None) -> None:
    """Without quotas a team that is alone may use all six accelerators, with them as many as its ``max``."""
    policy = quota_worlds.policy(title, most)
    quotas = {quota["metadata"]["namespace"]: quota["spec"] for quota in policy.objects}
    assert set(quotas) == (set() if most is None else {"red", "green", "blue"})
    assert all((spec["min"]["cpu"], spec["max"]["cpu"]) == ("2", str(most)) for spec in quotas.values())
    outcome = replay(quota_worlds, small_world(quota_worlds, comes=240), title)
    assert sum(run.start == 0 for run in outcome.cluster.pod_runs) == (most or 6)


@pytest.mark.parametrize(
    ("title", "minutes", "expected"),
    [
        # Green's two pods, which are entitled like the first two of red, wait from minutes 60 and 90 to 180.
        ("none", 720, (3.5, 52.5, 115.5, 26.25, 0.0)),
        # Red runs two at a time, from minutes 0, 180 and 360. Idle are 4 accelerator-hours until green comes, 4 while
        # green runs, 2 until minute 180, and 6 until 360: then only two pods wait for the four that are free.
        ("max equals min", 720, (0.0, 0.0, 0.0, 135.0, 16.0)),
        # The last two pods of red never start: they wait until the end, and two accelerators are idle an hour less.
        ("max equals min", 300, (0.0, 0.0, 0.0, 120.0, 14.0)),
        # Green takes back two accelerators of red, whose pods run again when green's end.
        ("lent", 720, (0.0, 0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_waits_and_idle_accelerators_are_counted(
    quota_worlds: ModuleType, title: str, minutes: int, expected: tuple[float, ...]
) -> None:
    """Figures of a world that is counted by hand, in the order of the columns."""
    outcome = replay(quota_worlds, replace(small_world(quota_worlds, comes=60), minutes=minutes), title)
    assert quota_worlds.measures(outcome) == pytest.approx(expected)
    assert sorted(run.start for run in outcome.cluster.pod_runs)[8:] == ([120, 150] if title == "lent" else [])


def test_a_preempted_pod_that_never_runs_again_counts(
    quota_worlds: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table counts it like one that does."""
    trace = replace(small_world(quota_worlds, comes=60), minutes=100)
    outcome = replay(quota_worlds, trace, "lent")
    assert (len(outcome.unplaced), len(outcome.cluster.pod_runs)) == (2, 8)
    monkeypatch.setattr(quota_worlds, "world", lambda seed: trace)
    quota_worlds.main(1)
    assert capsys.readouterr().out.splitlines()[-1].endswith(" | 2 |")


def test_the_table_has_the_means_of_all_seeds(
    quota_worlds: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the second world green comes when all of red has ended, unless red may have only its guarantee.

    With that limit 18 accelerator-hours are idle in it: four for three hours, and two for three more. Only in the first
    world, with quotas that are lent, does green take accelerators back: two.
    """
    worlds = [small_world(quota_worlds, comes=60), small_world(quota_worlds, comes=240)]
    monkeypatch.setattr(quota_worlds, "world", worlds.__getitem__)
    quota_worlds.main(2)
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header == "| quotas | " + " | ".join((*quota_worlds.COLUMNS, "preempted")) + " |"
    assert rows == [
        "| none | 2 | 26 | 58 | 13 | 0 | 0 |",
        "| max equals min | 0 | 0 | 0 | 135 | 17 | 0 |",
        "| lent | 0 | 0 | 0 | 0 | 0 | 1 |",
    ]


def test_lending_keeps_the_guarantee_and_leaves_nothing_idle(quota_worlds: ModuleType) -> None:
    """Without quotas entitled pods wait, and without lending accelerators are idle; lending avoids both."""
    trace, denied, idle, displaced = quota_worlds.world(0), {}, {}, {}
    for title in QUOTAS:
        outcome = replay(quota_worlds, trace, title)
        denied[title], *_, idle[title] = quota_worlds.measures(outcome)
        displaced[title] = outcome.displaced
    assert denied["none"] > 0
    assert denied["max equals min"] == denied["lent"] == 0
    assert idle["max equals min"] > 0
    assert idle["none"] == idle["lent"] == 0
    assert displaced["lent"] > displaced["none"] == displaced["max equals min"] == 0
