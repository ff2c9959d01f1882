"""How a node's level goes with the others': a made cluster of ten nodes that move together, one fetch a minute."""

from copy import deepcopy

import numpy as np
import pytest

from watcher.quality.cohort import Cohort, Deficits

NODES, HOUR = 10, 60
NAMES = [f"n{number}" for number in range(NODES)]


def loads(hours: float, jumps: float = 0.0, seed: int = 3) -> np.ndarray:
    """Return levels around 50 percent, (nodes, fetches), that rise and fall by day together, with noise of their own.

    Args:
        hours: how long.
        jumps: by how many percent a node falls, for two hours at a time, a few times a day.
        seed: of chance.
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
    """Return who was found, shape (fetches, nodes)."""
    return np.array([each.sudden | each.slow for each in judged])


@pytest.fixture(scope="module")
def of_thirty_hours() -> Cohort:
    """A cohort that has seen the first thirty hours of what ``loads(36)`` says, and found nothing."""
    cohort = Cohort()
    assert not found(judge(loads(36)[:, : 30 * HOUR], cohort)).any()
    return cohort


@pytest.fixture
def experienced(of_thirty_hours: Cohort) -> Cohort:
    """The same, for one test."""
    return deepcopy(of_thirty_hours)


def test_a_day_that_is_like_others_says_nothing() -> None:
    """Three days in which all nodes rise by 15 percent and fall again have no finding."""
    assert not found(judge(loads(72))).any()


@pytest.mark.parametrize("factor", [0.0, 0.01, 0.04, 0.32])
def test_a_factor_is_found_by_the_ramp_of_the_window(experienced: Cohort, factor: float) -> None:
    """A node whose source is scaled passes through all that lies between within 5 minutes, and is found within 10."""
    levels = loads(36)
    begin = 34 * HOUR
    ramp = np.minimum(np.arange(1, levels.shape[1] - begin + 1) / 5, 1)
    levels[4, begin:] *= 1 - ramp * (1 - factor)
    seen = found(judge(levels[:, 30 * HOUR :], experienced, 30 * HOUR))
    assert not seen[:, np.arange(NODES) != 4].any()
    assert not seen[: 4 * HOUR].any()
    assert seen[4 * HOUR + 10 :, 4].all(), "it is told as long as it lasts"


def test_a_drift_is_found_before_it_misleads_much(experienced: Cohort) -> None:
    """A node that falls to half in three hours is found before it is 20 points below what it is."""
    levels = loads(36)
    begin = 32 * HOUR
    true = levels[4, begin:].copy()
    levels[4, begin:] *= 1 - 0.5 * np.minimum(np.arange(4 * HOUR) / (3 * HOUR), 1)
    seen = found(judge(levels[:, 30 * HOUR :], experienced, 30 * HOUR))
    assert not seen[: 2 * HOUR].any()
    first = int(np.argmax(seen[2 * HOUR :, 4]))
    assert seen[2 * HOUR + first, 4]
    assert true[first] - levels[4, begin + first] < 20


def test_what_the_whole_cluster_does_is_no_ones_deficit(experienced: Cohort) -> None:
    """When all nodes fall to half at once, as when a batch ends, none is far from the others."""
    levels = loads(36)
    levels[:, 30 * HOUR :] *= 0.5
    assert not found(judge(levels[:, 30 * HOUR :], experienced, 30 * HOUR)).any()


def test_where_loads_jump_a_jump_says_nothing() -> None:
    """In a cluster whose nodes fall by 40 percent a few times a day, another such fall is found of no node."""
    levels = loads(120, jumps=40)
    assert found(judge(levels))[48 * HOUR :].mean() < 0.002


def test_one_node_that_jumps_hides_no_other() -> None:
    """Among steady nodes, one that falls by 80 percent every few hours for a week leaves another's fall to be found."""
    levels = loads(150)[:, ::5]  # a source of 5 minutes: fewer fetches
    times = np.arange(levels.shape[1])
    levels[7] = np.where(times % 60 < 12, 10, 90)
    levels[4, -24:] *= 0.3
    cohort = Cohort()
    seen = found([cohort.judge(1e9 + 300 * at, NAMES, levels[:, at]) for at in times])
    assert seen[-6:, 4].all()
    assert not np.delete(seen, [4, 7], axis=1).any()


def test_a_finding_ends_when_the_level_is_back() -> None:
    """What was found is over within half an hour of the node being as likely as before."""
    levels = loads(40)
    levels[4, 34 * HOUR : 36 * HOUR] *= 0.1
    seen = found(judge(levels))[:, 4]
    assert seen[35 * HOUR]
    assert not seen[36 * HOUR + 30 :].any()


def test_what_lasts_for_half_a_day_is_how_the_node_is() -> None:
    """A load that ended for good is told for 12 hours and no longer."""
    levels = loads(54)
    levels[4, 34 * HOUR :] *= 0.1
    seen = found(judge(levels))[:, 4]
    assert seen[45 * HOUR]
    assert not seen[47 * HOUR :].any()


def test_little_is_known_at_first() -> None:
    """Nothing is found in the first 8 hours, nor of fewer than five nodes."""
    levels = loads(36)
    levels[4, 4 * HOUR : 7 * HOUR] *= 0.01
    assert not found(judge(levels[:, : 7 * HOUR])).any()
    few = loads(36)
    few[4:] = np.nan
    few[2, 30 * HOUR :] *= 0.01
    assert not found(judge(few)).any()


def test_a_node_that_was_away_is_still_known() -> None:
    """A node that comes back after six hours is held against its own past of before."""
    levels = loads(40)
    cohort = Cohort()
    judge(levels[:, : 30 * HOUR], cohort)
    others = [name for name in NAMES if name != "n4"]
    for at in range(30 * HOUR, 36 * HOUR):
        cohort.judge(1e9 + 60 * at, others, np.delete(levels[:, at], 4))
    levels[4, 36 * HOUR :] *= 0.05
    assert found(judge(levels[:, 36 * HOUR :], cohort, 36 * HOUR))[20:, 4].all()
