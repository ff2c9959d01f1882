"""Exact solution of small placement problems with CP-SAT, the constraint solver of OR-tools.

CP-SAT handles integers and linear functions. The cost is convex but not linear. So the model minimizes the maximum of
the cost's tangents at some plans, which is nowhere above the cost: the solver's lower bound holds for the cost, too.
Each round solves the model and adds the tangents at the solution. The rounds end when the cost of the best plan meets
the bound.
"""

import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.problem import UNPLACED, Problem, cost

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

_SCALE: Final = 10**7  # integers per unit of cost
_MAX_PAIRS: Final = 1_000  # pods x nodes: 48 take seconds to prove, 64 up to minutes, more are seldom proven


class SolverMissing(ImportError):
    """OR-tools is not installed; the message says how to install it."""


@dataclass(frozen=True)
class ExactResult:
    """Result of CP-SAT.

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
    workers: int = 0,
) -> ExactResult:
    """Return the best plan that places all pods, or the best plan found within the time limit, with a lower bound.

    Args:
        problem: pods and nodes; gangs are ignored.
        start: initial plan; it must fit and place all pods.
        spread_weight: weight of the spread between nodes in the cost.
        seconds: time limit for all rounds together.
        known_bound: lower bound of the cost that is already known.
        tolerance: distance between cost and bound, as a share of the cost, at which the search ends.
        workers: number of threads; 0 starts one for each processor.

    Raises:
        SolverMissing: OR-tools is not installed.
        ValueError: pods times nodes exceed 1,000, a request is not an integer, or ``start`` does not place all pods.
    """
    if (start < 0).any():
        raise ValueError("CP-SAT needs a first plan that places all pods")
    check_solvable(problem)
    until = time.monotonic() + seconds
    model = _Model(problem, spread_weight)
    best, lowest, bound = start, cost(problem, start, spread_weight), known_bound
    model.add_tangents(start)
    while (left := until - time.monotonic()) > 0 and lowest - bound > tolerance * lowest:
        plan, proven = model.solve(best, left, workers)
        bound = max(bound, proven)
        if plan is None:
            break
        value = cost(problem, plan, spread_weight)
        if value < lowest:
            best, lowest = plan, value
        model.add_tangents(plan)
    return ExactResult(best, lowest, min(bound, lowest), proven=lowest - bound <= tolerance * lowest)


def check_solvable(problem: Problem) -> None:
    """Check that CP-SAT is installed and can solve a problem of this size.

    Raises:
        SolverMissing: OR-tools is not installed.
        ValueError: pods times nodes exceed 1,000, or a request is not an integer.
    """
    if problem.pods * problem.nodes > _MAX_PAIRS:
        raise ValueError(
            f"{problem.pods} pods on {problem.nodes} nodes are too many for CP-SAT, which takes at most {_MAX_PAIRS} "
            "pairs of a pod and a node; leave --exact out"
        )
    if (problem.demand != np.floor(problem.demand)).any():
        raise ValueError("CP-SAT needs whole amounts; use smaller units")
    try:
        import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise SolverMissing(
            "CP-SAT is not installed: pip install 'trimaran[placement]', or leave --exact out"
        ) from error


class _Model:
    """CP-SAT model: a Boolean variable for each allowed pair of a pod and a node, and tangents of the cost."""

    def __init__(self, problem: Problem, spread_weight: float) -> None:
        from ortools.sat.python import cp_model  # an extra

        self._problem, self._weight = problem, spread_weight
        self._model: CpModel = cp_model.CpModel()
        self._solver: CpSolver = cp_model.CpSolver()
        self._solved = (cp_model.OPTIMAL, cp_model.FEASIBLE)
        allowed = problem.allowed[problem.group] & (problem.demand[:, None, :] <= problem.limit).all(axis=2)
        self._cells = np.argwhere(allowed)
        self._at: list[IntVar] = [self._model.new_bool_var("") for _ in self._cells]
        pod, node = self._cells.T
        for number in range(problem.pods):
            self._model.add_exactly_one([self._at[cell] for cell in np.flatnonzero(pod == number)])
        limit = np.floor(problem.limit).astype(np.int64)
        for number in range(problem.nodes):
            inside = np.flatnonzero(node == number)
            for column in range(problem.demand.shape[1]):
                amounts = problem.demand[pod[inside], column].astype(np.int64)
                self._model.add(self._sum(inside, amounts) <= int(limit[number, column]))
        # The sum of these variables is the cost, times the scale and the number of nodes.
        most = 4 * _SCALE * int(1 + spread_weight * problem.nodes)
        self._lengths: list[IntVar] = [self._model.new_int_var(0, most, "") for _ in range(problem.nodes)]
        self._spread: IntVar = self._model.new_int_var(0, most, "")
        self._model.minimize(sum(self._lengths) + self._spread)

    def add_tangents(self, plan: Int64s) -> None:
        """Add the tangents of each node's imbalance and of the spread between nodes, at a plan."""
        problem = self._problem
        use = problem.use(plan)
        base, per_pod = problem.used / problem.capacity, problem.balanced[:, None, :] / problem.capacity
        deviation = use - use.mean(axis=1, keepdims=True)
        length = np.linalg.norm(deviation, axis=1)
        pod, node = self._cells.T
        for number in np.flatnonzero(length > 1e-9):
            slope = deviation[number] / length[number]
            inside = np.flatnonzero(node == number)
            rises = per_pod[pod[inside], number] @ slope
            self._above(self._lengths[number], inside, rises, float(base[number] @ slope))
        mean = use.mean(axis=1)
        distance = mean - mean.mean()
        spread = float(mean.std())
        if spread > 1e-9:
            slope = self._weight * distance / spread
            every = np.arange(len(self._cells))
            rises = per_pod[pod, node].mean(axis=1) * slope[node]
            self._above(self._spread, every, rises, float(base.mean(axis=1) @ slope))

    def solve(self, hint: Int64s, seconds: float, workers: int) -> tuple[Int64s | None, float]:
        """Solve the model with the tangents added so far.

        Args:
            hint: plan that the solver starts from.
            seconds: time limit.
            workers: number of threads; 0 starts one for each processor.

        Returns:
            The plan, or None if the solver found none in time, and a lower bound of the cost of any plan.
        """
        self._model.clear_hints()
        for variable, (pod, node) in zip(self._at, self._cells.tolist(), strict=True):
            self._model.add_hint(variable, int(hint[pod] == node))
        self._solver.parameters.max_time_in_seconds = seconds
        self._solver.parameters.num_workers = workers
        status = self._solver.solve(self._model)
        bound = max(0.0, self._solver.best_objective_bound) / _SCALE / self._problem.nodes
        if status not in self._solved:
            return None, bound
        plan = np.full(self._problem.pods, UNPLACED)
        for variable, (pod, node) in zip(self._at, self._cells.tolist(), strict=True):
            if self._solver.boolean_value(variable):
                plan[pod] = node
        return plan, bound

    def _above(self, variable: "IntVar", cells: Int64s, rises: Float64s, base: float) -> None:
        """Add the constraint that a variable is at least a tangent, whose coefficients are rounded down to integers.

        Rounding down keeps the tangent below the cost, so the lower bound remains valid.

        Args:
            variable: variable to constrain.
            cells: indices of the pairs of a pod and a node that the tangent depends on.
            rises: slope of the tangent for each of these pairs.
            base: value of the tangent without pods.
        """
        slopes = np.floor(rises * _SCALE).astype(np.int64)
        self._model.add(variable >= self._sum(cells, slopes) + int(np.floor(base * _SCALE)))

    def _sum(self, cells: Int64s, factors: Int64s) -> Any:
        return sum(int(factor) * self._at[cell] for cell, factor in zip(cells.tolist(), factors.tolist(), strict=True))
