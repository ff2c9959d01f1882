"""What no plan can beat: the cost of the best fractional plan, proven.

Pods may be split over nodes here, which no plan may do, so the least cost of that is below the cost of every plan. The
cost is convex, so nodes of one kind may share what they hold evenly: their mean use stands for all of them. So few
numbers are left: the mean use v_t of each kind of node. They are looked for by cutting planes, a linear program that
grows by what it got wrong:

- the length of a deviation lies above its tangents: z_t >= g . v_t with g = P v / |P v|, P taking off the mean over
  resources; likewise for the spread between nodes;
- what pods can put on kinds of nodes lies on one side of planes: for any prices l, sum_t l_t . load_t is at least what
  the pods pay when each goes to its cheapest kind. The plane that is missed most is found by Frank and Wolfe's method.

Nothing rests on the precision of the solver (scipy's HiGHS): the bound is computed from its prices by weak duality,
which holds for any prices.
"""

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import Problem

_KINDS: Final = 48  # kinds of nodes that are told apart; more would be slow, fewer make the bound lower
_STEPS: Final = 60  # of Frank and Wolfe's method for each plane
_EPSILON: Final = 1e-9


@dataclass(frozen=True)
class Bound:
    """What no plan can beat.

    Attributes:
        cost: no plan that places these pods costs less.
        exact: it was looked for to the end: it is the fractional optimum, up to a ten-thousandth, or the cost of a plan
            that was proven the best; else time ran out before.
    """

    cost: float
    exact: bool

    def gap(self, cost: float) -> float:
        """Return how far a cost is above the bound, as a share of it; infinite above a bound of 0."""
        if cost <= self.cost:
            return 0.0
        return cost / self.cost - 1 if self.cost > 0 else float("inf")


def lower_bound(
    problem: Problem, *, spread_weight: float = 1.0, seconds: float = 30.0, tolerance: float = 1e-4
) -> Bound:
    """Return what no plan that places all of the problem's pods can beat.

    Args:
        problem: gangs, and resources that are not balanced, are not looked at: that can only lower the bound.
        spread_weight: as in :class:`~trimaran.planning.local_search.Search`.
        seconds: after which the bound so far is returned; it holds at any time.
        tolerance: between the bound and the fractional optimum, as a share.
    """
    until = time.monotonic() + seconds
    relaxed = _Relaxed(problem, spread_weight)
    best, point = relaxed.solve()
    while point is not None and time.monotonic() < until:
        short = relaxed.miss(point)
        true = relaxed.cost(point)
        if not short and true - best <= tolerance * max(true, _EPSILON):
            return Bound(max(best, 0.0), exact=True)
        relaxed.cut(point)
        value, point = relaxed.solve()
        best = max(best, value)
    return Bound(max(best, 0.0), exact=False)


class _Relaxed:
    """The linear program. Its variables: v (kinds x R), z (kinds), and the spread."""

    def __init__(self, problem: Problem, spread_weight: float) -> None:
        kind = _kinds(problem)
        count = len(problem.resources)
        self._kinds = int(kind.max()) + 1
        first = np.array([np.flatnonzero(kind == each)[0] for each in range(self._kinds)])
        size = np.bincount(kind)
        base = problem.used / problem.capacity
        self._base = np.stack([np.bincount(kind, column) for column in base.T], axis=1) / size[:, None]
        self._share = size / problem.nodes
        self._weight = spread_weight
        asked = problem.balanced.sum(axis=0)
        total = np.where(asked > 0, asked, problem.capacity.sum(axis=0))
        self._demand = problem.balanced / total
        self._group = problem.group
        self._allowed: Bools = problem.allowed[:, first]
        #: What a kind takes of all demand for each unit of mean use, shape (kinds, R).
        self._takes = problem.capacity[first] * size[:, None] / total
        self._count = count
        self._split = np.zeros((self._kinds, count))
        self._split[:] = self._respond(np.zeros_like(self._split))[1]

        cells = self._kinds * count
        self._objective = np.concatenate([np.zeros(cells), self._share, [spread_weight]])
        top = np.maximum(1.0 + _EPSILON, self._base)
        self._low = np.concatenate([self._base.ravel(), np.zeros(self._kinds + 1)])
        highest = np.sqrt(count) * top.max()
        self._high = np.concatenate([top.ravel(), np.full(self._kinds + 1, highest)])
        equal = np.zeros((count, len(self._objective)))
        for resource in range(count):
            equal[resource, resource:cells:count] = self._takes[:, resource]
        self._equal = equal
        self._equal_to = (self._takes * self._base).sum(axis=0) + (asked > 0)
        self._rows: list[Float64s] = []
        self._limits: list[float] = []
        self.cut(self._split / self._takes + self._base)

    def solve(self) -> tuple[float, Float64s | None]:
        """Return a proven bound, and the mean use of each kind where the linear program is lowest.

        Where the solver finds nothing, which is when the pods do not fit at all, these are 0 and None.
        """
        rows, limits = np.array(self._rows).reshape(-1, len(self._objective)), np.array(self._limits)
        for presolve in (True, False):  # some programs HiGHS solves only as they are
            found = linprog(
                self._objective, rows, limits, self._equal, self._equal_to,
                bounds=np.stack([self._low, self._high], axis=1), method="highs", options={"presolve": presolve},
            )  # fmt: skip
            if found.x is not None:
                break
        else:
            return 0.0, None
        prices = np.minimum(found.ineqlin.marginals, 0.0)
        equal_prices = found.eqlin.marginals
        rest = self._objective - prices @ rows - equal_prices @ self._equal
        proven = prices @ limits + equal_prices @ self._equal_to
        proven += np.where(rest > 0, rest * self._low, rest * self._high).sum()
        return float(proven), found.x[: self._split.size].reshape(self._split.shape)

    def cost(self, point: Float64s) -> float:
        """Return what the mean use of each kind costs."""
        deviation = point - point.mean(axis=1, keepdims=True)
        mean = point.mean(axis=1)
        spread = np.sqrt(self._share @ (mean - self._share @ mean) ** 2)
        return float(self._share @ np.linalg.norm(deviation, axis=1) + self._weight * spread)

    def cut(self, point: Float64s) -> None:
        """Add the tangents of the lengths and of the spread at a point."""
        deviation = point - point.mean(axis=1, keepdims=True)
        length = np.linalg.norm(deviation, axis=1)
        cells = self._split.size
        for kind in np.flatnonzero(length > _EPSILON):
            row = np.zeros(len(self._objective))
            row[kind * self._count : (kind + 1) * self._count] = deviation[kind] / length[kind]
            row[cells + kind] = -1.0
            self._add(row, 0.0)
        away = point.mean(axis=1)
        away = away - self._share @ away
        spread = np.sqrt(self._share @ away**2)
        if self._weight and spread > _EPSILON:
            row = np.zeros(len(self._objective))
            row[:cells] = np.repeat(self._share * away / spread, self._count) / self._count
            row[-1] = -1.0
            self._add(row, 0.0)

    def miss(self, point: Float64s) -> bool:
        """Add the plane by which pods cannot bring about a point; return whether there is one."""
        wanted = (point - self._base) * self._takes
        split = self._split
        worst, least_paid, prices = 1e-7, 0.0, None
        for _ in range(_STEPS):
            gradient = split - wanted
            length = float(np.linalg.norm(gradient))
            if length < _EPSILON:
                break
            least, vertex = self._respond(gradient)
            missed = (least - float((gradient * wanted).sum())) / length
            if missed > worst:
                worst, prices, least_paid = missed, gradient / length, least / length
            step = vertex - split
            size = float((step**2).sum())
            if size < _EPSILON**2:
                break
            split = split + min(1.0, max(0.0, -float((gradient * step).sum()) / size)) * step
        self._split = split
        if prices is None:
            return False
        row = np.zeros(len(self._objective))
        row[: prices.size] = -(prices * self._takes).ravel()
        self._add(row, -least_paid - float((prices * self._takes * self._base).sum()))
        return True

    def _respond(self, prices: Float64s) -> tuple[float, Float64s]:
        """Return what pods pay when each goes to its cheapest kind, and what they ask for there, shape (kinds, R)."""
        paid = self._demand @ prices.T
        paid[~self._allowed[self._group]] = np.inf
        choice = paid.argmin(axis=1)
        least = paid[np.arange(len(paid)), choice]
        split = np.stack(
            [np.bincount(choice, column, self._kinds) for column in self._demand.T], axis=1, dtype=np.float64
        )
        return float(least[np.isfinite(least)].sum()), split

    def _add(self, row: Float64s, limit: float) -> None:
        self._rows.append(row)
        self._limits.append(limit)


def _kinds(problem: Problem) -> Int64s:
    """Return a number for each node: nodes of one number have equal capacity, and the same pods may go to them.

    Where that leaves few kinds, they are told apart by their use before, which makes the bound higher.
    """
    columns = np.concatenate([problem.capacity, problem.allowed.T], axis=1)
    _, kind = np.unique(columns, axis=0, return_inverse=True)
    kind = kind.reshape(-1).astype(np.int64)
    base = problem.used / problem.capacity
    while (kinds := int(kind.max()) + 1) < _KINDS:
        ranges = np.array([np.ptp(base[kind == each], axis=0) * (kind == each).sum() for each in range(kinds)])
        widest, resource = np.unravel_index(ranges.argmax(), ranges.shape)
        if ranges[widest, resource] <= _EPSILON:
            break
        inside = kind == widest
        middle = (base[inside, resource].min() + base[inside, resource].max()) / 2
        kind[inside & (base[:, resource] > middle)] = kinds
    return kind
