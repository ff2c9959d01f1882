"""Recorded decisions of scheduler-plugins' real scheduler: our plugins decide the same.

``tests/e2e/test_plugin_oracle.py`` records them; see ``tests/control_plane/plugin_oracle.py``.
"""

import pytest
from control_plane.plugin_cases import CASES, PluginCase
from control_plane.plugin_oracle import read_outcomes


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_our_plugin_decides_as_the_real_one(case: PluginCase) -> None:
    """In all recorded scenarios, the node of every pod is one that our scheduler chooses for some order of ties."""
    outcomes = read_outcomes(case.file)
    assert outcomes.keys() == {each.name for each in case.scenarios()}
    different = case.differences(outcomes)
    assert not different, f"{len(different)} differ: {different[:5]}"
