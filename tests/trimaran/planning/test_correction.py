"""Measured loads after a move, until the window lies wholly behind it."""

import pytest

from trimaran.planning.moves.correction import RecentMove, corrected_loads

MOVE = RecentMove(1000.0, "hot", "cool", 20.0, 10.0)
BEFORE, AFTER = {"hot": 90.0, "cool": 30.0, "other": 50.0}, {"hot": 70.0, "cool": 40.0, "other": 50.0}


@pytest.mark.parametrize("end", [1000, 1001, 1300, 1450, 1899, 1900, 5000])
def test_the_estimate_is_right_at_every_time_after_a_move(end):
    """Whatever part of the window is before the move, the corrected loads are those after it."""
    shown = min(max((end - 1000) / 900, 0), 1)  # share of the window after the move
    measured = {name: BEFORE[name] + shown * (AFTER[name] - BEFORE[name]) for name in BEFORE}
    assert corrected_loads(measured, (end - 900, end), [MOVE]) == pytest.approx(AFTER)


def test_a_window_behind_the_move_is_not_corrected():
    """Once the window begins after the move, the measured load counts unchanged."""
    assert corrected_loads(BEFORE, (1000.0, 1900.0), [MOVE]) == BEFORE


def test_unmeasured_nodes_stay_unmeasured():
    """A node without a load gets none by a move, and no load falls below 0."""
    assert corrected_loads({"hot": 5.0}, (0.0, 900.0), [MOVE]) == {"hot": 0.0}
