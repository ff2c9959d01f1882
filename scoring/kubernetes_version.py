"""Kubernetes versions to choose from, because some scores of kube-scheduler changed between versions.

The version selects only rules of kube-scheduler. Features that an older API server lacks, such as pod-level resources
before 1.34, need no rule here: the objects from such a server do not have their fields.
"""

import re
from collections.abc import Mapping
from typing import Final

from runtime.errors import quoted

KUBERNETES_VERSIONS: Final = ("1.33", "1.34", "1.35", "1.36", "1.37")
"""Versions whose scoring rules are implemented, oldest first."""
LATEST_VERSION: Final = KUBERNETES_VERSIONS[-1]

# Plugins that score by default, with their weights: ``getDefaultPlugins`` and ``applyFeatureGates`` of kube-scheduler's
# default_plugins.go, for the plugins that have a method Score. A plugin without a weight in that file has weight 1.
_WEIGHTS: Final = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "VolumeBinding": 1,  # it scores nodes by storage capacity; up to 1.36 only with a feature gate
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
# Plugins without a method Score, with the oldest version that has them.
_WITHOUT_SCORE: Final = {
    **dict.fromkeys((
        "DefaultBinder", "DefaultPreemption", "NodeName", "NodePorts", "NodeUnschedulable", "NodeVolumeLimits",
        "PrioritySort", "SchedulingGates", "VolumeRestrictions", "VolumeZone",
    ), KUBERNETES_VERSIONS[0]),
    **dict.fromkeys(("GangScheduling", "NodeDeclaredFeatures"), "1.35"),
    **dict.fromkeys(("PodGroupPodsCount", "TopologyPlacementGenerator"), "1.36"),
    "DeferredPodScheduling": "1.37",
}  # fmt: skip

# Plugins that take arguments in kube-scheduler (it has a type such as NodeAffinityArgs), and the oldest such version.
_WITH_ARGUMENTS: Final = {
    **dict.fromkeys((
        "DefaultPreemption", "InterPodAffinity", "NodeAffinity", "NodeResourcesBalancedAllocation", "NodeResourcesFit",
        "PodTopologySpread", "VolumeBinding",
    ), KUBERNETES_VERSIONS[0]),
    "DynamicResources": "1.34",
}  # fmt: skip

_WRITTEN = re.compile(r"v?(\d+\.\d+)(\.\d+.*)?")


def known_version(written: str) -> str:
    """Return a Kubernetes version as ``major.minor``, after checking that its scoring rules are implemented.

    Args:
        written: version such as ``1.36``, or as the API server reports it: ``v1.36.3``.

    Raises:
        ValueError: the version is malformed, or its rules are not implemented.
    """
    match = _WRITTEN.fullmatch(str(written))
    if match is None or match[1] not in KUBERNETES_VERSIONS:
        known = ", ".join(KUBERNETES_VERSIONS)
        raise ValueError(f"Kubernetes version {quoted(written)} is not known: choose one of {known}")
    return match[1]


def at_least(version: str, other: str) -> bool:
    """Return whether ``version`` is the same as ``other`` or newer; both must be in :data:`KUBERNETES_VERSIONS`."""
    return KUBERNETES_VERSIONS.index(version) >= KUBERNETES_VERSIONS.index(other)


def default_score_weights(version: str) -> Mapping[str, int]:
    """Return the plugins of kube-scheduler that score by default, with their weights.

    Args:
        version: a version in :data:`KUBERNETES_VERSIONS`.
    """
    return {**_WEIGHTS, "DynamicResources": 2} if at_least(version, "1.35") else _WEIGHTS


def has_score(plugin: str, version: str) -> bool:
    """Return whether a plugin may score: False for a plugin of kube-scheduler that has no score in this version.

    kube-scheduler does not start with a file that enables a plugin without a score at ``score``. At ``multiPoint`` it
    leaves such a plugin out of the scores.
    """
    return plugin not in _WITHOUT_SCORE and (plugin != "DynamicResources" or at_least(version, "1.35"))


def in_tree_plugins(version: str) -> frozenset[str]:
    """Return the names of all plugins of kube-scheduler, which does not start if its file enables any other plugin.

    Args:
        version: a version in :data:`KUBERNETES_VERSIONS`.
    """
    without_score = (name for name, oldest in _WITHOUT_SCORE.items() if at_least(version, oldest))
    return frozenset({*_WEIGHTS, "DynamicResources", *without_score})


def ignores_arguments(plugin: str, version: str) -> bool:
    """Return whether a plugin is part of kube-scheduler and takes no arguments there: arguments in a file are ignored.

    Args:
        plugin: name of the plugin.
        version: a version in :data:`KUBERNETES_VERSIONS`.
    """
    oldest = _WITH_ARGUMENTS.get(plugin)
    return plugin in in_tree_plugins(version) and (oldest is None or not at_least(version, oldest))
