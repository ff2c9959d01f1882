"""What of a scheduler's profiles the extender scores: the plugins that a stock kube-scheduler does not have.

kube-scheduler adds an extender's score times its weight times 10, unclamped, to the sum of its own plugins' scores,
each 0 to 100 times its weight. An extender has one weight for all profiles. So that plugins weigh against each other
what the file says:

    answered score     sum of weight x score of our plugins / sum of their weights W, rounded; 0 to 100
    extender's weight  L, the least common multiple of all profiles' W
    in-tree weights    times 10 L / W of their profile

The answer keeps the order of sums: a higher sum is never answered by a lower score. With several plugins, sums that
differ by less than W may become equal, and kube-scheduler's own plugins decide between them.
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
    """The part of a profile that the extender scores; it may have no plugin.

    Attributes:
        profile: with our plugins alone.
        weight: the sum of their weights, W.
    """

    profile: Profile
    weight: int

    def answered(self, totals: Int64s) -> Int64s:
        """Return what is answered for weighted sums, 0 to 100; shape (nodes,)."""
        totals = np.maximum(totals, 0)
        rounded = totals if self.weight == 1 else (2 * totals + self.weight) // (2 * self.weight)
        answered: Int64s = np.minimum(rounded, MAX_SCORE)
        return answered


@dataclass(frozen=True)
class Profiles:
    """What a KubeSchedulerConfiguration has for the extender to do.

    Attributes:
        configuration: as scoring reads it, recently placed pods counted unless an argument says otherwise.
        by_scheduler: the profiles that have plugins of ours, by the scheduler's name.
        document: the parsed file that they were read from.
    """

    configuration: SchedulerConfiguration
    by_scheduler: Mapping[str, ExtenderProfile]
    document: Mapping[str, Any]

    @property
    def weight(self) -> int:
        """The extender's weight, L."""
        return lcm(*(each.weight for each in self.by_scheduler.values()))

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Profiles":
        """Read a parsed KubeSchedulerConfiguration, with arguments as the Go plugins take them.

        Raises:
            ValueError: it is none, or no profile has a plugin for an extender.
        """
        configuration = read_configuration(document)  # names what is wrong in the file as it is written
        configuration = read_configuration(_counting_recent_pods(document, configuration))
        found = {}
        for profile in configuration.profiles:
            ours = tuple(weighted for weighted in profile.plugins if weighted.plugin.name in OURS)
            if ours:
                part = Profile(ours, profile.scheduler_name)
                found[profile.scheduler_name] = ExtenderProfile(part, sum(weighted.weight for weighted in ours))
        if not found:
            raise ValueError(f"no profile scores by a plugin for an extender: {', '.join(sorted(OURS))}")
        return cls(configuration, found, document)


def _counting_recent_pods(document: Mapping[str, Any], configuration: SchedulerConfiguration) -> dict[str, Any]:
    """Return the file with ``countRecentPods`` where it says nothing of it: pods in flight are what this is for."""
    changed: dict[str, Any] = deepcopy(dict(document))
    for written, profile in zip(changed.get("profiles") or [], configuration.profiles, strict=False):
        arguments = written["pluginConfig"] = written.get("pluginConfig") or []
        for weighted in profile.plugins:
            name = weighted.plugin.name
            if not hasattr(weighted.plugin, "count_recent_pods"):
                continue
            entry = next((each for each in arguments if each["name"] == name), None)
            if entry is None:
                arguments.append(entry := {"name": name})
            entry["args"] = {"countRecentPods": True, **(entry.get("args") or {})}
    return changed
