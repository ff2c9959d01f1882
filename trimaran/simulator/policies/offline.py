"""Placements looked for offline: all pods of a trace at once, with all that they will ever use.

It begins with the stays of a replay, and lowers the clairvoyant greedy's cost: over all nodes and minutes the sum of

    (CPU use / (target * capacity)) ^ power  +  the same of memory

A stay keeps its minutes and takes another node, or two stays trade theirs. At every minute the pods of a node request
no more than it has. Where no step lowers the cost any more, a few stays are put anywhere, and it goes on. The best
plan of all is kept, so the result is no worse than where it began; it need not be the best that there is.
"""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.clairvoyant import whole_power

_MIN_GAIN = 1e-9  # of the cost; less is rounding
_SHAKEN = 0.1  # of the stays, how many are put anywhere
_TRADES = 12  # stays that each stay tries to trade nodes with in a sweep


class OfflineSearch:
    """Stays of pods on nodes, improved.

    Args:
        cluster: as a replay left it.
        targets: of CPU and memory, in parts of capacity.
        powers: of the same.

    Attributes:
        stays: all of them.
        nodes: the ledger's number of each stay's node so far, shape (stays,).
    """

    def __init__(self, cluster: Cluster, targets: tuple[float, float], powers: tuple[int, int]) -> None:
        self.pod_runs = cluster.pod_runs
        self.nodes: Int64s = np.array([run.node for run in self.pod_runs], np.int64)
        self._powers = powers
        ledger = cluster.ledger
        self._scale = np.array(targets)[:, None] * ledger.capacity
        self._series = [cluster.series(run.pod, run.start)[:, : run.end - run.start] for run in self.pod_runs]
        self._requests = np.array([run.requests for run in self.pod_runs], np.float64).reshape(-1, 2)
        self._since, self._until = ledger.since, ledger.until
        self._use = ledger.use.copy()
        self._free = np.repeat(ledger.capacity[:, :, None], self._use.shape[2], axis=2)
        for number, run in enumerate(self.pod_runs):
            self._free[:, run.node, run.start : run.end] -= self._requests[number][:, None]
        self._movable = self._movable_runs(cluster)

    def cost(self) -> float:
        """Return what is lowered."""
        return float(self._cost(self._use, self._scale[:, :, None]).sum())

    def improve(self, rng: np.random.Generator, sweeps: int) -> None:
        """Look at every stay so many times, in an order that is drawn; shake the plan where nothing gets better."""
        best, least = self.nodes.copy(), self.cost()
        for _ in range(sweeps if len(self._movable) else 0):
            changed = False
            for number in rng.permutation(self._movable).tolist():
                changed |= self._move(number)
                changed |= self._swap(number, rng)
            if (now := self.cost()) < least:
                best, least = self.nodes.copy(), now
            if not changed:
                self._perturb(rng)
        for number in np.flatnonzero(self.nodes != best).tolist():
            self._assign(number, int(best[number]))

    def _perturb(self, rng: np.random.Generator) -> None:
        """Put a few pod_runs on any nodes that have room."""
        for number in rng.choice(self._movable, max(1, round(_SHAKEN * len(self._movable)))).tolist():
            others = self._others(number)
            if len(others):
                self._assign(number, int(rng.choice(others)))

    def _others(self, number: int) -> Int64s:
        """Return the nodes that have room for a run in all its minutes, without its own."""
        run = self.pod_runs[number]
        fits = self._has_room(self._free[:, :, run.start : run.end], self._requests[number])
        fits &= (self._since <= run.start) & (run.end <= self._until)
        fits[self.nodes[number]] = False
        return np.flatnonzero(fits)

    def _movable_runs(self, cluster: Cluster) -> Int64s:
        """Return the stays that are all of their pods' lives: the others are what became of a node that left."""
        counts = np.bincount([run.pod for run in self.pod_runs], minlength=len(cluster.trace.pods))
        there = [run.end < self._until[run.node] or run.end == cluster.trace.minutes for run in self.pod_runs]
        alone = [counts[run.pod] == 1 for run in self.pod_runs]
        return np.flatnonzero(np.array(there, np.bool_) & np.array(alone, np.bool_))

    def _cost(self, use: Float64s, scale: Float64s) -> Float64s:
        """Return the cost of each node and minute; the first axis of both is that of CPU and memory."""
        cpu, memory = (whole_power(part, power) for part, power in zip(use / scale, self._powers, strict=True))
        return cpu + memory

    def _has_room(self, free: Float64s, requests: Float64s) -> Bools:
        """Say where requests fit in every minute; as for the scheduler, what is not requested fits anywhere."""
        return np.asarray(((free.min(axis=-1) >= requests[:, None]) | (requests[:, None] == 0)).all(axis=0))

    def _move(self, number: int) -> bool:
        """Put a stay on the node where the cost is least; say whether that is another one."""
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
        """Let a stay trade nodes with another one where that lowers the cost; say whether it did."""
        run = self.pod_runs[number]
        for other in self._movable[rng.integers(0, len(self._movable), _TRADES)].tolist():
            partner = self.pod_runs[other]
            apart = partner.end <= run.start or run.end <= partner.start
            if apart or self.nodes[other] == self.nodes[number]:
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
        """Say whether a run has room and its node is there all the while."""
        run, node = self.pod_runs[number], self.nodes[number]
        asked = self._requests[number] > 0
        free = self._free[asked, node, run.start : run.end]
        return bool((free >= 0).all() and self._since[node] <= run.start and run.end <= self._until[node])

    def _assign(self, number: int, node: int) -> None:
        run, series, requests = self.pod_runs[number], self._series[number], self._requests[number][:, None]
        minutes, old = slice(run.start, run.end), int(self.nodes[number])
        self._use[:, old, minutes] -= series
        self._free[:, old, minutes] += requests
        self._use[:, node, minutes] += series
        self._free[:, node, minutes] -= requests
        self.nodes[number] = node
