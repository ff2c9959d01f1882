"""Refits: balance an almost balanced node fully, by exchanging pods with nodes that are far from balanced.

An even node uses almost the same share of all its resources; an uneven node does not. In the best plan that may split
pods, most nodes are even, and a few uneven nodes take the rest of the pods. A node's imbalance is the norm of the
vector of its deviations: the use of each resource minus their mean. Near 0 a norm rises linearly, so a small deviation
of an even node costs in full. Far from 0, a small change of the vector's direction costs only its square. So the pods
of all uneven nodes can serve to balance the even nodes.

Two nodes with ten pods each have few ways to divide their pods, but hundreds of nodes have millions of pairs of pods.
For each bundle of pods that an even node might give away, a nearest-neighbor query of a k-d tree finds the pairs of
pods that replace the bundle best.

A refit ignores its effect on the mean use of the uneven nodes, so the plan's cost may rise. Exchanges between uneven
nodes repair that at the end of each round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.spatial import cKDTree

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.exchanges import Exchanges, bundles
from trimaran.planning.problem import imbalances

_UNEVEN: Final = 0.3  # share of the imbalance's 95th percentile from which a node counts as uneven
_PAIRS: Final = 20_000  # pairs of pods to draw for each node to refit
_MAX_PAIRS: Final = 200_000  # pairs of pods in a tree
_MAX_OWN: Final = 12  # pods of a node to examine
_MAX_GIVEN: Final = 3  # pods that a node gives away at once
_NEAREST: Final = 3  # pairs to examine for each bundle
_CANDIDATES: Final = 24  # exact costs computed for a node: those of its best refits by the estimate
_MIN_SPREAD: Final = 2e-4  # the tangent of a smaller spread would be too steep
_REPAIR_ROUNDS: Final = 2  # rounds of exchanges between uneven nodes at the end of a round of refits
_SMOOTHING: Final = 2e-3  # smoothing of the imbalance in these exchanges
_MIN_GAIN: Final = 1e-9  # a refit that gains less is not made


@dataclass(frozen=True)
class _RoundStart:
    """State of the nodes at the start of a round of refits, which the round does not update.

    Attributes:
        use: use of each node's R balanced resources, as shares of its capacity, shape (nodes, R).
        length: imbalance of each node, shape (nodes,).
        average: mean of ``use`` over all nodes and resources.
        bend: cost of a node's mean use at a distance of 1 from ``average``; the cost rises with the distance's square.
        uneven: true for a node with an imbalance above 0.3 times the 95th percentile, shape (nodes,).
    """

    use: Float64s
    length: Float64s
    average: float
    bend: float
    uneven: Bools

    @classmethod
    def of(cls, assignment: Assignment, spread_weight: float) -> "_RoundStart":
        use = assignment.use()
        mean, length = use.mean(axis=1), imbalances(use)
        bend = spread_weight / (2 * max(float(mean.std()), _MIN_SPREAD))
        return cls(use, length, float(mean.mean()), bend, length > _UNEVEN * np.quantile(length, 0.95))

    def cost(self, use: Float64s) -> Float64s:
        """Return a node's part of the cost, times the number of nodes, for each of k uses of the node, shape (k,).

        Args:
            use: uses of a node, shape (k, R).
        """
        return np.asarray(imbalances(use) + self.bend * (use.mean(axis=1) - self.average) ** 2)

    def reach(self, cost: float) -> float:
        """Return how far a node's vector of uses may be from (average, ..., average) at a cost of at most ``cost``."""
        if not self.bend:
            return float("inf")
        return max(cost, float(np.sqrt(self.use.shape[1] * cost / self.bend)))


@dataclass(frozen=True)
class _Supply:
    """Pods that an even node may take: pairs of pods from two uneven nodes, or a single pod and the dummy pod.

    The dummy pod requests nothing.

    Attributes:
        first: first pod of each pair, shape (pairs,).
        second: second pod of each pair, or the dummy pod, shape (pairs,).
        share: sum of the requests of each pair, as shares of the even node's capacity, shape (pairs, R).
        tree: k-d tree of ``share``.
    """

    first: Int64s
    second: Int64s
    share: Float64s
    tree: cKDTree


@dataclass(frozen=True)
class _Refit:
    """Exchange of pods between an even node and one or two partners, which are uneven nodes.

    Attributes:
        gain: fall of the cost, times the number of nodes.
        partners: rows of the partners.
        given: pods that the even node gives to each partner.
        taken: pod that the even node takes from each partner.
    """

    gain: float
    partners: tuple[int, ...]
    given: tuple[Int64s, ...]
    taken: tuple[int, ...]


class Refits:
    """Rounds of refits of almost balanced nodes, each followed by exchanges between the other nodes.

    Args:
        assignment: plan to change.
        spread_weight: weight of the spread between nodes in the cost.
        exchanges: exchanges between pairs of nodes, on the same assignment.
    """

    def __init__(self, assignment: Assignment, spread_weight: float, exchanges: Exchanges) -> None:
        self._assignment, self._weight, self._exchanges = assignment, spread_weight, exchanges

    def run_round(self, rng: np.random.Generator, out_of_time: Callable[[], bool]) -> int:
        """Run a round of refits, and return their number; the plan may cost more than before.

        Of the almost balanced nodes, those that cost most are refitted. Then the other nodes exchange pods.

        Args:
            rng: random numbers.
            out_of_time: callback that ends the refits if it returns true.
        """
        # Choose as many even nodes as there are uneven ones, at random but weighted by their cost.
        state = _RoundStart.of(self._assignment, self._weight)
        even = np.flatnonzero(~state.uneven)
        pool = np.flatnonzero((self._assignment.plan >= 0) & state.uneven[self._assignment.plan])
        if not len(even) or not len(pool):
            return 0
        priority = state.cost(state.use[even]) * np.sqrt(rng.random(len(even)))
        even = even[priority.argsort(kind="stable")[::-1][: int(state.uneven.sum())]]
        # Nodes of one capacity share a tree. An uneven node takes part in one refit, as the state is not updated.
        models, model = np.unique(self._assignment.problem.capacity[even], axis=0, return_inverse=True)
        model, by_node = model.reshape(-1), self._by_node()
        free, done = state.uneven.copy(), 0
        for number, capacity in enumerate(models):
            nodes = even[model == number]
            if out_of_time():
                break
            supply = self._supply(pool, capacity, min(_MAX_PAIRS, _PAIRS * len(nodes)), rng)
            for node in nodes.tolist():
                if out_of_time():
                    break
                refit = self._best_refit(node, by_node[node], supply, state, free, rng)
                if refit is not None:
                    done += 1
                    for partner, given, taken in zip(refit.partners, refit.given, refit.taken, strict=True):
                        self._assignment.swap(node, partner, given, np.array([taken]))
                        free[partner] = False
        self._repair(state.uneven, rng)
        return done

    def _by_node(self) -> list[Int64s]:
        """Return the indices of the pods of each node, one array per node."""
        plan = self._assignment.plan
        order = plan.argsort(kind="stable")
        return np.split(order, np.searchsorted(plan[order], np.arange(self._assignment.problem.nodes + 1)))[1:-1]

    def _supply(self, pool: Int64s, capacity: Float64s, count: int, rng: np.random.Generator) -> _Supply:
        """Return the supply of a pool of pods: each pod alone, and random pairs of pods from different nodes.

        Args:
            pool: pods on uneven nodes.
            capacity: capacity of the nodes to refit, shape (R,).
            count: number of pairs to draw; pairs from one node are then dropped.
            rng: random numbers.
        """
        first, second = pool[rng.integers(0, len(pool), (2, count))]
        different = self._assignment.plan[first] != self._assignment.plan[second]
        first = np.concatenate([pool, first[different]])
        second = np.concatenate([np.full(len(pool), self._assignment.no_pod), second[different]])
        demand = self._assignment.demand[:, : len(capacity)] / capacity
        share = demand[first] + demand[second]
        return _Supply(first, second, share, cKDTree(share, balanced_tree=False, compact_nodes=False))

    def _best_refit(
        self, node: int, own: Int64s, supply: _Supply, state: _RoundStart, free: Bools, rng: np.random.Generator
    ) -> _Refit | None:
        """Return the best refit found for a node, or None if none lowers the cost.

        Args:
            node: row of the even node.
            own: pods of the node; at most 12 random ones are examined.
            supply: pods that the node may take.
            state: nodes at the start of the round.
            free: true for uneven nodes without a refit in this round, shape (nodes,).
            rng: random numbers.
        """
        assignment = self._assignment
        if len(own) > _MAX_OWN:
            own = rng.choice(own, _MAX_OWN, replace=False)
        if not len(own):
            return None
        # For each bundle to give away, find the pairs that bring the node nearest to the average of all nodes.
        offers, demand = _BUNDLES[len(own)], assignment.demand[own, : state.use.shape[1]]
        remaining = state.use[node] - offers @ demand / assignment.problem.capacity[node]
        now = float(state.cost(state.use[node][None])[0])
        count, reach = min(_NEAREST, len(supply.first)), state.reach(now)
        distance, place = supply.tree.query(state.average - remaining, k=count, distance_upper_bound=reach)
        nearest = distance.ravel().argsort(kind="stable")[:_CANDIDATES]
        nearest = nearest[np.isfinite(distance.ravel()[nearest])]
        row, place = nearest // count, place.ravel()[nearest]
        # Try the candidates that gain, the best first: the partners' costs may use up some of the gain.
        first, second = supply.first[place], supply.second[place]
        gain = now - state.cost(remaining[row] + supply.share[place])
        fits = assignment.allows(first, np.array(node)) & assignment.allows(second, np.array(node))
        fits &= gain > _MIN_GAIN
        best: _Refit | None = None
        for number in np.flatnonzero(fits)[gain[fits].argsort(kind="stable")[::-1]].tolist():
            bundle = own[offers[row[number]]]
            refit = self._distribute(node, bundle, (first[number], second[number]), gain[number], state, free)
            if refit is not None and (best is None or refit.gain > best.gain):
                best = refit
        return best

    def _distribute(
        self, node: int, bundle: Int64s, taken: tuple[int, int], gain: float, state: _RoundStart, free: Bools
    ) -> _Refit | None:
        """Return the refit that distributes a bundle best over the nodes that give pods for it, or None.

        The result is None if one of these nodes is not free, if the pods fit nowhere, or if the cost would not fall.

        Args:
            node: row of the even node.
            bundle: pods that the even node gives away.
            taken: pods that the even node takes; the second may be the dummy pod.
            gain: fall of the even node's cost, before the partners' costs are counted.
            state: nodes at the start of the round.
            free: true for uneven nodes without a refit in this round, shape (nodes,).
        """
        assignment = self._assignment
        single = taken[1] == assignment.no_pod
        pods = taken[:1] if single else taken
        partners = tuple(int(assignment.plan[pod]) for pod in pods)
        if not free[list(partners)].all():
            return None
        to_second = np.zeros((1, len(bundle)), np.bool_) if single else _SPLITS[len(bundle)]
        change = assignment.demand[list(taken)].sum(axis=0) - assignment.demand[bundle].sum(axis=0)
        if not (assignment.load[node] + change <= assignment.limit[node]).all():
            return None
        # Rows are ways to split the bundle between the partners.
        fits, total = np.ones(len(to_second), np.bool_), np.full(len(to_second), gain)
        for number, (pod, partner) in enumerate(zip(pods, partners, strict=True)):
            goes = to_second if number else ~to_second
            change = goes @ assignment.demand[bundle] - assignment.demand[pod]
            fits &= (assignment.load[partner] + change <= assignment.limit[partner]).all(axis=1)
            fits &= (assignment.allows(bundle, np.array(partner)) | ~goes).all(axis=1)
            use = state.use[partner] + change[:, : state.use.shape[1]] / assignment.problem.capacity[partner]
            total -= imbalances(use) - state.length[partner]
        total[~fits] = -np.inf
        row = int(total.argmax())
        if total[row] <= _MIN_GAIN:
            return None
        given = (bundle[~to_second[row]], bundle[to_second[row]])
        return _Refit(float(total[row]), partners, given[: len(pods)], pods)

    def _repair(self, uneven: Bools, rng: np.random.Generator) -> None:
        """Exchange pods between uneven nodes, which are paired by mean use: the highest with the lowest, and so on."""
        for _ in range(_REPAIR_ROUNDS):
            nodes = np.flatnonzero(uneven)
            order = nodes[self._assignment.use()[nodes].mean(axis=1).argsort(kind="stable")]
            half = len(order) // 2
            self._exchanges.exchange((order[:half], order[::-1][:half]), 0.0, _SMOOTHING, rng)


#: Number of pods -> all bundles of 1 to ``_MAX_GIVEN`` of them, true for each pod in a bundle, shape (bundles, pods).
_BUNDLES: Final[dict[int, Bools]] = {count: bundles(count, _MAX_GIVEN)[1:] > 0 for count in range(1, _MAX_OWN + 1)}
#: Number of pods -> all ways to split them between two nodes, true for pods of the second node, shape (ways, pods).
_SPLITS: Final[dict[int, Bools]] = {
    size: (np.arange(2**size)[:, None] >> np.arange(size)) % 2 == 1 for size in range(1, _MAX_GIVEN + 1)
}
