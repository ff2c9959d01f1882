"""Arguments of plugins and profiles: a constructor and the configuration refuse the same values with the same text."""

import dataclasses
import math
import pkgutil
from importlib import import_module

import pytest

import scoring
from scoring import (
    CongestionCost,
    FallbackPolicy,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    NodeResourcesAllocatable,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    Peaks,
    PowerModel,
    Profile,
    TargetLoadPacking,
    UseLevels,
    WeightedPlugin,
    plugin_from_config,
)
from scoring.arguments import ArgumentError
from scoring.load.measured_resource import CPU_LOAD, MeasuredResource
from scoring.plugins.congestion import CongestedResource
from scoring.plugins.node_resources_fit import ResourceWeight, ShapePoint

NAN = math.nan
CPU = ResourceWeight("cpu")
PACK_GPU = TargetLoadPacking(resource="nvidia.com/gpu")
INVALID = [
    (TargetLoadPacking, {"target_utilization": 0}, "target_utilization"),
    (TargetLoadPacking, {"target_utilization": 40.5}, "target_utilization"),
    (TargetLoadPacking, {"default_requests": -1}, "default_requests"),
    (TargetLoadPacking, {"default_requests_multiplier": math.inf}, "default_requests_multiplier"),
    (TargetLoadPacking, {"default_requests_multiplier": 1e300}, "default_requests_multiplier"),
    (TargetLoadPacking, {"resource": "tape"}, "resource"),
    (TargetLoadPacking, {"predict_from": "request"}, "predict_from"),
    (TargetLoadPacking, {"percentile": "p95"}, "percentile"),
    (TargetLoadPacking, {"count_recent_pods": 1}, "count_recent_pods"),
    (TargetLoadPacking, {"parts": ((PACK_GPU, 101),)}, "parts[0][1]"),
    (TargetLoadPacking, {"parts": ((PACK_GPU,),)}, "parts[0]"),
    (TargetLoadPacking, {"parts": ((PACK_GPU, 1), (PACK_GPU, 2))}, "parts[1]"),
    (
        TargetLoadPacking,
        {"parts": ((TargetLoadPacking(parts=((PACK_GPU, 1),)), 1),)},
        "parts[0]",
    ),
    (LoadVariationRiskBalancing, {"safe_variance_margin": NAN}, "safe_variance_margin"),
    (LoadVariationRiskBalancing, {"safe_variance_sensitivity": -1}, "sensitivity"),
    (LoadVariationRiskBalancing, {"formula": "KEP"}, "formula"),
    (LoadVariationRiskBalancing, {"balance": "foo"}, "balance"),
    (LoadVariationRiskBalancing, {"percentile": "MAX"}, "percentile"),
    (LoadVariationRiskBalancing, {"resources": ()}, "resources"),
    (LoadVariationRiskBalancing, {"resources": [CPU_LOAD]}, "resources"),
    (LoadVariationRiskBalancing, {"resources": ("cpu",)}, "resources[0]"),
    (LowRiskOverCommitment, {"smoothing_window_size": 0}, "smoothing_window_size"),
    (LowRiskOverCommitment, {"risk_limit_weights": {"cpu": 1.5}}, "risk_limit_weights.cpu"),
    (LowRiskOverCommitment, {"risk_limit_weights": [0.5]}, "risk_limit_weights"),
    (LowRiskOverCommitment, {"distribution": "beta"}, "distribution"),
    (LowRiskOverCommitment, {"resources": (CPU_LOAD, CPU_LOAD)}, "resources[1]"),
    (CongestionCost, {"learnt": 2}, "learnt"),
    (CongestionCost, {"crowding": 0}, "crowding"),
    (CongestionCost, {"stranding": 0.5}, "stranding"),
    (CongestionCost, {"levels": None}, "levels"),
    (CongestedResource, {"resource": CPU_LOAD, "target": 101, "power": 8}, "target"),
    (CongestedResource, {"resource": CPU_LOAD, "target": 75, "power": 65}, "power"),
    (MeasuredResource, {"name": "cpu", "metric_type": "CPU", "scale": 0}, "scale"),
    (Peaks, {"missing": "Best"}, "missing"),
    (Peaks, {"node_power_model": {"n1": (1, 2, 3)}}, "node_power_model.n1"),
    (PowerModel, {"k1": NAN}, "k1"),
    (PowerModel, {"k1": 10**400}, "k1"),
    (NodeResourcesFit, {"strategy": "Balanced"}, "strategy"),
    (NodeResourcesFit, {"resources": ()}, "resources"),
    (NodeResourcesFit, {"resources": (CPU, ResourceWeight("memory", 101))}, "resources[1].weight"),
    (NodeResourcesFit, {"shape": ()}, "shape"),
    (
        NodeResourcesFit,
        {"shape": (ShapePoint(50, 1), ShapePoint(50, 2))},
        "shape[1].utilization",
    ),
    (ShapePoint, {"utilization": 101, "score": 0}, "utilization"),
    (ShapePoint, {"utilization": 0, "score": 11}, "score"),
    (ResourceWeight, {"name": "cpu", "weight": 0}, "weight"),
    (ResourceWeight, {"name": ""}, "name"),
    (NodeResourcesBalancedAllocation, {"resources": (CPU, CPU)}, "resources[1]"),
    (NodeResourcesBalancedAllocation, {"resources": (ResourceWeight("cpu", 2),)}, "[0].weight"),
    (NodeResourcesAllocatable, {"mode": "least"}, "mode"),
    (WeightedPlugin, {"plugin": NodeResourcesFit(), "weight": -1}, "weight"),
    (WeightedPlugin, {"plugin": NodeResourcesFit(), "weight": 2**31}, "weight"),
    (WeightedPlugin, {"plugin": "Peaks"}, "plugin"),
    (Profile, {"plugins": (NodeResourcesFit(),)}, "plugins[0]"),
    (FallbackPolicy, {"bad_ratio": 5}, "bad_ratio"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "message"), INVALID)
def test_constructors_refuse_invalid_arguments(kind, arguments, message):
    """The error names the class and the argument, the valid values and the value."""
    with pytest.raises(ArgumentError) as refused:
        kind(**arguments)
    assert str(refused.value).startswith(f"{kind.__name__}.")
    assert f"{message}:" in str(refused.value)


FIT, PACKING, BALANCED = "NodeResourcesFit", "TargetLoadPacking", "NodeResourcesBalancedAllocation"
ANYWAY = {"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}


def weight(number):
    return {"resources": [{"name": "cpu", "weight": number}]}


@pytest.mark.parametrize(
    ("plugin", "arguments", "message"),
    [
        (PACKING, {"percentile": "p95"}, "percentile: must be one of '', 'P90', 'P95', 'P99', 'MAX', got"),
        (PACKING, {"resource": "tape"}, "resource: 'tape' has no measured load; known: cpu, memory"),
        (PACKING, {"targetUtilization": 101}, "targetUtilization: must be from 1 to 100, got 101"),
        (PACKING, {"targetUtilization": 40.5}, "targetUtilization: must be a whole number, got 40.5"),
        (PACKING, {"targetUtilization": NAN}, "targetUtilization:"),
        (PACKING, {"defaultRequestsMultiplier": "NaN"}, "defaultRequestsMultiplier: must be finite"),
        (PACKING, {"defaultRequestsMultiplier": "-1"}, "defaultRequestsMultiplier: must be from 0 to 1,000, got -1"),
        (PACKING, {"defaultRequestsMultiplier": "x"}, "defaultRequestsMultiplier: must be a number in"),
        (PACKING, {"defaultRequests": {"cpu": "-1"}}, "defaultRequests.cpu: must not be negative"),
        (PACKING, {"defaultRequests": 5}, "defaultRequests: must be a mapping"),
        (PACKING, {"predictFrom": "hope"}, "predictFrom:"),
        ("LoadVariationRiskBalancing", {"formula": "KEP"}, "formula:"),
        ("LoadVariationRiskBalancing", {"safeVarianceMargin": NAN}, "safeVarianceMargin:"),
        ("LoadVariationRiskBalancing", {"safeVarianceSensitivity": True}, "safeVarianceSensitivity: must be a number"),
        ("LoadVariationRiskBalancing", {"resources": ["tape"]}, "resources[0]:"),
        ("LowRiskOverCommitment", {"riskLimitWeights": {"cpu": "x"}}, "riskLimitWeights.cpu: must be a number"),
        ("LowRiskOverCommitment", {"riskLimitWeights": {"cpu": NAN}}, "riskLimitWeights.cpu:"),
        ("LowRiskOverCommitment", {"riskLimitWeights": [1]}, "riskLimitWeights:"),
        ("LowRiskOverCommitment", {"resources": ["cpu", "cpu"]}, "resources[1]: cpu is listed twice"),
        ("CongestionCost", {"resources": [{"name": "cpu", "power": 65}]}, "resources[0].power:"),
        ("CongestionCost", {"resources": [{"name": "cpu", "target": 0}]}, "resources[0].target:"),
        ("CongestionCost", {"resources": [{"name": "pods"}]}, "resources[0].name: 'pods' has no measured load"),
        ("CongestionCost", {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "resources[1]: cpu is listed twice"),
        ("CongestionCost", {"learnt": 1.5}, "learnt: "),
        ("Peaks", {"nodePowerModel": {"n1": {"k1": NAN}}}, "nodePowerModel.n1.k1:"),
        (FIT, {"scoringStrategy": weight(101)}, "scoringStrategy.resources[0].weight:"),
        (FIT, {"scoringStrategy": weight(-1)}, "scoringStrategy.resources[0].weight: must be at least 1, got -1"),
        (FIT, {"scoringStrategy": {"type": "LeastAllocatd"}}, "scoringStrategy.type:"),
        (FIT, {"scoringStrategy": {"requestedToCapacityRatio": {"shape": [{}]}}}, "scoringStrategy.requestedToCapac"),
        (FIT, {"scoringStrategy": {"type": "RequestedToCapacityRatio"}}, "scoringStrategy.requestedToCapacityRatio:"),
        (BALANCED, {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "resources[1]:"),
        (BALANCED, weight(2), "resources[0].weight: must be 1, got 2"),
        ("NodeResourcesAllocatable", weight(0), "resources[0].weight:"),
        ("NodeResourcesAllocatable", weight(-5), "resources[0].weight:"),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight:"),
        ("PodTopologySpread", {"defaultConstraints": [{"maxSkew": 1, **ANYWAY}]}, "defaultingType: must be 'List'"),
        ("PodTopologySpread", {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0, **ANYWAY}]},
         "defaultConstraints[0].maxSkew:"),
        ("PodTopologySpread", {"defaultingType": "Any"}, "defaultingType:"),
    ],
)  # fmt: skip
def test_the_configuration_reports_the_same_errors(plugin, arguments, message):
    """An error has the text of the constructor's, with the path of the key in the file."""
    with pytest.raises(ValueError, match="Args") as refused:
        plugin_from_config(plugin, arguments)
    assert str(refused.value).startswith(f"{plugin}Args.{message}")


def test_arguments_that_are_no_mapping_are_refused():
    """The error names the plugin's arguments as a whole."""
    with pytest.raises(ValueError, match=r"^LowRiskOverCommitmentArgs: "):
        plugin_from_config("LowRiskOverCommitment", [])


def checked_classes():
    """Return every public dataclass of scoring with arguments for users to choose."""
    for module in pkgutil.iter_modules(import_module("scoring.plugins").__path__, "scoring.plugins."):
        import_module(module.name)
    chosen = (MeasuredResource, CongestedResource, PowerModel, ResourceWeight, ShapePoint, WeightedPlugin, Profile)
    plugins = [each for each in vars(scoring).values() if isinstance(each, type) and each.__module__ in PLUGIN_MODULES]
    return {each for each in (*plugins, *chosen, FallbackPolicy) if dataclasses.is_dataclass(each)} - {
        scoring.Explanation,
        scoring.FilterVerdict,
    }


PLUGIN_MODULES = {f"scoring.plugins.{module.name}" for module in pkgutil.iter_modules(scoring.plugins.__path__)}
VALID = {
    CongestedResource: CongestedResource(CPU_LOAD, 75, 8),
    MeasuredResource: CPU_LOAD,
    Profile: Profile(()),
    ResourceWeight: CPU,
    ShapePoint: ShapePoint(0, 0),
    WeightedPlugin: WeightedPlugin(NodeResourcesFit()),
}


@pytest.mark.parametrize("kind", sorted(checked_classes(), key=str))
def test_every_argument_is_checked(kind):
    """No argument of a plugin, and of what it consists of, accepts any object."""
    valid = VALID.get(kind) or kind()
    for field in dataclasses.fields(kind):
        with pytest.raises(ValueError, match=field.name.replace("_", "[_ ]").removeprefix("kubernetes[_ ]")):
            dataclasses.replace(valid, **{field.name: object()})


@pytest.mark.parametrize(
    "wrong", [{"default": {"cpu": NAN}}, {"default": {"cpu": -0.5}}, {"default_deviation": {"cpu": math.inf}}]
)
def test_levels_of_use_are_finite(wrong):
    """A level or deviation that is no finite number of at least 0 is refused, with its resource."""
    with pytest.raises(ArgumentError, match=r"UseLevels\.\w+\.cpu:"):
        UseLevels.of(**wrong)
