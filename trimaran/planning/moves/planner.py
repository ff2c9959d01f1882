"""Search for the moves of running pods that lower the cost of all nodes most.

Each step picks the best move among the pods with the largest relief and all nodes: the one with the lowest total cost
(:class:`~trimaran.planning.moves.costs.MoveCosts`) afterwards. The past is used step by step, because nodes get hot by
bursts of a few minutes, which recur at any time and which a longer mean hides.

A move changes two nodes only. So the reliefs of all pods and the rises of tried pods on all nodes are kept from one
step to the next, and only the terms of these two nodes are computed again. The cost never falls as use rises, so a
part of the past gives a lower bound of a node's rise. No more is computed for a node whose bound is above the
lowest rise of another node. The plan equals that of a search that computes everything in every step.

A pod moves only if the gain is worth it (:class:`~trimaran.planning.moves.gains.GainRule`).
"""

from typing import NamedTuple

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.moves.costs import MoveCosts
from trimaran.planning.moves.gains import GainRule, block_count
from trimaran.planning.moves.problem import MoveProblem

_TRIED_PODS = 40
_POD_CHUNK = 2048  # pods whose relief is computed at once: 5 MB for each resource
_FEW_NODES = 64  # nodes whose rise is computed at once first; doubled as long as more are needed
_BOUND_STEPS = 8  # the lower bound uses every eighth step
_ROUNDING = 1e-12  # tolerance between a rise and its lower bound; sums err by far less
_SMALLEST_USE = 1e-9


class Move(NamedTuple):
    """Planned move of a pod.

    Attributes:
        pod: index of the pod.
        source: row of its present node.
        target: row of its new node.
        gain: reduction of the total cost, averaged over the past; a hot node costs 1.
        low: lower end of the gain that is predicted for the next two hours, net of the start-up, in minutes of a hot
            node.
    """

    pod: int
    source: int
    target: int
    gain: float
    low: float


class _Rises(NamedTuple):
    """Increases of the nodes' costs if a pod is added to them.

    Attributes:
        lowest: increase of each node's cost, or a lower bound, shape (nodes,).
        is_exact: whether ``lowest`` is the increase and not just a bound, shape (nodes,).
    """

    lowest: Float64s
    is_exact: Bools


class MovePlanner:
    """Search for the best moves. The search assumes that in the past every pod was already on its current node.

    Args:
        problem: the cluster.
        costs: parameters of the cost.
        min_gain: least reduction of the average cost for a move.
        enough: share of the best gain that suffices: of the tried pods that gain as much, the one with the lowest use
            moves. With 1 the best one moves.
        rule: rule for which gains are worth a move.

    Attributes:
        use: CPU and memory use of each node after the moves so far, as :meth:`MoveProblem.node_use` returns it.
    """

    def __init__(
        self, problem: MoveProblem, costs: MoveCosts, min_gain: float, enough: float = 1.0, rule: GainRule | None = None
    ) -> None:
        self._problem, self._costs, self._min_gain, self._enough = problem, costs, max(min_gain, 0.0), enough
        self._rule, self._blocks = rule or GainRule(), block_count(problem.cpu.shape[1])
        self._block_steps = problem.cpu.shape[1] // self._blocks
        self._scale = costs.scale(problem.capacity)
        self._free = problem.free.astype(np.float64)
        self.use = problem.node_use()
        self._cost = costs.blocks(self.use, self._scale, self._blocks)
        self._pods = np.flatnonzero(problem.movable)  # candidates; a pod moves at most once
        self._relief = self._reliefs(self._pods)
        self._rises: dict[int, _Rises] = {}  # the rises of tried pods, by pod
        self._accepted: dict[int, Bools] = {}
        self._open = np.ones(len(self._cost), np.bool_)  # nodes that take pods

    def worth_relieving(self) -> Int64s:
        """Return the rows of the nodes with a pod whose removal lowers the node's cost by more than ``min_gain``."""
        return np.unique(self._problem.rows[self._pods[self._relief > self._min_gain]])

    def prospects(self) -> list[Move]:
        """Return the best move of each of the pods that relieve their nodes most, even if it gains too little."""
        found = []
        for pod, relief in zip(*self._most_relieving(), strict=True) if len(self._pods) else ():
            target, gain = self._best_target(pod, relief, -np.inf) if relief > 0 else (-1, 0.0)
            if target >= 0:
                found.append(Move(pod, int(self._problem.rows[pod]), target, gain, self._low(pod, target)))
        return found

    def exclude(self, pods: Bools) -> None:
        """Exclude pods from all further moves; ``pods`` has the shape (pods,)."""
        kept = ~pods[self._pods]
        self._pods, self._relief = self._pods[kept], self._relief[kept]
        self._rises = {pod: rise for pod, rise in self._rises.items() if not pods[pod]}

    def close(self, row: int) -> None:
        """Close the node of a row: no pod moves there from now on."""
        self._open[row] = False

    def best(self, count: int) -> list[Move]:
        """Return at most ``count`` moves, in order; each lowers the cost most after the previous moves."""
        moves: list[Move] = []
        while len(moves) < count and len(self._pods):
            move = self._best()
            if move is None:
                break
            moves.append(move)
            self._apply(move)
        return moves

    def _best(self) -> Move | None:
        """Return the next move, or None if none lowers the cost by more than ``min_gain``."""
        found: list[Move] = []
        most = self._min_gain
        for pod, relief in zip(*self._most_relieving(), strict=True):
            least = max(self._min_gain, self._enough * most)
            if relief <= least:
                break  # the cost of the target never falls, so neither this pod nor a later one gains enough
            target, gain = self._best_target(pod, relief, least)
            if gain > least and (low := self._low(pod, target)) > 0:
                most = max(most, gain)
                found.append(Move(pod, int(self._problem.rows[pod]), target, gain, low))
        sufficient = [move for move in found if move.gain >= self._enough * most]
        return min(sufficient, key=lambda move: self._problem.cpu[move.pod].mean(dtype=np.float64), default=None)

    def _most_relieving(self) -> tuple[list[int], list[float]]:
        """Return the pods whose removal lowers their node's cost most, and by how much; the most relieving first."""
        tried = min(_TRIED_PODS, self._relief.size)
        least = -np.partition(-self._relief, tried - 1)[tried - 1]
        candidates = np.flatnonzero(self._relief >= least)
        order = np.argsort(-self._relief[candidates], kind="stable")[:tried]
        return self._pods[candidates[order]].tolist(), self._relief[candidates[order]].tolist()

    def _reliefs(self, pods: Int64s) -> Float64s:
        """Return by how much each pod's removal lowers its node's cost, 0 if this is too uncertain; shape (pods,).

        A pod relieves its node by at most the node's cost, so the relief is 0 if that cost is at most ``min_gain``.
        """
        relief = np.zeros(pods.size)
        costly = np.flatnonzero((self._cost.mean(axis=1) > self._min_gain)[self._problem.rows[pods]])
        for start in range(0, costly.size, _POD_CHUNK):
            places = costly[start : start + _POD_CHUNK]
            blocks, shares = self._relief_blocks(pods[places])
            is_sure = self._rule.lower_end(blocks, shares, self._block_steps) > 0
            relief[places] = np.where(is_sure, blocks.mean(axis=1), 0.0)
        return relief

    def _relief_blocks(self, pods: Int64s) -> tuple[Float64s, Float64s]:
        """Return the relief by each pod in each block, shape (pods, blocks), and the pod's share of its node's CPU."""
        problem, rows = self._problem, self._problem.rows[pods]
        use, cpu = self.use[0][rows], problem.cpu[pods].astype(np.float64)
        without = use - cpu, self.use[1][rows] - problem.memory[pods]
        shares = cpu.sum(axis=1) / np.maximum(use.sum(axis=1), _SMALLEST_USE)
        return self._cost[rows] - self._costs.blocks(without, self._scale[:, rows], self._blocks), shares

    def _low(self, pod: int, target: int) -> float:
        """Return the lower end of the predicted gain of a move."""
        relief, share = self._relief_blocks(np.array([pod]))
        with_pod = self.use[0][target] + self._problem.cpu[pod], self.use[1][target] + self._problem.memory[pod]
        rise = self._costs.blocks(with_pod, self._scale[:, target], self._blocks) - self._cost[target]
        return float(self._rule.lower_end(relief - rise, share, self._block_steps)[0])

    def _best_target(self, pod: int, relief: float, least: float) -> tuple[int, float]:
        """Return the node on which a pod gains most, and the gain; -infinity if no gain is above ``least``."""
        if pod not in self._rises:
            self._rises[pod] = _Rises(self._least_rises(pod), np.zeros(len(self._cost), np.bool_))
        rises, rows, few = self._rises[pod], np.flatnonzero(self._fits(pod)), _FEW_NODES
        while True:
            is_exact, of_rows = rises.is_exact[rows], rises.lowest[rows]
            highest = min(of_rows[is_exact].min(initial=np.inf), relief - least) + _ROUNDING
            missing = rows[~is_exact & (of_rows <= highest)]
            if not missing.size:
                break
            first = missing[np.argsort(rises.lowest[missing], kind="stable")[:few]]
            rises.lowest[first], rises.is_exact[first] = self._rise_on(pod, first), True
            few *= 2
        if not is_exact.any():
            return -1, -np.inf
        gain = np.where(is_exact, relief - of_rows, -np.inf)
        best = int(gain.argmax())
        return int(rows[best]), float(gain[best])

    def _least_rises(self, pod: int) -> Float64s:
        """Return a lower bound of the increase of each node's cost with a pod, from a part of the steps."""
        use, cpu = self.use[0][:, ::_BOUND_STEPS], self._problem.cpu[pod, ::_BOUND_STEPS]
        scale, steps = self._scale[0], self._problem.cpu.shape[1]
        with_pod, without = (self._costs.cpu_cost(each, scale) for each in (use + cpu, use))
        return np.asarray((with_pod - without).sum(axis=1) / steps)

    def _rise_on(self, pod: int, rows: Int64s) -> Float64s:
        """Return the increase of each given node's cost with a pod, shape (rows,)."""
        with_pod = self.use[0][rows] + self._problem.cpu[pod], self.use[1][rows] + self._problem.memory[pod]
        return np.asarray(self._costs.mean(with_pod, self._scale[:, rows]) - self._cost[rows].mean(axis=1))

    def _fits(self, pod: int) -> Bools:
        """Return a mask of the nodes to which a pod may move: other nodes that accept it and have free capacity."""
        problem = self._problem
        fits: Bools = np.all(self._free >= problem.requests[:, pod, None], axis=0)
        fits[problem.rows[pod]] = False
        fits &= self._open
        if problem.accepts is not None:
            if pod not in self._accepted:
                self._accepted[pod] = problem.accepts(pod)
            fits &= self._accepted[pod]
        return fits

    def _apply(self, move: Move) -> None:
        """Apply a move to the nodes' use and free resources, and compute the terms that depend on them again."""
        problem, nodes = self._problem, np.array([move.source, move.target])
        for use, pods in zip(self.use, (problem.cpu, problem.memory), strict=True):
            use[move.source] -= pods[move.pod]
            use[move.target] += pods[move.pod]
        self._free[:, move.source] += problem.requests[:, move.pod]
        self._free[:, move.target] -= problem.requests[:, move.pod]
        changed_use = self.use[0][nodes], self.use[1][nodes]
        self._cost[nodes] = self._costs.blocks(changed_use, self._scale[:, nodes], self._blocks)

        # The pod is no longer a candidate, and stays on its new node for the rest of the plan.
        self._rises.pop(move.pod, None)
        remaining = self._pods != move.pod
        self._pods, self._relief = self._pods[remaining], self._relief[remaining]
        changed = np.flatnonzero(np.isin(problem.rows[self._pods], nodes))
        self._relief[changed] = self._reliefs(self._pods[changed])
        tried = np.fromiter(self._rises, np.int64)
        with_pods = tuple(
            use + pods[tried, None] for use, pods in zip(changed_use, (problem.cpu, problem.memory), strict=True)
        )
        rises = self._costs.mean((with_pods[0], with_pods[1]), self._scale[:, nodes]) - self._cost[nodes].mean(axis=1)
        for known, on_nodes in zip(self._rises.values(), rises, strict=True):
            known.lowest[nodes], known.is_exact[nodes] = on_nodes, True
