"""Score plugins from their arguments, under the names that a KubeSchedulerConfiguration gives them.

This is a boundary: defaults are set as upstream sets them, values that would make scores leave 0 to 100 are refused
with the field's name, and every key's fate is noted. Keys of ours (options that upstream does not have) are marked so
in the docstrings; a stock kube-scheduler refuses a file that has them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from scoring.config_fields import ConfigNote, FieldReader
from scoring.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.low_risk_over_commitment import LowRiskOverCommitment
from scoring.measured_resource import CPU_AND_MEMORY, MEASURED_RESOURCES, MeasuredResource
from scoring.objects import CPU, MEMORY, ResourceList
from scoring.plugin import ScorePlugin
from scoring.target_load_packing import TargetLoadPacking

_PERCENTILES = ("", "P90", "P95", "P99", "MAX")
_DEFAULT_REQUESTS = {CPU: 1000, MEMORY: 200 * 1024 * 1024}
_WATCHER_KEYS = ("watcherAddress", "metricProvider")


def plugin_from_config(
    name: str, arguments: Mapping[str, Any] | None = None, notes: list[ConfigNote] | None = None
) -> ScorePlugin:
    """Build a score plugin.

    Args:
        name: the plugin's name, such as ``TargetLoadPacking``.
        arguments: its arguments under their Kubernetes names; ``apiVersion`` and ``kind`` may be among them.
        notes: gets a note for each key, when given.

    Raises:
        KeyError: no plugin has this name.
        ValueError: an argument has no meaning; the message starts with its name.
    """
    read = _READERS[name]
    reader = FieldReader(f"{name}Args", {} if arguments is None else arguments, [] if notes is None else notes)
    for key in ("apiVersion", "kind"):
        if reader.raw(key) is not None:
            reader.honored(key, None)
    for key in _WATCHER_KEYS:
        reader.ignored(key, "where metrics come from is a setting of the client")
    plugin = read(reader)
    reader.finish()
    return plugin


def _target_load_packing(reader: FieldReader) -> TargetLoadPacking:
    resource = reader.choice("resource", (CPU, MEMORY))
    return TargetLoadPacking(
        target_utilization=reader.integer("targetUtilization", 40, at_most=100),
        default_requests=_default_requests(reader, resource),
        default_requests_multiplier=_multiplier(reader),
        resource=cast("Any", resource),
        predict_from=cast("Any", reader.choice("predictFrom", ("limits", "requests"))),
        percentile=reader.choice("percentile", _PERCENTILES),
    )


def _default_requests(reader: FieldReader, resource: str) -> int:
    written = reader.raw("defaultRequests")
    if written is None:
        return _DEFAULT_REQUESTS[resource]
    if not isinstance(written, Mapping):
        raise reader.error("defaultRequests", f"must be a mapping, got {written!r}")
    amounts = ResourceList.from_k8s(written, f"{reader.path}.defaultRequests")
    if resource not in amounts:
        return reader.changed("defaultRequests", 0, f"no {resource} in it counts as 0, as upstream")
    return reader.honored("defaultRequests", amounts[resource])


def _multiplier(reader: FieldReader) -> float:
    key = "defaultRequestsMultiplier"
    written = reader.raw(key)
    if written is None:
        return 1.5
    try:
        value = float(written)
    except (TypeError, ValueError):
        raise reader.error(key, f"must be a number in quotes, got {written!r}") from None
    return reader.limited(key, value, 1.5)


def _load_variation_risk_balancing(reader: FieldReader) -> LoadVariationRiskBalancing:
    return LoadVariationRiskBalancing(
        safe_variance_margin=reader.number("safeVarianceMargin", 1.0, negative_is_default=True),
        safe_variance_sensitivity=reader.number("safeVarianceSensitivity", 1.0, negative_is_default=True),
        resources=_resources(reader),
    )


def _low_risk_over_commitment(reader: FieldReader) -> LowRiskOverCommitment:
    return LowRiskOverCommitment(
        smoothing_window_size=reader.integer("smoothingWindowSize", 5),
        risk_limit_weights=_risk_limit_weights(reader),
        resources=_resources(reader),
    )


def _risk_limit_weights(reader: FieldReader) -> Mapping[str, float]:
    weights = {CPU: 0.5, MEMORY: 0.5}
    inner = reader.nested("riskLimitWeights")
    if inner is None:
        return weights
    reader.honored("riskLimitWeights", None)
    for resource in inner.fields:
        weight = inner.number(resource, 0.5, negative_is_default=True)
        if weight > 1:
            inner.notes.pop()
            weight = inner.changed(resource, 0.5, f"{weight:g} is above 1, 0.5 is used, as upstream")
        weights[resource] = weight
    return weights


def _resources(reader: FieldReader) -> tuple[MeasuredResource, ...]:
    names = reader.raw("resources")
    if names is None:
        return CPU_AND_MEMORY
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise reader.error("resources", f"must be a list of resource names, got {names!r}")
    for name in names:
        if name not in MEASURED_RESOURCES:
            known = ", ".join(MEASURED_RESOURCES)
            raise reader.error("resources", f"{name!r} has no measured load; known: {known}")
    return reader.honored("resources", tuple(MEASURED_RESOURCES[name] for name in names))


_READERS: Mapping[str, Callable[[FieldReader], ScorePlugin]] = {
    TargetLoadPacking.name: _target_load_packing,
    LoadVariationRiskBalancing.name: _load_variation_risk_balancing,
    LowRiskOverCommitment.name: _low_risk_over_commitment,
}
