"""Drawn faults over hours of a cluster's time; tests/soak/moves.py draws thousands."""

import pytest
from support.move_faults import KINDS, FaultRun


@pytest.mark.slow
def test_no_fault_does_harm() -> None:
    """With every kind of fault no cap, budget or cooldown is broken, and nothing is left behind."""
    run = FaultRun(seed=1)
    run.run(len(KINDS))
    assert run.moves
    assert run.harm == []
