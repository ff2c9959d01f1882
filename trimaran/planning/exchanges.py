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
from numpy.typing import NDArray

from scoring.arrays import Float64s, Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.problem import imbalances

_LEAST: Final = 1e-12  # an exchange that gains less is left alone
_FLAT: Final = 1e-3  # a spread below this counts as this: the tangent would be too steep for any exchange
_SHARP: Final = 1e-3  # an imbalance below this is curved like this: the parabola would be too narrow for any exchange
_RIDGE: Final = 1.0  # of curvature, in every direction: or what does not count could be exchanged without end
_MANY: Final = 400  # bundles from which on not all are held against all
_BLOCK: Final = 32  # bundles that are held together then ...
_WINDOW: Final = 160  # ... against so many
_TRIED: Final = 16  # exchanges of a pair whose true cost is asked then
_FEW: Final = 32  # pairs looked at together: more do not fit into the processor's caches


class Exchanges:
    """Exchanges between pairs of nodes that make a plan better.

    Args:
        assignment: the plan, which is changed.
        spread_weight: what spread between nodes counts.
        drawn: pods of a node that a round looks at, drawn anew each time.
        together: how many of them change their node together, at most.
    """

    def __init__(self, assignment: Assignment, spread_weight: float, *, drawn: int, together: int) -> None:
        self._at, self._weight = assignment, spread_weight
        problem, plan = assignment.problem, assignment.plan
        self._unit = problem.capacity.mean(axis=0)
        self._capacity = problem.capacity / self._unit
        most = int(np.bincount(plan[plan >= 0], minlength=1).max())
        self._drawn = max(1, min(drawn, most))
        self._bundles = _bundles(self._drawn, together)

    def pair_off(self, rng: np.random.Generator, *, opposites: bool) -> tuple[Int64s, Int64s]:
        """Return two nodes for each pair: at random, or those that deviate most in opposite directions."""
        order = rng.permutation(self._at.problem.nodes)
        half = len(order) // 2
        if opposites:
            use = self._at.use()
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
        bowl = _Bowl(self._at.use(), self._capacity, self._weight, blunt)
        left, right = pairs
        ideal, metric, promise = bowl.of(left, right)
        chosen = promise.argsort(kind="stable")[::-1][: int(np.ceil(share * len(promise)))]
        slots, done = self._slots(rng), 0
        for start in range(0, len(chosen), _FEW):
            some = chosen[start : start + _FEW]
            mine = self._movable(slots[left[some]], right[some])
            theirs = self._movable(slots[right[some]], left[some])
            nearest = self._nearest(mine, theirs, ideal[some], metric[some])
            rise, given_row, taken_row = self._least(left[some], right[some], mine, theirs, nearest, bowl)
            better = np.flatnonzero(rise < -_LEAST - heat * np.log(1 - rng.random(len(some))))
            done += len(better)
            for pair in better.tolist():
                given = mine[pair][self._bundles[given_row[pair]] > 0]
                taken = theirs[pair][self._bundles[taken_row[pair]] > 0]
                self._at.swap(int(left[some[pair]]), int(right[some[pair]]), given, taken)
        return done

    def _slots(self, rng: np.random.Generator) -> Int64s:
        """Return some pods of each node, in no order, then pods that are not there, shape (nodes, drawn)."""
        nodes, plan = self._at.problem.nodes, self._at.plan
        pods = rng.permutation(np.flatnonzero(plan >= 0))
        pods = pods[plan[pods].argsort(kind="stable")]
        node = plan[pods]
        rank = np.arange(len(pods)) - np.searchsorted(node, np.arange(nodes))[node]
        slots = np.full((nodes, self._drawn), self._at.nobody)
        kept = rank < self._drawn
        slots[node[kept], rank[kept]] = pods[kept]
        return slots

    def _movable(self, pods: Int64s, nodes: Int64s) -> Int64s:
        """Return pods, without those that may not go to a node, shape (pairs, drawn)."""
        return np.where(self._at.may_go(pods, nodes[:, None]), pods, self._at.nobody)

    def _nearest(self, mine: Int64s, theirs: Int64s, ideal: Float64s, metric: Float64s) -> tuple[Int64s, Int64s]:
        """Return bundles of the left nodes, and for each that of the right which makes up the ideal best.

        Returns:
            Both of shape (pairs, bundles); where there are many bundles, those that come nearest.
        """
        count = self._unit.size
        given, taken = (self._bundles @ (self._at.demand[each, :count] / self._unit) for each in (mine, theirs))
        wanted, there = (given + ideal[:, None]) @ metric, taken @ metric
        middle = there.mean(axis=1, keepdims=True)  # the smaller the numbers, the less is lost to their precision
        if len(self._bundles) > _MANY:
            return _nearest_by_size(wanted - middle, there - middle, middle[:, 0])
        distances = _ask(wanted - middle) @ _far(there - middle).transpose(0, 2, 1)
        rows = np.broadcast_to(np.arange(len(self._bundles)), distances.shape[:2])
        return rows, distances.argmin(axis=2)

    def _least(
        self,
        left: Int64s,
        right: Int64s,
        mine: Int64s,
        theirs: Int64s,
        nearest: tuple[Int64s, Int64s],
        bowl: "_Bowl",
    ) -> tuple[Float64s, Int64s, Int64s]:
        """Return the least rise of the cost (times nodes) of each pair, and the bundles that make it."""
        pair = np.arange(len(left))
        given, taken = nearest
        change = (self._bundles @ self._at.demand[theirs])[pair[:, None], taken]
        change -= (self._bundles @ self._at.demand[mine])[pair[:, None], given]
        free = self._at.limit - self._at.load
        fits = (change <= free[left][:, None]).all(axis=2) & (-change <= free[right][:, None]).all(axis=2)
        fits &= change.any(axis=2)  # nothing for nothing
        change = change[:, :, : self._unit.size]
        after = bowl.cost(left, change / self._at.problem.capacity[left][:, None])
        after += bowl.cost(right, -change / self._at.problem.capacity[right][:, None])
        after[~fits] = np.inf
        row = after.argmin(axis=1)
        nothing = np.zeros((len(left), 1, self._unit.size))
        before = (bowl.cost(left, nothing) + bowl.cost(right, nothing))[:, 0]
        return after[pair, row] - before, given[pair, row], taken[pair, row]


def _ask(wanted: Float64s) -> NDArray[np.float32]:
    """Return what multiplied with :func:`_far` makes squares of distances, but for what is the same for each wanted."""
    return np.concatenate([-2 * wanted, np.ones((*wanted.shape[:2], 1))], axis=2).astype(np.float32)


def _far(there: Float64s) -> NDArray[np.float32]:
    return np.concatenate([there, (there**2).sum(axis=2, keepdims=True)], axis=2).astype(np.float32)


def _nearest_by_size(wanted: Float64s, there: Float64s, axis: Float64s) -> tuple[Int64s, Int64s]:
    """Return the pairs of what is wanted and what is there that are nearest, both in the order of their size.

    Both are sorted along an axis, in which they differ most. A block of what is wanted is held against a window of what
    is there, around the block's middle: a sixth of all.

    Args:
        wanted: of each pair of nodes, shape (pairs, bundles, R).
        there: the same.
        axis: along which, shape (pairs, R).
    """
    pairs, count, _ = wanted.shape
    pair, blocks = np.arange(pairs)[:, None], count // _BLOCK
    size_wanted, size_there = (np.einsum("pbr,pr->pb", each, axis) for each in (wanted, there))
    order, order_there = size_wanted.argsort(axis=1), size_there.argsort(axis=1)
    wanted, there = wanted[pair, order], there[pair, order_there]
    middles = size_wanted[pair, order][:, _BLOCK // 2 :: _BLOCK][:, :blocks]
    sorted_there = size_there[pair, order_there]
    starts = np.stack([each.searchsorted(middle) for each, middle in zip(sorted_there, middles, strict=True)])
    starts = np.clip(starts - _WINDOW // 2, 0, count - _WINDOW)
    seen = _far(there)[pair[:, :, None], starts[:, :, None] + np.arange(_WINDOW)]
    asked = _ask(wanted)[:, : blocks * _BLOCK].reshape(pairs, blocks, _BLOCK, -1)
    squares = asked @ seen.transpose(0, 1, 3, 2)
    place = squares.argmin(axis=3)
    least = np.take_along_axis(squares, place[..., None], axis=3).reshape(pairs, -1)
    least += (wanted[:, : blocks * _BLOCK] ** 2).sum(axis=2)
    best = least.argpartition(_TRIED, axis=1)[:, :_TRIED]
    found = (starts[:, :, None] + place).reshape(pairs, -1)
    return order[pair, best], order_there[pair, found[pair, best]]


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
