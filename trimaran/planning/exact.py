"""Exact solution of small placement problems by integer programming, with HiGHS of scipy.

HiGHS needs linear functions, and the cost is convex but not linear. So the program minimizes the maximum of the cost's
tangents at some uses of the nodes. The maximum is nowhere above the cost, so a lower bound of the program holds for the
cost, too. Each round solves the program and adds the tangents at the solution. The first rounds split pods over nodes,
which is fast and gives most tangents. The other rounds look for a whole plan that costs less than the best one so far,
and end when there is none.
"""

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from scoring.arrays import Float64s, Int64s
from trimaran.planning.problem import UNPLACED, Problem, cost, cost_of_use

_MAX_PAIRS: Final = 1_000  # pods x nodes: 30 take seconds to prove, 48 up to minutes, more are seldom proven
_INFEASIBLE: Final = 2  # status of scipy.optimize.milp
_EPSILON: Final = 1e-9


@dataclass(frozen=True)
class ExactResult:
    """Result of the exact search.

    Attributes:
        plan: best plan, shape (pods,).
        cost: cost of the plan.
        bound: lower bound of the cost of any plan that places all pods.
        proven: true if cost and bound meet within the tolerance, so the plan is the best; false if the time ran out.
    """

    plan: Int64s
    cost: float
    bound: float
    proven: bool


def solve_exactly(
    problem: Problem,
    start: Int64s,
    *,
    spread_weight: float = 1.0,
    seconds: float = 60.0,
    known_bound: float = 0.0,
    tolerance: float = 1e-3,
) -> ExactResult:
    """Return the best plan that places all pods, or the best plan found within the time limit, with a lower bound.

    Args:
        problem: pods and nodes; gangs are ignored.
        start: initial plan; it must fit and place all pods.
        spread_weight: weight of the spread between nodes in the cost.
        seconds: time limit for all rounds together.
        known_bound: lower bound of the cost that is already known.
        tolerance: distance between cost and bound, as a share of the cost, at which the search ends.

    Raises:
        ValueError: pods times nodes exceed 1,000, or ``start`` does not place all pods.
    """
    if (start < 0).any():
        raise ValueError("--exact needs a first plan that places all pods; leave --exact out, or add nodes")
    check_solvable(problem)
    until = time.monotonic() + seconds
    best, lowest, bound = start, cost(problem, start, spread_weight), known_bound

    def left() -> float:
        """Return the seconds for a next round; 0 or less if the time ran out or the plan is proven."""
        return until - time.monotonic() if lowest - bound > tolerance * lowest else 0.0

    program = _Program(problem, spread_weight)
    program.add_tangents(problem.use(start))
    while (limit := left()) > 0:
        split = program.solve(limit, whole=False)
        if split.x is None:
            break
        bound = max(bound, split.fun)
        use = program.use(split.x)
        program.add_tangents(use)
        if cost_of_use(use, spread_weight) - split.fun <= tolerance * lowest:
            break
    while (limit := left()) > 0:
        # Search only for plans that cost clearly less than the best one: if there are none, the best plan is proven.
        below = lowest * (1 - tolerance / 2)
        result = program.solve(limit, whole=True, below=below, gap=tolerance / 4)
        proven = below if result.status == _INFEASIBLE else result.mip_dual_bound
        bound = max(bound, min(below, proven if proven is not None else 0.0))
        if result.x is None:
            break
        plan = program.plan(result.x)
        program.add_tangents(problem.use(plan))
        if not program.forbid_overfull(plan) and (value := cost(problem, plan, spread_weight)) < lowest:
            best, lowest = plan, value
    return ExactResult(best, lowest, min(bound, lowest), proven=lowest - bound <= tolerance * lowest)


def check_solvable(problem: Problem) -> None:
    """Check that the exact search can solve a problem of this size.

    Raises:
        ValueError: pods times nodes exceed 1,000.
    """
    if problem.pods * problem.nodes > _MAX_PAIRS:
        raise ValueError(
            f"{problem.pods} pods on {problem.nodes} nodes are too many for --exact, which takes at most {_MAX_PAIRS} "
            "pairs of a pod and a node; leave --exact out"
        )


class _Program:
    """Integer program for the share of each pod on each allowed node, with tangents of the cost as constraints.

    Its variables are the shares of the C allowed pairs of a pod and a node, the imbalance of each node, and the spread
    times its weight.
    """

    def __init__(self, problem: Problem, spread_weight: float) -> None:
        self._problem, self._weight = problem, spread_weight
        allowed = problem.allowed[problem.group] & (problem.demand[:, None, :] <= problem.limit).all(axis=2)
        self._pod, self._node = np.argwhere(allowed).T
        self._cells = len(self._pod)
        self._base = problem.used / problem.capacity
        #: Use that a pod adds to a node, as shares of its capacity, shape (C, R).
        self._adds = problem.balanced[self._pod] / problem.capacity[self._node]
        self._rows: list[Float64s] = []
        self._low: list[float] = []
        self._high: list[float] = []
        for pod in range(problem.pods):
            cells = np.flatnonzero(self._pod == pod)
            self._add(cells, np.ones(len(cells)), low=1.0, high=1.0)
        # In shares of the limit, since HiGHS' tolerance is absolute.
        unit = np.where(problem.limit > 0, problem.limit, 1.0)
        for node in range(problem.nodes):
            cells = np.flatnonzero(self._node == node)
            for column in range(problem.demand.shape[1]):
                self._add(cells, problem.demand[self._pod[cells], column] / unit[node, column], high=1.0)

    def add_tangents(self, use: Float64s) -> None:
        """Add the tangents of each node's imbalance and of the spread between nodes.

        Args:
            use: use of each node at which the tangents touch the cost, shape (nodes, R).
        """
        deviation = use - use.mean(axis=1, keepdims=True)
        length = np.linalg.norm(deviation, axis=1)
        for node in np.flatnonzero(length > _EPSILON).tolist():
            slope = deviation[node] / length[node]
            inside = np.flatnonzero(self._node == node)
            self._add_tangent(self._cells + node, inside, self._adds[inside] @ slope, self._base[node] @ slope)
        mean = use.mean(axis=1)
        spread = float(mean.std())
        if spread > _EPSILON:
            slope = self._weight * (mean - mean.mean()) / spread / len(mean)
            every = np.arange(self._cells)
            rises = self._adds.mean(axis=1) * slope[self._node]
            self._add_tangent(self._cells + len(mean), every, rises, self._base.mean(axis=1) @ slope)

    def forbid_overfull(self, plan: Int64s) -> bool:
        """Add a constraint against the set of pods on each overfilled node of a plan; return whether there is one.

        HiGHS lets a sum exceed its limit by about a millionth.
        """
        overfull = np.flatnonzero((self._problem.load(plan) > self._problem.limit).any(axis=1))
        for node in overfull:
            together = np.flatnonzero((self._node == node) & (plan[self._pod] == node))
            self._add(together, np.ones(len(together)), high=len(together) - 1.0)
        return bool(len(overfull))

    def solve(self, seconds: float, *, whole: bool, below: float = np.inf, gap: float = 0.0) -> OptimizeResult:
        """Solve the program with the constraints added so far.

        Args:
            seconds: time limit.
            whole: do not split pods.
            below: largest sum of imbalance and spread.
            gap: distance between the solution and its bound, as a share of the solution, at which the search ends.
        """
        nodes = self._problem.nodes
        objective = np.concatenate([np.zeros(self._cells), np.full(nodes, 1 / nodes), [1.0]])
        rows, low, high = [*self._rows, objective], [*self._low, -np.inf], [*self._high, below]
        highest = np.concatenate([np.ones(self._cells), np.full(nodes + 1, np.inf)])
        return milp(
            objective,
            integrality=np.arange(len(objective)) < (self._cells if whole else 0),
            bounds=Bounds(0, highest),
            constraints=LinearConstraint(np.stack(rows), low, high),
            options={"time_limit": seconds, "mip_rel_gap": gap},
        )

    def use(self, variables: Float64s) -> Float64s:
        """Return the use of each node, as shares of its capacity, shape (nodes, R)."""
        use = self._base.copy()
        np.add.at(use, self._node, self._adds * variables[: self._cells, None])
        return use

    def plan(self, variables: Float64s) -> Int64s:
        """Return the plan of a solution that does not split pods."""
        plan = np.full(self._problem.pods, UNPLACED)
        chosen = variables[: self._cells] > 0.5
        plan[self._pod[chosen]] = self._node[chosen]
        return plan

    def _add_tangent(self, variable: int, cells: Int64s, rises: Float64s, base: float) -> None:
        """Add the constraint that a variable is at least a tangent: ``base`` plus ``rises`` times the shares."""
        self._add(np.append(cells, variable), np.append(-rises, 1.0), low=base)

    def _add(self, places: Int64s, factors: Float64s, *, low: float = -np.inf, high: float = np.inf) -> None:
        row = np.zeros(self._cells + self._problem.nodes + 1)
        row[places] = factors
        self._rows.append(row)
        self._low.append(low)
        self._high.append(high)
