"""kube-scheduler as it comes, beside ``trimaran nodes --taints``: hot nodes have a soft taint (docs/nodes.md).

Which nodes are hot is said by the very rule that runs live, once in each minute in which pods are placed. The
scheduler's TaintToleration, weight 3 by default, counts the soft taints t that a pod does not tolerate, as no pod does:

    score = 100 - 100 * t / highest t of the nodes that passed the filters     truncated; 100 where none has any

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from scoring.normalization import inverted
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from scoring.table.node_table import NodeTable
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.profiles import ProfileChooser, ProfilePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.soft_taints.hysteresis import HotNodeRule

TAINT_TOLERATION_WEIGHT = 3


@dataclass(frozen=True)
class TaintToleration(WithoutNodeTerms):
    """Score nodes with a soft taint lower.

    Attributes:
        tainted: the names of the nodes that have one; followed as it changes.
    """

    tainted: Collection[str] = field(hash=False)

    name: ClassVar[str] = "TaintToleration"
    normalizes: ClassVar[bool] = True

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return how many taints each node has."""
        taints = np.zeros((1, len(nodes)), np.int64)
        taints[0, nodes.rows_of(name for name in self.tainted if name in nodes)] = 1
        return {"score": taints[:, rows].repeat(len(pods), axis=0)}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return 100 where there are no taints."""
        return inverted(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Say whether it is tainted."""
        return f"{terms['score']} soft taints that the pod does not tolerate"


@dataclass(frozen=True)
class SoftTaints(ProfilePolicy):
    """A profile beside soft taints.

    Attributes:
        rule: when a node is hot.
    """

    rule: HotNodeRule = field(default_factory=HotNodeRule)

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "SoftTaintsChooser":
        """Begin a replay."""
        return SoftTaintsChooser(self, cluster, watcher, rng)


class SoftTaintsChooser(ProfileChooser):
    """The profile at work, with taints that are written anew in each minute."""

    def __init__(
        self, policy: SoftTaints, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        self._rule = policy.rule
        self._hot: dict[str, float] = {}
        self._turn = -1
        taints = WeightedPlugin(TaintToleration(self._hot), TAINT_TOLERATION_WEIGHT)
        profile = Profile((*policy.profile.plugins, taints), policy.profile.scheduler_name)
        super().__init__(replace(policy, profile=profile), cluster, watcher, rng)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row with the highest score."""
        if self._turn != self._cluster.minute:
            self._turn = self._cluster.minute
            hot = self._rule.hot_nodes(self._cluster.nodes.names, self._watcher.loads(), self._hot, self._cluster.now)
            self._hot.clear()
            self._hot.update(hot)
        return super().choose(number, pod, candidates)
