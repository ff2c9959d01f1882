"""Lower bound of the cost of any plan.

The bound is the lowest cost of a fractional plan, which may split pods over nodes. Every plan is also a fractional
plan, so no plan costs less. The cost is convex, so nodes of one kind can share their load evenly, and their mean use
stands for all of them. The variables that remain are the mean use v_t of each kind of node. A linear program that grows
by cutting planes finds their best values:

- The length of a deviation lies above its tangents: z_t >= g . v_t with g = P v / |P v|, where P subtracts the mean
  over resources. The spread between nodes has such tangents too.
- The loads that pods can put on kinds of nodes lie on one side of planes. For any prices l, sum_t l_t . load_t is at
  least the amount that the pods pay if each goes to its cheapest kind. The Frank-Wolfe method finds the most violated
  plane.

The bound does not depend on the solver's precision (scipy's HiGHS): it is computed from the solver's prices by weak
duality, which holds for any prices.
"""

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import Problem

_KINDS: Final = 48  # most kinds of nodes: more take longer, fewer lower the bound
_STEPS: Final = 60  # steps of the Frank-Wolfe method for each plane
_EPSILON: Final = 1e-9


@dataclass(frozen=True)
class LowerBound:
    """Lower bound of the cost of plans.

    Attributes:
        cost: cost that no plan for these pods can go below.
        exact: true if the bound is the fractional optimum to within the tolerance, or the cost of a plan proven to be
            the best; false if time ran out first.
    """

    cost: float
    exact: bool

    def gap(self, cost: float) -> float:
        """Return the distance of a cost from the bound, as a share of the bound; infinite above a bound of 0."""
        if cost <= self.cost:
            return 0.0
        return cost / self.cost - 1 if self.cost > 0 else float("inf")


def lower_bound(
    problem: Problem, *, spread_weight: float = 1.0, seconds: float = 30.0, tolerance: float = 1e-4
) -> LowerBound:
    """Return a lower bound of the cost of all plans that place all pods of a problem.

    Args:
        problem: pods and nodes. Gangs and resources that are not balanced are ignored, which can only lower the bound.
        spread_weight: see :class:`~trimaran.planning.local_search.SearchSettings`.
        seconds: time limit, after which the current bound is returned; it is valid at any time.
        tolerance: accepted distance between the bound and the fractional optimum, as a share.
    """
    until = time.monotonic() + seconds
    relaxation = _Relaxation(problem, spread_weight)
    best, point = relaxation.solve()
    while point is not None and time.monotonic() < until:
        violated = relaxation.add_violated_plane(point)
        cost = relaxation.cost(point)
        if not violated and cost - best <= tolerance * max(cost, _EPSILON):
            return LowerBound(max(best, 0.0), exact=True)
        relaxation.add_tangents(point)
        value, point = relaxation.solve()
        best = max(best, value)
    return LowerBound(max(best, 0.0), exact=False)


class _Relaxation:
    """Linear program of the fractional problem, with variables v (kinds x R), z (kinds) and the spread."""

    def __init__(self, problem: Problem, spread_weight: float) -> None:
        # Nodes of one kind: their share of all nodes, and their mean use before pods are placed.
        kind = _kinds(problem)
        count = len(problem.resources)
        self._kinds = int(kind.max()) + 1
        first = np.array([np.flatnonzero(kind == number)[0] for number in range(self._kinds)])
        size = np.bincount(kind)
        base = problem.used / problem.capacity
        self._base = np.stack([np.bincount(kind, column) for column in base.T], axis=1) / size[:, None]
        self._share = size / problem.nodes
        self._weight = spread_weight

        # Demand in shares of the total demand, so that all resources have numbers of one size.
        requested = problem.balanced.sum(axis=0)
        total = np.where(requested > 0, requested, problem.capacity.sum(axis=0))
        self._demand = problem.balanced / total
        self._group = problem.group
        self._allowed: Bools = problem.allowed[:, first]
        #: Share of the total demand that a kind takes for each unit of mean use, shape (kinds, R).
        self._takes = problem.capacity[first] * size[:, None] / total
        self._count = count
        self._split = np.zeros((self._kinds, count))
        self._split[:] = self._respond(np.zeros_like(self._split))[1]

        # Objective, bounds of the variables, and the constraint that all demand is placed.
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
        self._equal_to = (self._takes * self._base).sum(axis=0) + (requested > 0)
        self._rows: list[Float64s] = []
        self._limits: list[float] = []
        self.add_tangents(self._split / self._takes + self._base)

    def solve(self) -> tuple[float, Float64s | None]:
        """Return a proven bound, and the mean use of each kind at the optimum of the linear program.

        If the solver finds no solution, because the pods do not fit, these are 0 and None.
        """
        rows, limits = np.array(self._rows).reshape(-1, len(self._objective)), np.array(self._limits)
        for presolve in (True, False):  # HiGHS solves some programs only without presolve
            solution = linprog(
                self._objective, rows, limits, self._equal, self._equal_to,
                bounds=np.stack([self._low, self._high], axis=1), method="highs", options={"presolve": presolve},
            )  # fmt: skip
            if solution.x is not None:
                break
        else:
            return 0.0, None
        # Weak duality: any prices of the right sign prove a bound; the bounds of the variables cover the rest.
        prices = np.minimum(solution.ineqlin.marginals, 0.0)
        equal_prices = solution.eqlin.marginals
        rest = self._objective - prices @ rows - equal_prices @ self._equal
        proven = prices @ limits + equal_prices @ self._equal_to
        proven += np.where(rest > 0, rest * self._low, rest * self._high).sum()
        return float(proven), solution.x[: self._split.size].reshape(self._split.shape)

    def cost(self, point: Float64s) -> float:
        """Return the cost of a mean use of each kind."""
        deviation = point - point.mean(axis=1, keepdims=True)
        mean = point.mean(axis=1)
        spread = np.sqrt(self._share @ (mean - self._share @ mean) ** 2)
        return float(self._share @ np.linalg.norm(deviation, axis=1) + self._weight * spread)

    def add_tangents(self, point: Float64s) -> None:
        """Add the tangents of the lengths and of the spread at a point."""
        deviation = point - point.mean(axis=1, keepdims=True)
        length = np.linalg.norm(deviation, axis=1)
        cells = self._split.size
        for kind in np.flatnonzero(length > _EPSILON):
            row = np.zeros(len(self._objective))
            row[kind * self._count : (kind + 1) * self._count] = deviation[kind] / length[kind]
            row[cells + kind] = -1.0
            self._add(row, 0.0)
        distance = point.mean(axis=1)
        distance = distance - self._share @ distance
        spread = np.sqrt(self._share @ distance**2)
        if self._weight and spread > _EPSILON:
            row = np.zeros(len(self._objective))
            row[:cells] = np.repeat(self._share * distance / spread, self._count) / self._count
            row[-1] = -1.0
            self._add(row, 0.0)

    def add_violated_plane(self, point: Float64s) -> bool:
        """Add the plane that a point violates most, since no pods can reach it; return whether there is one."""
        target = (point - self._base) * self._takes
        split = self._split
        worst, least_paid, prices = 1e-7, 0.0, None
        # Frank-Wolfe: walk towards the target; each step's direction is also the normal of a valid plane.
        for _ in range(_STEPS):
            gradient = split - target
            length = float(np.linalg.norm(gradient))
            if length < _EPSILON:
                break
            least, vertex = self._respond(gradient)
            violation = (least - float((gradient * target).sum())) / length
            if violation > worst:
                worst, prices, least_paid = violation, gradient / length, least / length
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
        """Return the amount paid if each pod goes to its cheapest kind, and the demand there, shape (kinds, R)."""
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
    """Return the kind of each node, a number: nodes of a kind have equal capacity and allow the same pods.

    If there are few such kinds, they are divided further by use, which raises the bound.
    """
    columns = np.concatenate([problem.capacity, problem.allowed.T], axis=1)
    _, kind = np.unique(columns, axis=0, return_inverse=True)
    kind = kind.reshape(-1).astype(np.int64)
    base = problem.used / problem.capacity
    while (kinds := int(kind.max()) + 1) < _KINDS:
        ranges = np.array([np.ptp(base[kind == number], axis=0) * (kind == number).sum() for number in range(kinds)])
        widest, resource = np.unravel_index(ranges.argmax(), ranges.shape)
        if ranges[widest, resource] <= _EPSILON:
            break
        inside = kind == widest
        middle = (base[inside, resource].min() + base[inside, resource].max()) / 2
        kind[inside & (base[:, resource] > middle)] = kinds
    return kind
