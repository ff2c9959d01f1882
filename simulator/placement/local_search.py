"""Ours: a greedy start, then moves and swaps between pairs of nodes, annealed.

What is minimized is the paper's imbalance within nodes, and the spread between them times a weight. Each round pairs
all nodes off at once, and looks in every pair for the best exchange of two pods, or of a pod and nothing. Pairs have no
node in common, so that all exchanges of a round hold together: a round is a few array operations however many nodes
there are. At first an exchange that costs something may be carried out too, less and less likely as time goes by; else
the search would end at the first plan that no single exchange makes better. And at first a node's imbalance is rounded
off at its lowest point: else a node in perfect balance would part with none of its pods.

The spread is one square root over all nodes. While the pairs are looked at it stands as its tangent at the mean of
before, which is nowhere below it: what lowers that lowers the spread by at least as much.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scoring.arrays import Float64s, Int64s
from simulator.placement.greedy import greedy
from simulator.placement.problem import Problem, imbalances

_LEAST = 1e-12  # an exchange that gains less is left alone
_FLAT = 1e-3  # a spread below this counts as this: the tangent would be too steep for any exchange
_HOT = 0.2  # of a node's mean imbalance: what exchanges may cost at first
_BLUNT = 0.03  # what a node's imbalance is rounded off by at first
_COLD = 1e-4  # both at the end, as a share of what they were
_COOLING = 0.9  # the share of the budget in which exchanges may cost something
_LOOK = 16  # rounds between two looks at the cost
_SLOTS = 32  # pods of a node that a round looks at, drawn anew each time
_PATIENCE = 60  # rounds without any exchange, after which it is over
_FEW = 256  # pairs looked at together: more do not fit into the processor's caches


@dataclass(frozen=True)
class Search:
    """How long to look.

    Attributes:
        spread_weight: what spread between nodes counts beside imbalance within them; 0 is the paper's measure alone.
        rounds: at most so many.
        seconds: at most so long.
        good_enough: told the cost of the plan so far now and then; true ends the search.
    """

    spread_weight: float = 1.0
    rounds: int = 1_000_000
    seconds: float = 20.0
    good_enough: Callable[[float], bool] = lambda _cost: False


def cost(problem: Problem, plan: Int64s, spread_weight: float) -> float:
    """Return what the search minimizes."""
    use = problem.use(plan)
    return float(imbalances(use).mean() + spread_weight * use.mean(axis=1).std())


def local_search(problem: Problem, rng: np.random.Generator, search: Search | None = None) -> Int64s:
    """Return a plan: greedy, improved, and what was left over tried once more.

    Nothing is put where it does not fit or may not go. Gangs are placed whole or not at all, each within one domain.
    """
    search = search or Search()
    until = time.monotonic() + search.seconds
    plan, settled = greedy(problem)
    plan = improve(settled, plan, rng, search)
    alone = np.flatnonzero((plan < 0) & (problem.gang < 0))
    if len(alone) and len(alone) < problem.pods:
        placed = np.flatnonzero(plan >= 0)
        more, _ = greedy(settled.take(alone).beside(settled.take(placed), plan[placed]))
        if (more >= 0).any():
            plan[alone] = more
            plan = improve(settled, plan, rng, replace(search, seconds=max(0.0, until - time.monotonic())))
    return plan


def improve(problem: Problem, plan: Int64s, rng: np.random.Generator, search: Search) -> Int64s:
    """Return a plan that is no worse, and places the same pods."""
    pairs = _Pairs(problem, plan, search.spread_weight)
    before = pairs.cost()
    heat = _HOT * float(imbalances(problem.use(plan)).mean())
    began, idle = time.monotonic(), 0
    for number in range(search.rounds if problem.nodes > 1 else 0):
        passed = max(number / search.rounds, (time.monotonic() - began) / max(search.seconds, _LEAST))
        warm = passed < _COOLING
        left = _COLD ** (passed / _COOLING) if warm else 0.0
        nodes = pairs.pair_off(rng, opposites=number % 2 == 1)
        done = pairs.exchange(*nodes, heat * left, _BLUNT * left, rng)
        idle = 0 if done or warm else idle + 1
        if idle > _PATIENCE or passed >= 1:
            break
        if number % _LOOK == 0 and search.good_enough(pairs.cost()):
            break
    return pairs.plan if pairs.cost() < before else plan


def moved(problem: Problem, plan: Int64s, moves: int, rng: np.random.Generator, search: Search) -> Int64s:
    """Return a plan that costs no more, in which at most so many of the placed pods are elsewhere."""
    pairs = _Pairs(problem, plan, search.spread_weight)
    for _ in range(search.rounds if problem.nodes > 1 else 0):
        most = (moves - int((pairs.plan != plan).sum())) // 2  # an exchange moves one pod or two
        if most < 1:
            break
        left, right = pairs.pair_off(rng, opposites=True)
        pairs.exchange(left[:most], right[:most], 0.0, 0.0, rng)
    return pairs.plan if pairs.cost() < cost(problem, plan, search.spread_weight) else plan


class _Pairs:
    """A plan, and the exchanges between pairs of nodes that make it better.

    Attributes:
        plan: the plan so far.
    """

    def __init__(self, problem: Problem, plan: Int64s, spread_weight: float) -> None:
        self._problem = problem
        self.plan = plan.copy()
        self._weight = spread_weight
        self._limit = problem.limit
        # One more row for the pod that is not there: it asks for nothing and may go anywhere.
        columns = problem.demand.shape[1]
        self._demand = np.concatenate([problem.demand, np.zeros((1, columns))])
        self._group = np.append(problem.group, len(problem.allowed))
        self._allowed = np.concatenate([problem.allowed, np.ones((1, problem.nodes), np.bool_)])
        self._load = problem.load(plan)

    def cost(self) -> float:
        """Return what is minimized."""
        return cost(self._problem, self.plan, self._weight)

    def pair_off(self, rng: np.random.Generator, *, opposites: bool) -> tuple[Int64s, Int64s]:
        """Return two nodes for each pair: at random, or those that deviate most in opposite directions."""
        problem = self._problem
        order = rng.permutation(problem.nodes)
        if opposites:
            use = (problem.used + self._load[:, : len(problem.resources)]) / problem.capacity
            order = (use @ rng.standard_normal(use.shape[1])).argsort()
            half = len(order) // 2
            return order[:half], order[::-1][:half]
        half = len(order) // 2
        return order[:half], order[half : 2 * half]

    def exchange(self, left: Int64s, right: Int64s, heat: float, blunt: float, rng: np.random.Generator) -> int:
        """Carry out the best exchange of each pair where it lowers the cost, or by chance; return how many.

        Args:
            left: a node of each pair.
            right: the other one.
            heat: what an exchange costs that has a chance of 1 in e.
            blunt: what imbalances are rounded off by.
            rng: random numbers.
        """
        slots = self._slots(rng)
        problem, count = self._problem, len(self._problem.resources)
        use = (problem.used + self._load[:, :count]) / problem.capacity
        mean = use.mean(axis=1)
        spread = max(float(mean.std()), _FLAT)
        bend = self._weight / (2 * spread)  # of the spread's tangent, times the number of nodes
        done = 0
        for start in range(0, len(left), _FEW):
            some = slice(start, start + _FEW)
            gain, first, second = self._best(left[some], right[some], slots, use, mean, bend, blunt)
            better = gain < -_LEAST - heat * np.log(1 - rng.random(len(gain)))
            done += int(better.sum())
            self._apply(left[some][better], right[some][better], first[better], second[better])
        return done

    def _slots(self, rng: np.random.Generator) -> Int64s:
        """Return some pods of each node, in no order, and one that is not there, shape (nodes, slots)."""
        nodes = self._problem.nodes
        pods = rng.permutation(np.flatnonzero(self.plan >= 0))
        pods = pods[self.plan[pods].argsort(kind="stable")]
        node = self.plan[pods]
        starts = np.searchsorted(node, np.arange(nodes))
        rank = np.arange(len(pods)) - starts[node]
        width = min(int(rank.max(initial=0)) + 1, _SLOTS)
        slots = np.full((nodes, width + 1), len(self.plan))
        kept = rank < width
        slots[node[kept], rank[kept]] = pods[kept]
        return slots

    def _best(
        self, left: Int64s, right: Int64s, slots: Int64s, use: Float64s, mean: Float64s, bend: float, blunt: float
    ) -> tuple[Float64s, Int64s, Int64s]:
        """Return for each pair the least change of the cost (times nodes), and the pods that make it.

        Letters: p the pairs, i a pod of the left node, j one of the right, r a resource.
        """
        problem, count = self._problem, len(self._problem.resources)
        mine, theirs = slots[left], slots[right]
        given, taken = self._demand[mine], self._demand[theirs]
        allowed = self._allowed[self._group[mine], right[:, None]][:, :, None]
        allowed = allowed & self._allowed[self._group[theirs], left[:, None]][:, None, :]
        for column in range(given.shape[2]):
            change = taken[:, None, :, column] - given[:, :, None, column]
            allowed &= change <= (self._limit - self._load)[left, column][:, None, None]
            allowed &= -change <= (self._limit - self._load)[right, column][:, None, None]
        total = np.zeros(allowed.shape)
        for node, sign in ((left, 1.0), (right, -1.0)):
            capacity = problem.capacity[node][:, None, :]
            out, into = sign * given[:, :, :count] / capacity, sign * taken[:, :, :count] / capacity
            out_mean, into_mean = out.mean(axis=2), into.mean(axis=2)
            kept = use[node][:, None, :] - mean[node][:, None, None] - (out - out_mean[:, :, None])
            come = into - into_mean[:, :, None]
            squared = 2 * kept @ come.transpose(0, 2, 1)
            squared += (kept**2).sum(axis=2)[:, :, None] + (come**2).sum(axis=2)[:, None, :]
            total += np.sqrt(np.maximum(squared, 0.0) + blunt**2)
            if bend:
                away = (mean[node] - mean.mean())[:, None, None] + into_mean[:, None, :] - out_mean[:, :, None]
                total += bend * away**2
        total[~allowed] = np.inf
        total[:, -1, -1] = np.inf  # nothing for nothing
        flat = total.reshape(len(left), -1)
        best = flat.argmin(axis=1)
        row, column_ = np.divmod(best, slots.shape[1])
        pair = np.arange(len(left))
        both = np.stack([left, right])
        lengths = imbalances(use[both].reshape(-1, count)).reshape(2, -1)
        before = np.sqrt(lengths**2 + blunt**2).sum(axis=0)
        before += bend * ((mean[both] - mean.mean()) ** 2).sum(axis=0)
        return flat[pair, best] - before, mine[pair, row], theirs[pair, column_]

    def _apply(self, left: Int64s, right: Int64s, first: Int64s, second: Int64s) -> None:
        change = self._demand[second] - self._demand[first]
        self._load[left] += change
        self._load[right] -= change
        absent = len(self.plan)
        self.plan[first[first < absent]] = right[first < absent]
        self.plan[second[second < absent]] = left[second < absent]
