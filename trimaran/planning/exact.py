"""Small cases to the end: OR-tools' CP-SAT, with a bound that counts pods as whole.

CP-SAT knows whole numbers and straight lines. The cost is bent, so it is given tangents, more in each turn, at the plan
that it found last: what it minimizes lies below the cost, its bound below every plan's. A turn ends with a plan whose
true cost is known; the turns end when the two meet.
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

_SCALE: Final = 10**7  # whole numbers in 1
_MOST_CELLS: Final = 1_000  # pods x nodes: 48 take seconds to prove, 64 up to minutes, more are seldom proven


class SolverMissing(ImportError):
    """OR-tools is not installed; the message says how to get it."""


@dataclass(frozen=True)
class Exact:
    """What CP-SAT found.

    Attributes:
        plan: the best plan, shape (pods,).
        cost: what it costs.
        bound: what no plan can beat.
        proven: they meet, within the tolerance; else time ran out before.
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
    known: float = 0.0,
    tolerance: float = 1e-3,
    workers: int = 0,
) -> Exact:
    """Return the best plan that places all pods, or the best that was found in the time, and how good one could be.

    Args:
        problem: gangs may not spread over domains where their pods are held to one (see ``greedy``).
        start: a plan that fits and places all pods.
        spread_weight: as in :class:`~trimaran.planning.local_search.Search`.
        seconds: for all turns together.
        known: what no plan can beat, as far as is known before.
        tolerance: between the cost and the bound, as a share, at which it ends.
        workers: threads; 0 is one for each processor.

    Raises:
        SolverMissing: OR-tools is not installed.
        ValueError: the case is too large, its amounts are not whole, or ``start`` does not place all pods.
    """
    if (start < 0).any():
        raise ValueError("CP-SAT needs a plan that places all pods to begin with")
    check_case(problem)
    until = time.monotonic() + seconds
    model = _Model(problem, spread_weight)
    best, least, bound = start, cost(problem, start, spread_weight), known
    model.cut(start)
    while (left := until - time.monotonic()) > 0 and least - bound > tolerance * least:
        plan, proven = model.solve(best, left, workers)
        bound = max(bound, proven)
        if plan is None:
            break
        found = cost(problem, plan, spread_weight)
        if found < least:
            best, least = plan, found
        model.cut(plan)
    return Exact(best, least, min(bound, least), proven=least - bound <= tolerance * least)


def check_case(problem: Problem) -> None:
    """See that a problem is a case for CP-SAT, before any time is spent on it.

    Raises:
        SolverMissing: OR-tools is not installed.
        ValueError: the case is too large, or its amounts are not whole.
    """
    if problem.pods * problem.nodes > _MOST_CELLS:
        raise ValueError(
            f"{problem.pods} pods on {problem.nodes} nodes are too many for CP-SAT, which is for {_MOST_CELLS} pairs "
            "of a pod and a node at most; leave --exact out"
        )
    if (problem.demand != np.floor(problem.demand)).any():
        raise ValueError("CP-SAT needs whole amounts; give smaller units")
    try:
        import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise SolverMissing(
            "CP-SAT is not installed: pip install 'trimaran[placement]', or choose another method"
        ) from error


class _Model:
    """The pods' places, and the tangents so far."""

    def __init__(self, problem: Problem, spread_weight: float) -> None:
        from ortools.sat.python import cp_model  # an extra

        self._problem, self._weight = problem, spread_weight
        self._model: CpModel = cp_model.CpModel()
        self._solver: CpSolver = cp_model.CpSolver()
        self._known = (cp_model.OPTIMAL, cp_model.FEASIBLE)
        allowed = problem.allowed[problem.group] & (problem.demand[:, None, :] <= problem.limit).all(axis=2)
        self._cells = np.argwhere(allowed)
        self._at: list[IntVar] = [self._model.new_bool_var("") for _ in self._cells]
        pod, node = self._cells.T
        for each in range(problem.pods):
            self._model.add_exactly_one([self._at[cell] for cell in np.flatnonzero(pod == each)])
        limit = np.floor(problem.limit).astype(np.int64)
        for each in range(problem.nodes):
            inside = np.flatnonzero(node == each)
            for column in range(problem.demand.shape[1]):
                amounts = problem.demand[pod[inside], column].astype(np.int64)
                self._model.add(self._sum(inside, amounts) <= int(limit[each, column]))
        # Together they are the cost, times the scale and the number of nodes.
        most = 4 * _SCALE * int(1 + spread_weight * problem.nodes)
        self._lengths: list[IntVar] = [self._model.new_int_var(0, most, "") for _ in range(problem.nodes)]
        self._spread: IntVar = self._model.new_int_var(0, most, "")
        self._model.minimize(sum(self._lengths) + self._spread)

    def cut(self, plan: Int64s) -> None:
        """Add the tangents at a plan."""
        problem = self._problem
        use = problem.use(plan)
        base, per_pod = problem.used / problem.capacity, problem.balanced[:, None, :] / problem.capacity
        deviation = use - use.mean(axis=1, keepdims=True)
        length = np.linalg.norm(deviation, axis=1)
        pod, node = self._cells.T
        for each in np.flatnonzero(length > 1e-9):
            slope = deviation[each] / length[each]
            inside = np.flatnonzero(node == each)
            self._above(self._lengths[each], inside, per_pod[pod[inside], each] @ slope, float(base[each] @ slope))
        mean = use.mean(axis=1)
        away = mean - mean.mean()
        spread = float(mean.std())
        if spread > 1e-9:
            slope = self._weight * away / spread
            every = np.arange(len(self._cells))
            rises = per_pod[pod, node].mean(axis=1) * slope[node]
            self._above(self._spread, every, rises, float(base.mean(axis=1) @ slope))

    def solve(self, hint: Int64s, seconds: float, workers: int) -> tuple[Int64s | None, float]:
        """Return the plan that is lowest by the tangents so far, and what no plan can beat."""
        self._model.clear_hints()
        for variable, (pod, node) in zip(self._at, self._cells.tolist(), strict=True):
            self._model.add_hint(variable, int(hint[pod] == node))
        self._solver.parameters.max_time_in_seconds = seconds
        self._solver.parameters.num_workers = workers
        status = self._solver.solve(self._model)
        bound = max(0.0, self._solver.best_objective_bound) / _SCALE / self._problem.nodes
        if status not in self._known:
            return None, bound
        plan = np.full(self._problem.pods, UNPLACED)
        for variable, (pod, node) in zip(self._at, self._cells.tolist(), strict=True):
            if self._solver.boolean_value(variable):
                plan[pod] = node
        return plan, bound

    def _above(self, variable: "IntVar", cells: Int64s, rises: Float64s, base: float) -> None:
        """Keep a variable above a tangent, whose numbers are rounded down: so the bound stays one."""
        slopes = np.floor(rises * _SCALE).astype(np.int64)
        self._model.add(variable >= self._sum(cells, slopes) + int(np.floor(base * _SCALE)))

    def _sum(self, cells: Int64s, factors: Int64s) -> Any:
        return sum(int(factor) * self._at[cell] for cell, factor in zip(cells.tolist(), factors.tolist(), strict=True))
