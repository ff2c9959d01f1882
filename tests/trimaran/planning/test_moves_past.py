"""Expected past use of pods, compared with the same computed value by value."""

import numpy as np
import pytest

from trimaran.planning.moves.past import begin_with_course, expected_cpu, expected_memory

SERVICES = np.zeros(1, bool)


def test_hours_are_shifted_to_the_level_of_the_last_hour():
    """Each step keeps its distance to its hour's level, the mean of the lowest steps; that goes to the last hour's."""
    dice = np.random.default_rng(1)
    known = dice.uniform(0, 2, (20_000, 36))
    expected = expected_cpu(known, np.zeros(20_000, bool), 12, 0.75)
    for pod in (0, 8191, 8192, 19_999):
        hours = known[pod].reshape(3, 12)
        levels = [np.sort(hour)[:8].mean() for hour in hours]
        shifted = [hour + 0.75 * (levels[2] - level) for hour, level in zip(hours, levels, strict=True)]
        assert expected[pod] == pytest.approx(np.maximum(np.concatenate(shifted), 0))


def test_unknown_steps_of_a_service_have_its_mean():
    """A young service counts with its mean in the time before it; without any known step it counts as no use."""
    known = np.array([[np.nan, np.nan, 1.0, 3.0], [np.nan] * 4])
    assert expected_memory(known, np.zeros(2, bool)).tolist() == [[2, 2, 1, 3], [0] * 4]
    assert expected_cpu(known, np.zeros(2, bool), 12, 0.5).tolist() == [[2, 2, 1, 3], [0] * 4]


def test_unknown_steps_of_a_job_count_as_no_use():
    """A job will soon end, so that the time before its start says nothing."""
    known = np.array([[np.nan, 4.0]])
    assert expected_memory(known, ~SERVICES).tolist() == [[0, 4]]


def test_the_shift_does_not_go_below_zero():
    """An idle step of a busy past hour stays at 0 when the last hour is idle."""
    known = np.array([[0.0] + [4.0] * 11 + [0.0] * 12])
    assert expected_cpu(known, SERVICES, 12, 1.0).min() == 0


def test_half_precision_stays_half_precision():
    """A hundred thousand pods of float16 do not become float64."""
    known = np.ones((3, 24), np.float16)
    assert expected_cpu(known, np.zeros(3, bool), 12, 0.5).dtype == np.float16
    assert expected_memory(known, np.zeros(3, bool)).dtype == np.float16


def test_a_new_pod_begins_with_the_course_of_its_workload():
    """Steps before the first known one follow the course by the hour, scaled as if an hour of it were known, too."""
    cpu, memory = np.full((2, 36), np.nan), np.full((2, 12), np.nan)
    cpu[0, 24:], memory[0, 8:] = 4.0, 2.0
    courses = np.full((2, 2, 24), 1.0)
    courses[0, :, 22] = 3.0  # the newest step is the last one of hour 23, so the first hour is 21
    begin_with_course(cpu, memory, courses, newest_step=24 * 12 - 1)
    hour = 12 * 5 / 3  # of the course, whose mean is 5 / 3
    scale = (12 * 4.0 + hour) / (12 * 1.0 + hour)
    assert cpu[0] == pytest.approx([scale] * 12 + [3 * scale] * 12 + [4.0] * 12)
    assert cpu[1].tolist() == [1.0] * 12 + [3.0] * 12 + [1.0] * 12
    assert memory[0] == pytest.approx([(4 * 2 + 4) / (4 + 4)] * 8 + [2.0] * 4)


def test_an_unknown_course_leaves_a_new_pod_unknown():
    """Without a course nothing is filled, nor are gaps after the first known step."""
    cpu, memory = np.array([[np.nan, 1.0, np.nan]]), np.full((1, 1), np.nan)
    begin_with_course(cpu, memory, np.full((2, 1, 24), np.nan), 100)
    np.testing.assert_array_equal(cpu, [[np.nan, 1.0, np.nan]])
    begin_with_course(cpu, memory, np.ones((2, 1, 24)), 100)
    np.testing.assert_array_equal(cpu, [[1.0, 1.0, np.nan]])
