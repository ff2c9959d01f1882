"""Tests of windows computed from points: steps, statistics, and invalid values."""

import math

import numpy as np
import pytest

from watcher.findings import Kind
from watcher.model import Operator, Window
from watcher.quality import analyzer
from watcher.windows.point_table import PointTable, choose_step, combine, newest, step_tags, to_floats

OPERATORS = [Operator.AVG, Operator.STD, Operator.P90, Operator.MAX]
QUARTER = Window("15m", 1_700_000_000, 1_700_000_900)
NAN = float("nan")


def table(window: Window = QUARTER, step: int = 60) -> PointTable:
    return PointTable("cpu", "CPU", window, step)


def computed(each: PointTable) -> dict[str, dict[str, float]]:
    """Return node to operator to value."""
    return {node: {m.operator: m.value for m in metrics} for node, metrics, _ in each.compute(OPERATORS)}


@pytest.mark.parametrize(
    ("seconds", "step"), [(60, 1), (288, 1), (300, 60), (900, 60), (6 * 3600, 300), (86400, 300), (7 * 86400, 3600)]
)
def test_step_is_the_finest_with_few_points(seconds: int, step: int) -> None:
    """No window has more than 288 points in a series, except with the last step."""
    assert choose_step(Window("w", 0, seconds), (1, 60, 300, 3600)) == step


def test_tags_have_the_step() -> None:
    """The tags ``step`` and ``smoothing`` have the step in the units of durations."""
    assert [step_tags(seconds)["step"] for seconds in (1, 20, 60, 300, 3600)] == ["1s", "20s", "1m", "5m", "1h"]
    assert step_tags(300)["smoothing"] == "5m"


@pytest.mark.parametrize("offset", range(0, 60, 7))
def test_points_are_separate_at_every_alignment(offset: int) -> None:
    """Points at the distance of a step stay separate at every alignment; their statistics are numpy's."""
    times = np.arange(QUARTER.end - offset, QUARTER.start, -60, dtype=float)[::-1]
    values = np.random.default_rng(offset).uniform(0, 100, len(times))
    points = table()
    assert points.add("node", times, values)
    found = computed(points)["node"]
    assert found == pytest.approx(
        {"AVG": values.mean(), "STD": values.std(), "P90": np.percentile(values, 90), "MAX": values.max()}, rel=1e-12
    )


def test_points_outside_the_window_are_left_out() -> None:
    """Points before the step with the window's start, points after its end, and NaN are left out."""
    points = table()
    times = np.array([QUARTER.start - 60, QUARTER.start + 30, QUARTER.start + 90, QUARTER.end + 1, NAN])
    assert points.add("node", times, np.array([1000, 10, 20, 1000, 1000.0]))
    assert not points.add("gone", times - 3600, np.full(5, 5.0))
    assert computed(points)["node"]["AVG"] == 15
    assert list(computed(points)) == ["node"]


def test_series_of_one_node_are_merged() -> None:
    """Two halves of a window make a complete window; the mean of two points at one step is used."""
    times = QUARTER.start + np.arange(30, 900, 60.0)
    points = table()
    points.add("node", times[:8], np.full(8, 10.0))
    points.add("node", times[7:], np.full(8, 30.0))
    (_, metrics, coverage), *_ = points.compute(OPERATORS)
    assert metrics[0].value == pytest.approx((7 * 10 + 20 + 7 * 30) / 15)
    assert coverage == 1
    assert points.duplicates() == {"node": 2}


def test_one_point_has_no_deviation() -> None:
    """A node with a single point has an average and no STD."""
    points = table()
    points.add("node", np.array([QUARTER.end - 30.0]), np.array([40.0]))
    assert computed(points) == {"node": {"AVG": 40, "P90": 40, "MAX": 40}}


@pytest.mark.parametrize("bad", [math.inf, -math.inf, 1e308, -50.0, 101e6])
def test_infinite_values_do_not_affect_other_nodes(bad: float) -> None:
    """Infinite values and sums that overflow are dropped without a warning; the other node is unchanged."""
    times = QUARTER.start + np.arange(30, 900, 60.0)
    points = table()
    points.add("bad", times, np.full(15, bad))
    points.add("bad", times, np.full(15, bad))
    points.add("good", times, np.full(15, 7.0))
    nodes, _ = combine([points], QUARTER, OPERATORS, {}, "a hint")
    kept, findings = analyzer.clean(nodes, "15m")
    assert list(kept) == ["good"]
    assert {finding.node for finding in findings} == {"bad"}


def test_points_that_cannot_be_right_are_left_out() -> None:
    """A negative or absurd point is left out and counted; the others are the window, and coverage shows the gap."""
    points = PointTable("cpu", "CPU", QUARTER, 60)
    times = QUARTER.start + np.arange(30, 900, 60.0)
    points.add("a", times, np.where(np.arange(15) % 2 == 1, -13.0, 10.0))
    points.add("a", times, np.where(np.arange(15) == 0, 151.0, 140.0))
    points.add("b", times, np.full(15, 149.0))
    nodes, findings = combine([points], QUARTER, OPERATORS, {}, "a hint")
    assert nodes["a"].metrics[0].value == pytest.approx((10 + 7 * 75 + 7 * 140) / 15)
    counted = {each.node: each.message for each in findings if each.kind is Kind.OUT_OF_RANGE}
    assert counted.keys() == {"a"}
    assert counted["a"].startswith("8 of 30 samples ")


def test_coverage_is_the_share_of_steps_with_points() -> None:
    """A late node has its share as metadata; the newest step may be missing."""
    times = QUARTER.start + np.arange(30, 840, 60.0)  # the newest step is not complete
    points = table()
    points.add("whole", times, np.full(14, 1.0))
    points.add("late", times[-3:], np.full(3, 1.0))
    nodes, _ = combine([points], QUARTER, OPERATORS, {"step": "1m"}, "a hint")
    assert nodes["whole"].metadata == {}
    assert nodes["late"].metadata == {"coverage": round(3 / 14, 4)}


def test_longer_step_of_the_source_is_full_coverage() -> None:
    """Points every five minutes at all nodes, where minutes were requested, are full coverage."""
    window = Window("1h", QUARTER.start, QUARTER.start + 3600)
    times = window.start + np.arange(10, 3600, 300.0)
    points = table(window)
    points.add("node", times, np.full(12, 1.0))
    nodes, findings = combine([points], window, OPERATORS, {}, "a hint")
    assert (nodes["node"].metadata, findings) == ({}, [])


def test_newest_point_of_any_metric() -> None:
    """A node's newest time is the end of its newest step in any table, at most the window's end."""
    times = QUARTER.start + np.arange(30, 900, 60.0)
    cpu, memory = table(), PointTable("memory", "Memory", QUARTER, 60)
    cpu.add("a", times[:5], np.full(5, 1.0))
    memory.add("a", times[:7], np.full(7, 1.0))
    cpu.add("b", times, np.full(15, 1.0))
    assert newest([cpu, memory]) == {"a": QUARTER.start + 450, "b": QUARTER.end}


def test_coverage_is_the_lowest_of_all_metrics() -> None:
    """A node with half of its memory points has a coverage of half."""
    times = QUARTER.start + np.arange(30, 900, 60.0)
    cpu, memory = table(), PointTable("memory", "Memory", QUARTER, 60)
    cpu.add("node", times, np.full(15, 1.0))
    memory.add("node", times[:7], np.full(7, 1.0))
    nodes, _ = combine([cpu, memory], QUARTER, OPERATORS, {}, "a hint")
    assert nodes["node"].metadata == {"coverage": 0.5}
    assert {metric.type for metric in nodes["node"].metrics} == {"CPU", "Memory"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, None], [1, 2.5, NAN]),
        ([1, "NaN", "x", {}, [3], 10**400], [1, NAN, NAN, NAN, NAN, NAN]),
        ([], []),
        (None, []),
        ("12", []),
        ({"0": 1}, []),
    ],
)
def test_values_that_are_not_numbers_become_nan(values: object, expected: list[float]) -> None:
    """Null, text, objects and numbers too large for a float become NaN, without effect on other values."""
    np.testing.assert_array_equal(to_floats(values), expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1, 2], [3, None]], [[1, 2], [3, NAN]]),
        ([[1, 2], [3], 4, None, [5, 6, 7], [8, "x"], [9, [1]]], [[1, 2], [8, NAN], [9, NAN]]),
        ([], np.zeros((0, 2))),
        (7, np.zeros((0, 2))),
    ],
)
def test_pairs_of_another_length_are_left_out(values: object, expected: list[list[float]]) -> None:
    """A list of pairs becomes an array of shape (n, 2) without other elements."""
    np.testing.assert_array_equal(to_floats(values, columns=2), expected)
