"""kube-scheduler with soft taints on hot nodes, as ``trimaran nodes --taints`` sets them (docs/nodes.md).

The live rule determines the hot nodes, once in each minute in which pods are placed. No simulated pod tolerates the
taint. kube-scheduler's TaintToleration, with its default weight 3, counts a node's soft taints t that a pod does not
tolerate:

    score = 100 - 100 * t / highest t of the feasible nodes     truncated; 100 if no node has a soft taint

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
class HotNodeTaints(WithoutNodeTerms):
    """kube-scheduler's TaintToleration: lower scores for nodes with a soft taint.

    Attributes:
        tainted: names of the nodes with a soft taint. The collection is not copied, so scores follow its changes.
    """

    tainted: Collection[str] = field(hash=False)

    name: ClassVar[str] = "TaintToleration"
    normalizes: ClassVar[bool] = True

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the number of soft taints of each node."""
        taints = np.zeros((1, len(nodes)), np.int64)
        taints[0, nodes.rows_of(name for name in self.tainted if name in nodes)] = 1
        return {"score": taints[:, rows].repeat(len(pods), axis=0)}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return normalized scores: 100 for a node without soft taints."""
        return inverted(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the text that explains a node's score, with the number of the node's soft taints."""
        return f"{terms['score']} soft taints that the pod does not tolerate"


@dataclass(frozen=True)
class SoftTaints(ProfilePolicy):
    """Profile policy with soft taints on hot nodes.

    Attributes:
        rule: rule that determines the hot nodes.
    """

    rule: HotNodeRule = field(default_factory=HotNodeRule)

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "SoftTaintsChooser":
        """Return a chooser for one replay."""
        return SoftTaintsChooser(self, cluster, watcher, rng)


class SoftTaintsChooser(ProfileChooser):
    """Choices by a profile in one replay, with soft taints that are updated every minute."""

    def __init__(
        self, policy: SoftTaints, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        self._rule = policy.rule
        self._hot: dict[str, float] = {}
        self._turn = -1
        taints = WeightedPlugin(HotNodeTaints(self._hot), TAINT_TOLERATION_WEIGHT)
        profile = Profile((*policy.profile.plugins, taints), policy.profile.scheduler_name)
        super().__init__(replace(policy, profile=profile), cluster, watcher, rng)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row of the candidate node with the highest score."""
        if self._turn != self._cluster.minute:
            self._turn = self._cluster.minute
            hot = self._rule.hot_nodes(self._cluster.nodes.names, self._watcher.loads(), self._hot, self._cluster.now)
            self._hot.clear()
            self._hot.update(hot)
        return super().choose(number, pod, candidates)
