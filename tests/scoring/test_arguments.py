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
    (TargetLoadPacking, {"target_utilization": 0}, "target_utilization: must be from 1 to 100, got 0"),
    (TargetLoadPacking, {"target_utilization": 40.5}, "target_utilization: must be a whole number, got 40.5"),
    (TargetLoadPacking, {"default_requests": -1}, "default_requests: must be from 0 to"),
    (TargetLoadPacking, {"default_requests_multiplier": math.inf}, "default_requests_multiplier: must be finite"),
    (TargetLoadPacking, {"default_requests_multiplier": 1e300}, "default_requests_multiplier: must be from 0 to 1,000"),
    (TargetLoadPacking, {"resource": "tape"}, "resource: 'tape' has no measured load; known: cpu, memory"),
    (TargetLoadPacking, {"predict_from": "request"}, "predict_from: must be one of 'limits', 'requests', got 'r"),
    (TargetLoadPacking, {"percentile": "p95"}, "percentile: must be one of '', 'P90', 'P95', 'P99', 'MAX', got 'p95'"),
    (TargetLoadPacking, {"count_recent_pods": 1}, "count_recent_pods: must be true or false, got 1"),
    (TargetLoadPacking, {"parts": ((PACK_GPU, 101),)}, r"parts[0][1]: must be from 1 to 100, got 101"),
    (TargetLoadPacking, {"parts": ((PACK_GPU,),)}, r"parts[0]: must have 2 elements"),
    (TargetLoadPacking, {"parts": ((PACK_GPU, 1), (PACK_GPU, 2))}, r"parts[1]: nvidia.com/gpu is listed twice"),
    (
        TargetLoadPacking,
        {"parts": ((TargetLoadPacking(parts=((PACK_GPU, 1),)), 1),)},
        r"parts[0]: must not have parts of its own",
    ),
    (LoadVariationRiskBalancing, {"safe_variance_margin": NAN}, "safe_variance_margin: must be finite, got nan"),
    (LoadVariationRiskBalancing, {"safe_variance_sensitivity": -1}, "sensitivity: must be at least 0, got -1"),
    (LoadVariationRiskBalancing, {"formula": "KEP"}, "formula: must be one of 'trimaran', 'kep', got 'KEP'"),
    (LoadVariationRiskBalancing, {"balance": "foo"}, "balance: must be one of 'risk', 'load', 'variability', 'rel"),
    (LoadVariationRiskBalancing, {"percentile": "MAX"}, "percentile: must be one of '', 'P90', 'P95', 'P99', got"),
    (LoadVariationRiskBalancing, {"resources": ()}, "resources: must not be empty"),
    (LoadVariationRiskBalancing, {"resources": [CPU_LOAD]}, "resources: must be a tuple, got [Measured"),
    (LoadVariationRiskBalancing, {"resources": ("cpu",)}, r"resources[0]: must be a MeasuredResource, got 'cpu'"),
    (LowRiskOverCommitment, {"smoothing_window_size": 0}, "smoothing_window_size: must be at least 1, got 0"),
    (LowRiskOverCommitment, {"risk_limit_weights": {"cpu": 1.5}}, "risk_limit_weights.cpu: must be from 0 to 1, got"),
    (LowRiskOverCommitment, {"risk_limit_weights": [0.5]}, "risk_limit_weights: must be a mapping"),
    (LowRiskOverCommitment, {"distribution": "beta"}, "distribution: must be one of 'fitted', 'measured'"),
    (LowRiskOverCommitment, {"resources": (CPU_LOAD, CPU_LOAD)}, r"resources[1]: cpu is listed twice"),
    (CongestionCost, {"learnt": 2}, "learnt: must be from 0 to 1, got 2"),
    (CongestionCost, {"crowding": 0}, "crowding: must be from 1 to 1,000, got 0"),
    (CongestionCost, {"stranding": 0.5}, "stranding: must be from 1 to 1,000, got 0.5"),
    (CongestionCost, {"levels": None}, "levels: must be a UseLevels, got None"),
    (CongestedResource, {"resource": CPU_LOAD, "target": 101, "power": 8}, "target: must be above 0 and at most 100"),
    (CongestedResource, {"resource": CPU_LOAD, "target": 75, "power": 65}, "power: must be from 1 to 64, got 65"),
    (MeasuredResource, {"name": "cpu", "metric_type": "CPU", "scale": 0}, "scale: must be above 0, got 0"),
    (Peaks, {"missing": "Best"}, "missing: must be one of 'best', 'worst', got 'Best'"),
    (Peaks, {"node_power_model": {"n1": (1, 2, 3)}}, "node_power_model.n1: must be a PowerModel, got (1, 2, 3)"),
    (PowerModel, {"k1": NAN}, "k1: must be finite, got nan"),
    (PowerModel, {"k1": 10**400}, "k1: must be finite, got 1000"),
    (NodeResourcesFit, {"strategy": "Balanced"}, "strategy: must be one of 'LeastAllocated', 'MostAllocated', 'Req"),
    (NodeResourcesFit, {"resources": ()}, "resources: must not be empty"),
    (NodeResourcesFit, {"resources": (CPU, ResourceWeight("memory", 101))}, r"resources[1].weight: must be from 1 to"),
    (NodeResourcesFit, {"shape": ()}, "shape: must not be empty"),
    (
        NodeResourcesFit,
        {"shape": (ShapePoint(50, 1), ShapePoint(50, 2))},
        r"shape[1].utilization: must be above that of the point before, got 50",
    ),
    (ShapePoint, {"utilization": 101, "score": 0}, "utilization: must be from 0 to 100, got 101"),
    (ShapePoint, {"utilization": 0, "score": 11}, "score: must be from 0 to 10, got 11"),
    (ResourceWeight, {"name": "cpu", "weight": 0}, "weight: must be at least 1, got 0"),
    (ResourceWeight, {"name": ""}, "name: must not be empty"),
    (NodeResourcesBalancedAllocation, {"resources": (CPU, CPU)}, r"resources[1]: cpu is listed twice"),
    (NodeResourcesBalancedAllocation, {"resources": (ResourceWeight("cpu", 2),)}, "[0].weight: must be 1, got 2"),
    (NodeResourcesAllocatable, {"mode": "least"}, "mode: must be one of 'Least', 'Most', got 'least'"),
    (WeightedPlugin, {"plugin": NodeResourcesFit(), "weight": -1}, "weight: must be from 1 to 2,147,483,647, got -1"),
    (WeightedPlugin, {"plugin": NodeResourcesFit(), "weight": 2**31}, "weight: must be from 1 to 2,147,483,647"),
    (WeightedPlugin, {"plugin": "Peaks"}, "plugin: must be a ScorePlugin, got 'Peaks'"),
    (Profile, {"plugins": (NodeResourcesFit(),)}, r"plugins[0]: must be a WeightedPlugin, got NodeResourcesFit("),
    (FallbackPolicy, {"bad_ratio": 5}, "bad_ratio: must be from 0 to 1, got 5"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "message"), INVALID)
def test_constructors_refuse_invalid_arguments(kind, arguments, message):
    """The error names the class and the argument, the valid values and the value."""
    with pytest.raises(ArgumentError) as refused:
        kind(**arguments)
    assert str(refused.value).startswith(f"{kind.__name__}.")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("plugin", "arguments", "message"),
    [
        ("TargetLoadPacking", {"percentile": "p95"}, "percentile: must be one of '', 'P90', 'P95', 'P99', 'MAX', got"),
        ("TargetLoadPacking", {"resource": "tape"}, "resource: 'tape' has no measured load; known: cpu, memory"),
        ("TargetLoadPacking", {"targetUtilization": 101}, "targetUtilization: must be from 1 to 100, got 101"),
        ("LoadVariationRiskBalancing", {"formula": "KEP"}, "formula: must be one of 'trimaran', 'kep', got 'KEP'"),
        ("LoadVariationRiskBalancing", {"safeVarianceMargin": NAN}, "safeVarianceMargin: must be finite, got nan"),
        (
            "LowRiskOverCommitment",
            {"riskLimitWeights": {"cpu": "x"}},
            "riskLimitWeights.cpu: must be a number, got 'x'",
        ),
        ("LowRiskOverCommitment", {"resources": ["cpu", "cpu"]}, r"resources[1]: cpu is listed twice"),
        ("CongestionCost", {"resources": [{"name": "cpu", "power": 65}]}, r"resources[0].power: must be from 1 to 64"),
        ("Peaks", {"nodePowerModel": {"n1": {"k1": NAN}}}, "nodePowerModel.n1.k1: must be finite, got nan"),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
            r"scoringStrategy.resources[0].weight: must be from 1 to 100, got 101",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "LeastAllocatd"}},
            "scoringStrategy.type: must be one of 'LeastAllocated', 'MostAllocated', 'Req",
        ),
    ],
)
def test_the_configuration_reports_the_same_errors(plugin, arguments, message):
    """An error has the text of the constructor's, with the path of the key in the file."""
    with pytest.raises(ValueError, match="Args") as refused:
        plugin_from_config(plugin, arguments)
    assert str(refused.value).startswith(f"{plugin}Args.{message}")


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
    with pytest.raises(ArgumentError, match=r"UseLevels\.\w+\.cpu: must be finite numbers of at least 0"):
        UseLevels.of(**wrong)
