"""Policies that no cluster can have, to compare with: chance, and one that knows what every pod will use.

The clairvoyant greedy places each pod where the sum over its whole life of

    (CPU use / (target * capacity)) ^ power  +  the same of memory

rises least. It knows the future use of the pods that are there and of the pod; not which pods will come, and it never
takes a choice back.
"""

from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Float64s, Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher


@dataclass(frozen=True)
class Random:
    """Any node that passes the filters, each as likely."""

    name: str = "random"
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "RandomChooser":  # noqa: ARG002
        """Begin a replay."""
        return RandomChooser(cluster, rng)


class RandomChooser:
    """Chance at work."""

    def __init__(self, cluster: Cluster, rng: np.random.Generator) -> None:
        self._cluster, self._rng = cluster, rng

    def admit(self, number: int) -> Pod:
        """Return the pod as it is."""
        return self._cluster.pod(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:  # noqa: ARG002  chance looks at nothing
        """Return one of the candidates."""
        return int(candidates[int(self._rng.integers(len(candidates)))])


@dataclass(frozen=True)
class Clairvoyant:
    """The clairvoyant greedy.

    Attributes:
        targets: of CPU and memory, in parts of capacity.
        powers: of the same.
    """

    name: str = "clairvoyant"
    targets: tuple[float, float] = (0.8, 0.95)
    powers: tuple[int, int] = (8, 16)
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "ClairvoyantChooser":  # noqa: ARG002
        """Begin a replay."""
        return ClairvoyantChooser(self, cluster)


class ClairvoyantChooser:
    """The clairvoyant greedy at work."""

    def __init__(self, policy: Clairvoyant, cluster: Cluster) -> None:
        self._policy, self._cluster = policy, cluster

    def admit(self, number: int) -> Pod:
        """Return the pod as it is."""
        return self._cluster.pod(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:  # noqa: ARG002  it knows more than the pod says
        """Return where the cost over the pod's life rises least."""
        cluster = self._cluster
        series = cluster.series(number, cluster.minute)[:, : cluster.trace.minutes - cluster.minute]
        until = cluster.minute + series.shape[1]
        rise = np.zeros(len(candidates))
        for resource, (target, power) in enumerate(zip(self._policy.targets, self._policy.powers, strict=True)):
            use = cluster.ledger.use[resource][cluster.numbers[candidates], cluster.minute : until]
            capacity = (target * cluster.capacity[resource, candidates])[:, None]
            rise += (whole_power((use + series[resource]) / capacity, power) - whole_power(use / capacity, power)).sum(
                1
            )
        return int(candidates[int(rise.argmin())])


def whole_power(values: Float64s, power: int) -> Float64s:
    """Return values to a whole power, by squaring: several times faster than the general function."""
    result, square = np.ones_like(values), values
    while power:
        if power & 1:
            result = result * square
        power >>= 1
        if power:
            square = square * square
    return result
