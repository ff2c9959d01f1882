"""Reference policies: random placement, and a clairvoyant greedy that knows every pod's future use.

The clairvoyant greedy places each pod on the node where the sum over the pod's whole life of

    (CPU use / (target * capacity)) ^ power  +  the same for memory

rises least. It knows the future use of the pod and of the running pods. It does not know which pods will arrive, and it
never moves a pod.
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
    """Policy that chooses among the feasible nodes with equal probability."""

    name: str = "random"
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "RandomChooser":  # noqa: ARG002
        """Return a chooser for one replay."""
        return RandomChooser(cluster, rng)


class RandomChooser:
    """Random choices in one replay."""

    def __init__(self, cluster: Cluster, rng: np.random.Generator) -> None:
        self._cluster, self._rng = cluster, rng

    def admit(self, number: int) -> Pod:
        """Return the pod unchanged."""
        return self._cluster.pod(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:  # noqa: ARG002  Chooser's arguments
        """Return a random candidate."""
        return int(candidates[int(self._rng.integers(len(candidates)))])


@dataclass(frozen=True)
class Clairvoyant:
    """Clairvoyant greedy policy.

    Attributes:
        name: the policy's name in reports.
        targets: targets of CPU and memory use, as shares of capacity.
        powers: exponents of the cost of CPU and memory.
        move_policy: policy that also moves running pods.
    """

    name: str = "clairvoyant"
    targets: tuple[float, float] = (0.8, 0.95)
    powers: tuple[int, int] = (8, 16)
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "ClairvoyantChooser":  # noqa: ARG002
        """Return a chooser for one replay."""
        return ClairvoyantChooser(self, cluster)


class ClairvoyantChooser:
    """Clairvoyant greedy choices in one replay."""

    def __init__(self, policy: Clairvoyant, cluster: Cluster) -> None:
        self._policy, self._cluster = policy, cluster

    def admit(self, number: int) -> Pod:
        """Return the pod unchanged."""
        return self._cluster.pod(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:  # noqa: ARG002  Chooser's arguments
        """Return the row of the candidate node whose cost, summed over the pod's life, the pod would raise least."""
        cluster = self._cluster
        series = cluster.series(number, cluster.minute)[:, : cluster.trace.minutes - cluster.minute]
        until = cluster.minute + series.shape[1]
        rise = np.zeros(len(candidates))
        for resource, (target, power) in enumerate(zip(self._policy.targets, self._policy.powers, strict=True)):
            use = cluster.ledger.use[resource][cluster.numbers[candidates], cluster.minute : until]
            capacity = (target * cluster.capacity[resource, candidates])[:, None]
            before, after = use / capacity, (use + series[resource]) / capacity
            rise += (whole_power(after, power) - whole_power(before, power)).sum(1)
        return int(candidates[int(rise.argmin())])


def whole_power(values: Float64s, power: int) -> Float64s:
    """Return values raised to a natural power, by repeated squaring: several times faster than NumPy's power."""
    result, square = np.ones_like(values), values
    while power:
        if power & 1:
            result = result * square
        power >>= 1
        if power:
            square = square * square
    return result
