"""What a policy is: something that begins a replay, and then chooses a node for pod after pod."""

from typing import Protocol

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher


class Chooser(Protocol):
    """A policy at work in one replay."""

    def admit(self, number: int) -> Pod:
        """Return a pod that was just created, as it enters the queue: here its requests may be changed."""
        ...

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row to place a pod on.

        Args:
            number: of the pod in the trace.
            pod: what :meth:`admit` returned.
            candidates: the rows that passed the filters, at least one, shape (k,).
        """
        ...


class Policy(Protocol):
    """A way to choose nodes. Frozen: one policy makes many replays.

    Attributes:
        name: for reports.
        moves: what pods are moved by beside; None moves none.
    """

    @property
    def name(self) -> str: ...  # noqa: D102  said above
    @property
    def move_policy(self) -> MovePolicy | None: ...  # noqa: D102  said above

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> Chooser:
        """Begin a replay.

        Args:
            cluster: what is replayed; the chooser looks at it, and changes nothing in it.
            watcher: what is known of the nodes' use.
            rng: draws among equals.
        """
        ...


def pick_highest(scores: Int64s, rng: np.random.Generator) -> int:
    """Return the place of the highest score, drawn among equals as kube-scheduler does at random."""
    best = (scores == np.maximum.reduce(scores)).nonzero()[0]
    return int(best[0] if len(best) == 1 else best[int(rng.integers(len(best)))])
