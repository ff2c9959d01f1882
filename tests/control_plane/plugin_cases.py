"""Plugins of scheduler-plugins that are compared with the real ones: profile, scenarios and recorded outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from control_plane import gang_scenarios, network_scenarios, numa_scenarios, plugin_scenarios, quota_scenarios
from control_plane.cluster import ControlPlane
from control_plane.manifests import Object
from control_plane.plugin_oracle import Outcome, PluginScenario, decided, differences
from control_plane.plugin_scenarios import ALL_SCORES, profile

_DATA = Path(__file__).parents[1] / "data" / "plugins"
_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")


@dataclass(frozen=True)
class PluginCase:
    """Plugin with the scenarios in which it is compared.

    Attributes:
        name: name of the plugin, and of the file of its outcomes.
        profile: profile of the scheduler.
        draw: returns the scenario of a seed.
        resources: CustomResourceDefinitions of its objects.
        shared: objects that all scenarios share.
        count: number of scenarios.
        at_once: number of scenarios that share a cluster.
        undecided: seeds of scenarios that are left out, since most of them end otherwise from run to run, or since
            amounts wrap upstream.
    """

    name: str
    profile: Object
    draw: Callable[[int], PluginScenario]
    resources: tuple[Object, ...] = ()
    shared: tuple[Object, ...] = ()
    count: int = 200
    at_once: int = 200
    undecided: frozenset[int] = frozenset()

    def scenarios(self, step: int = 1) -> list[PluginScenario]:
        """Return every ``step``-th scenario."""
        return [self.draw(seed) for seed in range(0, self.count, step) if seed not in self.undecided]

    def decided(self, cluster: ControlPlane, scenarios: Sequence[PluginScenario]) -> dict[str, Outcome]:
        """Return what the real scheduler decides in some scenarios, by their names."""
        outcomes: dict[str, Outcome] = {}
        for begin in range(0, len(scenarios), self.at_once):
            some = scenarios[begin : begin + self.at_once]
            outcomes.update(decided(cluster, self.profile, some, self.resources, self.shared))
        return outcomes

    def differences(self, outcomes: Mapping[str, Outcome]) -> list[str]:
        """Return how our scheduler decides otherwise, a text for each scenario with a difference."""
        found = [
            differences(self.profile, self.draw(int(name[1:])), outcome, self.shared)
            for name, outcome in outcomes.items()
        ]
        return [each for each in found if each]

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
        at_once=25,
        # A pod is tried again before or after the nomination of another one is seen.
        undecided=frozenset({39, 48, 84, 126, 130, 138}),
    ),
    PluginCase(
        "NodeResourcesAllocatable",
        profile("NodeResourcesAllocatable", "score", without=ALL_SCORES),
        plugin_scenarios.allocatable,
    ),
    PluginCase("PodState", profile("PodState", "score", without=ALL_SCORES), plugin_scenarios.pod_state),
    PluginCase("QOSSort", profile("QOSSort", "queueSort", without={"queueSort": ["*"]}), plugin_scenarios.qos_sort),
    PluginCase(
        "Coscheduling",
        profile(
            "Coscheduling",
            "queueSort",
            "preFilter",
            "postFilter",
            "permit",
            "reserve",
            without={"queueSort": ["*"]},
        ),
        gang_scenarios.draw,
        gang_scenarios.RESOURCES,
        at_once=20,
    ),
    *(
        PluginCase(
            f"NodeResourceTopologyMatch-{strategy}",
            profile(
                "NodeResourceTopologyMatch",
                "filter",
                "score",
                args={"scoringStrategy": {"type": strategy}},
                without=ALL_SCORES,
            ),
            numa_scenarios.draw,
            numa_scenarios.RESOURCES,
            count=100,
        )
        for strategy in _STRATEGIES
    ),
    PluginCase(
        "NetworkOverhead",
        profile(
            "NetworkOverhead",
            "preFilter",
            "filter",
            "score",
            args={"networkTopologyName": network_scenarios.TOPOLOGY},
            without=ALL_SCORES,
        ),
        network_scenarios.overhead,
        network_scenarios.RESOURCES,
        (network_scenarios.topology(),),
    ),
    PluginCase(
        "TopologicalSort",
        profile("TopologicalSort", "queueSort", without={"queueSort": ["*"]}),
        network_scenarios.sort,
        network_scenarios.RESOURCES,
    ),
    PluginCase(
        "PreemptionToleration",
        profile("PreemptionToleration", "postFilter", without={"postFilter": ["*"]}),
        plugin_scenarios.toleration,
    ),
)
_ODD: Final[Mapping[str, Callable[[int], PluginScenario]]] = {
    "CapacityScheduling": quota_scenarios.odd,
    "Coscheduling": gang_scenarios.odd,
    **{f"NodeResourceTopologyMatch-{strategy}": numa_scenarios.odd for strategy in _STRATEGIES},
}
# A max above 64 bits wraps upstream, so that the quota refuses all pods; ours saturates. A score by amounts below 0 is
# out of range upstream, so that the pod fails; ours is 0.
_WRAPPED: Final = {
    "CapacityScheduling": frozenset({1, 5, 14, 28, 48}),
    "NodeResourceTopologyMatch-BalancedAllocation": frozenset({48, 83}),
}
_NONE: Final = frozenset[int]()
_ODD_CASES: Final = [
    replace(case, name=f"{case.name}-odd", draw=_ODD[case.name], count=100, undecided=_WRAPPED.get(case.name, _NONE))
    for case in _ALL
    if case.name in _ODD
]
CASES: Final[Mapping[str, PluginCase]] = {case.name: case for case in (*_ALL, *_ODD_CASES)}
"""Plugins by name."""
