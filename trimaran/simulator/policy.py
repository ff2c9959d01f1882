"""Interface of placement policies: a policy begins a replay, then chooses a node for each pod or places all pods."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher


class Chooser(Protocol):
    """Choices of a policy in one replay, as a Protocol."""

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


@dataclass(frozen=True, slots=True)
class Placement:
    """Queued pod that gets a node.

    Attributes:
        number: the pod's number in the trace.
        row: row of the node.
    """

    number: int
    row: int


@dataclass(frozen=True, slots=True)
class Victim:
    """Running pod, given by its number in the trace, that is preempted; its replacement is queued at once."""

    number: int


class Placing(ABC):
    """Scheduling of the queued pods in one replay."""

    @abstractmethod
    def admit(self, number: int) -> Pod:
        """Return a new pod as it enters the queue."""

    def has_news(self) -> bool:
        """Return whether queued pods may get a node now although no capacity was freed; False by default."""
        return False

    @abstractmethod
    def place(self, numbers: Sequence[int]) -> Iterator[Placement | Victim]:
        """Yield the placements of queued pods; the caller carries out each one before the next.

        Args:
            numbers: numbers of pods in :attr:`~trimaran.simulator.cluster.Cluster.queue`, in the order of their
                arrival.
        """


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

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> Chooser | Placing:
        """Return a chooser for one replay, or a :class:`Placing` that schedules all of its pods.

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
