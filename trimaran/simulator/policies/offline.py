"""Offline search for placements: all pods of a trace together, with their whole future use.

A local search starts from the runs of a replay. It lowers the clairvoyant greedy's cost, the sum over all nodes and
minutes of

    (CPU use / (target * capacity)) ^ power  +  the same for memory

A step moves a run to another node, or swaps the nodes of two runs; the minutes of runs do not change. In every minute
the pods of a node request no more than its capacity. If no step lowers the cost, a few runs are placed at random and
the search continues (iterated local search). The best plan is kept, so the result is never worse than the start. It may
still be worse than the optimum.
"""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.clairvoyant import whole_power

_MIN_GAIN = 1e-9  # relative to the cost; smaller differences are rounding errors
_PERTURBED_SHARE = 0.1  # share of the runs that a perturbation moves
_SWAPS = 12  # swaps that are tried for each run in a sweep


class OfflineSearch:
    """Iterated local search over the nodes of all runs.

    Args:
        cluster: the cluster at the end of a replay.
        targets: targets of CPU and memory use, as shares of capacity.
        powers: exponents of the cost of CPU and memory.

    Attributes:
        pod_runs: all runs.
        nodes: number of each run's node in the current plan, shape (runs,).
    """

    def __init__(self, cluster: Cluster, targets: tuple[float, float], powers: tuple[int, int]) -> None:
        self.pod_runs = cluster.pod_runs
        self.nodes: Int64s = np.array([run.node for run in self.pod_runs], np.int64)
        self._powers = powers
        ledger = cluster.ledger
        self._scale = np.array(targets)[:, None] * ledger.capacity
        self._series = [cluster.run_use(run)[:, : run.end - run.start] for run in self.pod_runs]
        self._requests = np.array([run.requests for run in self.pod_runs], np.float64).reshape(-1, 2)
        self._since, self._until = ledger.since, ledger.until
        self._use = ledger.use.copy()
        self._free = np.repeat(ledger.capacity[:, :, None], self._use.shape[2], axis=2)
        for number, run in enumerate(self.pod_runs):
            self._free[:, run.node, run.start : run.end] -= self._requests[number][:, None]
        self._movable = self._movable_runs(cluster)

    def cost(self) -> float:
        """Return the cost of the current plan."""
        return float(self._cost(self._use, self._scale[:, :, None]).sum())

    def improve(self, rng: np.random.Generator, sweeps: int) -> None:
        """Improve the plan.

        Args:
            rng: random generator for the order of runs, swaps and perturbations.
            sweeps: number of passes over all runs.
        """
        best, lowest = self.nodes.copy(), self.cost()
        for _ in range(sweeps if len(self._movable) else 0):
            changed = False
            for number in rng.permutation(self._movable).tolist():
                changed |= self._move(number)
                changed |= self._swap(number, rng)
            if (cost := self.cost()) < lowest:
                best, lowest = self.nodes.copy(), cost
            if not changed:
                self._perturb(rng)
        for number in np.flatnonzero(self.nodes != best).tolist():
            self._assign(number, int(best[number]))

    def _perturb(self, rng: np.random.Generator) -> None:
        """Assign a few runs to random nodes with enough free capacity."""
        for number in rng.choice(self._movable, max(1, round(_PERTURBED_SHARE * len(self._movable)))).tolist():
            others = self._others(number)
            if len(others):
                self._assign(number, int(rng.choice(others)))

    def _others(self, number: int) -> Int64s:
        """Return the nodes to which a run could move: they exist and have capacity in all minutes of the run."""
        run = self.pod_runs[number]
        fits = self._has_room(self._free[:, :, run.start : run.end], self._requests[number])
        fits &= (self._since <= run.start) & (run.end <= self._until)
        fits[self.nodes[number]] = False
        return np.flatnonzero(fits)

    def _movable_runs(self, cluster: Cluster) -> Int64s:
        """Return the runs that may move: the pod ran only once, and the run did not end because its node left."""
        counts = np.bincount([run.pod for run in self.pod_runs], minlength=len(cluster.trace.pods))
        complete = [run.end < self._until[run.node] or run.end == cluster.trace.minutes for run in self.pod_runs]
        only = [counts[run.pod] == 1 for run in self.pod_runs]
        return np.flatnonzero(np.array(complete, np.bool_) & np.array(only, np.bool_))

    def _cost(self, use: Float64s, scale: Float64s) -> Float64s:
        """Return the clairvoyant greedy's cost in each node and minute, summed over CPU and memory.

        The first axis of both arguments is the resource.
        """
        cpu, memory = (whole_power(shares, power) for shares, power in zip(use / scale, self._powers, strict=True))
        return cpu + memory

    def _has_room(self, free: Float64s, requests: Float64s) -> Bools:
        """Return a mask of the nodes on which requests fit in every minute; a request of 0 fits on any node."""
        return np.asarray(((free.min(axis=-1) >= requests[:, None]) | (requests[:, None] == 0)).all(axis=0))

    def _move(self, number: int) -> bool:
        """Move a run to the node with the lowest cost; return whether the run moved."""
        run, node, series = self.pod_runs[number], int(self.nodes[number]), self._series[number]
        minutes = slice(run.start, run.end)
        others = self._others(number)
        if not len(others):
            return False
        use, scale = self._use[:, others, minutes], self._scale[:, others, None]
        rise = (self._cost(use + series[:, None], scale) - self._cost(use, scale)).sum(axis=1)
        here, scale = self._use[:, node, minutes], self._scale[:, node, None]
        fall = self._cost(here, scale).sum() - self._cost(here - series, scale).sum()
        best = int(rise.argmin())
        if rise[best] >= fall - _MIN_GAIN * max(1.0, abs(fall)):
            return False
        self._assign(number, int(others[best]))
        return True

    def _swap(self, number: int, rng: np.random.Generator) -> bool:
        """Try to swap the nodes of a run and of random other runs; return whether a swap lowered the cost."""
        run = self.pod_runs[number]
        for other in self._movable[rng.integers(0, len(self._movable), _SWAPS)].tolist():
            partner = self.pod_runs[other]
            disjoint = partner.end <= run.start or run.end <= partner.start
            if disjoint or self.nodes[other] == self.nodes[number]:
                continue
            nodes = self.nodes[[number, other]]
            minutes = slice(min(run.start, partner.start), max(run.end, partner.end))
            before = self._cost(self._use[:, nodes, minutes], self._scale[:, nodes, None]).sum()
            self._assign(number, int(nodes[1]))
            self._assign(other, int(nodes[0]))
            after = self._cost(self._use[:, nodes, minutes], self._scale[:, nodes, None]).sum()
            improves = after < before - _MIN_GAIN * max(1.0, before)
            if improves and self._is_feasible(number) and self._is_feasible(other):
                return True
            self._assign(number, int(nodes[0]))
            self._assign(other, int(nodes[1]))
        return False

    def _is_feasible(self, number: int) -> bool:
        """Return whether a run's node exists and has capacity in all minutes of the run."""
        run, node = self.pod_runs[number], self.nodes[number]
        requested = self._requests[number] > 0
        free = self._free[requested, node, run.start : run.end]
        return bool((free >= 0).all() and self._since[node] <= run.start and run.end <= self._until[node])

    def _assign(self, number: int, node: int) -> None:
        run, series, requests = self.pod_runs[number], self._series[number], self._requests[number][:, None]
        minutes, old = slice(run.start, run.end), int(self.nodes[number])
        self._use[:, old, minutes] -= series
        self._free[:, old, minutes] += requests
        self._use[:, node, minutes] += series
        self._free[:, node, minutes] -= requests
        self.nodes[number] = node
