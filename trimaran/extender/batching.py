"""Effect of an extender on kube-scheduler's opportunistic batching (KEP-5598), the reuse of sorted nodes."""

from collections.abc import Iterator, Mapping
from typing import Any

from scoring.kubernetes_version import KUBERNETES_VERSIONS, known_version

_SINCE = "1.35"  # first version in which batching is on by default
_LOST = (
    "batching: with an extender kube-scheduler schedules each of many identical pods by itself, in all profiles (see "
    "docs/kubernetes-features.md#batching)"
)
_KEPT = (
    "to keep batching, mark hot nodes with trimaran nodes (soft taints) in place of the extender, or schedule large "
    "jobs of identical pods by a second kube-scheduler without extenders; a second profile does not suffice"
)


def batching_notice(document: Mapping[str, Any], kubernetes_version: str) -> str:
    """Return a notice that the extender disables batching, with the alternatives; empty if there is nothing to lose.

    Args:
        document: a valid KubeSchedulerConfiguration.
        kubernetes_version: version of kube-scheduler, such as 1.37.
    """
    has_batching = KUBERNETES_VERSIONS.index(known_version(kubernetes_version)) >= KUBERNETES_VERSIONS.index(_SINCE)
    if not has_batching or not document.get("extenders"):
        return ""
    if all(map(_spreads_by_default, document.get("profiles") or [{}])):
        return (
            f"{_LOST}. This file loses nothing: PodTopologySpread has default constraints in every profile, so that no "
            "pod is batched anyway"
        )
    return f"{_LOST}; {_KEPT}"


def _spreads_by_default(profile: Mapping[str, Any]) -> bool:
    """Return whether PodTopologySpread has default constraints: true unless its arguments set an empty list."""
    arguments = next(_arguments_of_spread(profile), {})
    is_list = arguments.get("defaultingType") == "List"
    return bool(arguments.get("defaultConstraints")) if is_list else True


def _arguments_of_spread(profile: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for entry in profile.get("pluginConfig") or ():
        if entry.get("name") == "PodTopologySpread":
            yield entry.get("args") or {}
