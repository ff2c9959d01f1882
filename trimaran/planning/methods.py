"""Every way to place pods, by its name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.bald_eagle import BaldEagleSearch, tbesk
from trimaran.planning.fitness import fitness_rule
from trimaran.planning.local_search import Search, local_search
from trimaran.planning.metaheuristics import Searched
from trimaran.planning.problem import UNPLACED, Problem
from trimaran.planning.rules import balanced_resources, cwt_topsis, least_requested, place_by_rule

Method = Callable[[Problem, np.random.Generator], Int64s]
"""From a problem and random numbers to a plan."""

OURS: Final = "local-search"
SOLVER: Final = "cp-sat"
#: The ways to place pods but :data:`OURS`, which has settings, and :data:`SOLVER`, which is for small cases.
RIVALS: Final[Mapping[str, Method]] = {
    "lra": lambda problem, _rng: place_by_rule(problem, least_requested, columns=2),
    "bra": lambda problem, _rng: place_by_rule(problem, balanced_resources, columns=2),
    "cwt": lambda problem, _rng: place_by_rule(problem, cwt_topsis),
    "fitness": lambda problem, _rng: place_by_rule(problem, fitness_rule()),
    "bes": Searched(BaldEagleSearch()),
    "tbesk": Searched(tbesk("paper")),
    "tbesk-original": Searched(tbesk("original")),
}


def ours(search: Search | None = None) -> Method:
    """Return local search as a method."""
    return partial(local_search, search=search)


def in_batches(method: Method, problem: Problem, size: int, rng: np.random.Generator) -> Int64s:
    """Place pods in their order, some at a time, each batch beside those before it; return a plan of all.

    Raises:
        ValueError: a batch would have no pods.
    """
    if size < 1:
        raise ValueError(f"a batch needs at least one pod, not {size}")
    plan = np.full(problem.pods, UNPLACED)
    nodes = problem.after(plan)
    for start in range(0, problem.pods, size):
        batch = problem.take(np.arange(start, min(start + size, problem.pods))).beside(nodes, np.zeros(0, np.int64))
        placed = method(batch, rng)
        plan[start : start + size] = placed
        nodes = batch.after(placed)
    return plan
