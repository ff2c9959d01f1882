"""Policies that are profiles: the very scoring code that runs live, with its metrics, fallback and pods in flight."""

from dataclasses import dataclass, field

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.profiles.fallback import FallbackPolicy
from scoring.profiles.profile import PreparedProfile, Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.policies.topology_spread import PodTopologySpread
from trimaran.simulator.policy import pick_highest
from trimaran.simulator.simulated_watcher import SimulatedWatcher

KUBE_SCHEDULER = Profile.of(NodeResourcesFit(), NodeResourcesBalancedAllocation())
"""Its plugins that score by requests; PodTopologySpread is beside them."""
SPREAD_WEIGHT = 2


@dataclass(frozen=True)
class ProfilePolicy:
    """Place pods by a profile.

    Attributes:
        name: for reports.
        profile: the plugins.
        spread: the weight of PodTopologySpread beside them, as kube-scheduler has it by default; 0 is without.
        right_sized: requests are what the pods of an owner were seen to use, with a margin.
        learns: plugins are told what the pods of an owner were seen to use.
        moves: what pods are moved by beside.
        fallback: what to do where metrics are missing.

    Without any metrics the default scheduler's plugins decide, as they do where the extender answers all nodes alike.
    """

    name: str
    profile: Profile
    spread: int = SPREAD_WEIGHT
    right_sized: bool = False
    learns: bool = False
    move_policy: MovePolicy | None = None
    fallback: FallbackPolicy = field(default_factory=FallbackPolicy)

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "ProfileChooser":
        """Begin a replay."""
        return ProfileChooser(self, cluster, watcher, rng)


class ProfileChooser:
    """A profile at work. It prepares anew whenever the watcher has a new snapshot."""

    def __init__(
        self, policy: ProfilePolicy, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        self._policy, self._cluster, self._watcher, self._rng = policy, cluster, watcher, rng
        self._history = UseHistory(cluster, watcher) if policy.right_sized or policy.learns else None
        self._profile = self._spreading(policy.profile, policy.spread)
        self._without_metrics = self._spreading(KUBE_SCHEDULER, SPREAD_WEIGHT)
        self._reads_metrics = any(each.plugin.reads_metrics for each in self._profile.plugins)
        self._prepared: PreparedProfile | None = None
        self._snapshot: object = None  # which one it is prepared with

    def admit(self, number: int) -> Pod:
        """Return the pod, with requests of its owner's use if that is the policy."""
        if self._history is None or not self._policy.right_sized:
            return self._cluster.pod(number)
        return self._cluster.pod(number, self._history.right_sized(number))

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:  # noqa: ARG002  the pod says all
        """Return the row with the highest score."""
        prepared = self.prepared()
        if len(candidates) == len(self._cluster.nodes):
            return pick_highest(prepared.total(pod), self._rng)
        return int(candidates[pick_highest(prepared.total(pod, among=candidates), self._rng)])

    def prepared(self) -> PreparedProfile:
        """Return the profile, prepared with the newest snapshot."""
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
        """Return a profile with PodTopologySpread beside its plugins."""
        if not weight:
            return profile
        spread = WeightedPlugin(PodTopologySpread(self._cluster.replicas), weight)
        return Profile((*profile.plugins, spread), profile.scheduler_name)
