"""Lower bound of the cost of any plan.

The bound is the lowest cost of a fractional plan, which may split pods over nodes. Every plan is also a fractional
plan, so no plan costs less. Nodes of one kind have the same capacity and allow the same pods. The cost is convex, so
the nodes of a kind can share their load evenly. Then only the mean use v_t of each kind t of node is unknown. A linear
program to which cutting planes are added finds the best values:

- The imbalance z_t of a kind is the norm of P v_t, where P subtracts the mean over resources. A norm lies above its
  tangents: z_t >= g . v_t with g = P v / |P v| for any v. The spread between nodes has such tangents too.
- Planes limit the loads that pods can put on the kinds. If pods paid a price l_t for each resource on kind t, the sum
  of l_t . load_t would be at least the amount paid if each pod went to its cheapest kind. The Frank-Wolfe method finds
  the prices whose plane the current solution violates most.

The bound does not rely on the precision of the solver (HiGHS of scipy): it is computed from the solver's dual prices by
weak duality, which holds for any prices.
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
        cost: lower bound: no plan that places the same pods costs less.
        exact: true if the bound is as high as the method allows: the lowest cost of a plan that may split pods, to
            within the tolerance, or the cost of a plan proven to be the best. False if the time ran out.
    """

    cost: float
    exact: bool

    def gap(self, cost: float) -> float:
        """Return (cost - bound) / bound; 0 for a cost below the bound, infinity if only the bound is 0."""
        if cost <= self.cost:
            return 0.0
        return cost / self.cost - 1 if self.cost > 0 else float("inf")


def lower_bound(
    problem: Problem, *, spread_weight: float = 1.0, seconds: float = 30.0, tolerance: float = 1e-4
) -> LowerBound:
    """Return a lower bound of the cost of all plans that place all pods of a problem.

    Args:
        problem: pods and nodes. Gangs and resources that are not balanced are ignored, which can only lower the bound.
        spread_weight: weight of the spread between nodes in the cost.
        seconds: time limit, after which the highest bound so far is returned, which is also valid.
        tolerance: distance between the bound and the lowest cost of a plan that may split pods, as a share of that
            cost, at which the search ends.
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
    """Linear program for plans that may split pods.

    Its variables are the mean use v of each kind of node, (kinds x R), the imbalance z of each kind, and the spread.
    """

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

        # Demand in shares of the total demand, so that the numbers of all resources are of similar size.
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
        """Return a lower bound of the cost, and the mean use of each kind at the linear program's optimum (kinds, R).

        If the solver finds no solution, because the pods do not fit, the results are 0 and None.
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
        """Return the cost if ``point`` is the mean use of the nodes of each kind, shape (kinds, R)."""
        deviation = point - point.mean(axis=1, keepdims=True)
        mean = point.mean(axis=1)
        spread = np.sqrt(self._share @ (mean - self._share @ mean) ** 2)
        return float(self._share @ np.linalg.norm(deviation, axis=1) + self._weight * spread)

    def add_tangents(self, point: Float64s) -> None:
        """Add the tangents of each kind's imbalance and of the spread.

        Args:
            point: mean use of each kind at which the tangents touch, shape (kinds, R).
        """
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
        """Add the plane that a point violates most; return False if the pods can produce the point's loads.

        Args:
            point: mean use of each kind, shape (kinds, R).
        """
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
        """Send each pod to the kind of node where its requests cost least.

        Args:
            prices: price of each resource on each kind, shape (kinds, R).

        Returns:
            The sum paid by all pods, and the requests of the pods on each kind, shape (kinds, R).
        """
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
    """Return the number of each node's kind, shape (nodes,).

    Nodes of a kind have equal capacity and allow the same pods. If there are fewer than 48 kinds, they are divided
    further by the nodes' use, which raises the bound.
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
