"""Ours: a greedy start, then exchanges of a few pods between pairs of nodes, annealed; of many nodes, refits.

What is minimized is the paper's imbalance within nodes, and the spread between them times a weight. Each round pairs
all nodes off at once, and looks in the pairs that have most to gain for the best exchange (see ``exchanges``). Pairs
have no node in common, so that all exchanges of a round hold together. At first an exchange that costs something may be
carried out too, less and less likely as time goes by; else the search would end at the first plan that no exchange
makes better. And at first a node's imbalance is rounded off at its lowest point: else a node in perfect balance would
part with none of its pods.

That is for nodes of many pods. With ten on each, two nodes have too few ways to share theirs: most of the time goes to
making even nodes exact then, out of the pods of many (see ``refits``).

The spread is one square root over all nodes. While the pairs are looked at it stands as its tangent at the mean of
before, which is nowhere below it: what lowers that lowers the spread by at least as much.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.exchanges import Exchanges
from trimaran.planning.greedy import greedy
from trimaran.planning.problem import Problem, cost, imbalances
from trimaran.planning.refits import Refits

_HOT = 0.2  # of a node's mean imbalance: what exchanges may cost at first
_BLUNT = 0.03  # what a node's imbalance is rounded off by at first
_COLD = 1e-4  # both at the end, as a share of what they were
_COOLING = 0.9  # the share of the budget in which exchanges may cost something
_LOOK = 16  # rounds between two looks at the cost
_DRAWN, _TOGETHER = 10, 3  # pods of a node that a round looks at; of these, how many may go together
_DRAWN_ALONE = 32  # where they go one by one
_SHARE = 1 / 3  # of the pairs, those that a round looks at
_PATIENCE = 60  # rounds without any exchange, or without a better plan, after which it is over
_MANY = 64  # nodes from which on even ones are refitted: fewer hold too few pods to choose from
_ANNEALED = 0.2  # of the budget, what exchanges get then


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
    assignment = Assignment(problem, plan)
    exchanges = Exchanges(assignment, search.spread_weight, drawn=_DRAWN, together=_TOGETHER)
    began = time.monotonic()
    many = problem.nodes >= _MANY
    if problem.nodes > 1:
        share = _ANNEALED if many else 1.0
        wide = Exchanges(assignment, search.spread_weight, drawn=_DRAWN, together=_DRAWN) if many else exchanges
        rounds, seconds = max(1, round(share * search.rounds)), share * search.seconds
        _anneal(assignment, wide, rng, replace(search, rounds=rounds, seconds=seconds))
        if many:
            left = search.seconds - (time.monotonic() - began)
            _refit(assignment, exchanges, rng, replace(search, rounds=search.rounds - rounds, seconds=left))
    better = assignment.cost(search.spread_weight) < cost(problem, plan, search.spread_weight)
    return assignment.plan if better else plan


def _anneal(assignment: Assignment, exchanges: Exchanges, rng: np.random.Generator, search: Search) -> None:
    """Exchange pods between pairs of nodes, at first also where that costs something."""
    heat = _HOT * float(imbalances(assignment.use()).mean())
    began, idle = time.monotonic(), 0
    for number in range(search.rounds):
        passed = max(number / search.rounds, (time.monotonic() - began) / max(search.seconds, 1e-9))
        warm = passed < _COOLING
        left = _COLD ** (passed / _COOLING) if warm else 0.0
        pairs = exchanges.pair_off(rng, opposites=number % 2 == 1)
        done = exchanges.exchange(pairs, heat * left, _BLUNT * left, rng, _SHARE)
        idle = 0 if done or warm else idle + 1
        if idle > _PATIENCE or passed >= 1:
            break
        if number % _LOOK == 0 and search.good_enough(assignment.cost(search.spread_weight)):
            break


def _refit(assignment: Assignment, exchanges: Exchanges, rng: np.random.Generator, search: Search) -> None:
    """Refit even nodes round after round; leave the best plan of all rounds."""
    refits = Refits(assignment, search.spread_weight, exchanges)
    best, least, idle = assignment.plan.copy(), assignment.cost(search.spread_weight), 0
    until = time.monotonic() + search.seconds
    for _ in range(search.rounds):
        if time.monotonic() >= until or idle > _PATIENCE or search.good_enough(least):
            break
        refits.round(rng, lambda: time.monotonic() >= until)
        now = assignment.cost(search.spread_weight)
        idle = 0 if now < least else idle + 1
        if now < least:
            best, least = assignment.plan.copy(), now
    assignment.plan = best


def moved(problem: Problem, plan: Int64s, moves: int, rng: np.random.Generator, search: Search) -> Int64s:
    """Return a plan that costs no more, in which at most so many of the placed pods are elsewhere."""
    assignment = Assignment(problem, plan)
    exchanges = Exchanges(assignment, search.spread_weight, drawn=_DRAWN_ALONE, together=1)
    for _ in range(search.rounds if problem.nodes > 1 else 0):
        most = (moves - int((assignment.plan != plan).sum())) // 2  # an exchange moves one pod or two
        if most < 1:
            break
        left, right = exchanges.pair_off(rng, opposites=True)
        exchanges.exchange((left[:most], right[:most]), 0.0, 0.0, rng)
    better = assignment.cost(search.spread_weight) < cost(problem, plan, search.spread_weight)
    return assignment.plan if better else plan
