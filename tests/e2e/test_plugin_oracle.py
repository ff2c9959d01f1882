"""The scheduler of scheduler-plugins: the recorded decisions of its plugins are still what it decides.

To record them again: ``TRIMARAN_RECORD=1 pytest -m e2e`` with this file. Ours are compared with them in
``tests/trimaran/scheduler/test_plugin_vectors.py``.
"""

import os
from collections.abc import Iterator

import pytest
from control_plane.cluster import ControlPlane
from control_plane.plugin_cases import CASES, PluginCase
from control_plane.plugin_oracle import ALL_RIGHTS, read_outcomes, write_outcomes

pytestmark = pytest.mark.e2e

_CHECKED = 20
_RECORDS = os.environ.get("TRIMARAN_RECORD") == "1"  # read on import, because tests run without the user's variables


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane in which the real scheduler may read everything."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(ALL_RIGHTS)
        yield cluster


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_our_plugin_decides_as_the_real_one(case: PluginCase, cluster: ControlPlane) -> None:
    """Some scenarios are decided as recorded, up to ties; with TRIMARAN_RECORD=1 all are recorded."""
    scenarios = case.scenarios(1 if _RECORDS else case.count // _CHECKED)
    outcomes = case.decided(cluster, scenarios)
    if _RECORDS:
        write_outcomes(case.file, outcomes)
    different = case.differences(outcomes)
    assert not different, f"{len(different)} of {len(scenarios)} differ: {different[:5]}"
    if not _RECORDS:
        recorded = read_outcomes(case.file)
        placed = [sum(map(bool, each.values())) for each in outcomes.values()]
        assert placed == [sum(map(bool, recorded[name].values())) for name in outcomes]
