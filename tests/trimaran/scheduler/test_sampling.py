"""Percentage of the nodes to score, of a file and of its profiles."""

import pytest

from trimaran.scheduler.framework.node_sampling import sample_percent


def test_a_profiles_percentage_takes_precedence() -> None:
    """A profile's own percentage replaces the file's."""
    document = {"percentageOfNodesToScore": 30, "profiles": [{"percentageOfNodesToScore": 7}, {}]}
    assert [sample_percent(document, place) for place in range(2)] == [7, 30]
    assert sample_percent({}) == 100
    assert sample_percent({"profiles": [{}]}, default=0) == 0
    with pytest.raises(ValueError, match=r"profiles\[0\].percentageOfNodesToScore: .*'5'"):
        sample_percent({"profiles": [{"percentageOfNodesToScore": "5"}]})
