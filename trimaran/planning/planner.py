"""A plan made, held against what no plan can beat, and told."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.bound import Bound, lower_bound
from trimaran.planning.cluster import Batch
from trimaran.planning.exact import check_case, solve_exactly
from trimaran.planning.local_search import Search, local_search
from trimaran.planning.methods import OURS, RIVALS, SOLVER
from trimaran.planning.problem import Measures, Problem, cost, measure, why_unplaced

BOUND_SECONDS = 60.0  # 2,000 nodes and 20,000 pods take about 20 s of a processor
_GOOD_ENOUGH = 0.001  # of a gap: to look further would not pay
_SEARCHED = 20.0  # seconds, for up to ...
_FEW = 2_000  # ... pods; each further one needs ...
_FOR_A_POD = 210 / 18_000  # ... seconds: 230 for 20,000 pods on 2,000 nodes, after which little is gained
_TOLD_EVERY = 10.0  # seconds


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, and how good it is.

    Attributes:
        plan: the node of each pod, -1 without one.
        method: by which it was found: local search, or CP-SAT where that found a better one.
        measures: what it is worth.
        bound: what no plan that places the same pods can beat.
        gap: how far its cost is above that, as a share.
        short: the option that gave too little time to find the highest bound; "" where there was enough.
    """

    plan: Int64s
    method: str
    measures: Measures
    bound: Bound
    gap: float
    short: str


def make_plan(
    problem: Problem,
    search: Search,
    seed: int,
    *,
    exactly: bool = False,
    bound_seconds: float = BOUND_SECONDS,
    tell: Callable[[str], None] = lambda _said: None,
) -> Planned:
    """Return a plan by local search, held against the bound.

    Args:
        problem: what is to be placed, and where.
        search: how long to look for a plan.
        seed: of what is drawn.
        exactly: go on with CP-SAT, for as long again.
        bound_seconds: how long to look for the bound, at most; of the pods that were placed again as long.
        tell: told what is done next, before it is.

    Raises:
        SolverMissing: CP-SAT is wanted and not installed.
        ValueError: CP-SAT is wanted and the case is none for it.
    """
    if exactly:
        if (problem.gang >= 0).any():
            raise ValueError("CP-SAT knows no gangs; leave --exact out")
        check_case(problem)
    rng = np.random.default_rng(seed)

    def look_for_bound(of: Problem) -> Bound:
        tell(f"looking for what no plan can beat, for {bound_seconds:g} s at most")
        return lower_bound(of, spread_weight=search.spread_weight, seconds=bound_seconds)

    bound = look_for_bound(problem)
    search = replace(search, good_enough=_Onlooker(bound, tell))
    tell(f"looking for a plan, for {search.seconds:g} s at most")
    plan = local_search(problem, rng, search)
    placed = np.flatnonzero(plan >= 0)
    if not len(placed):
        bound = Bound(cost(problem, plan, search.spread_weight), exact=True)
    elif len(placed) < problem.pods:  # the bound is of the pods that were placed
        bound = look_for_bound(problem.take(placed))
    method, short = OURS, "" if bound.exact else "--bound-seconds"
    if exactly:
        tell(f"looking for the best plan, for {search.seconds:g} s at most")
        weight, seconds, known = search.spread_weight, search.seconds, bound.cost
        found = solve_exactly(problem, plan, spread_weight=weight, seconds=seconds, known=known)
        method = SOLVER if found.cost < cost(problem, plan, weight) else OURS
        plan, bound = found.plan, Bound(found.bound, exact=found.proven)
        short = "" if found.proven else "--seconds"
    gap = bound.gap(cost(problem, plan, search.spread_weight))
    return Planned(plan, method, measure(problem, plan), bound, gap, short)


def enough_seconds(pods: int) -> float:
    """Return for how long to look for a plan of so many pods."""
    return round(_SEARCHED + _FOR_A_POD * max(0, pods - _FEW), 1)


class _Onlooker:
    """Looks on at a search: now and then tells how far it is, and ends it where more would not pay."""

    def __init__(self, bound: Bound, tell: Callable[[str], None]) -> None:
        self._bound, self._tell = bound, tell
        self._began = self._told = time.monotonic()

    def __call__(self, so_far: float) -> bool:
        gap, now = self._bound.gap(so_far), time.monotonic()
        if now - self._told >= _TOLD_EVERY and np.isfinite(gap):
            self._told = now
            self._tell(f"after {now - self._began:.0f} s: {gap:.1%} above what no plan can beat")
        return self._bound.cost > 0 and gap <= _GOOD_ENOUGH


def compare_rivals(problem: Problem, seed: int) -> dict[str, Measures]:
    """Return what the plans of all other methods are worth; they look at no gangs."""
    return {name: measure(problem, method(problem, np.random.default_rng(seed))) for name, method in RIVALS.items()}


def as_document(batch: Batch, planned: Planned, rivals: Mapping[str, Measures], spread_weight: float) -> dict[str, Any]:
    """Return a plan and what is to be said of it, for JSON."""
    problem = batch.problem
    pods = list(zip(batch.waiting, planned.plan.tolist(), strict=True))
    return {
        "resources": problem.resources,
        "plan": {each.name: batch.names[row] for each, row in pods if row >= 0},
        "unplaced": {each.name: why_unplaced(problem, pod) for pod, (each, row) in enumerate(pods) if row < 0},
        "left_to_the_scheduler": dict(batch.left),
        "bound": planned.bound.cost,
        "bound_exact": planned.bound.exact,
        "gap": planned.gap if np.isfinite(planned.gap) else None,
        "methods": {
            name: {**asdict(each), "cost": each.imbalance + spread_weight * each.spread}
            for name, each in {planned.method: planned.measures, **rivals}.items()
        },
        "notes": batch.notes,
    }


def measure_rows(planned: Planned, rivals: Mapping[str, Measures], spread_weight: float) -> list[list[str]]:
    """Return a table of all methods; a gap is told where all of the same number of pods have a node."""
    rows = [["METHOD", "IMBALANCE", "SPREAD", "COST", "GAP", "HIGHEST", "OVERLOADED", "UNPLACED"]]
    for name, each in {planned.method: planned.measures, **rivals}.items():
        total = each.imbalance + spread_weight * each.spread
        gap = planned.bound.gap(total)
        told = each.unplaced == planned.measures.unplaced and np.isfinite(gap)
        rows.append([
            name, f"{each.imbalance:.4f}", f"{each.spread:.4f}", f"{total:.4f}", f"{gap:.1%}" if told else "-",
            f"{each.highest:.1%}", str(each.overloaded), str(each.unplaced),
        ])  # fmt: skip
    return rows
