"""What ``tuning.py`` tries: for each policy that has anything to set eight settings, the shipped one first.

Arguments are those that each system documents, and of ours those that are its classes' own. A budget of moves is none:
it is what is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from runtime.kubernetes.objects import CPU, MEMORY
from scoring.load.measured_resource import CPU_LOAD
from scoring.plugins.congestion_cost import CONGESTED_CPU_AND_MEMORY, CongestedResource, CongestionCost
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit, ResourceWeight
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.tail_risk import TailRisk
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization
from trimaran.simulator.policies.base import Policy
from trimaran.simulator.policies.catalogue import CONGESTION, DEFAULT, UniformPowerModels, policies
from trimaran.simulator.policies.crane import USAGE_METRICS, Crane
from trimaran.simulator.policies.koordinator import KoordinatorLoadAware
from trimaran.simulator.policies.profiles import KUBE_SCHEDULER, ProfilePolicy
from trimaran.simulator.policies.soft_taints import SoftTaints
from trimaran.simulator.policies.volcano import VolcanoUsage
from trimaran.soft_taints.hysteresis import HotNodeRule
from trimaran.traces.trace import Trace

Arguments = Mapping[str, object]


@dataclass(frozen=True)
class Tried:
    """The settings of one policy.

    Attributes:
        make: takes the policy's name, a trace and the arguments.
        shipped: the arguments as shipped.
        others: what is different in each of the other settings.
    """

    make: Callable[..., Policy]
    shipped: Arguments
    others: tuple[Arguments, ...]

    def settings(self) -> list[Arguments]:
        """Return what is different from the shipped setting in each, which is the first."""
        return [{}, *self.others]

    def policy(self, name: str, trace: Trace, different: Arguments) -> Policy:
        """Return the policy with a setting."""
        return self.make(name, trace, **{**self.shipped, **different})


def kube_scheduler(name, _, *, cpu, memory, fit, balanced, strategy="LeastAllocated", right_sized=False):
    resources = (ResourceWeight(CPU, cpu), ResourceWeight(MEMORY, memory))
    weighted = (NodeResourcesFit(strategy, resources), fit), (NodeResourcesBalancedAllocation(), balanced)
    profile = Profile(tuple(WeightedPlugin(plugin, weight) for plugin, weight in weighted))
    return ProfilePolicy(name, profile, right_sized=right_sized)


def one_plugin(name, _, *, plugin, **arguments):
    return ProfilePolicy(name, Profile.of(plugin(**arguments)))


def packing_and_variation(name, _, *, target_utilization, safe_variance_margin, packing, variation):
    plugins = (
        (TargetLoadPacking(target_utilization), packing),
        (LoadVariationRiskBalancing(safe_variance_margin), variation),
    )
    return ProfilePolicy(name, Profile(tuple(WeightedPlugin(plugin, weight) for plugin, weight in plugins)))


def peaks(name, trace, *, k1, k2, missing):
    model = PowerModel(471.7412504314313, k1, k2)  # what does not depend on use changes nothing
    return ProfilePolicy(name, Profile.of(Peaks(UniformPowerModels(model, trace.nodes), missing)))


def low_risk(name, _, *, risk_limit_weight, smoothing_window_size):
    weights = dict.fromkeys((CPU, MEMORY), risk_limit_weight)
    return ProfilePolicy(name, Profile.of(LowRiskOverCommitment(smoothing_window_size, weights)))


def koordinator(name, _, *, cpu_scaling, memory_scaling, cpu_threshold, memory_threshold):
    scaling, threshold = {CPU: cpu_scaling, MEMORY: memory_scaling}, {CPU: cpu_threshold, MEMORY: memory_threshold}
    return ProfilePolicy(name, Profile.of(KoordinatorLoadAware(scaling, threshold)))


def volcano(name, _, *, threshold_percent, weight):
    usage = WeightedPlugin(VolcanoUsage(threshold_percent), weight)
    return ProfilePolicy(name, Profile((*KUBE_SCHEDULER.plugins, usage)))


def crane(name, _, *, weight, weights, limits):
    of_each = zip(USAGE_METRICS, weights, (*limits, float("inf")), strict=True)
    metrics = tuple(replace(usage, weight=part, limit=limit) for usage, part, limit in of_each)
    return Crane(name, KUBE_SCHEDULER, weight=weight, metrics=metrics)


def congestion_cost(name, _, *, cpu_target, cpu_power, memory_target, learnt, crowding, learns=True):
    memory = replace(CONGESTED_CPU_AND_MEMORY[1], target=memory_target)
    plugin = CongestionCost((CongestedResource(CPU_LOAD, cpu_target, cpu_power), memory), learnt, crowding)
    return ProfilePolicy(name, Profile.of(plugin), spread=0, learns=learns)


def moves(name, trace, *, beside, percent_per_hour=0.1, cpu_target, **arguments):
    cpu = replace(CONGESTED_CPU_AND_MEMORY[0], target=cpu_target)
    return replace(
        policies(trace)[beside], name=name, move_policy=CostMovePolicy(percent_per_hour, cpu=cpu, **arguments)
    )


def low_node_utilization(name, _, **arguments):
    return ProfilePolicy(name, KUBE_SCHEDULER, move_policy=LowNodeUtilization(**arguments))


def soft_taints(name, _, **arguments):
    return SoftTaints(name, KUBE_SCHEDULER, rule=HotNodeRule(**arguments))


IN_TREE_SHIPPED = {"cpu": 1, "memory": 1, "fit": 1, "balanced": 1}
# The weight of PodTopologySpread is not among them: with 1, 2 and 5 every measure was the same in two worlds.
IN_TREE_OTHERS = (
    {"cpu": 2}, {"cpu": 4}, {"memory": 2}, {"fit": 3}, {"balanced": 3}, {"balanced": 6}, {"cpu": 4, "balanced": 3},
)  # fmt: skip
COST_SHIPPED = {"cpu_target": 75, "cpu_power": 8, "memory_target": 95, "learnt": 0.5, "crowding": 32}
MOVES_SHIPPED = {
    "cpu_target": 75, "memory_target": 0.87, "memory_power": 64, "last_hour_share": 0.75, "min_gain": 0.01,
    "history_minutes": 1440, "sampled_minutes": 5,
}  # fmt: skip
MOVES_OTHERS = (
    {"cpu_target": 80}, {"memory_target": 0.93}, {"last_hour_share": 0.5}, {"last_hour_share": 1.0},
    {"min_gain": 0.003}, {"min_gain": 0.03}, {"history_minutes": 720},
)  # fmt: skip

TRIED = {
    DEFAULT: Tried(kube_scheduler, IN_TREE_SHIPPED, IN_TREE_OTHERS),
    "right-sized": Tried(partial(kube_scheduler, right_sized=True), IN_TREE_SHIPPED, IN_TREE_OTHERS),
    "most-allocated": Tried(partial(kube_scheduler, strategy="MostAllocated"), IN_TREE_SHIPPED, IN_TREE_OTHERS),
    "target-load-packing": Tried(
        partial(one_plugin, plugin=TargetLoadPacking),
        {"target_utilization": 40, "default_requests_multiplier": 1.5, "predict_from": "limits"},
        (
            {"target_utilization": 30}, {"target_utilization": 50}, {"target_utilization": 60},
            {"target_utilization": 70}, {"default_requests_multiplier": 1.0},
            {"predict_from": "requests", "default_requests_multiplier": 0.5},
            {"predict_from": "requests", "default_requests_multiplier": 0.5, "target_utilization": 60},
        ),
    ),
    "load-variation-risk-balancing": Tried(
        partial(one_plugin, plugin=LoadVariationRiskBalancing),
        {"safe_variance_margin": 1.0, "safe_variance_sensitivity": 1.0, "count_recent_pods": False},
        (
            {"safe_variance_margin": 0.0}, {"safe_variance_margin": 2.0}, {"safe_variance_margin": 4.0},
            {"safe_variance_sensitivity": 0.5}, {"safe_variance_sensitivity": 2.0}, {"count_recent_pods": True},
            {"count_recent_pods": True, "safe_variance_margin": 2.0},
        ),
    ),
    "target-load-packing+load-variation-risk-balancing": Tried(
        packing_and_variation,
        {"target_utilization": 40, "safe_variance_margin": 1.0, "packing": 1, "variation": 1},
        (
            {"target_utilization": 30}, {"target_utilization": 50}, {"target_utilization": 60},
            {"target_utilization": 70}, {"safe_variance_margin": 2.0}, {"packing": 2}, {"variation": 2},
        ),
    ),
    "peaks": Tried(
        peaks,
        {"k1": -91.50493019588365, "k2": -0.07186049052516228, "missing": "best"},
        (
            {"missing": "worst"}, {"k2": -0.15}, {"k2": -0.03}, {"k1": 10.0, "k2": 0.01}, {"k1": 10.0, "k2": 0.02},
            {"k1": 10.0, "k2": 0.05}, {"k1": 10.0, "k2": 0.05, "missing": "worst"},
        ),
    ),
    "low-risk-over-commitment": Tried(
        low_risk,
        {"risk_limit_weight": 0.5, "smoothing_window_size": 5},
        (
            {"risk_limit_weight": 0.0}, {"risk_limit_weight": 0.25}, {"risk_limit_weight": 0.75},
            {"risk_limit_weight": 1.0}, {"smoothing_window_size": 1},
            {"risk_limit_weight": 0.25, "smoothing_window_size": 1},
            {"risk_limit_weight": 0.75, "smoothing_window_size": 1},
        ),
    ),
    "tail-risk": Tried(
        partial(one_plugin, plugin=TailRisk),
        {"target": 100.0, "smoothing_window_size": 5, "count_recent_pods": False},
        (
            {"target": 90.0}, {"target": 80.0}, {"target": 70.0}, {"target": 60.0}, {"smoothing_window_size": 1},
            {"count_recent_pods": True}, {"count_recent_pods": True, "target": 80.0},
        ),
    ),
    "koordinator": Tried(
        koordinator,
        {"cpu_scaling": 85, "memory_scaling": 70, "cpu_threshold": 65, "memory_threshold": 95},
        (
            {"cpu_scaling": 50}, {"cpu_scaling": 70}, {"cpu_scaling": 100}, {"memory_scaling": 100},
            {"cpu_threshold": 75}, {"cpu_threshold": 85}, {"cpu_scaling": 50, "cpu_threshold": 75},
        ),
    ),
    "volcano": Tried(
        volcano,
        {"threshold_percent": 80.0, "weight": 5},
        (
            {"weight": 1}, {"weight": 2}, {"weight": 10}, {"weight": 20}, {"threshold_percent": 70.0},
            {"threshold_percent": 90.0}, {"threshold_percent": 70.0, "weight": 10},
        ),
    ),
    "crane": Tried(
        crane,
        {"weight": 3, "weights": (0.2, 0.3, 0.5), "limits": (0.65, 0.75)},
        (
            {"weight": 1}, {"weight": 6}, {"weight": 12}, {"weights": (0.5, 0.3, 0.2)},
            {"weights": (0.5, 0.3, 0.2), "weight": 6}, {"limits": (0.55, 0.65)}, {"limits": (0.75, 0.85)},
        ),
    ),
    "congestion-cost-by-requests": Tried(
        partial(congestion_cost, learns=False),
        COST_SHIPPED,
        (
            {"cpu_target": 70}, {"cpu_target": 80}, {"cpu_power": 4}, {"cpu_power": 16}, {"memory_target": 85},
            {"crowding": 8}, {"crowding": 128},
        ),
    ),
    CONGESTION: Tried(
        congestion_cost,
        COST_SHIPPED,
        (
            {"cpu_target": 70}, {"cpu_target": 80}, {"cpu_target": 85}, {"learnt": 0.25}, {"learnt": 0.75},
            {"crowding": 8}, {"crowding": 128},
        ),
    ),
    "congestion-cost+moves": Tried(partial(moves, beside=CONGESTION), MOVES_SHIPPED, MOVES_OTHERS),
    "congestion-cost+more-moves": Tried(
        partial(moves, beside=CONGESTION, percent_per_hour=1.0), MOVES_SHIPPED, MOVES_OTHERS
    ),
    "default+moves": Tried(partial(moves, beside=DEFAULT), MOVES_SHIPPED, MOVES_OTHERS),
    "default+low-node-utilization": Tried(
        low_node_utilization,
        {"threshold_percent": 50, "target_percent": 79, "node_limit": 2},
        (
            {"threshold_percent": 40}, {"threshold_percent": 60}, {"target_percent": 69}, {"target_percent": 89},
            {"node_limit": 1}, {"node_limit": 5}, {"threshold_percent": 60, "target_percent": 69},
        ),
    ),
    "default+soft-taints": Tried(
        soft_taints,
        {"hot_percent": 80.0, "cool_percent": 70.0, "min_hot_seconds": 300.0, "max_hot_fraction": 0.25},
        (
            {"hot_percent": 90.0, "cool_percent": 80.0}, {"hot_percent": 70.0, "cool_percent": 60.0},
            {"hot_percent": 60.0, "cool_percent": 50.0}, {"cool_percent": 50.0}, {"min_hot_seconds": 1800.0},
            {"max_hot_fraction": 0.5}, {"hot_percent": 70.0, "cool_percent": 60.0, "max_hot_fraction": 0.5},
        ),
    ),
}  # fmt: skip
