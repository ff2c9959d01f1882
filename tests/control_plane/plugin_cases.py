"""Plugins of scheduler-plugins that are compared with the real ones: profile, scenarios and recorded outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control_plane import plugin_scenarios, quota_scenarios
from control_plane.manifests import Object
from control_plane.plugin_oracle import PluginScenario
from control_plane.plugin_scenarios import ALL_SCORES, profile

_DATA = Path(__file__).parents[1] / "data" / "plugins"


@dataclass(frozen=True)
class PluginCase:
    """Plugin with the scenarios in which it is compared.

    Attributes:
        name: name of the plugin, and of the file of its outcomes.
        profile: profile of the scheduler.
        draw: returns the scenario of a seed.
        resources: CustomResourceDefinitions of its objects.
        count: number of scenarios.
    """

    name: str
    profile: Object
    draw: Callable[[int], PluginScenario]
    resources: tuple[Object, ...] = ()
    count: int = 200

    @property
    def file(self) -> Path:
        """File of the recorded outcomes."""
        return _DATA / f"{self.name}.jsonl"


_ALL: Final = (
    PluginCase(
        "CapacityScheduling",
        profile("CapacityScheduling", "preFilter", "postFilter", "reserve", without={"postFilter": ["*"]}),
        quota_scenarios.draw,
        quota_scenarios.RESOURCES,
    ),
    PluginCase(
        "NodeResourcesAllocatable",
        profile("NodeResourcesAllocatable", "score", without=ALL_SCORES),
        plugin_scenarios.allocatable,
    ),
    PluginCase("PodState", profile("PodState", "score", without=ALL_SCORES), plugin_scenarios.pod_state),
    PluginCase("QOSSort", profile("QOSSort", "queueSort", without={"queueSort": ["*"]}), plugin_scenarios.qos_sort),
    PluginCase(
        "PreemptionToleration",
        profile("PreemptionToleration", "postFilter", without={"postFilter": ["*"]}),
        plugin_scenarios.toleration,
    ),
)
CASES: Final[Mapping[str, PluginCase]] = {case.name: case for case in _ALL}
"""Plugins by name."""
