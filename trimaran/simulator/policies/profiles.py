"""Policies by scoring profiles: the live scoring code with metrics, fallback and pods in flight."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.profiles.fallback import FallbackPolicy
from scoring.profiles.profile import PreparedProfile, Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from trimaran.extender.profiles import (
    ANSWER_FACTOR,
    DEFAULT_SCORE_FACTOR,
    IN_TREE,
    Profiles,
    our_plugins,
    without_pod_rules,
)
from trimaran.plugins import read_scheduler_file
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.policies.topology_spread import OwnerSpread
from trimaran.simulator.policy import pick_highest
from trimaran.simulator.simulated_watcher import SimulatedWatcher

KUBE_SCHEDULER = Profile.of(NodeResourcesFit(), NodeResourcesBalancedAllocation())
"""kube-scheduler's plugins that score by requests, without PodTopologySpread."""
SPREAD_WEIGHT = 2


def extender_profile(configuration: Mapping[str, Any], factor: int = DEFAULT_SCORE_FACTOR) -> Profile:
    """Return the profile that kube-scheduler and the extender score by together, without PodTopologySpread.

    The weights are those of the file that ``trimaran extender config`` writes, divided by 10: kube-scheduler's own
    plugins have their usual weights, and the extender's plugins have the weights of the configuration times the factor.

    Args:
        configuration: a parsed KubeSchedulerConfiguration with one profile, which has plugins for the extender.
        factor: factor of the extender's answers.

    Raises:
        ValueError: a current kube-scheduler cannot use the configuration.
    """
    ((name, ours),) = Profiles.read(configuration, factor).by_scheduler.items()
    in_tree, _ = _in_tree(configuration)
    plugins = (WeightedPlugin(each.plugin, factor * each.weight) for each in ours.profile.plugins)
    return Profile((*plugins, *in_tree.plugins), name)


def _in_tree(configuration: Mapping[str, Any]) -> tuple[Profile, int]:
    """Return the plugins that kube-scheduler itself scores by, and the weight of PodTopologySpread.

    The plugins come from the file that ``trimaran extender config`` writes, with their weights divided by 10.

    Args:
        configuration: a parsed KubeSchedulerConfiguration with one profile, which has plugins for the extender.
    """
    rendered = read_scheduler_file(render_config(configuration, ExtenderEndpoint("http://127.0.0.1"), allow=None))
    (profile,) = rendered.profiles
    in_tree = without_pod_rules(profile)
    plugins = tuple(WeightedPlugin(each.plugin, each.weight // ANSWER_FACTOR) for each in in_tree.plugins)
    spread = rendered.weights[profile.scheduler_name].get("PodTopologySpread", 0) // ANSWER_FACTOR
    return Profile(plugins, profile.scheduler_name), spread


@dataclass(frozen=True)
class ProfilePolicy:
    """Policy that places pods by a scoring profile.

    Without any metrics kube-scheduler's own plugins decide, as in a live cluster when the extender gives all nodes one
    score.

    Attributes:
        name: the policy's name in reports.
        profile: the plugins with their weights.
        spread: weight of PodTopologySpread, by default kube-scheduler's; 0 leaves the plugin out.
        right_sized: replace pods' requests by their owner's observed use plus a margin.
        learns: give plugins the use of each owner's pods as observed earlier in the replay.
        move_policy: policy that also moves running pods; None moves none.
        fallback: rule for nodes without metrics.
        without_metrics: kube-scheduler's own plugins, which score alone if there are no metrics.
    """

    name: str
    profile: Profile
    spread: int = SPREAD_WEIGHT
    right_sized: bool = False
    learns: bool = False
    move_policy: MovePolicy | None = None
    fallback: FallbackPolicy = field(default_factory=FallbackPolicy)
    without_metrics: Profile = KUBE_SCHEDULER

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "ProfileChooser":
        """Return a chooser for one replay."""
        return ProfileChooser(self, cluster, watcher, rng)


def configured_policy(name: str, document: Mapping[str, Any], *, learned_use: bool = False) -> ProfilePolicy:
    """Return the policy of a parsed KubeSchedulerConfiguration with one profile.

    The extender scores by its plugins in the file, and kube-scheduler by the others; without plugins for the extender,
    kube-scheduler scores alone.

    Args:
        name: the policy's name in reports.
        document: the parsed file.
        learned_use: whether plugins get the use of owners, as with ``extender.learned_use``.

    Raises:
        ValueError: the document is not a valid configuration, or has several profiles.
    """
    configuration = read_scheduler_file(document)
    schedulers = [profile.scheduler_name for profile in configuration.profiles]
    if len(schedulers) > 1:
        raise ValueError(f"profiles: a policy needs a file with one profile, this file has: {', '.join(schedulers)}")
    (profile,) = configuration.profiles
    profile = without_pod_rules(profile)  # a replay has no rules between pods but the spread of owners
    in_tree, spread = profile, configuration.weights[profile.scheduler_name].get("PodTopologySpread", 0)
    if not our_plugins().isdisjoint(each.plugin.name for each in profile.plugins):
        profile = extender_profile(document)
        in_tree, spread = _in_tree(document)
    return ProfilePolicy(
        name, profile, spread=spread, without_metrics=in_tree, learns=learned_use and profile.reads_levels
    )


def extended_policy(name: str, profile: Profile, *, learned_use: bool = False) -> ProfilePolicy:
    """Return the policy of kube-scheduler with the extender, which scores by the plugins of a profile.

    A plugin of kube-scheduler in the profile replaces the default of its name, as in a KubeSchedulerConfiguration.

    Args:
        name: the policy's name in reports.
        profile: the plugins with their weights.
        learned_use: whether plugins get the use of owners, as with ``extender.learned_use``.
    """
    in_tree = {each.plugin.name: each for each in KUBE_SCHEDULER.plugins}
    in_tree |= {each.plugin.name: each for each in profile.plugins if each.plugin.name in IN_TREE}
    ours = (each for each in profile.plugins if each.plugin.name not in IN_TREE)
    plugins = (*(WeightedPlugin(each.plugin, DEFAULT_SCORE_FACTOR * each.weight) for each in ours), *in_tree.values())
    return ProfilePolicy(
        name,
        Profile(plugins, profile.scheduler_name),
        without_metrics=Profile(tuple(in_tree.values())),
        learns=learned_use and profile.reads_levels,
    )


class ProfileChooser:
    """Choices by a profile in one replay. The profile is prepared once per snapshot of the watcher."""

    def __init__(
        self, policy: ProfilePolicy, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        self._policy, self._cluster, self._watcher, self._rng = policy, cluster, watcher, rng
        self._history = UseHistory(cluster, watcher) if policy.right_sized or policy.learns else None
        self._profile = self._spreading(policy.profile, policy.spread)
        self._without_metrics = self._spreading(policy.without_metrics, policy.spread)
        self._reads_metrics = any(each.plugin.reads_metrics for each in self._profile.plugins)
        self._prepared: PreparedProfile | None = None
        self._snapshot: object = None  # snapshot that the profile is prepared with

    def admit(self, number: int) -> Pod:
        """Return the pod, with requests from its owner's observed use if the policy right-sizes pods."""
        if self._history is None or not self._policy.right_sized:
            return self._cluster.pod(number)
        return self._cluster.pod(number, self._history.right_sized(number))

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:  # noqa: ARG002  Chooser's arguments
        """Return the row of the candidate node with the highest score."""
        prepared = self.prepared()
        if len(candidates) == len(self._cluster.nodes):
            return pick_highest(prepared.total(pod), self._rng)
        return int(candidates[pick_highest(prepared.total(pod, among=candidates), self._rng)])

    def prepared(self) -> PreparedProfile:
        """Return the profile prepared with the current snapshot."""
        if self._prepared is not None and not self._reads_metrics:
            return self._prepared
        snapshot = self._watcher.snapshot()
        if self._prepared is None or snapshot is not self._snapshot:
            self._snapshot = snapshot
            judgment = self._policy.fallback.judge(self._cluster.nodes, snapshot, self._cluster.now)
            levels = self._history.levels() if self._history is not None and self._policy.learns else None
            if self._reads_metrics and judgment.evidence.outage:
                self._prepared = self._without_metrics.prepare(self._cluster.nodes, judgment.metrics, levels)
            else:
                known = judgment if self._reads_metrics else judgment.metrics
                self._prepared = self._profile.prepare(self._cluster.nodes, known, levels)
        return self._prepared

    def _spreading(self, profile: Profile, weight: int) -> Profile:
        """Return a profile with PodTopologySpread added; weight 0 adds nothing."""
        if not weight:
            return profile
        spread = WeightedPlugin(OwnerSpread(self._cluster.replicas), weight)
        return Profile((*profile.plugins, spread), profile.scheduler_name)
