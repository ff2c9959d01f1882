"""Catalogue of policies by name. Arguments are upstream's defaults unless stated otherwise."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.plugins import DEFAULT_PLUGIN
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization
from trimaran.simulator.policies.clairvoyant import Clairvoyant, Random
from trimaran.simulator.policies.oracle import Oracle
from trimaran.simulator.policies.profiles import KUBE_SCHEDULER, ProfilePolicy, extender_profile
from trimaran.simulator.policies.soft_taints import SoftTaints
from trimaran.simulator.policy import Policy
from trimaran.traces.trace import Trace

DEFAULT = "default"
CLAIRVOYANT = "clairvoyant"
ORACLE = "oracle"
CONGESTION = "congestion-cost"
RIGHT_SIZED = "right-sized"
CONGESTION_RIGHT_SIZED = "congestion-cost+right-sized"
CONGESTION_MOVES = "congestion-cost+moves"
CONGESTION_MORE_MOVES = "congestion-cost+more-moves"


class UniformPowerModels(Mapping[str, PowerModel]):
    """Mapping with the same power model for every node, including nodes that join later."""

    def __init__(self, model: PowerModel, names: tuple[str, ...]) -> None:
        self._model, self._names = model, names

    def __getitem__(self, name: str) -> PowerModel:
        return self._model

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def policies(trace: Trace | None) -> dict[str, Policy]:
    """Return all policies by name.

    Args:
        trace: the trace to replay, whose nodes get a power model for Peaks; None if only the names matter.
    """
    # The example in the documentation of Peaks: watts at x percent are k0 + k1 e^(k2 x).
    power = PowerModel(471.7412504314313, -91.50493019588365, -0.07186049052516228)
    profiles = {
        DEFAULT: KUBE_SCHEDULER,
        "most-allocated": Profile.of(NodeResourcesFit("MostAllocated"), NodeResourcesBalancedAllocation()),
        "target-load-packing": _by_extender(TargetLoadPacking.name),
        "load-variation-risk-balancing": _by_extender(LoadVariationRiskBalancing.name),
        "target-load-packing+load-variation-risk-balancing": _by_extender(
            TargetLoadPacking.name, LoadVariationRiskBalancing.name
        ),
        "peaks": _with_power(_by_extender(Peaks.name), UniformPowerModels(power, trace.nodes if trace else ())),
        "low-risk-over-commitment": _by_extender(LowRiskOverCommitment.name),
    }
    result: list[Policy] = [ProfilePolicy(name, profile) for name, profile in profiles.items()]
    result.append(ProfilePolicy(RIGHT_SIZED, profiles[DEFAULT], right_sized=True))
    congestion = _by_extender(DEFAULT_PLUGIN)
    result += [
        ProfilePolicy("congestion-cost-by-requests", congestion),
        ProfilePolicy(CONGESTION, congestion, learns=True),
        ProfilePolicy(CONGESTION_RIGHT_SIZED, congestion, learns=True, right_sized=True),
        ProfilePolicy(CONGESTION_MOVES, congestion, learns=True, move_policy=CostMovePolicy()),
        ProfilePolicy(CONGESTION_MORE_MOVES, congestion, learns=True, move_policy=CostMovePolicy(percent_per_hour=1.0)),
        ProfilePolicy("default+moves", profiles[DEFAULT], move_policy=CostMovePolicy()),
        ProfilePolicy("default+low-node-utilization", profiles[DEFAULT], move_policy=LowNodeUtilization()),
        SoftTaints("default+soft-taints", profiles[DEFAULT]),
        Random(),
        Clairvoyant(CLAIRVOYANT),
        Oracle(ORACLE),
    ]
    return {policy.name: policy for policy in result}


def configuration_of(*plugins: str) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration for the extender, with plugins of weight 1."""
    enabled = [{"name": plugin, "weight": 1} for plugin in plugins]
    profile = {"schedulerName": "default-scheduler", "plugins": {"score": {"enabled": enabled}}}
    version = "kubescheduler.config.k8s.io/v1"
    return {"apiVersion": version, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


def _by_extender(*plugins: str) -> Profile:
    """Return the profile of kube-scheduler with the extender, which scores by plugins with weight 1."""
    return extender_profile(configuration_of(*plugins))


def _with_power(profile: Profile, models: Mapping[str, PowerModel]) -> Profile:
    """Return a profile whose Peaks plugin has these power models."""

    def changed(weighted: WeightedPlugin) -> WeightedPlugin:
        if not isinstance(weighted.plugin, Peaks):
            return weighted
        return replace(weighted, plugin=replace(weighted.plugin, node_power_model=models))

    return replace(profile, plugins=tuple(map(changed, profile.plugins)))


def policy_names() -> list[str]:
    """Return the names of all policies."""
    return list(policies(None))
