"""The strongest policy that no cluster can have: it knows the whole trace, and takes choices back before they are made.

It replays the clairvoyant greedy, improves what that did as a whole (:mod:`trimaran.simulator.policies.offline`), and
then puts each pod on the node that it has for it. The greedy chooses where that node has no room, as pods that had
waited came earlier than planned, or is not among those looked at, as above 100 nodes. The plan is of the trace's own
nodes and events: what is added by an autoscaler is not foreseen.
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
    """The clairvoyant greedy's placements, improved offline.

    Attributes:
        sweeps: how often each pod is looked at, at most.
    """

    name: str = "oracle"
    sweeps: int = 12
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "OracleChooser":  # noqa: ARG002
        """Begin a replay: make the plan."""
        greedy = Clairvoyant()
        start = Replay(cluster.trace, greedy, ReplayOptions(overcommit=cluster.overcommit)).run()
        search = OfflineSearch(start.cluster, greedy.targets, greedy.powers)
        search.improve(rng, self.sweeps)
        plan: dict[int, deque[int]] = defaultdict(deque)
        for run, node in zip(search.pod_runs, search.nodes.tolist(), strict=True):
            plan[run.pod].append(node)
        return OracleChooser(plan, cluster, ClairvoyantChooser(greedy, cluster))


class OracleChooser:
    """The plan at work.

    Args:
        plan: the ledger's numbers of the nodes that each pod goes to, one after another.
        cluster: what is replayed.
        greedy: chooses where the plan cannot be kept.
    """

    def __init__(self, plan: dict[int, deque[int]], cluster: Cluster, greedy: ClairvoyantChooser) -> None:
        self._plan, self._cluster, self._greedy = plan, cluster, greedy

    def admit(self, number: int) -> Pod:
        """Return the pod as it is."""
        return self._cluster.pod(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the planned node, where it is a candidate."""
        planned = self._plan.get(number)
        if planned:
            row = candidates[self._cluster.numbers[candidates] == planned.popleft()]
            if len(row):
                return int(row[0])
        return self._greedy.choose(number, pod, candidates)
