"""Tests of changepoints and drift, with ten nodes that move together and one fetch a minute."""

from copy import deepcopy

import numpy as np
import pytest

from watcher.quality.cohort import Cohort, Deficits

NODES, HOUR = 10, 60
NAMES = [f"n{number}" for number in range(NODES)]


def loads(hours: float, jumps: float = 0.0, seed: int = 3) -> np.ndarray:
    """Return loads around 50 percent with a daily cycle and noise, shape (nodes, fetches).

    Args:
        hours: the duration.
        jumps: the size of each node's random falls in percent: two hours each, a few times a day.
        seed: the seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    times = np.arange(int(hours * HOUR))
    noise = rng.normal(0, 1.0, (NODES, len(times)))
    levels = 50 + 2 * np.arange(NODES)[:, None] + 15 * np.sin(times / (24 * HOUR) * 2 * np.pi) + noise
    for node in range(NODES):
        for begin in rng.integers(0, len(times), int(hours / 6)):
            levels[node, begin : begin + 2 * HOUR] -= jumps
    return levels


def judge(levels: np.ndarray, cohort: Cohort | None = None, begin: int = 0) -> list[Deficits]:
    """Judge every fetch."""
    cohort = cohort or Cohort()
    return [cohort.judge(1e9 + 60 * (begin + at), NAMES, levels[:, at]) for at in range(levels.shape[1])]


def found(judged: list[Deficits]) -> np.ndarray:
    """Return the nodes with findings, shape (fetches, nodes)."""
    return np.array([each.sudden | each.slow for each in judged])


@pytest.fixture(scope="module")
def of_thirty_hours() -> Cohort:
    """Cohort that has seen the first thirty hours of ``loads(36)`` without findings."""
    cohort = Cohort()
    assert not found(judge(loads(36)[:, : 30 * HOUR], cohort)).any()
    return cohort


@pytest.fixture
def experienced(of_thirty_hours: Cohort) -> Cohort:
    """Copy of that cohort for one test."""
    return deepcopy(of_thirty_hours)


def test_daily_cycle_has_no_findings() -> None:
    """Three days in which all nodes rise by 15 percent and fall again have no findings."""
    assert not found(judge(loads(72))).any()


@pytest.mark.parametrize("factor", [0.0, 0.01, 0.04, 0.32])
def test_factor_is_found_within_minutes(experienced: Cohort, factor: float) -> None:
    """A node whose values are scaled, with a ramp of 5 minutes, is found within 10 minutes."""
    levels = loads(36)
    begin = 34 * HOUR
    ramp = np.minimum(np.arange(1, levels.shape[1] - begin + 1) / 5, 1)
    levels[4, begin:] *= 1 - ramp * (1 - factor)
    seen = found(judge(levels[:, 30 * HOUR :], experienced, 30 * HOUR))
    assert not seen[:, np.arange(NODES) != 4].any()
    assert not seen[: 4 * HOUR].any()
    assert seen[4 * HOUR + 10 :, 4].all(), "the finding lasts as long as the fall"


def test_drift_is_found(experienced: Cohort) -> None:
    """A node that falls to half in three hours is found before it is 20 points too low."""
    levels = loads(36)
    begin = 32 * HOUR
    true = levels[4, begin:].copy()
    levels[4, begin:] *= 1 - 0.5 * np.minimum(np.arange(4 * HOUR) / (3 * HOUR), 1)
    seen = found(judge(levels[:, 30 * HOUR :], experienced, 30 * HOUR))
    assert not seen[: 2 * HOUR].any()
    first = int(np.argmax(seen[2 * HOUR :, 4]))
    assert seen[2 * HOUR + first, 4]
    assert true[first] - levels[4, begin + first] < 20


def test_common_fall_has_no_findings(experienced: Cohort) -> None:
    """If all nodes fall to half at once, as when a batch ends, no node has a finding."""
    levels = loads(36)
    levels[:, 30 * HOUR :] *= 0.5
    assert not found(judge(levels[:, 30 * HOUR :], experienced, 30 * HOUR)).any()


def test_frequent_jumps_have_no_findings() -> None:
    """In a cluster whose nodes fall by 40 percent a few times a day, another fall has no finding."""
    levels = loads(120, jumps=40)
    assert found(judge(levels))[48 * HOUR :].mean() < 0.002


def test_jumping_node_does_not_hide_others() -> None:
    """A node that falls by 80 percent every few hours does not hide the fall of a steady node."""
    levels = loads(150)[:, ::5]  # a source of 5 minutes: fewer fetches
    times = np.arange(levels.shape[1])
    levels[7] = np.where(times % 60 < 12, 10, 90)
    levels[4, -24:] *= 0.3
    cohort = Cohort()
    seen = found([cohort.judge(1e9 + 300 * at, NAMES, levels[:, at]) for at in times])
    assert seen[-6:, 4].all()
    assert not np.delete(seen, [4, 7], axis=1).any()


@pytest.mark.parametrize(("hours", "back", "last", "end"), [(40, 36, 35, 36.5), (54, 54, 45, 47)])
def test_finding_ends(hours: int, back: int, last: int, end: float) -> None:
    """A finding ends half an hour after the load has returned, or after 12 hours; then the new load is expected."""
    levels = loads(hours)
    levels[4, 34 * HOUR : back * HOUR] *= 0.1
    judged = judge(levels)
    seen = found(judged)[:, 4]
    assert seen[last * HOUR]
    assert not seen[int(end * HOUR) :].any()
    assert judged[-1].expected[4] == pytest.approx(levels[4, -1], abs=5)


def test_no_findings_in_the_first_hours() -> None:
    """There are no findings in the first 8 hours, or with fewer than five nodes."""
    levels = loads(36)
    levels[4, 4 * HOUR : 7 * HOUR] *= 0.01
    assert not found(judge(levels[:, : 7 * HOUR])).any()
    few = loads(36)
    few[4:] = np.nan
    few[2, 30 * HOUR :] *= 0.01
    assert not found(judge(few)).any()


def test_returning_node_keeps_its_state() -> None:
    """A node that returns after six hours is compared with its earlier past."""
    levels = loads(40)
    cohort = Cohort()
    judge(levels[:, : 30 * HOUR], cohort)
    others = [name for name in NAMES if name != "n4"]
    for at in range(30 * HOUR, 36 * HOUR):
        cohort.judge(1e9 + 60 * at, others, np.delete(levels[:, at], 4))
    levels[4, 36 * HOUR :] *= 0.05
    assert found(judge(levels[:, 36 * HOUR :], cohort, 36 * HOUR))[20:, 4].all()


def test_falls_of_a_new_node_do_not_count() -> None:
    """A fall in the first four hours of a node, when its usual load is unknown, does not raise its threshold."""
    levels = loads(20)
    levels[4, : 9 * HOUR] = np.nan
    levels[4, 10 * HOUR : 11 * HOUR] *= 0.01
    levels[4, 19 * HOUR :] *= 0.3
    assert judge(levels)[-1].sudden[4]


def test_load_of_a_day_ago_has_half_the_weight() -> None:
    """The expected load of a few nodes is their average, in which loads of a day ago have half the weight."""
    cohort = Cohort()
    for hour, load in [*((hour, 40.0) for hour in range(96)), (119, 60.0), (120, 0.0)]:
        last = cohort.judge(1e9 + 3600 * hour, NAMES[:3], np.full(3, load))
    assert last.expected.tolist() == pytest.approx([50] * 3)


def test_new_nodes_do_not_count_in_the_common_movement() -> None:
    """Nodes that follow each other are expected to do so, also if more nodes join in the same fetch."""
    cohort = Cohort()
    levels = np.linspace(40, 60, 5)
    for at in range(60):
        cohort.judge(1e9 + 60 * at, NAMES[:5], levels + 5 * (-1) ** at)
    joined = [*NAMES[:5], *(f"new-{number}" for number in range(6))]
    judged = cohort.judge(1e9 + 3600, joined, np.concatenate([levels + 5, np.full(6, 30.0)]))
    assert judged.expected.tolist() == pytest.approx([*(levels + 5), *[30.0] * 6], abs=0.5)
