"""Profiles of a KubeSchedulerConfiguration, reduced to the plugins that a stock kube-scheduler does not have.

kube-scheduler adds an extender's score times its weight times 10, unclamped, to the sum of its own plugins' scores,
each 0 to 100 times its weight. An extender has one weight for all profiles. These conversions keep the relative weights
of all plugins:

    extender's score   sum of weight x score of our plugins / sum of their weights W, rounded; 0 to 100
    extender's weight  L, the least common multiple of all profiles' W
    in-tree weights    times 10 L / W of their profile

Rounding keeps the order: a node with a higher sum never gets a lower score. With several plugins, sums that differ by
less than W can become equal scores; kube-scheduler's own plugins then decide.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from scoring import PLUGINS, Profile, SchedulerConfiguration, read_configuration
from scoring.arrays import Int64s
from scoring.profiles.configuration.plugins import RENAMED
from trimaran.extender.wire import MAX_SCORE

SCORE_FACTOR = 10  # MaxNodeScore / MaxExtenderPriority, by which kube-scheduler multiplies an extender's scores
IN_TREE = frozenset({"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", *RENAMED})
OURS = PLUGINS - IN_TREE


@dataclass(frozen=True)
class ExtenderProfile:
    """Part of a scheduler profile that the extender runs.

    Attributes:
        profile: profile with only the plugins that a stock kube-scheduler does not have.
        weight: sum of these plugins' weights.
    """

    profile: Profile
    weight: int

    def to_points(self, totals: Int64s) -> Int64s:
        """Convert weighted sums of plugin scores to the extender's scores, 0 to 100; both of shape (nodes,)."""
        totals = np.maximum(totals, 0)
        rounded = totals if self.weight == 1 else (2 * totals + self.weight) // (2 * self.weight)
        points: Int64s = np.minimum(rounded, MAX_SCORE)
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

    @property
    def weight(self) -> int:
        """Weight of the extender in kube-scheduler: the least common multiple of the profiles' weights."""
        return lcm(*(each.weight for each in self.by_scheduler.values()))

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Profiles":
        """Read a parsed KubeSchedulerConfiguration, with plugin arguments as for the Go plugins.

        Raises:
            ValueError: the document is not a valid configuration, or no profile has a plugin for an extender.
        """
        configuration = read_configuration(document)  # first unchanged, so that errors refer to the file's text
        configuration = read_configuration(_counting_recent_pods(document, configuration))
        by_scheduler = {}
        for profile in configuration.profiles:
            ours = tuple(weighted for weighted in profile.plugins if weighted.plugin.name in OURS)
            if ours:
                our_profile = Profile(ours, profile.scheduler_name)
                weight = sum(weighted.weight for weighted in ours)
                by_scheduler[profile.scheduler_name] = ExtenderProfile(our_profile, weight)
        if not by_scheduler:
            raise ValueError(f"no profile enables a plugin that the extender scores: {', '.join(sorted(OURS))}")
        return cls(configuration, by_scheduler, document)


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
