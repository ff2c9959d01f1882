"""Local search: a greedy start, then annealed exchanges of pods between pairs of nodes; with many nodes also refits.

The search minimizes a cost: the TBESK paper's imbalance within nodes plus the weighted spread between nodes. Each round
divides all nodes into pairs, picks the pairs with most to gain, and makes the best exchange that it finds in each pair
(see ``exchanges``). No node is in two pairs, so all exchanges of a round are valid together. Early rounds may also make
exchanges that raise the cost (simulated annealing), with a probability that falls over time: without them the search
would stop at the first local minimum. Early rounds also smooth the imbalance, a norm, near its minimum of 0: otherwise
a perfectly balanced node would never give up a pod.

Exchanges suit nodes with many pods. Two nodes with ten pods each have few ways to divide their pods. If there are many
nodes, most of the time goes to refits, which balance one node with the pods of many others (see ``refits``).

The spread is the square root of a variance over all nodes. When the exchanges of a pair are compared, the tangent of
that square root at the current variance replaces the spread. The tangent is nowhere below the spread, so an exchange
lowers the spread at least as much as the tangent.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.exchanges import Exchanges
from trimaran.planning.greedy import greedy
from trimaran.planning.problem import Problem, cost, imbalances
from trimaran.planning.refits import Refits

_TEMPERATURE: Final = 0.2  # first temperature, as a share of the mean imbalance
_SMOOTHING: Final = 0.03  # first smoothing of a node's imbalance
_END: Final = 1e-4  # final temperature and smoothing, as a share of the first
_COOLING: Final = 0.9  # share of the budget after which no exchange may raise the cost
_CHECK_EVERY: Final = 16  # rounds between two computations of the whole cost
_SAMPLED, _MAX_MOVED = 10, 3  # pods of a node that a round samples, and how many of them may move together
_PAIR_SHARE: Final = 1 / 3  # share of the pairs that a round examines
_PATIENCE: Final = 60  # rounds without an exchange, or without a better plan, after which the search ends
_MANY_NODES: Final = 64  # from this number of nodes on, refits follow; fewer nodes hold too few pods to choose from
_ANNEALED: Final = 0.2  # share of the budget that exchanges get if refits follow


@dataclass(frozen=True)
class SearchSettings:
    """Objective and limits of a local search.

    Attributes:
        spread_weight: weight of the spread (standard deviation, over nodes, of a node's mean use) in the cost. The
            imbalance within nodes, Z of the TBESK paper, has the weight 1. With 0 the cost is Z alone.
        rounds: largest number of rounds.
        seconds: time limit.
        good_enough: callback that gets the cost of the current plan now and then. The search ends if the callback
            returns true.
    """

    spread_weight: float = 1.0
    rounds: int = 1_000_000
    seconds: float = 20.0
    good_enough: Callable[[float], bool] = lambda _cost: False


def local_search(problem: Problem, rng: np.random.Generator, settings: SearchSettings | None = None) -> Int64s:
    """Return a plan: a greedy placement, improved by exchanges of pods, then a second attempt for unplaced pods.

    A pod is placed only on a node where it fits and that its constraints allow. The pods of a gang are placed all
    together, within one topology domain, or stay unplaced.

    Args:
        problem: pods and nodes.
        rng: random numbers.
        settings: objective and limits of the search; None takes the defaults.
    """
    settings = settings or SearchSettings()
    until = time.monotonic() + settings.seconds
    plan, confined = greedy(problem)
    plan = improve(confined, plan, rng, settings)
    leftover = np.flatnonzero((plan < 0) & (problem.gang < 0))
    if len(leftover) and len(leftover) < problem.pods:
        placed = np.flatnonzero(plan >= 0)
        more, _ = greedy(confined.take(leftover).on_top_of(confined.take(placed), plan[placed]))
        if (more >= 0).any():
            plan[leftover] = more
            plan = improve(confined, plan, rng, replace(settings, seconds=max(0.0, until - time.monotonic())))
    return plan


def improve(problem: Problem, plan: Int64s, rng: np.random.Generator, settings: SearchSettings) -> Int64s:
    """Return a plan that places the same pods as ``plan`` and has at most its cost."""
    assignment = Assignment(problem, plan)
    weight = settings.spread_weight
    exchanges = Exchanges(assignment, weight, sampled=_SAMPLED, max_moved=_MAX_MOVED)
    began = time.monotonic()
    many = problem.nodes >= _MANY_NODES
    if problem.nodes > 1:
        share = _ANNEALED if many else 1.0
        wide = Exchanges(assignment, weight, sampled=_SAMPLED, max_moved=_SAMPLED) if many else exchanges
        rounds, seconds = max(1, round(share * settings.rounds)), share * settings.seconds
        _anneal(assignment, wide, rng, replace(settings, rounds=rounds, seconds=seconds))
        if many:
            left = settings.seconds - (time.monotonic() - began)
            _refit(assignment, exchanges, rng, replace(settings, rounds=settings.rounds - rounds, seconds=left))
    return assignment.plan if assignment.cost(weight) < cost(problem, plan, weight) else plan


def _anneal(assignment: Assignment, exchanges: Exchanges, rng: np.random.Generator, settings: SearchSettings) -> None:
    """Change an assignment by rounds of exchanges between pairs of nodes; early rounds accept also a higher cost."""
    temperature = _TEMPERATURE * float(imbalances(assignment.use()).mean())
    began, idle = time.monotonic(), 0
    for number in range(settings.rounds):
        progress = max(number / settings.rounds, (time.monotonic() - began) / max(settings.seconds, 1e-9))
        warm = progress < _COOLING
        factor = _END ** (progress / _COOLING) if warm else 0.0
        pairs = exchanges.pair_nodes(rng, opposite=number % 2 == 1)
        done = exchanges.exchange(pairs, temperature * factor, _SMOOTHING * factor, rng, _PAIR_SHARE)
        idle = 0 if done or warm else idle + 1
        if idle > _PATIENCE or progress >= 1:
            break
        if number % _CHECK_EVERY == 0 and settings.good_enough(assignment.cost(settings.spread_weight)):
            break


def _refit(assignment: Assignment, exchanges: Exchanges, rng: np.random.Generator, settings: SearchSettings) -> None:
    """Run rounds of refits on an assignment, and set its plan to the best one of all rounds."""
    refits = Refits(assignment, settings.spread_weight, exchanges)
    best, lowest, idle = assignment.plan.copy(), assignment.cost(settings.spread_weight), 0
    until = time.monotonic() + settings.seconds
    for _ in range(settings.rounds):
        if time.monotonic() >= until or idle > _PATIENCE or settings.good_enough(lowest):
            break
        refits.run_round(rng, lambda: time.monotonic() >= until)
        now = assignment.cost(settings.spread_weight)
        idle = 0 if now < lowest else idle + 1
        if now < lowest:
            best, lowest = assignment.plan.copy(), now
    assignment.plan = best
