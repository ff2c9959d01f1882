"""Pods that come and go: a cluster followed through many batches, placed by one method all along."""

from dataclasses import dataclass

import numpy as np

from scoring.arrays import Int64s
from simulator.placement.local_search import Search, moved
from simulator.placement.methods import Method
from simulator.placement.problem import UNPLACED, Measures, Problem, measure


@dataclass(frozen=True)
class Churn:
    """How pods come and go.

    Attributes:
        start: pods that are placed first, together.
        rounds: how often some leave and as many arrive.
        share: of the pods that run, how many leave each time.
    """

    start: int
    rounds: int
    share: float

    def __post_init__(self) -> None:
        if self.start < 1 or self.rounds < 0 or not 0 <= self.share <= 1:
            raise ValueError(f"churn needs pods to start with, rounds from 0 and a share from 0 to 1, not {self}")


def follow(
    problem: Problem, method: Method, churn: Churn, seed: int, *, moves: int = 0, search: Search | None = None
) -> list[Measures]:
    """Place pods as they come, and let others go; return what the cluster is like after the start and each round.

    Who leaves is drawn from those that came and have not left, whether they found a node or not, so all methods see the
    same arrivals and departures.

    Args:
        problem: its first ``start`` pods are there at first; the others arrive in their order, until none are left.
        method: places each batch beside what runs.
        churn: how pods come and go.
        seed: of who leaves, and of the method.
        moves: how many running pods may be moved to another node in each round.
        search: for how long moves are looked for.
    """
    leaving, rng = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
    here = np.arange(min(churn.start, problem.pods))
    plan = np.full(problem.pods, UNPLACED)
    plan[here] = method(problem.take(here), rng)
    found = [_measured(problem, plan, here)]
    arrived = len(here)
    for _ in range(churn.rounds):
        count = round(churn.share * len(here))
        gone = leaving.choice(here, count, replace=False)
        plan[gone] = UNPLACED
        here = np.setdiff1d(here, gone)
        new = np.arange(arrived, min(arrived + count, problem.pods))
        arrived += len(new)
        plan[new] = method(problem.take(new).beside(problem.take(here), plan[here]), rng)
        here = np.concatenate([here, new])
        if moves:
            plan[here] = moved(problem.take(here), plan[here], moves, rng, search or Search(rounds=20))
        found.append(_measured(problem, plan, here))
    return found


def _measured(problem: Problem, plan: Int64s, here: Int64s) -> Measures:
    return measure(problem.take(here), plan[here])
