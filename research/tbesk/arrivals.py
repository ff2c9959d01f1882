"""Pods that come and go: a cluster followed through many batches, placed by one method all along."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.local_search import Search, moved
from trimaran.planning.methods import Method
from trimaran.planning.problem import UNPLACED, Measures, Problem, measure


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


@dataclass(frozen=True, eq=False)
class Turn:
    """Who comes and goes together.

    Attributes:
        gone: pods that leave, shape (k,).
        staying: those that were there and stay, shape (k,).
        new: those that come, shape (k,).
    """

    gone: Int64s
    staying: Int64s
    new: Int64s

    @property
    def here(self) -> Int64s:
        """The pods that are there then."""
        return np.concatenate([self.staying, self.new])


def turns(pods: int, churn: Churn, seed: int) -> Iterator[Turn]:
    """Yield the start and each round: the same for all methods.

    Args:
        pods: how many there are; the first ``start`` are there at first, the others arrive in their order.
        churn: how pods come and go.
        seed: of who leaves.
    """
    rng, nobody = np.random.default_rng((seed, 0)), np.zeros(0, np.int64)
    turn = Turn(nobody, nobody, np.arange(min(churn.start, pods)))
    yield turn
    arrived = len(turn.new)
    for _ in range(churn.rounds):
        count = round(churn.share * len(turn.here))
        gone = rng.choice(turn.here, count, replace=False)
        new = np.arange(arrived, min(arrived + count, pods))
        arrived += len(new)
        turn = Turn(gone, np.setdiff1d(turn.here, gone), new)
        yield turn


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
    rng, plan, found = np.random.default_rng((seed, 1)), np.full(problem.pods, UNPLACED), []
    for turn in turns(problem.pods, churn, seed):
        here, new, staying = turn.here, turn.new, turn.staying
        plan[turn.gone] = UNPLACED
        plan[new] = method(problem.take(new).beside(problem.take(staying), plan[staying]), rng)
        if moves and len(staying):
            plan[here] = moved(problem.take(here), plan[here], moves, rng, search or Search(rounds=20))
        found.append(measure(problem.take(here), plan[here]))
    return found
