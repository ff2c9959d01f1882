"""Gangs in a synthetic world of training jobs."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay, ReplayOptions

FOLDER = str(Path(__file__).parents[2] / "research")


@pytest.fixture
def gang_worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the script, and let its world have four nodes for twelve hours."""
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module("gang_worlds")
    monkeypatch.setattr(module, "NODES", 4)
    monkeypatch.setattr(module, "MINUTES", 720)
    yield module
    del sys.modules["gang_worlds"]


def test_gangs_hold_no_accelerator_for_each_other(gang_worlds: ModuleType) -> None:
    """The workers of a job start in the same minute, so none waits for another; without gangs some do."""
    trace, idle = gang_worlds.world(2), {}
    for gangs in (False, True):
        policy = standalone_policy("training", gang_worlds.configuration(gangs=gangs))
        outcome = Replay(trace, policy, ReplayOptions(seed=0)).run()
        idle[gangs] = gang_worlds.Measures.of(outcome).values[4]
    assert idle[True] == 0
    assert idle[False] > 0
