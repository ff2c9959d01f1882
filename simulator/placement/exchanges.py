"""Exchanges of pods between pairs of nodes, many pairs at once.

From each node of a pair some pods are drawn, and all bundles of a few of them are looked at: a bundle of one node for
a bundle of the other, one of which may be empty. That is tens of thousands of exchanges a pair, too many to ask each
what it would cost. But the cost is smooth where it is rounded off, so near the nodes as they are it is a parabola: its
lowest point is the amount that one node should best take over from the other, its curvature says which misses count.
For each bundle of the one node the nearest bundle of the other is found by a matrix product. What the few exchanges so
found truly cost is asked then.
"""

from itertools import combinations
from typing import Final

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from simulator.placement.problem import Problem, cost, imbalances

_LEAST: Final = 1e-12  # an exchange that gains less is left alone
_FLAT: Final = 1e-3  # a spread below this counts as this: the tangent would be too steep for any exchange
_SHARP: Final = 1e-3  # an imbalance below this is curved like this: the parabola would be too narrow for any exchange
_RIDGE: Final = 1.0  # of curvature, in every direction: or what does not count could be exchanged without end
_FEW: Final = 32  # pairs looked at together: more do not fit into the processor's caches


class Exchanges:
    """A plan, and the exchanges between pairs of nodes that make it better.

    Args:
        problem: what is placed.
        plan: where it begins; not changed.
        spread_weight: what spread between nodes counts.
        drawn: pods of a node that a round looks at, drawn anew each time.
        together: how many of them change their node together, at most.

    Attributes:
        plan: the plan so far.
    """

    def __init__(self, problem: Problem, plan: Int64s, spread_weight: float, *, drawn: int, together: int) -> None:
        self._problem = problem
        self.plan = plan.copy()
        self._weight = spread_weight
        self._limit = problem.limit
        # One more row for the pod that is not there: it asks for nothing and may go anywhere.
        columns = problem.demand.shape[1]
        self._demand = np.concatenate([problem.demand, np.zeros((1, columns))])
        self._group = np.append(problem.group, len(problem.allowed))
        self._allowed: Bools = np.concatenate([problem.allowed, np.ones((1, problem.nodes), np.bool_)])
        self._load = problem.load(plan)
        self._unit = problem.capacity.mean(axis=0)
        self._capacity = problem.capacity / self._unit
        most = int(np.bincount(plan[plan >= 0], minlength=1).max())
        self._drawn = max(1, min(drawn, most))
        self._bundles = _bundles(self._drawn, together)

    def cost(self) -> float:
        """Return what is minimized."""
        return cost(self._problem, self.plan, self._weight)

    def pair_off(self, rng: np.random.Generator, *, opposites: bool) -> tuple[Int64s, Int64s]:
        """Return two nodes for each pair: at random, or those that deviate most in opposite directions."""
        order = rng.permutation(self._problem.nodes)
        half = len(order) // 2
        if opposites:
            use = self._use()
            order = (use @ rng.standard_normal(use.shape[1])).argsort()
            return order[:half], order[::-1][:half]
        return order[:half], order[half : 2 * half]

    def exchange(
        self, pairs: tuple[Int64s, Int64s], heat: float, blunt: float, rng: np.random.Generator, share: float = 1.0
    ) -> int:
        """Carry out the best exchange found of each pair where it lowers the cost, or by chance; return how many.

        Args:
            pairs: the two nodes of each; no node is in two of them.
            heat: what an exchange costs that has a chance of 1 in e.
            blunt: what imbalances are rounded off by.
            rng: random numbers.
            share: of the pairs, those that have most to gain by the parabola.
        """
        bowl = _Bowl(self._use(), self._capacity, self._weight, blunt)
        left, right = pairs
        ideal, metric, promise = bowl.of(left, right)
        chosen = promise.argsort(kind="stable")[::-1][: int(np.ceil(share * len(promise)))]
        slots, done = self._slots(rng), 0
        for start in range(0, len(chosen), _FEW):
            some = chosen[start : start + _FEW]
            mine = self._movable(slots[left[some]], right[some])
            theirs = self._movable(slots[right[some]], left[some])
            nearest = self._nearest(mine, theirs, ideal[some], metric[some])
            rise, row = self._least(left[some], right[some], mine, theirs, nearest, bowl)
            better = np.flatnonzero(rise < -_LEAST - heat * np.log(1 - rng.random(len(some))))
            done += len(better)
            for pair in better.tolist():
                given = mine[pair][self._bundles[row[pair]] > 0]
                taken = theirs[pair][self._bundles[nearest[pair, row[pair]]] > 0]
                self._apply(int(left[some[pair]]), int(right[some[pair]]), given, taken)
        return done

    def _use(self) -> Float64s:
        problem = self._problem
        return np.asarray((problem.used + self._load[:, : len(problem.resources)]) / problem.capacity)

    def _slots(self, rng: np.random.Generator) -> Int64s:
        """Return some pods of each node, in no order, then pods that are not there, shape (nodes, drawn)."""
        nodes = self._problem.nodes
        pods = rng.permutation(np.flatnonzero(self.plan >= 0))
        pods = pods[self.plan[pods].argsort(kind="stable")]
        node = self.plan[pods]
        rank = np.arange(len(pods)) - np.searchsorted(node, np.arange(nodes))[node]
        slots = np.full((nodes, self._drawn), len(self.plan))
        kept = rank < self._drawn
        slots[node[kept], rank[kept]] = pods[kept]
        return slots

    def _movable(self, pods: Int64s, nodes: Int64s) -> Int64s:
        """Return pods, without those that may not go to a node, shape (pairs, drawn)."""
        return np.where(self._allowed[self._group[pods], nodes[:, None]], pods, len(self.plan))

    def _nearest(self, mine: Int64s, theirs: Int64s, ideal: Float64s, metric: Float64s) -> Int64s:
        """Return for each bundle of the left nodes that of the right that makes up the ideal best, (pairs, bundles)."""
        count = self._unit.size
        given, taken = (self._bundles @ (self._demand[each, :count] / self._unit) for each in (mine, theirs))
        wanted, there = (given + ideal[:, None]) @ metric, taken @ metric
        middle = there.mean(axis=1, keepdims=True)  # the smaller the numbers, the less is lost to their precision
        wanted, there = wanted - middle, there - middle
        far = np.concatenate([there, (there**2).sum(axis=2, keepdims=True)], axis=2).astype(np.float32)
        ask = np.concatenate([-2 * wanted, np.ones((*wanted.shape[:2], 1))], axis=2).astype(np.float32)
        return np.asarray((ask @ far.transpose(0, 2, 1)).argmin(axis=2))

    def _least(
        self, left: Int64s, right: Int64s, mine: Int64s, theirs: Int64s, nearest: Int64s, bowl: "_Bowl"
    ) -> tuple[Float64s, Int64s]:
        """Return the least rise of the cost (times nodes) of each pair, and the bundle of the left that makes it."""
        pair = np.arange(len(left))
        taken = (self._bundles @ self._demand[theirs])[pair[:, None], nearest]
        change = taken - self._bundles @ self._demand[mine]
        free = self._limit - self._load
        fits = (change <= free[left][:, None]).all(axis=2) & (-change <= free[right][:, None]).all(axis=2)
        fits &= change.any(axis=2)  # nothing for nothing
        change = change[:, :, : self._unit.size]
        after = bowl.cost(left, change / self._problem.capacity[left][:, None])
        after += bowl.cost(right, -change / self._problem.capacity[right][:, None])
        after[~fits] = np.inf
        row = after.argmin(axis=1)
        nothing = np.zeros((len(left), 1, self._unit.size))
        before = (bowl.cost(left, nothing) + bowl.cost(right, nothing))[:, 0]
        return after[pair, row] - before, row

    def _apply(self, left: int, right: int, given: Int64s, taken: Int64s) -> None:
        change = self._demand[taken].sum(axis=0) - self._demand[given].sum(axis=0)
        self._load[left] += change
        self._load[right] -= change
        self.plan[given[given < len(self.plan)]] = right
        self.plan[taken[taken < len(self.plan)]] = left


class _Bowl:
    """The cost around nodes as they are, rounded off, and the spread as its tangent: times the number of nodes.

    Args:
        use: of each node, shape (nodes, R).
        capacity: of each node, in units of the same size, shape (nodes, R).
        weight: of the spread.
        blunt: what imbalances are rounded off by.
    """

    def __init__(self, use: Float64s, capacity: Float64s, weight: float, blunt: float) -> None:
        self._use, self._blunt, self._capacity = use, blunt, capacity
        count, mean = use.shape[1], use.mean(axis=1)
        self._average = float(mean.mean())
        self._bend = weight / (2 * max(float(mean.std()), _FLAT))
        length = np.maximum(np.hypot(imbalances(use), blunt), _LEAST)[:, None]
        direction = (use - mean[:, None]) / length
        slope = direction + 2 * self._bend * (mean - self._average)[:, None] / count
        self._slope = slope / capacity
        across = np.eye(count) - 1 / count - direction[:, :, None] * direction[:, None, :]
        curve = across / np.maximum(length, _SHARP)[:, :, None] + 2 * self._bend / count**2 + _RIDGE * np.eye(count)
        self._curve = curve / capacity[:, :, None] / capacity[:, None, :]

    def of(self, left: Int64s, right: Int64s) -> tuple[Float64s, Float64s, Float64s]:
        """Return what the left nodes should take over, how misses are measured, and what that promises to gain.

        Returns:
            Shapes (pairs, R), (pairs, R, R) and (pairs,). A miss counts the square of its length after a product with
            the matrix of the pair.
        """
        curve, slope = self._curve[left] + self._curve[right], self._slope[left] - self._slope[right]
        ideal = -np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        return ideal, np.linalg.cholesky(curve), -(slope * ideal).sum(axis=1)

    def cost(self, nodes: Int64s, change: Float64s) -> Float64s:
        """Return what each node costs after each change of its use, shape (k, changes).

        Args:
            nodes: which, shape (k,).
            change: shape (k, changes, R).
        """
        use = self._use[nodes][:, None] + change
        mean = use.mean(axis=2)
        length = np.sqrt(((use - mean[:, :, None]) ** 2).sum(axis=2) + self._blunt**2)
        return np.asarray(length + self._bend * (mean - self._average) ** 2)


def _bundles(drawn: int, together: int) -> Float64s:
    """Return all bundles of at most so many of the drawn pods, 1 where a pod is in one, shape (bundles, drawn)."""
    chosen = [each for size in range(together + 1) for each in combinations(range(drawn), size)]
    bundles = np.zeros((len(chosen), drawn))
    for row, each in enumerate(chosen):
        bundles[row, list(each)] = 1.0
    return bundles
