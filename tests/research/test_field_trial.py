"""Replayed field trials: A/A trials, planted effects, and planted harm."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from support.scripts import imported

from trimaran.extender.trial.outcomes import HOT, BlockRecord
from trimaran.extender.trial.schedule import TrialSchedule

MINUTES, HOURS, NODES, WORLDS, NAMES = 30, 25, 30, 4, 50


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with imported("field_trial") as module:
        yield module


@pytest.fixture(scope="module")
def worlds(script: ModuleType) -> list[list[BlockRecord]]:
    """Blocks of half an hour of four worlds under the default scheduler."""
    found = [
        script.always(script.world(seed, 0.5, HOURS, NODES), script.DEFAULT)[MINUTES] for seed in range(1, WORLDS + 1)
    ]
    return [records[-len(records) // 2 * 2 :] for records in found]


@pytest.mark.slow
def test_a_a_trials_find_nothing(script: ModuleType, worlds: list[list[BlockRecord]]) -> None:
    """Of 200 trials of shadow against shadow at least 95 percent find no effect, and at most 5 percent stop."""
    count, (found, stopped, *_) = script.a_a_row(worlds, NAMES)
    assert count == 200
    assert found <= 0.05
    assert stopped <= 0.05


@pytest.mark.slow
def test_a_planted_effect_is_found(script: ModuleType, worlds: list[list[BlockRecord]]) -> None:
    """Over the pairs of four worlds an effect of 20 percent is found in most trials, one of 10 percent in fewer."""
    joined = [
        replace(record, number=number) for number, record in enumerate(each for world in worlds for each in world)
    ]
    trials = [script.renamed(joined, TrialSchedule(f"planted-{number}")) for number in range(NAMES)]
    power = {
        factor: np.mean([script.is_found(script.planted(trial, HOT, factor), HOT) for trial in trials])
        for factor in (0.95, 0.9, 0.8)
    }
    assert power[0.8] >= 0.9
    assert power[0.8] > power[0.9] > power[0.95]


@pytest.mark.slow
def test_a_planted_harm_stops_the_trial_after_two_blocks(script: ModuleType) -> None:
    """A policy that places every pod on the hottest node is stopped after the first pair."""
    records = script.trial_of(script.world(1, 0.5, 6), TrialSchedule("harm", 3600), script.HottestNode.name)
    assert script.blocks_until_stop(records, script.MARGIN) == 2


def test_a_replay_follows_the_schedule(script: ModuleType) -> None:
    """Pods are placed by the active policy in active blocks, and by the other one in shadow blocks."""

    class Fixed:
        def __init__(self, row: int) -> None:
            self.row = row

        def begin(self, *_: object) -> "Fixed":
            return self

        def choose(self, *_: object) -> int:
            return self.row

    class Clock:
        now = 0.0

    schedule = TrialSchedule("replay", 1800)
    chooser = script.Alternating(schedule, Fixed(1), Fixed(0)).begin(Clock, None, None)
    chosen = []
    for Clock.now in range(0, 100 * 1800, 600):
        chosen.append(chooser.choose(0, None, None))
    assert chosen == [int(schedule.block_at(now).active) for now in range(0, 100 * 1800, 600)]
