"""Placement of pods that arrive in batches, while other pods leave, by one placement method."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.assignment import Assignment
from trimaran.planning.exchanges import Exchanges
from trimaran.planning.methods import Method
from trimaran.planning.problem import UNPLACED, Measures, Problem, cost, measure


def in_batches(method: Method, problem: Problem, size: int, rng: np.random.Generator) -> Int64s:
    """Place pods in batches, in their order, each on nodes that also run the previous batches; return the whole plan.

    Args:
        method: placement method.
        problem: pods and nodes.
        size: number of pods in a batch.
        rng: random numbers.
    """
    plan = np.full(problem.pods, UNPLACED)
    for start in range(0, problem.pods, size):
        before, batch = np.arange(start), np.arange(start, min(start + size, problem.pods))
        plan[batch] = method(problem.take(batch).on_top_of(problem.take(before), plan[before]), rng)
    return plan


class Step(NamedTuple):
    """Pods that leave the cluster, stay in it and arrive in one step, as indices, each of shape (k,)."""

    gone: Int64s
    staying: Int64s
    new: Int64s

    @property
    def present(self) -> Int64s:
        """Indices of the pods that are in the cluster after the step, shape (k,)."""
        return np.concatenate([self.staying, self.new])


def churn(pods: int, *, start: int, rounds: int, share: float, seed: int) -> Iterator[Step]:
    """Yield a step in which the first pods arrive, then steps in which some pods leave and as many arrive.

    Pods arrive in their order, until none are left. The pods that leave are drawn at random, even if they have no node,
    so that the steps are the same for all placement methods.

    Args:
        pods: number of pods.
        start: number of pods that arrive in the first step.
        rounds: number of steps after the first.
        share: share of the present pods that leaves in a step.
        seed: seed of the random numbers.
    """
    rng, nobody = np.random.default_rng((seed, 0)), np.zeros(0, np.int64)
    step = Step(nobody, nobody, np.arange(min(start, pods)))
    yield step
    arrived = len(step.new)
    for _ in range(rounds):
        count = round(share * len(step.present))
        gone = rng.choice(step.present, count, replace=False)
        new = np.arange(arrived, min(arrived + count, pods))
        arrived += len(new)
        step = Step(gone, np.setdiff1d(step.present, gone), new)
        yield step


def follow(problem: Problem, method: Method, steps: Iterable[Step], seed: int, *, moves: int = 0) -> list[Measures]:
    """Play the steps: place each step's new pods by a method, then move at most ``moves`` pods to lower the cost.

    Args:
        problem: all pods, and nodes.
        method: placement method.
        steps: steps in which pods leave and arrive.
        seed: seed of the random numbers.
        moves: largest number of running pods to move after each step.

    Returns:
        Measures of the plan after each step.
    """
    rng, plan, measures = np.random.default_rng((seed, 1)), np.full(problem.pods, UNPLACED), []
    for step in steps:
        new, staying, present = step.new, step.staying, step.present
        plan[step.gone] = UNPLACED
        plan[new] = method(problem.take(new).on_top_of(problem.take(staying), plan[staying]), rng)
        if moves and len(staying):
            plan[present] = rebalanced(problem.take(present), plan[present], moves, rng)
        measures.append(measure(problem.take(present), plan[present]))
    return measures


def rebalanced(problem: Problem, plan: Int64s, moves: int, rng: np.random.Generator) -> Int64s:
    """Return a plan that costs at most as much, in which at most ``moves`` of the pods have another node.

    Args:
        problem: pods and nodes.
        plan: current plan.
        moves: largest number of pods to move.
        rng: random numbers.
    """
    assignment = Assignment(problem, plan)
    exchanges = Exchanges(assignment, 1.0, sampled=32, max_moved=1)
    for _ in range(20):
        pairs = (moves - int((assignment.plan != plan).sum())) // 2  # an exchange moves one pod or two
        if pairs < 1:
            break
        left, right = exchanges.pair_nodes(rng, opposite=True)
        exchanges.exchange((left[:pairs], right[:pairs]), 0.0, 0.0, rng)
    return assignment.plan if assignment.cost(1.0) < cost(problem, plan, 1.0) else plan
