"""Oracle: a policy that knows the whole trace and follows a plan made offline.

The oracle replays the clairvoyant greedy, improves all its placements together
(:mod:`trimaran.simulator.policies.offline`), and then places each pod on its planned node. The greedy chooses instead
if the planned node is full (pods that waited may start earlier than planned), or is not among the sampled nodes
(above 100 nodes). The plan covers the trace's own nodes and events, but no nodes that an autoscaler adds.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.policies.clairvoyant import Clairvoyant, ClairvoyantChooser
from trimaran.simulator.policies.offline import OfflineSearch
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher


@dataclass(frozen=True)
class Oracle:
    """Policy that follows the clairvoyant greedy's placements, improved offline.

    Attributes:
        name: the policy's name in reports.
        sweeps: largest number of passes over all pods in the offline search.
        move_policy: policy that also moves running pods.
    """

    name: str = "oracle"
    sweeps: int = 12
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "OracleChooser":  # noqa: ARG002
        """Make the plan and return a chooser for one replay."""
        greedy = Clairvoyant()
        start = Replay(cluster.trace, greedy, ReplayOptions(overcommit=cluster.overcommit, ceiling=False)).run()
        search = OfflineSearch(start.cluster, greedy.targets, greedy.powers)
        search.improve(rng, self.sweeps)
        plan: dict[int, deque[int]] = defaultdict(deque)
        for run, node in zip(search.pod_runs, search.nodes.tolist(), strict=True):
            plan[run.pod].append(node)
        return OracleChooser(plan, greedy, cluster)


class OracleChooser(ClairvoyantChooser):
    """Choices by a plan in one replay; the clairvoyant greedy chooses if the plan has no node or the node is full.

    Args:
        plan: node numbers in the ledger by pod number, one for each placement of the pod, in order.
        greedy: the greedy policy.
        cluster: the simulated cluster.
    """

    def __init__(self, plan: dict[int, deque[int]], greedy: Clairvoyant, cluster: Cluster) -> None:
        super().__init__(greedy, cluster)
        self._plan = plan

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row of the planned node if it is a candidate, otherwise the row that the greedy chooses."""
        planned = self._plan.get(number)
        if planned:
            row = candidates[self._cluster.numbers[candidates] == planned.popleft()]
            if len(row):
                return int(row[0])
        return super().choose(number, pod, candidates)
