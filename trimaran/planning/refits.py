"""Even nodes made exact, out of all pods that lopsided nodes hold.

In the best fractional plan some nodes use all resources alike, and few take all that is uneven: the lopsided ones. The
cost of an even node has its point there, so every miss counts in full; that of a lopsided one is nearly flat: how a
little more or less unevenness lies counts by its square. So pods of all lopsided nodes together are what an even node
can be made exact of. Two nodes of ten pods each have only so many ways to share them; but hundreds of nodes have
millions of pairs of pods. For each bundle of its own pods that an even node might give away, the pair is looked for
that fits best: the nearest neighbor of a point, in a k-d tree.

What that does to the mean use of the lopsided nodes is not looked at. Exchanges between two of them, which have that
alone to mend, do so nearly always. As that comes after, the plan costs more in between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from scipy.spatial import cKDTree

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.exchanges import Exchanges
from trimaran.planning.problem import imbalances

_LOPSIDED: Final = 0.3  # of the imbalance that a twentieth of the nodes exceed: from there on a node is lopsided
_PAIRS: Final = 20_000  # of pods that are drawn for each node that is refitted
_MOST_PAIRS: Final = 200_000  # of pods in a tree
_OWN: Final = 12  # pods of a node that are looked at
_GIVEN: Final = 3  # of these, how many may go at once
_NEAREST: Final = 3  # pairs that are looked at for each bundle
_TRIED: Final = 24  # of all these, those that are asked what they truly cost
_FLAT: Final = 2e-4  # a spread below this counts as this
_MENDING: Final = 2  # rounds of exchanges between lopsided nodes
_BLUNT: Final = 2e-3  # what imbalances are rounded off by in these
_LEAST: Final = 1e-9  # a refit that gains less is left alone


@dataclass(frozen=True)
class _State:
    """The nodes as they are when a round of refits begins.

    Attributes:
        use: shape (nodes, R).
        length: the imbalance of each, shape (nodes,).
        average: of all nodes' mean use.
        bend: what the square of a distance from the average counts.
        lopsided: which are, shape (nodes,).
    """

    use: Float64s
    length: Float64s
    average: float
    bend: float
    lopsided: Bools

    @classmethod
    def of(cls, assignment: Assignment, spread_weight: float) -> "_State":
        use = assignment.use()
        mean, length = use.mean(axis=1), imbalances(use)
        bend = spread_weight / (2 * max(float(mean.std()), _FLAT))
        return cls(use, length, float(mean.mean()), bend, length > _LOPSIDED * np.quantile(length, 0.95))

    def cost(self, use: Float64s) -> Float64s:
        """Return what an even node of such use costs, times the number of nodes; shapes (k, R) and (k,)."""
        return np.asarray(imbalances(use) + self.bend * (use.mean(axis=1) - self.average) ** 2)

    def reach(self, cost: float) -> float:
        """Return how far from the average of all resources a node may be at most that costs less."""
        if not self.bend:
            return float("inf")
        return max(cost, float(np.sqrt(self.use.shape[1] * cost / self.bend)))


@dataclass(frozen=True)
class _Offer:
    """What an even node may take: pairs of pods from two lopsided nodes, or one pod and nobody.

    Attributes:
        first: a pod each, shape (pairs,).
        second: another, or nobody, shape (pairs,).
        share: of the node's capacity that they ask for together, shape (pairs, R).
        tree: of these.
    """

    first: Int64s
    second: Int64s
    share: Float64s
    tree: cKDTree


@dataclass(frozen=True)
class _Found:
    """A refit: to ``partners[0]`` goes ``given[0]``, from there comes ``taken[0]``, and so on."""

    gain: float
    partners: tuple[int, ...]
    given: tuple[Int64s, ...]
    taken: tuple[int, ...]


class Refits:
    """Rounds in which even nodes are made exact, and lopsided ones mended.

    Args:
        assignment: the plan, which is changed.
        spread_weight: what spread between nodes counts.
        exchanges: between pairs of nodes of the same plan.
    """

    def __init__(self, assignment: Assignment, spread_weight: float, exchanges: Exchanges) -> None:
        self._at, self._weight, self._exchanges = assignment, spread_weight, exchanges

    def round(self, rng: np.random.Generator, out_of_time: Callable[[], bool]) -> int:
        """Refit the even nodes that have most to gain, by and large, mend the lopsided ones, and say how many were.

        The plan may cost more than before.
        """
        state = _State.of(self._at, self._weight)
        even = np.flatnonzero(~state.lopsided)
        pool = np.flatnonzero((self._at.plan >= 0) & state.lopsided[self._at.plan])
        if not len(even) or not len(pool):
            return 0
        worth = state.cost(state.use[even]) * np.sqrt(rng.random(len(even)))
        even = even[worth.argsort(kind="stable")[::-1][: int(state.lopsided.sum())]]
        models, model = np.unique(self._at.problem.capacity[even], axis=0, return_inverse=True)
        model, by_node = model.reshape(-1), self._by_node()
        free, done = state.lopsided.copy(), 0
        for number, capacity in enumerate(models):
            nodes = even[model == number]
            if out_of_time():
                break
            offer = self._offer(pool, capacity, min(_MOST_PAIRS, _PAIRS * len(nodes)), rng)
            for node in nodes.tolist():
                if out_of_time():
                    break
                found = self._refit(node, by_node[node], offer, state, free, rng)
                if found is not None:
                    done += 1
                    for partner, given, taken in zip(found.partners, found.given, found.taken, strict=True):
                        self._at.swap(node, partner, given, np.array([taken]))
                        free[partner] = False
        self._mend(state.lopsided, rng)
        return done

    def _by_node(self) -> list[Int64s]:
        """Return the pods of each node."""
        plan = self._at.plan
        order = plan.argsort(kind="stable")
        return np.split(order, np.searchsorted(plan[order], np.arange(self._at.problem.nodes + 1)))[1:-1]

    def _offer(self, pool: Int64s, capacity: Float64s, count: int, rng: np.random.Generator) -> _Offer:
        first, second = pool[rng.integers(0, len(pool), (2, count))]
        apart = self._at.plan[first] != self._at.plan[second]
        first = np.concatenate([pool, first[apart]])
        second = np.concatenate([np.full(len(pool), self._at.nobody), second[apart]])
        demand = self._at.demand[:, : len(capacity)] / capacity
        share = demand[first] + demand[second]
        return _Offer(first, second, share, cKDTree(share, balanced_tree=False, compact_nodes=False))

    def _refit(
        self, node: int, own: Int64s, offer: _Offer, state: _State, free: Bools, rng: np.random.Generator
    ) -> _Found | None:
        """Return the best refit of a node that was found, with partners that are free still."""
        at = self._at
        if len(own) > _OWN:
            own = rng.choice(own, _OWN, replace=False)
        if not len(own):
            return None
        bundles, demand = _BUNDLES[len(own)], at.demand[own, : state.use.shape[1]]
        kept = state.use[node] - bundles @ demand / at.problem.capacity[node]
        now = float(state.cost(state.use[node][None])[0])
        count, reach = min(_NEAREST, len(offer.first)), state.reach(now)
        near, place = offer.tree.query(state.average - kept, k=count, distance_upper_bound=reach)
        nearest = near.ravel().argsort(kind="stable")[:_TRIED]
        nearest = nearest[np.isfinite(near.ravel()[nearest])]
        row, place = nearest // count, place.ravel()[nearest]
        first, second = offer.first[place], offer.second[place]
        gain = now - state.cost(kept[row] + offer.share[place])
        fits = at.may_go(first, np.array(node)) & at.may_go(second, np.array(node)) & (gain > _LEAST)
        best: _Found | None = None
        for each in np.flatnonzero(fits)[gain[fits].argsort(kind="stable")[::-1]].tolist():
            bundle = own[bundles[row[each]]]
            found = self._shared_out(node, bundle, (first[each], second[each]), gain[each], state, free)
            if found is not None and (best is None or found.gain > best.gain):
                best = found
        return best

    def _shared_out(
        self, node: int, bundle: Int64s, taken: tuple[int, int], gain: float, state: _State, free: Bools
    ) -> _Found | None:
        """Return the best way to share a node's pods out to the lopsided nodes that others came from."""
        at = self._at
        alone = taken[1] == at.nobody
        came = taken[:1] if alone else taken
        partners = tuple(int(at.plan[pod]) for pod in came)
        if not free[list(partners)].all():
            return None
        to_second = np.zeros((1, len(bundle)), np.bool_) if alone else _SPLITS[len(bundle)]
        change = at.demand[list(taken)].sum(axis=0) - at.demand[bundle].sum(axis=0)
        if not (at.load[node] + change <= at.limit[node]).all():
            return None
        fits, total = np.ones(len(to_second), np.bool_), np.full(len(to_second), gain)
        for number, (pod, partner) in enumerate(zip(came, partners, strict=True)):
            goes = to_second if number else ~to_second
            change = goes @ at.demand[bundle] - at.demand[pod]
            fits &= (at.load[partner] + change <= at.limit[partner]).all(axis=1)
            fits &= (at.may_go(bundle, np.array(partner)) | ~goes).all(axis=1)
            use = state.use[partner] + change[:, : state.use.shape[1]] / at.problem.capacity[partner]
            total -= imbalances(use) - state.length[partner]
        total[~fits] = -np.inf
        row = int(total.argmax())
        if total[row] <= _LEAST:
            return None
        given = (bundle[~to_second[row]], bundle[to_second[row]])
        return _Found(float(total[row]), partners, given[: len(came)], came)

    def _mend(self, lopsided: Bools, rng: np.random.Generator) -> None:
        """Exchange pods between lopsided nodes, those used most with those used least."""
        for _ in range(_MENDING):
            nodes = np.flatnonzero(lopsided)
            order = nodes[self._at.use()[nodes].mean(axis=1).argsort(kind="stable")]
            half = len(order) // 2
            self._exchanges.exchange((order[:half], order[::-1][:half]), 0.0, _BLUNT, rng)


#: All bundles of at most ``_GIVEN`` of so many pods, true where a pod is in one, shape (bundles, pods).
_BUNDLES: Final[dict[int, Bools]] = {
    count: np.array([
        [pod in each for pod in range(count)]
        for size in range(1, _GIVEN + 1)
        for each in combinations(range(count), size)
    ])
    for count in range(1, _OWN + 1)
}  # fmt: skip
#: All ways to share out so many pods to two nodes, true where one goes to the second, shape (ways, pods).
_SPLITS: Final[dict[int, Bools]] = {
    size: (np.arange(2**size)[:, None] >> np.arange(size)) % 2 == 1 for size in range(1, _GIVEN + 1)
}
