"""Gangs in a synthetic world of training jobs."""

import gang_worlds
import pytest
from gang_worlds import Measures, configuration, world

from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay, ReplayOptions


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay four nodes for six hours."""
    monkeypatch.setattr(gang_worlds, "NODES", 4)
    monkeypatch.setattr(gang_worlds, "MINUTES", 360)


def test_gangs_hold_no_accelerator_for_each_other() -> None:
    """The workers of a job start in the same minute, so none waits for another; without gangs some do."""
    trace = world(1)
    found = {}
    for gangs in (False, True):
        policy = standalone_policy("training", configuration(gangs=gangs))
        found[gangs] = Measures.of(Replay(trace, policy, ReplayOptions(seed=0)).run())
    idle = {gangs: measures.values[4] for gangs, measures in found.items()}
    assert idle[True] == 0
    assert idle[False] > 0
