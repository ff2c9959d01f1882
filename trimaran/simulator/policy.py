"""Interface of placement policies: a policy begins a replay and then chooses a node for each pod."""

from typing import Protocol

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher


class Chooser(Protocol):
    """Running policy in one replay, as a Protocol."""

    def admit(self, number: int) -> Pod:
        """Return a new pod as it enters the queue; a policy may change its requests here."""
        ...

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row of the node to place a pod on.

        Args:
            number: the pod's number in the trace.
            pod: the pod that :meth:`admit` returned.
            candidates: rows of the feasible nodes, at least one, shape (k,).
        """
        ...


class Policy(Protocol):
    """Placement policy, as a Protocol. Policies are immutable: one policy serves many replays.

    Attributes:
        name: the policy's name in reports.
        move_policy: policy that also moves running pods; None moves none.
    """

    @property
    def name(self) -> str: ...  # noqa: D102  documented above
    @property
    def move_policy(self) -> MovePolicy | None: ...  # noqa: D102  documented above

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> Chooser:
        """Return a chooser for one replay.

        Args:
            cluster: the simulated cluster; the chooser must not change it.
            watcher: the nodes' metrics.
            rng: random generator for tie-breaks.
        """
        ...


def pick_highest(scores: Int64s, rng: np.random.Generator) -> int:
    """Return the index of the highest score; ties are broken at random, as in kube-scheduler."""
    best = (scores == np.maximum.reduce(scores)).nonzero()[0]
    return int(best[0] if len(best) == 1 else best[int(rng.integers(len(best)))])
