"""Sampling of feasible nodes, against kube-scheduler's loop written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.scheduler.feasibility import nodes_to_find, sample
from trimaran.scheduler.profile import sample_percent


@pytest.mark.parametrize(
    ("size", "percent", "wanted"),
    [(99, 5, 99), (100, 5, 100), (5000, 0, 500), (5000, 100, 5000), (1000, 0, 420), (10_000, 0, 500), (150, 30, 100)],
)
def test_numbers_of_nodes_to_find(size: int, percent: int, wanted: int) -> None:
    """The numbers are those of kube-scheduler's documentation of percentageOfNodesToScore."""
    assert nodes_to_find(size, percent) == wanted


@given(st.integers(1, 400), st.floats(0, 1), st.integers(0, 99), st.integers(0, 399), st.integers(0, 2**32))
def test_sample_is_the_loop_over_the_nodes(size: int, share: float, percent: int, start: int, seed: int) -> None:
    """The loop checks one node after the other until it has enough; the next one starts where it ended."""
    start %= size
    feasible = np.random.default_rng(seed).random(size) < share
    wanted, found, seen = nodes_to_find(size, percent), [], 0
    for step in range(size):
        if len(found) == wanted:
            break
        row = (start + step) % size
        seen += 1
        if feasible[row]:
            found.append(row)
    chosen, following = sample(feasible, percent, start)
    assert np.flatnonzero(chosen).tolist() == sorted(found)
    if len(found) < np.count_nonzero(feasible):
        assert following == (start + seen) % size


def test_a_profiles_percentage_takes_precedence() -> None:
    document = {"percentageOfNodesToScore": 30, "profiles": [{"percentageOfNodesToScore": 7}, {}]}
    assert [sample_percent(document, place) for place in range(2)] == [7, 30]
    assert sample_percent({}) == 100
    with pytest.raises(ValueError, match=r"profiles\[0\].percentageOfNodesToScore: must be from 0 to 100, got '5'"):
        sample_percent({"profiles": [{"percentageOfNodesToScore": "5"}]})
