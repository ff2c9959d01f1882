"""Score plugins built from their arguments in a KubeSchedulerConfiguration.

The arguments are checked here. Defaults are the same as upstream's (sigs.k8s.io/scheduler-plugins). A value that could
lead to scores outside 0 to 100 is refused with the field's name. A note is recorded for every key. Some plugins have
options that upstream does not have; their docstrings say "our option". A stock kube-scheduler refuses a file with such
an option.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from runtime.kubernetes.objects import CPU, MEMORY, ResourceList
from scoring.kubernetes_version import LATEST_VERSION, known_version
from scoring.load.measured_resource import CPU_AND_MEMORY, MEASURED_RESOURCES, MeasuredResource
from scoring.plugins.base import ScorePlugin
from scoring.plugins.congestion_cost import CONGESTED_CPU_AND_MEMORY, CongestedResource, CongestionCost
from scoring.plugins.image_locality import ImageLocality
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import DEFAULT_RISK_LIMIT_WEIGHT, LowRiskOverCommitment
from scoring.plugins.node_resources_allocatable import NodeResourcesAllocatable
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import (
    EQUAL_CPU_AND_MEMORY,
    NodeResourcesFit,
    ResourceWeight,
    ShapePoint,
    Strategy,
)
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.pod_state import PodState
from scoring.plugins.tail_risk import TailRisk
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.configuration.fields import ConfigNote, FieldReader, is_list

_PERCENTILES = ("", "P90", "P95", "P99", "MAX")
_DEFAULT_REQUESTS = {CPU: TargetLoadPacking.default_requests, MEMORY: 200 * 1024 * 1024}
_WATCHER_KEYS = ("watcherAddress", "WatcherAddress", "metricProvider")
# Peaks' Go type has malformed tags, so kube-scheduler reads the second spelling; its documentation has the first.
_POWER_MODEL_KEYS = ("nodePowerModel", "NodePowerModel")
_RECENT_PODS_KEY = "countRecentPods"
_HIGHEST_POWER = 64
_HIGHEST_CROWDING = 1000
_FILTER_KEYS = ("ignoredResources", "ignoredResourceGroups")

# Plugin names from before kube-scheduler v1beta2, with the plugin and strategy that replaced them.
RENAMED: Mapping[str, tuple[str, Strategy]] = {
    "NodeResourcesLeastAllocated": (NodeResourcesFit.name, "LeastAllocated"),
    "NodeResourcesMostAllocated": (NodeResourcesFit.name, "MostAllocated"),
    "RequestedToCapacityRatio": (NodeResourcesFit.name, "RequestedToCapacityRatio"),
}


def plugin_from_config(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    notes: list[ConfigNote] | None = None,
    *,
    kubernetes_version: str = LATEST_VERSION,
) -> ScorePlugin:
    """Build a score plugin from its arguments.

    Args:
        name: name of the plugin, such as ``TargetLoadPacking``. Names that kube-scheduler used before v1beta2 are
            accepted, too.
        arguments: arguments of the plugin under their Kubernetes names; may include ``apiVersion`` and ``kind``.
        notes: list to which a note on each key is appended.
        kubernetes_version: Kubernetes version whose rules of scoring apply, such as ``1.36``.

    Raises:
        KeyError: no plugin has this name.
        ValueError: an argument is invalid, or the version is unknown. For an invalid argument the message starts with
            the path of its key.
    """
    read, rules = _READERS[name], known_version(kubernetes_version)
    reader = FieldReader(f"{name}Args", {} if arguments is None else arguments, [] if notes is None else notes)
    for key in ("apiVersion", "kind"):
        if reader.raw(key) is not None:
            reader.honored(key, None)
    for key in _WATCHER_KEYS:
        reader.ignored(key, "the source of metrics is a setting of the client")
    plugin = read(reader)
    reader.finish()
    if isinstance(plugin, NodeResourcesBalancedAllocation | ImageLocality):
        return replace(plugin, kubernetes_version=rules)
    return plugin


def _target_load_packing(reader: FieldReader) -> TargetLoadPacking:
    weights = _measured_weights(reader)
    if weights and reader.raw("resource") is not None:
        raise reader.error("resource", "must not be combined with resources")
    resource: str = reader.choice("resource", (CPU, MEMORY))
    plugin = TargetLoadPacking(
        target_utilization=reader.integer("targetUtilization", TargetLoadPacking.target_utilization, at_most=100),
        default_requests=_default_requests(reader, resource),
        default_requests_multiplier=_multiplier(reader),
        resource=resource,
        predict_from=reader.choice("predictFrom", ("limits", "requests")),
        percentile=reader.choice("percentile", _PERCENTILES),
        count_recent_pods=reader.flag(_RECENT_PODS_KEY),
    )
    parts = tuple(
        (replace(plugin, resource=part.name, default_requests=_default_requests(reader, part.name)), part.weight)
        for part in weights
    )
    return replace(plugin, parts=parts)


def _measured_weights(reader: FieldReader) -> tuple[ResourceWeight, ...]:
    weights = _weights(reader, (), at_most=100, twice=False)
    for index, weight in enumerate(weights):
        if weight.name not in MEASURED_RESOURCES:
            raise _not_measured(reader, f"resources[{index}].name", weight.name)
    return weights


def _default_requests(reader: FieldReader, resource: str) -> int:
    written = reader.raw("defaultRequests")
    if written is None:
        return _DEFAULT_REQUESTS.get(resource, 0)
    if not isinstance(written, Mapping):
        raise reader.error("defaultRequests", f"must be a mapping, got {written!r}")
    amounts = ResourceList.from_k8s(written, f"{reader.path}.defaultRequests")
    if resource not in amounts:
        return reader.changed("defaultRequests", 0, f"without {resource}, it counts as 0, as upstream")
    return reader.honored("defaultRequests", amounts[resource])


def _multiplier(reader: FieldReader) -> float:
    key = "defaultRequestsMultiplier"
    written = reader.raw(key)
    if written is None:
        return TargetLoadPacking.default_requests_multiplier
    try:
        value = float(written)
    except (TypeError, ValueError):
        raise reader.error(key, f"must be a number in quotes, got {written!r}") from None
    return reader.limited(key, value, TargetLoadPacking.default_requests_multiplier)


def _load_variation_risk_balancing(reader: FieldReader) -> LoadVariationRiskBalancing:
    default = LoadVariationRiskBalancing
    return LoadVariationRiskBalancing(
        safe_variance_margin=reader.number(
            "safeVarianceMargin", default.safe_variance_margin, negative_is_default=True
        ),
        safe_variance_sensitivity=reader.number(
            "safeVarianceSensitivity", default.safe_variance_sensitivity, negative_is_default=True
        ),
        resources=_resources(reader),
        formula=reader.choice("formula", ("trimaran", "kep")),
        balance=reader.choice("balance", ("risk", "load", "variability", "relative-variability")),
        percentile=reader.choice("percentile", ("", "P90", "P95", "P99")),
        count_recent_pods=reader.flag(_RECENT_PODS_KEY),
    )


def _low_risk_over_commitment(reader: FieldReader) -> LowRiskOverCommitment:
    return LowRiskOverCommitment(
        smoothing_window_size=reader.integer("smoothingWindowSize", LowRiskOverCommitment.smoothing_window_size),
        risk_limit_weights=_risk_limit_weights(reader),
        resources=_resources(reader),
        distribution=reader.choice("distribution", ("fitted", "measured")),
        count_recent_pods=reader.flag(_RECENT_PODS_KEY),
    )


def _risk_limit_weights(reader: FieldReader) -> Mapping[str, float]:
    default = DEFAULT_RISK_LIMIT_WEIGHT
    weights = {CPU: default, MEMORY: default}
    inner = reader.nested("riskLimitWeights")
    if inner is None:
        return weights
    reader.honored("riskLimitWeights", None)
    for resource in inner.fields:
        weight = inner.number(resource, default, negative_is_default=True)
        if weight > 1:
            inner.notes.pop()
            weight = inner.changed(resource, default, f"{weight:g} is above 1, {default:g} is used, as upstream")
        weights[resource] = weight
    return weights


def _resources(reader: FieldReader) -> tuple[MeasuredResource, ...]:
    names = reader.raw("resources")
    if names is None:
        return CPU_AND_MEMORY
    if not is_list(names) or not names:
        raise reader.error("resources", f"must be a list of resource names, got {names!r}")
    for name in names:
        if name not in MEASURED_RESOURCES:
            raise _not_measured(reader, "resources", name)
    return reader.honored("resources", tuple(MEASURED_RESOURCES[name] for name in names))


def _not_measured(reader: FieldReader, key: str, name: object) -> ValueError:
    return reader.error(key, f"{name!r} has no measured load; known: {', '.join(MEASURED_RESOURCES)}")


def _tail_risk(reader: FieldReader) -> TailRisk:
    target = reader.number("target", TailRisk.target)
    if not 0 < target <= 100:
        raise reader.error("target", f"must be above 0 and at most 100, got {target:g}")
    return TailRisk(
        target=target,
        smoothing_window_size=reader.integer("smoothingWindowSize", TailRisk.smoothing_window_size),
        distribution=reader.choice("distribution", ("fitted", "measured")),
        together=reader.choice("together", ("independent", "union")),
        resources=_resources(reader),
        count_recent_pods=reader.flag(_RECENT_PODS_KEY),
    )


def _congestion_cost(reader: FieldReader) -> CongestionCost:
    usual = CONGESTED_CPU_AND_MEMORY[0]
    by_name = {each.resource.name: each for each in CONGESTED_CPU_AND_MEMORY}
    resources: list[CongestedResource] = []
    for entry in reader.entries("resources"):
        name = entry.raw("name")
        if name not in MEASURED_RESOURCES:
            raise _not_measured(entry, "name", name)
        if any(name == other.resource.name for other in resources):
            raise entry.error("name", f"{name} is listed twice")
        entry.honored("name", name)
        default = by_name.get(name, usual)
        target, power = entry.number("target", default.target), entry.number("power", default.power)
        if not 0 < target <= 100:
            raise entry.error("target", f"must be above 0 and at most 100, got {target:g}")
        if not 1 <= power <= _HIGHEST_POWER:
            raise entry.error("power", f"must be from 1 to {_HIGHEST_POWER}, got {power:g}")
        resources.append(CongestedResource(MEASURED_RESOURCES[name], target, power))
        entry.finish()
    learnt = reader.number("learnt", CongestionCost.learnt)
    if learnt > 1:
        raise reader.error("learnt", f"must be at most 1, got {learnt:g}")
    crowding = reader.number("crowding", CongestionCost.crowding)
    if not 1 <= crowding <= _HIGHEST_CROWDING:
        raise reader.error("crowding", f"must be from 1 to {_HIGHEST_CROWDING}, got {crowding:g}")
    return CongestionCost(tuple(resources) or CONGESTED_CPU_AND_MEMORY, learnt, crowding)


def _peaks(reader: FieldReader) -> Peaks:
    models: dict[str, PowerModel] = {}
    for key in _POWER_MODEL_KEYS:
        nodes = reader.nested(key)
        if nodes is None:
            continue
        for node_name in nodes.fields:
            model = nodes.nested(node_name)
            if model is not None:
                models[node_name] = PowerModel(*(_finite(model, constant) for constant in ("k0", "k1", "k2")))
                model.finish()
        reader.honored(key, None)
    return Peaks(models, reader.choice("missing", ("best", "worst")), reader.flag(_RECENT_PODS_KEY))


def _finite(reader: FieldReader, key: str) -> float:
    value = reader.raw(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise reader.error(key, f"must be a finite number, got {value!r}")
    return reader.honored(key, float(value))


def _node_resources_fit(reader: FieldReader) -> NodeResourcesFit:
    for key in _FILTER_KEYS:
        reader.ignored(key, "it filters nodes and does not score them")
    strategy = reader.nested("scoringStrategy")
    if strategy is None:
        return NodeResourcesFit()
    reader.honored("scoringStrategy", None)
    kind: Strategy = strategy.choice("type", ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    resources = _weights(strategy, EQUAL_CPU_AND_MEMORY, at_most=100)
    ratio = strategy.nested("requestedToCapacityRatio")
    shape = NodeResourcesFit.shape
    if ratio is not None:
        strategy.honored("requestedToCapacityRatio", None)
        shape = _shape(ratio)
        ratio.finish()
    if ratio is not None and kind != "RequestedToCapacityRatio":
        raise strategy.error("requestedToCapacityRatio", f"must be absent for type {kind}")
    if ratio is None and kind == "RequestedToCapacityRatio":
        raise strategy.error("requestedToCapacityRatio", "is required for this type")
    strategy.finish()
    return NodeResourcesFit(kind, resources, shape)


def _renamed(strategy: Strategy) -> Callable[[FieldReader], NodeResourcesFit]:
    def read(reader: FieldReader) -> NodeResourcesFit:
        resources = _weights(reader, EQUAL_CPU_AND_MEMORY, at_most=100)
        if strategy != "RequestedToCapacityRatio":
            return NodeResourcesFit(strategy, resources)
        return NodeResourcesFit("RequestedToCapacityRatio", resources, _shape(reader))

    return read


def _balanced_allocation(reader: FieldReader) -> NodeResourcesBalancedAllocation:
    return NodeResourcesBalancedAllocation(_weights(reader, EQUAL_CPU_AND_MEMORY, at_most=1, twice=False))


def _allocatable(reader: FieldReader) -> NodeResourcesAllocatable:
    return NodeResourcesAllocatable(
        mode=reader.choice("mode", ("Least", "Most")), resources=_weights(reader, NodeResourcesAllocatable.resources)
    )


def _weights(
    reader: FieldReader, default: tuple[ResourceWeight, ...], *, at_most: int | None = None, twice: bool = True
) -> tuple[ResourceWeight, ...]:
    weights: list[ResourceWeight] = []
    for entry in reader.entries("resources"):
        name = entry.raw("name")
        if not isinstance(name, str) or not name:
            raise entry.error("name", f"must be a resource's name, got {name!r}")
        if any(name == other.name for other in weights) and not twice:
            raise entry.error("name", f"{name} is listed twice")
        if at_most is None and entry.raw("weight") == 0:
            raise entry.error("weight", "must be above 0, got 0")
        weight = entry.integer("weight", 1, at_most=at_most, negative_is_default=False)
        weights.append(ResourceWeight(name, weight))
        entry.honored("name", name)
        entry.finish()
    return tuple(weights) or default


def _shape(reader: FieldReader) -> tuple[ShapePoint, ...]:
    points: list[ShapePoint] = []
    for entry in reader.entries("shape"):
        utilization, score = entry.number("utilization", 0), entry.number("score", 0)
        if utilization > 100 or utilization % 1 or (points and utilization <= points[-1].utilization):
            raise entry.error("utilization", f"must be whole, at most 100 and ascending, got {utilization:g}")
        if score > 10 or score % 1:
            raise entry.error("score", f"must be whole and at most 10, got {score:g}")
        points.append(ShapePoint(int(utilization), int(score)))
        entry.finish()
    if not points:
        raise reader.error("shape", "must have at least one point")
    return tuple(points)


_READERS: Mapping[str, Callable[[FieldReader], ScorePlugin]] = {
    TargetLoadPacking.name: _target_load_packing,
    LoadVariationRiskBalancing.name: _load_variation_risk_balancing,
    LowRiskOverCommitment.name: _low_risk_over_commitment,
    Peaks.name: _peaks,
    TailRisk.name: _tail_risk,
    CongestionCost.name: _congestion_cost,
    NodeResourcesFit.name: _node_resources_fit,
    NodeResourcesBalancedAllocation.name: _balanced_allocation,
    ImageLocality.name: lambda _: ImageLocality(),
    NodeResourcesAllocatable.name: _allocatable,
    PodState.name: lambda _: PodState(),
    **{old: _renamed(strategy) for old, (_, strategy) in RENAMED.items()},
}
PLUGINS = frozenset(_READERS)
"""Names that :func:`plugin_from_config` accepts."""
