"""Settings that ``tuning.py`` tries: eight for each policy that has arguments, the shipped setting first.

``tuning_settings.json`` has the shipped arguments of each policy, then the changed arguments of each other setting. The
arguments of other systems are those that their documentation lists; the arguments of our policies are those of their
classes. The budget of moves is not tuned, because it is a limit. The weight of PodTopologySpread is not tuned, because
every measure was the same with the weights 1, 2 and 5 in two worlds (replayed traces).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rivals.crane import USAGE_METRICS, Crane
from rivals.koordinator import KoordinatorLoadAware
from rivals.volcano import VolcanoUsage

from runtime.kubernetes.objects import CPU, MEMORY
from scoring.load.measured_resource import CPU_LOAD
from scoring.plugins.congestion import CONGESTED_CPU_AND_MEMORY, CongestedResource
from scoring.plugins.congestion_cost import CongestionCost
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit, ResourceWeight
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.extender.profiles import DEFAULT_SCORE_FACTOR
from trimaran.planning.moves import MoveCosts
from trimaran.rebalancer.rules import MoveRules
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization
from trimaran.simulator.policies.catalogue import CONGESTION, DEFAULT, UniformPowerModels, policies
from trimaran.simulator.policies.profiles import KUBE_SCHEDULER, ProfilePolicy
from trimaran.simulator.policies.soft_taints import SoftTaints
from trimaran.simulator.policy import Policy
from trimaran.soft_taints.hysteresis import HotNodeRule
from trimaran.traces.trace import Trace

Arguments = Mapping[str, object]
FILE = Path(__file__).with_name("tuning_settings.json")


@dataclass(frozen=True)
class TunedPolicy:
    """Policy of the simulator, with the settings to try.

    Attributes:
        name: name of the policy.
        make: function that builds the policy from its name, a trace, and the arguments.
        shipped: arguments of the shipped setting.
        changes: for each setting, the arguments that differ from the shipped ones; the first setting is the shipped
            one, and empty.
    """

    name: str
    make: Callable[..., Policy]
    shipped: Arguments
    changes: tuple[Arguments, ...]

    def build(self, trace: Trace, change: Arguments) -> Policy:
        """Return the policy for a trace, with the shipped arguments but for those of ``change``."""
        return self.make(self.name, trace, **{**self.shipped, **change})


def kube_scheduler(name, _, *, cpu, memory, fit, balanced, strategy="LeastAllocated", right_sized=False):
    resources = (ResourceWeight(CPU, cpu), ResourceWeight(MEMORY, memory))
    weighted = (NodeResourcesFit(strategy, resources), fit), (NodeResourcesBalancedAllocation(), balanced)
    profile = Profile(tuple(WeightedPlugin(plugin, weight) for plugin, weight in weighted))
    return ProfilePolicy(name, profile, right_sized=right_sized)


def by_extender(name, trace, *plugins, weights=(1, 1)):
    """Return a policy of the simulator with other arguments and weights of the extender's plugins."""
    policy = policies(trace)[name]
    tuned = {
        plugin.name: WeightedPlugin(plugin, DEFAULT_SCORE_FACTOR * weight)
        for plugin, weight in zip(plugins, weights, strict=False)
    }
    changed = tuple(tuned.get(each.plugin.name, each) for each in policy.profile.plugins)
    return replace(policy, profile=replace(policy.profile, plugins=changed))


def one_plugin(name, trace, *, plugin, **arguments):
    if "count_recent_pods" in plugin.__dataclass_fields__:  # as the extender sets it
        arguments.setdefault("count_recent_pods", True)
    return by_extender(name, trace, plugin(**arguments))


def packing_and_variation(name, trace, *, target_utilization, safe_variance_margin, packing, variation):
    plugins = (
        TargetLoadPacking(target_utilization, count_recent_pods=True),
        LoadVariationRiskBalancing(safe_variance_margin, count_recent_pods=True),
    )
    return by_extender(name, trace, *plugins, weights=(packing, variation))


def peaks(name, trace, *, k1, k2, missing):
    model = PowerModel(471.7412504314313, k1, k2)  # the part that does not depend on use has no effect
    models = UniformPowerModels(model, trace.nodes)
    return one_plugin(name, trace, plugin=Peaks, node_power_model=models, missing=missing)


def low_risk(name, trace, *, risk_limit_weight, smoothing_window_size):
    weights = dict.fromkeys((CPU, MEMORY), risk_limit_weight)
    return one_plugin(
        name, trace, plugin=LowRiskOverCommitment, smoothing_window_size=smoothing_window_size,
        risk_limit_weights=weights,
    )  # fmt: skip


def koordinator(name, _, *, cpu_scaling, memory_scaling, cpu_threshold, memory_threshold):
    scaling, threshold = {CPU: cpu_scaling, MEMORY: memory_scaling}, {CPU: cpu_threshold, MEMORY: memory_threshold}
    return ProfilePolicy(name, Profile.of(KoordinatorLoadAware(scaling, threshold)))


def volcano(name, _, *, threshold_percent, weight):
    usage = WeightedPlugin(VolcanoUsage(threshold_percent), weight)
    return ProfilePolicy(name, Profile((*KUBE_SCHEDULER.plugins, usage)))


def crane(name, _, *, weight, weights, limits):
    rules = zip(USAGE_METRICS, weights, (*limits, float("inf")), strict=True)
    metrics = tuple(replace(usage, weight=part, limit=limit) for usage, part, limit in rules)
    return Crane(name, KUBE_SCHEDULER, weight=weight, metrics=metrics)


def congestion_cost(name, trace, *, cpu_target, cpu_power, memory_target, learnt, crowding):
    memory = replace(CONGESTED_CPU_AND_MEMORY[1], target=memory_target)
    plugin = CongestionCost((CongestedResource(CPU_LOAD, cpu_target, cpu_power), memory), learnt, crowding)
    return by_extender(name, trace, plugin)


def moves(name, trace, *, placement, percent_per_hour=0.1, cpu_target, history_minutes=1440, **arguments):
    cpu = replace(CONGESTED_CPU_AND_MEMORY[0], target=cpu_target)
    costs = {key: arguments.pop(key) for key in ("memory_target", "memory_power") if key in arguments}
    rules = MoveRules(history=60 * history_minutes, **arguments)
    moving = CostMovePolicy(percent_per_hour, costs=MoveCosts(cpu, **costs), rules=rules)
    return replace(policies(trace)[placement], name=name, move_policy=moving)


def low_node_utilization(name, _, **arguments):
    return ProfilePolicy(name, KUBE_SCHEDULER, move_policy=LowNodeUtilization(**arguments))


def soft_taints(name, _, **arguments):
    return SoftTaints(name, KUBE_SCHEDULER, rule=HotNodeRule(**arguments))


MAKERS: Mapping[str, Callable[..., Policy]] = {
    DEFAULT: kube_scheduler,
    "right-sized": partial(kube_scheduler, right_sized=True),
    "most-allocated": partial(kube_scheduler, strategy="MostAllocated"),
    "target-load-packing": partial(one_plugin, plugin=TargetLoadPacking),
    "load-variation-risk-balancing": partial(one_plugin, plugin=LoadVariationRiskBalancing),
    "target-load-packing+load-variation-risk-balancing": packing_and_variation,
    "peaks": peaks,
    "low-risk-over-commitment": low_risk,
    "koordinator": koordinator,
    "volcano": volcano,
    "crane": crane,
    "congestion-cost-by-requests": congestion_cost,
    CONGESTION: congestion_cost,
    "congestion-cost+moves": partial(moves, placement=CONGESTION),
    "congestion-cost+more-moves": partial(moves, placement=CONGESTION, percent_per_hour=1.0),
    "default+moves": partial(moves, placement=DEFAULT),
    "default+low-node-utilization": low_node_utilization,
    "default+soft-taints": soft_taints,
}


def read_settings() -> dict[str, TunedPolicy]:
    """Return the policies of ``tuning_settings.json`` with their settings, by name."""
    tuned = {}
    for name, settings in json.loads(FILE.read_text()).items():
        shipped, *others = (
            {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
            for arguments in settings
        )
        tuned[name] = TunedPolicy(name, MAKERS[name], shipped, ({}, *others))
    return tuned


TUNED_POLICIES = read_settings()
