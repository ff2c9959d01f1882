"""Tests of loads of exactly 0 and of loads that hardly vary, with one fetch a minute."""

import math

import numpy as np
import pytest

from watcher.quality.flatline import Flatlines

NAN = math.nan
START = 1_700_000_000


def zeros(*loads: list[float], alive: bool = True) -> list[float]:
    """Judge the loads of several nodes; return for each load of the first the minute since which it is at 0."""
    flatlines, starts = Flatlines(), []
    for minute, values in enumerate(np.array(loads).T):
        names, mask = [f"n{node}" for node in range(len(values))], np.full(len(values), alive)
        found = flatlines.judge(START + 60 * minute, names, values, values[:, None][:, :0], mask)
        assert np.isnan(found.zero[1:]).all()
        starts.append((found.zero[0] - START) / 60)
    return starts


@pytest.mark.parametrize(
    ("loads", "starts"),
    [
        ([2.0] * 60 + [0.0] * 5 + [2.0, NAN, 0.0], [60] * 5 + [NAN, NAN, 67]),
        ([50.0] * 59 + [0.0] + [50.0] * 60 + [0.0], [NAN]),  # it was at 0 in its first hour
        ([50.0] * 30 + [NAN] + [50.0] * 29 + [0.0] * 2, [NAN, NAN]),  # it was absent for a minute of the hour
        ([60.0] + [1.0] * 80 + [0.0], [81]),
        ([60.0] + [1.0] * 300 + [0.0], [NAN]),  # it became idle
        ([50.0] * 60 + [0.0] * 722 + [50.0, 0.0], [60, NAN, NAN, NAN]),  # it was at 0 for more than half a day
    ],
)
def test_zero_after_an_hour(loads: list[float], starts: list[float]) -> None:
    """A load of 0 is found after an hour, for half a day, if the node was neither idle nor at 0 before."""
    np.testing.assert_array_equal(zeros(loads)[-len(starts) :], starts)


@pytest.mark.parametrize(("nodes", "alive", "is_found"), [(51, False, True), (50, False, False), (50, True, True)])
def test_zero_without_another_metric(nodes: int, alive: bool, is_found: bool) -> None:
    """If no other metric shows that the node is alive, less than 2 percent of the nodes may ever have been at 0."""
    starts = zeros([50.0] * 60 + [0.0], [0.0] * 61, *[[50.0] * 61] * (nodes - 2), alive=alive)
    assert math.isnan(starts[-1]) != is_found


def still(movements: list[float], level: float = 50.0, fetches: int = 45) -> list[float]:
    """Return for each movement of a load within thirty fetches the minute since which the load is still."""
    flatlines, starts = Flatlines(), []
    for minute, movement in enumerate(movements):
        recent = np.full((2, fetches), float(level))
        recent[:, :-30] = 0  # too old to count
        recent[:, -30:][:, 0] = level - movement, 100
        found = flatlines.judge(START + 60 * minute, ["a", "busy"], recent[:, -1], recent, np.ones(2, bool))
        assert math.isnan(found.still[1])
        starts.append((found.still[0] - START) / 60)
    return starts


def test_still_load_ends_at_its_smallest_movement() -> None:
    """A load below a fifth of its smallest movement is still until it moves by as much as before, or for half a day."""
    starts = still([10.0] * 360 + [1.99, 9.99, 10.0] + [1.99] * 722)
    np.testing.assert_array_equal(starts, [NAN] * 360 + [360, 360, NAN] + [363] * 721 + [NAN])


@pytest.mark.parametrize(
    ("minutes", "usual", "moved", "level", "fetches", "found"),
    [
        (360, 1.0, 0.1, 50, 30, True), (360, 0.99, 0.1, 50, 30, False), (359, 1.0, 0.1, 50, 30, False),
        (360, 1.0, 0.1, 50, 29, False), (360, 10, 2.0, 50, 45, False), (360, 10, 1.99, 10, 45, False),
        (360, 10, 1.99, 95, 45, False),
    ],
)  # fmt: skip
def test_limits_of_stillness(minutes: int, usual: float, moved: float, level: float, fetches: int, found: bool) -> None:
    """A load is still after six hours and thirty fetches, if it moved by 1 percent; idle and full nodes may be."""
    assert math.isnan(still([usual] * minutes + [moved], level, fetches)[-1]) != found


def test_the_first_movement_is_not_compared() -> None:
    """A load without thirty fetches in a row for six hours is not still at the first ones, as nothing is usual yet."""
    flatlines = Flatlines()
    for minute in range(410):
        recent = np.full((1, 30), 50.0)
        recent[0, 0] = 49 if minute >= 405 else NAN
        found = flatlines.judge(START + 60 * minute, ["a"], recent[:, -1], recent, np.ones(1, bool))
        assert math.isnan(found.still[0])
