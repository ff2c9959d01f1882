"""Plans with their distance from the lower bound of the cost, as a result, a JSON document and a table."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.bound import LowerBound, lower_bound
from trimaran.planning.cluster import Batch
from trimaran.planning.exact import check_solvable, solve_exactly
from trimaran.planning.local_search import SearchSettings, local_search
from trimaran.planning.methods import BASELINES, EXACT, LOCAL_SEARCH
from trimaran.planning.problem import Measures, Problem, cost, measure, why_unplaced

BOUND_SECONDS: Final = 60.0  # 2,000 nodes and 20,000 pods take about 20 s of a processor
_GOOD_ENOUGH: Final = 0.001  # gap at which the search ends
_BASE_SECONDS: Final = 20.0  # default search time for up to _BASE_PODS pods
_BASE_PODS: Final = 2_000  # pods for which _BASE_SECONDS suffice
_SECONDS_PER_POD: Final = 210 / 18_000  # for each further pod: 230 s for 20,000 pods; more gains little
_REPORT_SECONDS: Final = 10.0  # between two reports of progress


@dataclass(frozen=True, eq=False)
class PlanResult:
    """Plan, and its quality.

    Attributes:
        plan: row of each pod's node, -1 for a pod without a node.
        method: name of the method that found the plan: local search, or ``milp`` for a better plan of the exact search.
        measures: measures of the plan, such as its imbalance.
        bound: lower bound of the cost of any plan that places the same pods.
        gap: distance of the plan's cost from the bound, as a share of the bound.
        limited_by: option, such as ``--bound-seconds``, whose time limit ended the computation of the bound early; ""
            if none did.
    """

    plan: Int64s
    method: str
    measures: Measures
    bound: LowerBound
    gap: float
    limited_by: str


def make_plan(
    problem: Problem,
    settings: SearchSettings,
    seed: int,
    *,
    exact: bool = False,
    bound_seconds: float = BOUND_SECONDS,
    report: Callable[[str], None] = lambda _message: None,
) -> PlanResult:
    """Return a plan found by local search, with a lower bound of the cost.

    Args:
        problem: pods and nodes.
        settings: objective and limits of the search.
        seed: seed of the random numbers.
        exact: continue with the exact search, which may take ``settings.seconds`` again.
        bound_seconds: time limit for the bound. If some pods stay unplaced, the bound is computed again for the others,
            with the same limit.
        report: callback that gets progress messages.

    Raises:
        ValueError: ``exact`` is set but this problem has gangs or more than 1,000 pairs of a pod and a node.
    """
    if exact:
        if (problem.gang >= 0).any():
            raise ValueError("--exact does not support gangs; leave --exact out")
        check_solvable(problem)
    rng = np.random.default_rng(seed)

    def find_bound(of: Problem) -> LowerBound:
        report(f"computing the lower bound, for {bound_seconds:g} s at most")
        return lower_bound(of, spread_weight=settings.spread_weight, seconds=bound_seconds)

    bound = find_bound(problem)
    settings = replace(settings, good_enough=_Progress(bound, report))
    report(f"searching for a plan, for {settings.seconds:g} s at most")
    plan = local_search(problem, rng, settings)
    placed = np.flatnonzero(plan >= 0)
    # A bound is valid only for plans that place the same pods.
    if not len(placed):
        bound = LowerBound(cost(problem, plan, settings.spread_weight), exact=True)
    elif len(placed) < problem.pods:
        bound = find_bound(problem.take(placed))
    method, limited_by = LOCAL_SEARCH, "" if bound.exact else "--bound-seconds"
    if exact:
        report(f"searching for the best plan, for {settings.seconds:g} s at most")
        weight, seconds = settings.spread_weight, settings.seconds
        result = solve_exactly(problem, plan, spread_weight=weight, seconds=seconds, known_bound=bound.cost)
        method = EXACT if result.cost < cost(problem, plan, weight) else LOCAL_SEARCH
        plan, bound = result.plan, LowerBound(result.bound, exact=result.proven)
        limited_by = "" if result.proven else "--seconds"
    gap = bound.gap(cost(problem, plan, settings.spread_weight))
    return PlanResult(plan, method, measure(problem, plan), bound, gap, limited_by)


def default_seconds(pods: int) -> float:
    """Return the default search time in seconds for a number of pods: 20 s up to 2,000 pods, 230 s for 20,000."""
    return round(_BASE_SECONDS + _SECONDS_PER_POD * max(0, pods - _BASE_PODS), 1)


class _Progress:
    """Callback of a search, called with the cost of the current plan.

    It reports the gap between cost and bound every 10 s, and returns true, which ends the search, once the gap is at
    most 0.1 %.
    """

    def __init__(self, bound: LowerBound, report: Callable[[str], None]) -> None:
        self._bound, self._report = bound, report
        self._began = self._reported = time.monotonic()

    def __call__(self, current_cost: float) -> bool:
        gap, now = self._bound.gap(current_cost), time.monotonic()
        if now - self._reported >= _REPORT_SECONDS and np.isfinite(gap):
            self._reported = now
            self._report(f"after {now - self._began:.0f} s: {gap:.1%} above the lower bound")
        return self._bound.cost > 0 and gap <= _GOOD_ENOUGH


def compare_baselines(problem: Problem, seed: int) -> dict[str, Measures]:
    """Return the measures of the plan of each baseline method, such as the scheduler's rules; they ignore gangs."""
    return {name: measure(problem, method(problem, np.random.default_rng(seed))) for name, method in BASELINES.items()}


def plan_document(
    batch: Batch, result: PlanResult, baselines: Mapping[str, Measures], spread_weight: float
) -> dict[str, Any]:
    """Return a plan, its quality and that of the baseline methods as a JSON document.

    Args:
        batch: pods and node names.
        result: plan and lower bound.
        baselines: measures of each baseline method's plan, by name.
        spread_weight: weight of the spread between nodes in the cost.
    """
    problem = batch.problem
    pods = list(zip(batch.pending, result.plan.tolist(), strict=True))
    return {
        "resources": problem.resources,
        "plan": {pod.name: batch.names[row] for pod, row in pods if row >= 0},
        "unplaced": {pod.name: why_unplaced(problem, number) for number, (pod, row) in enumerate(pods) if row < 0},
        "left_to_the_scheduler": dict(batch.skipped),
        "bound": result.bound.cost,
        "bound_exact": result.bound.exact,
        "gap": result.gap if np.isfinite(result.gap) else None,
        "methods": {
            name: {**asdict(measures), "cost": measures.cost(spread_weight)}
            for name, measures in {result.method: result.measures, **baselines}.items()
        },
        "notes": batch.notes,
    }


def comparison_rows(result: PlanResult, baselines: Mapping[str, Measures], spread_weight: float) -> list[list[str]]:
    """Return a table of the plan and the baseline methods, header first.

    The lower bound holds only for plans that place the same pods, so a method that leaves another number of pods
    unplaced than the plan has no gap.
    """
    rows = [["METHOD", "IMBALANCE", "SPREAD", "COST", "GAP", "HIGHEST", "OVERLOADED", "UNPLACED"]]
    for name, measures in {result.method: result.measures, **baselines}.items():
        total = measures.cost(spread_weight)
        gap = result.bound.gap(total)
        comparable = measures.unplaced == result.measures.unplaced and np.isfinite(gap)
        rows.append([
            name, f"{measures.imbalance:.4f}", f"{measures.spread:.4f}", f"{total:.4f}",
            f"{gap:.1%}" if comparable else "-",
            f"{measures.highest:.1%}", str(measures.overloaded), str(measures.unplaced),
        ])  # fmt: skip
    return rows
