"""Plugins of a KubeSchedulerConfiguration at the extension points of the scheduler, and refused files."""

from typing import Any

import numpy as np
import pytest

from runtime.kubernetes.objects import Node, Pod
from scoring import NodeTable
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict, PluginResultError
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.profiles.configuration import read_setup


def document(**plugins: list[str]) -> dict[str, Any]:
    """Return a configuration with plugins enabled, by extension point."""
    enabled = {point: {"enabled": [{"name": name} for name in names]} for point, names in plugins.items()}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "ours", "plugins": enabled}],
    }


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ({"permit": ["Mine"]}, "Mine"),
        ({"permit": ["NodeResourcesAllocatable"]}, "permit: NodeResourcesAllocatable "),
        ({"filter": ["CongestionCost"], "score": ["CongestionCost"]}, "filter: CongestionCost "),
        ({"reserve": ["CongestionCost"], "score": ["CongestionCost"]}, "reserve: CongestionCost "),
        ({"permit": ["NodeName"]}, "permit: NodeName does not implement permit, only filter"),
        ({"multiPoint": ["Coscheduling"]}, "queueSort: PrioritySort and Coscheduling are both enabled"),
    ],
)
def test_a_plugin_that_cannot_run_there_is_refused(plugins: dict[str, list[str]], message: str) -> None:
    """An unknown plugin, a score at filter, and two plugins that order the queue are errors that name the key."""
    with pytest.raises(ValueError, match=r"^profiles\[0\]") as error:
        read_setup(document(**plugins))
    assert message in str(error.value)


def test_an_unknown_argument_is_refused() -> None:
    """A typo in an argument is an error that begins with its path, also of plugins that only filter or preempt."""
    typo = document(score=["CongestionCost"])
    typo["profiles"][0]["pluginConfig"] = [{"name": "CongestionCost", "args": {"exponents": 2}}]
    with pytest.raises(ValueError, match=r"^CongestionCostArgs\.exponents: "):
        read_setup(typo)
    preemption = {"name": "DefaultPreemption", "args": {"minCandidateNodesPercent": 2}}
    typo["profiles"][0]["pluginConfig"] = [{"name": "NodeName"}, preemption]
    known = r"did you mean minCandidateNodesPercentage\?"
    with pytest.raises(ValueError, match=rf"^profiles\[0\]\.pluginConfig\[1\]\.args\.minCandidate.*{known}"):
        read_setup(typo)


@pytest.mark.parametrize(("allow_with", "remedy"), [("--let ", " A plugin .* is accepted with --let Mine$"), ("", "$")])
def test_an_unknown_plugin_has_the_callers_way_out(allow_with: str, remedy: str) -> None:
    """The error about an unknown plugin names the option of the caller that allows it, if there is one."""
    with pytest.raises(ValueError, match=rf"'Mine'.*{remedy}"):
        read_setup(document(permit=["Mine"]), allow_with=allow_with)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (np.ones(1, np.bool_), ".* ndarray"),
        (FilterVerdict(np.ones(1, np.bool_), "why"), r"allowed .*\(2,\), got \(1,\)"),
    ],
    ids=["mask", "short"],
)
def test_a_wrong_result_of_a_filter_is_named(result: Any, problem: str) -> None:
    """A mask instead of a verdict, and a mask of another length, are errors with the plugin's name."""

    class Wrong(FilterPlugin):
        """Filter with the wrong result."""

        name = "Wrong"

        def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
            """Return the wrong result."""
            return result  # type: ignore[no-any-return]

    with pytest.raises(PluginResultError, match=rf"^Wrong\.filter: {problem}$"):
        run_filters([Wrong()], Pod("a"), NodeTable([Node("n"), Node("m")]))


def test_plugins_may_be_left_out_by_name() -> None:
    """A plugin that trimaran does not know is left out if the setting allows it."""
    profile = read_setup(document(filter=["Mine"], permit=["Mine"]), {"Mine"}).profiles[0]
    assert "Mine" not in {each.name for each in profile.filters}
    assert profile.permit == ()
