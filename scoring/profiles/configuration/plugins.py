"""Score plugins built from their arguments in a KubeSchedulerConfiguration.

The arguments are checked here. Defaults are the same as upstream's (sigs.k8s.io/scheduler-plugins). A value that could
lead to scores outside 0 to 100 is refused with the field's name. A note is recorded for every key. Some plugins have
options that upstream does not have; their docstrings say "our option". A stock kube-scheduler refuses a file with such
an option.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any

from runtime.errors import quoted
from runtime.kubernetes.constraints import read_required_terms
from runtime.kubernetes.objects import CPU, MEMORY, ResourceList
from runtime.kubernetes.scheduling_rules import SpreadConstraint, read_preferred_node_terms, read_spread_constraint
from scoring.arguments import Between
from scoring.kubernetes_version import LATEST_VERSION, ignores_arguments, in_tree_plugins, known_version
from scoring.load.measured_resource import CPU_AND_MEMORY, MEASURED_RESOURCES, MeasuredResource, measured
from scoring.plugins.base import Plugin, ScorePlugin
from scoring.plugins.congestion import CONGESTED_CPU_AND_MEMORY, CongestedResource
from scoring.plugins.congestion_cost import CongestionCost
from scoring.plugins.image_locality import ImageLocality
from scoring.plugins.inter_pod_affinity import InterPodAffinity
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import DEFAULT_RISK_LIMIT_WEIGHT, LowRiskOverCommitment
from scoring.plugins.node_affinity import NodeAffinity
from scoring.plugins.node_resources_allocatable import NodeResourcesAllocatable
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import (
    EQUAL_CPU_AND_MEMORY,
    DistinctWeights,
    NodeResourcesFit,
    ResourceWeight,
    ShapePoint,
    Strategy,
)
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.pod_state import PodState
from scoring.plugins.pod_topology_spread import PodTopologySpread
from scoring.plugins.taint_toleration import TaintToleration
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.configuration.fields import ConfigNote, FieldReader, did_you_mean, is_list
from scoring.profiles.configuration.installed import WATCHER_KEYS, reader_of

_DEFAULT_REQUESTS = {CPU: TargetLoadPacking.default_requests, MEMORY: 200 * 1024 * 1024}
# Peaks' Go type has malformed tags, so kube-scheduler reads the second spelling; its documentation has the first.
_POWER_MODEL_KEYS = ("nodePowerModel", "NodePowerModel")
_RECENT_PODS_KEY = "countRecentPods"
_AT_LEAST_0, _AT_LEAST_1 = Between(0), Between(1)
_FILTER_KEYS = {"ignoredResources": "ignored_resources", "ignoredResourceGroups": "ignored_resource_groups"}

# Plugin names from before kube-scheduler v1beta2, with the plugin and strategy that replaced them.
RENAMED: Mapping[str, tuple[str, Strategy]] = {
    "NodeResourcesLeastAllocated": (NodeResourcesFit.name, "LeastAllocated"),
    "NodeResourcesMostAllocated": (NodeResourcesFit.name, "MostAllocated"),
    "RequestedToCapacityRatio": (NodeResourcesFit.name, "RequestedToCapacityRatio"),
}

# Plugins of sigs.k8s.io/scheduler-plugins: cmd/scheduler/main.go, and those that are only in its folders or its KEPs.
UPSTREAM_PLUGINS = frozenset({
    "CapacityScheduling", "Coscheduling", "CrossNodePreemption", "LoadVariationRiskBalancing", "LowRiskOverCommitment",
    "NetworkOverhead", "NodeDiskIO", "NodeMetadata", "NodeResourceTopologyMatch", "NodeResourcesAllocatable", "Peaks",
    "PodState", "PreemptionToleration", "QOSSort", "SySched", "TargetLoadPacking", "TopologicalSort",
})  # fmt: skip
_OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    TargetLoadPacking.name: ("resources", "resource", "predictFrom", "percentile", _RECENT_PODS_KEY),
    LoadVariationRiskBalancing.name: ("resources", "formula", "balance", "percentile", _RECENT_PODS_KEY),
    LowRiskOverCommitment.name: ("resources", "distribution", _RECENT_PODS_KEY),
    Peaks.name: ("missing", _RECENT_PODS_KEY),
}
OWN_OPTIONS = frozenset(f"{name}Args.{key}" for name, keys in _OWN_KEYS.items() for key in keys)
"""Paths of our options: upstream's plugins do not have these arguments, so upstream's scheduler refuses them."""


def plugin_from_config(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    notes: list[ConfigNote] | None = None,
    *,
    kubernetes_version: str = LATEST_VERSION,
    plugins: Collection[type[Plugin]] = (),
) -> ScorePlugin:
    """Build a score plugin from its arguments.

    Args:
        name: name of the plugin, such as ``TargetLoadPacking``. Names that kube-scheduler used before v1beta2 are
            accepted, too.
        arguments: arguments of the plugin under their Kubernetes names; may include ``apiVersion`` and ``kind``.
        notes: list to which a note on each key is appended.
        kubernetes_version: Kubernetes version whose rules of scoring apply, such as ``1.36``.
        plugins: further plugins, from other packages.

    Raises:
        KeyError: no plugin has this name; the message lists the known names.
        ValueError: an argument is invalid, or the version is unknown. For an invalid argument the message starts with
            the path of its key.
    """
    rules = known_version(kubernetes_version)
    readers = _readers(plugins)
    read = readers.get(name)
    if read is None:
        known = ", ".join(sorted(readers))
        raise KeyError(f"no plugin is named {quoted(name)}{did_you_mean(str(name), readers)} Known plugins: {known}")
    notes = [] if notes is None else notes
    if arguments is not None and ignores_arguments(name, rules):
        notes.append(ConfigNote(f"{name}Args", "ignored", "kube-scheduler does not decode arguments of this plugin"))
        arguments = None
    reader = FieldReader(f"{name}Args", {} if arguments is None else arguments, notes)
    for key in ("apiVersion", "kind"):
        if reader.raw(key) is not None:
            reader.honored(key, None)
    for key in WATCHER_KEYS:
        reader.ignored(key, "the source of metrics is a setting of the client")
    plugin = read(reader)
    reader.finish()
    if isinstance(plugin, NodeResourcesBalancedAllocation | ImageLocality):
        return replace(plugin, kubernetes_version=rules)
    return plugin


def plugin_names(plugins: Collection[type[Plugin]] = ()) -> frozenset[str]:
    """Return the names that :func:`plugin_from_config` accepts.

    Args:
        plugins: further plugins, from other packages; those that do not score are left out.

    Raises:
        ValueError: two plugins have the same name, or one has the name of a plugin of kube-scheduler.
    """
    return frozenset(_readers(plugins))


def _readers(plugins: Collection[type[Plugin]]) -> Mapping[str, Callable[[FieldReader], ScorePlugin]]:
    """Return the functions that read the arguments of each plugin, by name."""
    readers, taken = dict(_READERS), {*PLUGINS, *in_tree_plugins(LATEST_VERSION)}
    for plugin in plugins:
        if plugin.name in taken:
            where = f"{plugin.__module__}.{plugin.__qualname__}"
            raise ValueError(f"plugin {where}: the name {plugin.name} is taken; set another name")
        taken.add(plugin.name)
        if issubclass(plugin, ScorePlugin):
            readers[plugin.name] = reader_of(plugin)
    return readers


def _target_load_packing(reader: FieldReader) -> TargetLoadPacking:
    weights = _weights(reader, ())
    if weights and reader.raw("resource") is not None:
        raise reader.error("resource", "set either resource or resources, not both")
    resource = reader.value("resource", CPU)
    plugin = reader.build(
        TargetLoadPacking,
        target_utilization=reader.number("targetUtilization", TargetLoadPacking.target_utilization, _AT_LEAST_1),
        default_requests=_default_requests(reader, resource),
        default_requests_multiplier=_multiplier(reader),
        resource=resource,
        predict_from=reader.value("predictFrom", TargetLoadPacking.predict_from),
        percentile=reader.value("percentile", TargetLoadPacking.percentile),
        count_recent_pods=reader.value(_RECENT_PODS_KEY, default=False),
    )
    if not weights:
        return plugin
    for index, weight in enumerate(reader.check("resources", weights, DistinctWeights)):
        reader.check(f"resources[{index}].name", weight.name, Annotated[str, measured])
    parts = tuple(
        (replace(plugin, resource=part.name, default_requests=_default_requests(reader, part.name)), part.weight)
        for part in weights
    )
    return replace(plugin, parts=parts)


def _default_requests(reader: FieldReader, resource: str) -> int:
    written = reader.raw("defaultRequests")
    if written is None:
        return _DEFAULT_REQUESTS.get(resource, 0)
    if not isinstance(written, Mapping):
        raise reader.error("defaultRequests", f"must be a mapping, got {quoted(written)}")
    amounts = ResourceList.from_k8s(written, f"{reader.path}.defaultRequests")
    if resource not in amounts:
        return reader.changed("defaultRequests", 0, f"{resource} is missing and counts as 0, as upstream")
    return reader.honored("defaultRequests", amounts[resource])


def _multiplier(reader: FieldReader) -> float:
    key = "defaultRequestsMultiplier"
    written = reader.raw(key)
    if written is None:
        return TargetLoadPacking.default_requests_multiplier
    reader.honored(key, None)
    try:
        return float(written)
    except (TypeError, ValueError):
        raise reader.error(key, f"must be a number in quotes, got {quoted(written)}") from None


def _load_variation_risk_balancing(reader: FieldReader) -> LoadVariationRiskBalancing:
    default = LoadVariationRiskBalancing
    return reader.build(
        LoadVariationRiskBalancing,
        safe_variance_margin=reader.number("safeVarianceMargin", default.safe_variance_margin, _AT_LEAST_0),
        safe_variance_sensitivity=reader.number(
            "safeVarianceSensitivity", default.safe_variance_sensitivity, _AT_LEAST_0
        ),
        resources=_resources(reader),
        formula=reader.value("formula", default.formula),
        balance=reader.value("balance", default.balance),
        percentile=reader.value("percentile", default.percentile),
        count_recent_pods=reader.value(_RECENT_PODS_KEY, default=False),
    )


def _low_risk_over_commitment(reader: FieldReader) -> LowRiskOverCommitment:
    default = LowRiskOverCommitment
    return reader.build(
        LowRiskOverCommitment,
        smoothing_window_size=reader.number("smoothingWindowSize", default.smoothing_window_size, _AT_LEAST_1),
        risk_limit_weights=_risk_limit_weights(reader),
        resources=_resources(reader),
        distribution=reader.value("distribution", default.distribution),
        count_recent_pods=reader.value(_RECENT_PODS_KEY, default=False),
    )


def _risk_limit_weights(reader: FieldReader) -> Mapping[str, Any]:
    default = DEFAULT_RISK_LIMIT_WEIGHT
    weights: dict[str, Any] = {CPU: default, MEMORY: default}
    inner = reader.nested("riskLimitWeights")
    if inner is not None:
        reader.honored("riskLimitWeights", None)
        weights |= {resource: inner.number(resource, default, Between(0, 1)) for resource in inner.fields}
    return weights


def _resources(reader: FieldReader) -> tuple[MeasuredResource, ...]:
    names = reader.raw("resources")
    if names is None:
        return CPU_AND_MEMORY
    if not is_list(names):
        raise reader.error("resources", f"must be a list of resource names, got {quoted(names)}")
    reader.check("resources", tuple(names), tuple[Annotated[str, measured], ...])
    return reader.honored("resources", tuple(MEASURED_RESOURCES[name] for name in names))


def _congestion_cost(reader: FieldReader) -> CongestionCost:
    usual = CONGESTED_CPU_AND_MEMORY[0]
    by_name = {each.resource.name: each for each in CONGESTED_CPU_AND_MEMORY}
    resources: list[CongestedResource] = []
    for entry in reader.entries("resources"):
        name = entry.check("name", entry.value("name", None), Annotated[str, measured])
        default = by_name.get(name, usual)
        target, power = entry.value("target", default.target), entry.value("power", default.power)
        resource = MEASURED_RESOURCES[name]
        resources.append(entry.build(CongestedResource, resource=resource, target=target, power=power))
        entry.finish()
    return reader.build(
        CongestionCost,
        resources=tuple(resources) or CONGESTED_CPU_AND_MEMORY,
        learnt=reader.value("learnt", CongestionCost.learnt),
        crowding=reader.value("crowding", CongestionCost.crowding),
        stranding=reader.value("stranding", CongestionCost.stranding),
    )


def _peaks(reader: FieldReader) -> Peaks:
    models: dict[str, PowerModel] = {}
    for key in _POWER_MODEL_KEYS:
        nodes = reader.nested(key)
        if nodes is None:
            continue
        for node_name in nodes.fields:
            model = nodes.nested(node_name)
            if model is not None:
                constants = {constant: model.value(constant, 0.0) for constant in ("k0", "k1", "k2")}
                models[node_name] = model.build(PowerModel, **constants)
                model.finish()
        reader.honored(key, None)
    return reader.build(
        Peaks,
        node_power_model=models,
        missing=reader.value("missing", Peaks.missing),
        count_recent_pods=reader.value(_RECENT_PODS_KEY, default=False),
    )


def _node_resources_fit(reader: FieldReader) -> NodeResourcesFit:
    ignored: dict[str, Any] = {name: _names(reader, key) for key, name in _FILTER_KEYS.items()}
    strategy = reader.nested("scoringStrategy")
    if strategy is None:
        return NodeResourcesFit(**ignored)
    reader.honored("scoringStrategy", None)
    kind = strategy.value("type", NodeResourcesFit.strategy)
    resources = _weights(strategy, EQUAL_CPU_AND_MEMORY)
    ratio = strategy.nested("requestedToCapacityRatio")
    shape = NodeResourcesFit.shape
    if ratio is not None:
        strategy.honored("requestedToCapacityRatio", None)
        shape = read_shape(ratio)
        ratio.finish()
    keys = {"strategy": "type", "shape": "requestedToCapacityRatio.shape"}
    plugin = strategy.build(NodeResourcesFit, keys, strategy=kind, resources=resources, shape=shape, **ignored)
    if ratio is not None and kind != "RequestedToCapacityRatio":
        raise strategy.error("requestedToCapacityRatio", f"must be absent for type {kind}")
    if ratio is None and kind == "RequestedToCapacityRatio":
        raise strategy.error("requestedToCapacityRatio", f"is required for type {kind}")
    strategy.finish()
    return plugin


def _names(reader: FieldReader, key: str) -> tuple[str, ...]:
    """Return a list of names that only a filter reads."""
    names = reader.raw(key)
    if names is None:
        return ()
    if not is_list(names):
        raise reader.error(key, f"must be a list of names, got {quoted(names)}")
    reader.ignored(key, "only the filter of NodeResourcesFit reads it")
    return tuple(names)


def _renamed(strategy: Strategy) -> Callable[[FieldReader], NodeResourcesFit]:
    def read(reader: FieldReader) -> NodeResourcesFit:
        resources = _weights(reader, EQUAL_CPU_AND_MEMORY)
        shape = read_shape(reader) if strategy == "RequestedToCapacityRatio" else NodeResourcesFit.shape
        return reader.build(NodeResourcesFit, strategy=strategy, resources=resources, shape=shape)

    return read


def _balanced_allocation(reader: FieldReader) -> NodeResourcesBalancedAllocation:
    return reader.build(NodeResourcesBalancedAllocation, resources=_weights(reader, EQUAL_CPU_AND_MEMORY))


def _allocatable(reader: FieldReader) -> NodeResourcesAllocatable:
    return reader.build(
        NodeResourcesAllocatable,
        mode=reader.value("mode", NodeResourcesAllocatable.mode),
        resources=_weights(reader, NodeResourcesAllocatable.resources, zero_is_default=False),
    )


def _node_affinity(reader: FieldReader) -> NodeAffinity:
    added = reader.nested("addedAffinity")
    if added is None:
        return NodeAffinity()
    reader.honored("addedAffinity", None)
    return NodeAffinity(
        read_required_terms(added.fields, added.path), read_preferred_node_terms(added.fields, added.path)
    )


def _pod_topology_spread(reader: FieldReader) -> PodTopologySpread:
    constraints: list[SpreadConstraint] = []
    listed = reader.raw("defaultConstraints") or ()
    if not is_list(listed):
        raise reader.error("defaultConstraints", f"must be a list, got {quoted(listed)}")
    for index, written in enumerate(listed):
        path = f"{reader.path}.defaultConstraints[{index}]"
        if not isinstance(written, Mapping) or not written.get("topologyKey"):
            raise ValueError(f"{path}: must be a constraint with a topologyKey, got {quoted(written)}")
        if written.get("labelSelector") is not None:
            raise ValueError(f"{path}.labelSelector: must be absent: the selector depends on the pod")
        constraints.append(read_spread_constraint(written, None, path))
        kinds = [(constraint.topology_key, constraint.required) for constraint in constraints]
        if kinds.index(kinds[-1]) < index:
            raise ValueError(f"{path}: an earlier constraint has the same topologyKey and whenUnsatisfiable")
    reader.honored("defaultConstraints", None)
    # The API's default is System, which kube-scheduler refuses together with constraints.
    return reader.build(
        PodTopologySpread,
        default_constraints=tuple(constraints),
        defaulting_type=reader.value("defaultingType", PodTopologySpread.defaulting_type),
    )


def _inter_pod_affinity(reader: FieldReader) -> InterPodAffinity:
    default = InterPodAffinity
    return reader.build(
        InterPodAffinity,
        hard_pod_affinity_weight=reader.value("hardPodAffinityWeight", default.hard_pod_affinity_weight),
        ignore_preferred_terms_of_existing_pods=reader.value("ignorePreferredTermsOfExistingPods", default=False),
    )


def _weights(
    reader: FieldReader, default: tuple[ResourceWeight, ...], *, zero_is_default: bool = True
) -> tuple[ResourceWeight, ...]:
    weights: list[ResourceWeight] = []
    for entry in reader.entries("resources"):
        weight = entry.weight() if zero_is_default else entry.value("weight", 1)
        weights.append(entry.build(ResourceWeight, name=entry.value("name", None), weight=weight))
        entry.finish()
    return tuple(weights) or default


def read_shape(reader: FieldReader) -> tuple[ShapePoint, ...]:
    """Read the argument ``shape`` of a plugin: points of a piecewise linear function; empty if there is none."""
    points: list[ShapePoint] = []
    for entry in reader.entries("shape"):
        utilization, score = entry.value("utilization", 0), entry.value("score", 0)
        points.append(entry.build(ShapePoint, utilization=utilization, score=score))
        entry.finish()
    return tuple(points)


_READERS: Mapping[str, Callable[[FieldReader], ScorePlugin]] = {
    TargetLoadPacking.name: _target_load_packing,
    LoadVariationRiskBalancing.name: _load_variation_risk_balancing,
    LowRiskOverCommitment.name: _low_risk_over_commitment,
    Peaks.name: _peaks,
    CongestionCost.name: _congestion_cost,
    NodeResourcesFit.name: _node_resources_fit,
    NodeResourcesBalancedAllocation.name: _balanced_allocation,
    ImageLocality.name: lambda _: ImageLocality(),
    NodeResourcesAllocatable.name: _allocatable,
    PodState.name: lambda _: PodState(),
    TaintToleration.name: lambda _: TaintToleration(),
    NodeAffinity.name: _node_affinity,
    PodTopologySpread.name: _pod_topology_spread,
    InterPodAffinity.name: _inter_pod_affinity,
    **{old: _renamed(strategy) for old, (_, strategy) in RENAMED.items()},
}
PLUGINS = frozenset(_READERS)
"""Names of the included plugins."""
