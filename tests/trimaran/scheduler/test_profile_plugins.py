"""Plugins of a KubeSchedulerConfiguration at the extension points of the scheduler, and refused files."""

from typing import Any

import pytest

from trimaran.scheduler.configuration import read_setup


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
        ({"permit": ["NodeResourcesAllocatable"]}, "permit: NodeResourcesAllocatable is not implemented"),
        ({"filter": ["CongestionCost"], "score": ["CongestionCost"]}, "filter: CongestionCost does not filter nodes"),
        ({"multiPoint": ["Coscheduling"]}, "queueSort: PrioritySort and Coscheduling are both enabled"),
    ],
)
def test_a_plugin_that_cannot_run_there_is_refused(plugins: dict[str, list[str]], message: str) -> None:
    """An unknown plugin, a score at filter, and two plugins that order the queue are errors that name the key."""
    with pytest.raises(ValueError, match=r"^profiles\[0\]") as error:
        read_setup(document(**plugins))
    assert message in str(error.value)


def test_plugins_may_be_left_out_by_name() -> None:
    """A plugin that trimaran does not know is left out if the setting allows it."""
    profile = read_setup(document(filter=["Mine"], permit=["Mine"]), {"Mine"}).profiles[0]
    assert "Mine" not in {each.name for each in profile.filters}
    assert profile.permit == ()
