"""Exchanges of pods between pairs of nodes, for many pairs at once.

Some pods of each node are sampled. A bundle is a few of a node's sampled pods, or none. An exchange swaps a bundle of
one node for a bundle of the other node. A pair of nodes has tens of thousands of exchanges, too many to compute the
cost of each. But the smoothed cost is nearly quadratic around the current use of the nodes. The minimum of the
quadratic model is the ideal transfer, the resources that should move from one node to the other; the model's curvature
says how much each deviation from it costs. For each bundle of one node, a matrix product finds the bundle of the other
node that comes nearest to the ideal transfer. The true cost is computed only for these exchanges.
"""

from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Float64s, Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.problem import imbalances

_MIN_GAIN: Final = 1e-12  # an exchange that gains less is not made
_MIN_SPREAD: Final = 1e-3  # the tangent of a smaller spread would be too steep for any exchange
_MIN_LENGTH: Final = 1e-3  # the curvature of a smaller imbalance would be too high for any exchange
_RIDGE: Final = 1.0  # curvature added in every direction, which keeps the ideal transfer finite
_MANY_BUNDLES: Final = 400  # from this number on, bundles are compared by windows instead of all with all
_BLOCK: Final = 32  # number of bundles in a block
_WINDOW: Final = 160  # number of bundles in the window that a block is compared with
_CANDIDATES: Final = 16  # exact costs computed for a pair of nodes: those of its best exchanges by the estimate
_PAIRS_AT_ONCE: Final = 32  # more do not fit into the processor's caches


class Exchanges:
    """Exchanges of pods between pairs of nodes, to lower the cost of a plan.

    Args:
        assignment: plan to change.
        spread_weight: weight of the spread between nodes in the cost.
        sampled: number of pods of each node that a round samples.
        max_moved: largest number of sampled pods that leave a node in one exchange.
    """

    def __init__(self, assignment: Assignment, spread_weight: float, *, sampled: int, max_moved: int) -> None:
        self._assignment, self._weight = assignment, spread_weight
        problem, plan = assignment.problem, assignment.plan
        self._unit = problem.capacity.mean(axis=0)
        self._capacity = problem.capacity / self._unit
        most = int(np.bincount(plan[plan >= 0], minlength=1).max())
        self._sampled = max(1, min(sampled, most))
        self._bundles = bundles(self._sampled, max_moved)

    def pair_nodes(self, rng: np.random.Generator, *, opposite: bool) -> tuple[Int64s, Int64s]:
        """Divide all nodes into pairs, and return the left and the right node of each, shapes (nodes // 2,).

        Args:
            rng: random numbers.
            opposite: sort the nodes by their use along a random direction, and pair the first with the last, and so on;
                otherwise pair the nodes at random.
        """
        order = rng.permutation(self._assignment.problem.nodes)
        half = len(order) // 2
        if opposite:
            use = self._assignment.use()
            order = (use @ rng.standard_normal(use.shape[1])).argsort()
            return order[:half], order[::-1][:half]
        return order[:half], order[half : 2 * half]

    def exchange(
        self,
        pairs: tuple[Int64s, Int64s],
        temperature: float,
        smoothing: float,
        rng: np.random.Generator,
        share: float = 1.0,
    ) -> int:
        """Make each pair's best exchange if it lowers the cost, otherwise with a probability; return the number made.

        Args:
            pairs: left and right node of each pair; no node is in two pairs.
            temperature: rise of the cost that is accepted with a probability of 1/e; 0 accepts none.
            smoothing: length s in the smoothed imbalance sqrt(imbalance^2 + s^2).
            rng: random numbers.
            share: share of the pairs to examine; those with most to gain by the quadratic model are examined.
        """
        model = _QuadraticModel(self._assignment.use(), self._capacity, self._weight, smoothing)
        left, right = pairs
        ideal, metric, promise = model.transfers(left, right)
        chosen = promise.argsort(kind="stable")[::-1][: int(np.ceil(share * len(promise)))]
        slots, done = self._sample(rng), 0
        for start in range(0, len(chosen), _PAIRS_AT_ONCE):
            some = chosen[start : start + _PAIRS_AT_ONCE]
            left_pods = self._movable(slots[left[some]], right[some])
            right_pods = self._movable(slots[right[some]], left[some])
            nearest = self._nearest(left_pods, right_pods, ideal[some], metric[some])
            rise, left_row, right_row = self._best(left[some], right[some], left_pods, right_pods, nearest, model)
            accepted = np.flatnonzero(rise < -_MIN_GAIN - temperature * np.log(1 - rng.random(len(some))))
            done += len(accepted)
            for pair in accepted.tolist():
                to_right = left_pods[pair][self._bundles[left_row[pair]] > 0]
                to_left = right_pods[pair][self._bundles[right_row[pair]] > 0]
                self._assignment.swap(int(left[some[pair]]), int(right[some[pair]]), to_right, to_left)
        return done

    def _sample(self, rng: np.random.Generator) -> Int64s:
        """Return a random sample of each node's pods, shape (nodes, sampled); the dummy pod fills the empty places."""
        nodes, plan = self._assignment.problem.nodes, self._assignment.plan
        pods = rng.permutation(np.flatnonzero(plan >= 0))
        pods = pods[plan[pods].argsort(kind="stable")]
        node = plan[pods]
        rank = np.arange(len(pods)) - np.searchsorted(node, np.arange(nodes))[node]
        slots = np.full((nodes, self._sampled), self._assignment.no_pod)
        sampled = rank < self._sampled
        slots[node[sampled], rank[sampled]] = pods[sampled]
        return slots

    def _movable(self, pods: Int64s, nodes: Int64s) -> Int64s:
        """Replace pods that may not run on the other node of their pair by the dummy pod, shape (pairs, sampled).

        Args:
            pods: sampled pods of one node of each pair, shape (pairs, sampled).
            nodes: other node of each pair, shape (pairs,).
        """
        return np.where(self._assignment.allows(pods, nodes[:, None]), pods, self._assignment.no_pod)

    def _nearest(
        self, left_pods: Int64s, right_pods: Int64s, ideal: Float64s, metric: Float64s
    ) -> tuple[Int64s, Int64s]:
        """Return candidate exchanges: bundles of the left node, each with the right node's bundle that fits best.

        The best bundle brings the exchange nearest to the ideal transfer.

        Args:
            left_pods: sampled pods of each left node, shape (pairs, sampled).
            right_pods: sampled pods of each right node, shape (pairs, sampled).
            ideal: ideal transfer from right to left, shape (pairs, R).
            metric: matrix by which a deviation from the ideal is multiplied, shape (pairs, R, R).

        Returns:
            Rows of the left and of the right node's bundles in ``self._bundles``, shapes (pairs, candidates). There is
            a candidate for each bundle of the left node; above 400 bundles only the best 16.
        """
        count, demand = self._unit.size, self._assignment.demand
        given, taken = (self._bundles @ (demand[pods, :count] / self._unit) for pods in (left_pods, right_pods))
        wanted, offered = (given + ideal[:, None]) @ metric, taken @ metric
        middle = offered.mean(axis=1, keepdims=True)  # numbers around 0 lose less in single precision
        if len(self._bundles) > _MANY_BUNDLES:
            return _nearest_by_size(wanted - middle, offered - middle, middle[:, 0])
        distances = _query(wanted - middle) @ _key(offered - middle).transpose(0, 2, 1)
        rows = np.broadcast_to(np.arange(len(self._bundles)), distances.shape[:2])
        return rows, distances.argmin(axis=2)

    def _best(
        self,
        left: Int64s,
        right: Int64s,
        left_pods: Int64s,
        right_pods: Int64s,
        nearest: tuple[Int64s, Int64s],
        model: "_QuadraticModel",
    ) -> tuple[Float64s, Int64s, Int64s]:
        """Return the best of the exchanges in ``nearest`` for each pair of nodes.

        Returns:
            The change of the cost, times the number of nodes (negative is better; infinite if no exchange fits), and
            the rows of the left and of the right node's bundle in ``self._bundles``. All have the shape (pairs,).
        """
        problem, pair = self._assignment.problem, np.arange(len(left))
        given, taken = nearest
        # Change of the left node's load; the right node's changes by the opposite.
        change = (self._bundles @ self._assignment.demand[right_pods])[pair[:, None], taken]
        change -= (self._bundles @ self._assignment.demand[left_pods])[pair[:, None], given]
        free = self._assignment.limit - self._assignment.load
        fits = (change <= free[left][:, None]).all(axis=2) & (-change <= free[right][:, None]).all(axis=2)
        fits &= change.any(axis=2)  # an empty exchange changes nothing
        change = change[:, :, : self._unit.size]
        after = model.cost(left, change / problem.capacity[left][:, None])
        after += model.cost(right, -change / problem.capacity[right][:, None])
        after[~fits] = np.inf
        row = after.argmin(axis=1)
        nothing = np.zeros((len(left), 1, self._unit.size))
        before = (model.cost(left, nothing) + model.cost(right, nothing))[:, 0]
        return after[pair, row] - before, given[pair, row], taken[pair, row]


def _query(points: Float64s) -> NDArray[np.float32]:
    """Return vectors (-2 p, 1): their product with a :func:`_key` (k, |k|^2) is |p - k|^2 - |p|^2.

    So for each point p, the lowest product marks the nearest key.
    """
    return np.concatenate([-2 * points, np.ones((*points.shape[:2], 1))], axis=2).astype(np.float32)


def _key(points: Float64s) -> NDArray[np.float32]:
    return np.concatenate([points, (points**2).sum(axis=2, keepdims=True)], axis=2).astype(np.float32)


def _nearest_by_size(wanted: Float64s, offered: Float64s, axis: Float64s) -> tuple[Int64s, Int64s]:
    """Return, for each pair of nodes, the 16 wanted points that are nearest to an offered point, with that point.

    Wanted and offered points are sorted along one direction. A block of 32 wanted points is compared with the 160
    offered points around the block's middle only, about a sixth of all comparisons.

    Args:
        wanted: points of each pair of nodes, shape (pairs, bundles, R).
        offered: points of each pair of nodes, shape (pairs, bundles, R).
        axis: direction of the sort, in which the points differ most, shape (pairs, R).

    Returns:
        Indices of the wanted points, and of the offered point nearest to each, shapes (pairs, 16).
    """
    pairs, count, _ = wanted.shape
    pair, blocks = np.arange(pairs)[:, None], count // _BLOCK
    # Sort both along the axis.
    size_wanted, size_offered = (np.einsum("pbr,pr->pb", points, axis) for points in (wanted, offered))
    order, order_offered = size_wanted.argsort(axis=1), size_offered.argsort(axis=1)
    wanted, offered = wanted[pair, order], offered[pair, order_offered]
    # Place a window around the middle of each block.
    middles = size_wanted[pair, order][:, _BLOCK // 2 :: _BLOCK][:, :blocks]
    sorted_offered = size_offered[pair, order_offered]
    starts = np.stack([row.searchsorted(middle) for row, middle in zip(sorted_offered, middles, strict=True)])
    starts = np.clip(starts - _WINDOW // 2, 0, count - _WINDOW)
    # Compare blocks with windows, and keep the nearest pairs of all blocks.
    keys = _key(offered)[pair[:, :, None], starts[:, :, None] + np.arange(_WINDOW)]
    queries = _query(wanted)[:, : blocks * _BLOCK].reshape(pairs, blocks, _BLOCK, -1)
    squares = queries @ keys.transpose(0, 1, 3, 2)
    place = squares.argmin(axis=3)
    least = np.take_along_axis(squares, place[..., None], axis=3).reshape(pairs, -1)
    least += (wanted[:, : blocks * _BLOCK] ** 2).sum(axis=2)
    best = least.argpartition(_CANDIDATES, axis=1)[:, :_CANDIDATES]
    partner = (starts[:, :, None] + place).reshape(pairs, -1)
    return order[pair, best], order_offered[pair, partner[pair, best]]


class _QuadraticModel:
    """Quadratic model of the smoothed cost, times the number of nodes, around the current use of the nodes.

    A tangent replaces the spread between nodes, which is a square root.

    Args:
        use: use of each node, as shares of its capacity, shape (nodes, R).
        capacity: capacity of each node, divided by the mean of all nodes, shape (nodes, R).
        weight: weight of the spread in the cost.
        smoothing: length s in the smoothed imbalance sqrt(imbalance^2 + s^2).
    """

    def __init__(self, use: Float64s, capacity: Float64s, weight: float, smoothing: float) -> None:
        self._use, self._smoothing = use, smoothing
        count, mean = use.shape[1], use.mean(axis=1)
        self._average = float(mean.mean())
        self._bend = weight / (2 * max(float(mean.std()), _MIN_SPREAD))
        length = np.maximum(np.hypot(imbalances(use), smoothing), _MIN_GAIN)[:, None]
        direction = (use - mean[:, None]) / length
        slope = direction + 2 * self._bend * (mean - self._average)[:, None] / count
        self._slope = slope / capacity
        across = np.eye(count) - 1 / count - direction[:, :, None] * direction[:, None, :]
        curve = across / np.maximum(length, _MIN_LENGTH)[:, :, None]
        curve = curve + 2 * self._bend / count**2 + _RIDGE * np.eye(count)
        self._curve = curve / capacity[:, :, None] / capacity[:, None, :]

    def transfers(self, left: Int64s, right: Int64s) -> tuple[Float64s, Float64s, Float64s]:
        """Return the ideal transfer of resources between the nodes of each pair, by the quadratic model.

        Returns:
            The ideal transfer from the right to the left node, shape (pairs, R), in units of the mean capacity. A
            metric, shape (pairs, R, R): a deviation d from the ideal costs in proportion to |d @ metric|^2. The gain
            that the model promises, up to a factor, shape (pairs,).
        """
        curve, slope = self._curve[left] + self._curve[right], self._slope[left] - self._slope[right]
        ideal = -np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        return ideal, np.linalg.cholesky(curve), -(slope * ideal).sum(axis=1)

    def cost(self, nodes: Int64s, change: Float64s) -> Float64s:
        """Return a node's part of the smoothed cost, times the number of nodes, after each change of its use.

        Args:
            nodes: rows of the nodes, shape (k,).
            change: changes of each node's use, shape (k, changes, R).

        Returns:
            Costs, shape (k, changes).
        """
        use = self._use[nodes][:, None] + change
        mean = use.mean(axis=2)
        length = np.sqrt(((use - mean[:, :, None]) ** 2).sum(axis=2) + self._smoothing**2)
        return np.asarray(length + self._bend * (mean - self._average) ** 2)


def bundles(sampled: int, max_moved: int) -> Float64s:
    """Return all bundles of at most ``max_moved`` of ``sampled`` pods, the empty bundle first.

    Returns:
        1 for each pod in a bundle, otherwise 0, shape (bundles, sampled).
    """
    chosen = [bundle for size in range(max_moved + 1) for bundle in combinations(range(sampled), size)]
    members = np.zeros((len(chosen), sampled))
    for row, bundle in enumerate(chosen):
        members[row, list(bundle)] = 1.0
    return members
