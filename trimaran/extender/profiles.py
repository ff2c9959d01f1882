"""Profiles of a KubeSchedulerConfiguration, reduced to the plugins that a stock kube-scheduler does not have.

kube-scheduler adds 10 x weight x an extender's answer, unclamped, to the sum of its own plugins' scores, each 0 to 100
times its weight. The in-tree weights are therefore written times 10 and the extender's weight is 1, so that

    10 x (sum of in-tree weight x score + answer)
    answer = factor x sum of weight x score of our plugins, 0 to 100 x factor x the sum of their weights

is the sum for a node. Where all candidates get the answer 0, kube-scheduler's sum is ten times that of its own plugins,
so it decides as without the extender. The factor is chosen by replays; see docs/evidence.md.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scoring import Profile, SchedulerConfiguration
from scoring.arrays import Int64s
from scoring.kubernetes_version import LATEST_VERSION
from scoring.profiles.configuration.installed import WATCHER_KEYS
from scoring.profiles.configuration.plugins import PLUGINS, RENAMED
from trimaran.plugins import installed_plugins, read_scheduler_file

ANSWER_FACTOR = 10  # MaxNodeScore / MaxExtenderPriority, by which kube-scheduler multiplies an extender's answers
DEFAULT_SCORE_FACTOR = 5
POD_RULES = frozenset({"InterPodAffinity", "NodeAffinity", "PodTopologySpread", "TaintToleration"})
"""Plugins of kube-scheduler whose scores depend on all feasible nodes, which only a scheduler knows."""
IN_TREE = frozenset({"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", *POD_RULES, *RENAMED})


def without_pod_rules(profile: Profile) -> Profile:
    """Return a profile without the plugins :data:`POD_RULES`."""
    plugins = tuple(weighted for weighted in profile.plugins if weighted.plugin.name not in POD_RULES)
    return replace(profile, plugins=plugins)


def our_plugins() -> frozenset[str]:
    """Return the names of the plugins that kube-scheduler does not have: our scores, and those of installed packages.

    Raises:
        ValueError: an installed plugin cannot be loaded.
    """
    return PLUGINS - IN_TREE | {plugin.name for plugin in installed_plugins()}


@dataclass(frozen=True)
class ExtenderProfile:
    """Part of a scheduler profile that the extender runs.

    Attributes:
        profile: profile with only the plugins that a stock kube-scheduler does not have.
        factor: factor by which the weighted sums of these plugins' scores are multiplied.
    """

    profile: Profile
    factor: int = DEFAULT_SCORE_FACTOR

    def to_points(self, totals: Int64s) -> Int64s:
        """Convert weighted sums of plugin scores to answers of at least 0; both of shape (nodes,)."""
        points: Int64s = self.factor * np.maximum(totals, 0)
        return points


@dataclass(frozen=True)
class Profiles:
    """Profiles of a KubeSchedulerConfiguration that the extender scores by.

    Attributes:
        configuration: parsed configuration, with ``countRecentPods: true`` where the file does not set this argument.
        by_scheduler: profiles with plugins for the extender, by scheduler name.
        document: the parsed file.
    """

    configuration: SchedulerConfiguration
    by_scheduler: Mapping[str, ExtenderProfile]
    document: Mapping[str, Any]

    def scoring_document(self) -> dict[str, Any]:
        """Return the part of the file that scores depend on, without addresses and tokens of the watcher."""
        kept = {key: self.document[key] for key in ("apiVersion", "kind") if key in self.document}
        return kept | {"profiles": [_without_watcher(each) for each in self.document.get("profiles") or []]}

    @classmethod
    def read(
        cls,
        document: Mapping[str, Any],
        factor: int = DEFAULT_SCORE_FACTOR,
        allow: Collection[str] | None = (),
        kubernetes_version: str = LATEST_VERSION,
    ) -> "Profiles":
        """Read a parsed KubeSchedulerConfiguration, with plugin arguments as for the Go plugins.

        Args:
            document: the parsed file.
            factor: factor of the answers.
            allow: names of plugins that may stand in the file although trimaran does not know them;
                None allows all names.
            kubernetes_version: version of kube-scheduler.

        Raises:
            ValueError: the document is not a valid configuration, or no profile has a plugin for an extender.
        """
        # Read the unchanged document first, so that errors refer to the file's text.
        read = partial(read_scheduler_file, kubernetes_version=kubernetes_version, allow=allow)
        configuration = read(document)
        configuration = read(_counting_recent_pods(document, configuration))
        by_scheduler, names = {}, our_plugins()
        for profile in configuration.profiles:
            ours = tuple(weighted for weighted in profile.plugins if weighted.plugin.name in names)
            if ours:
                by_scheduler[profile.scheduler_name] = ExtenderProfile(Profile(ours, profile.scheduler_name), factor)
        if not by_scheduler:
            raise ValueError(f"no profile enables a plugin for the extender; enable one of {', '.join(sorted(names))}")
        return cls(configuration, by_scheduler, document)


def _without_watcher(profile: Mapping[str, Any]) -> dict[str, Any]:
    arguments = [
        {**each, "args": {key: value for key, value in each["args"].items() if key not in WATCHER_KEYS}}
        for each in profile.get("pluginConfig") or []
        if isinstance(each.get("args"), Mapping)  # ignored otherwise: the plugin has no arguments
    ]
    kept = {key: profile[key] for key in ("schedulerName", "percentageOfNodesToScore", "plugins") if key in profile}
    return kept | ({"pluginConfig": arguments} if arguments else {})


def _counting_recent_pods(document: Mapping[str, Any], configuration: SchedulerConfiguration) -> dict[str, Any]:
    """Return the document with ``countRecentPods: true`` as the default, so that the plugins count pods in flight."""
    changed: dict[str, Any] = deepcopy(dict(document))
    for profile_document, profile in zip(changed.get("profiles") or [], configuration.profiles, strict=False):
        arguments = profile_document["pluginConfig"] = profile_document.get("pluginConfig") or []
        for weighted in profile.plugins:
            name = weighted.plugin.name
            if not hasattr(weighted.plugin, "count_recent_pods"):
                continue
            entry = next((each for each in arguments if each["name"] == name), None)
            if entry is None:
                arguments.append(entry := {"name": name})
            entry["args"] = {"countRecentPods": True, **(entry.get("args") or {})}
    return changed
