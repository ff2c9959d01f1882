"""Placement by a metaheuristic, as in the TBESK paper: a position has a number for each pod, its floor is the node.

The objective is the paper's fitness of a whole batch, where each pod counts the others at their positions. A pod that
does not fit on its node at the end goes to the node with the best fitness then, or stays unplaced if it fits nowhere.
"""

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.fitness import Fitness, fitness_rule
from trimaran.planning.objective import Objective, Optimizer
from trimaran.planning.problem import Problem
from trimaran.planning.rules import place_by_rule


def place_by_metaheuristic(
    problem: Problem, rng: np.random.Generator, *, optimizer: Optimizer, evaluations: int = 3000
) -> Int64s:
    """Return a plan.

    Args:
        problem: pods and nodes. Gangs and priorities are ignored.
        rng: random numbers.
        optimizer: metaheuristic.
        evaluations: number of plans to evaluate.
    """
    if not problem.pods:
        return np.zeros(0, np.int64)
    fitness, last = Fitness(problem), problem.nodes - 1

    def value(positions: Float64s) -> Float64s:
        return -fitness.of(np.minimum(positions.astype(np.int64), last))

    objective = Objective(value, 0.0, float(problem.nodes), problem.pods, evaluations=evaluations)
    optimizer(objective, rng)
    preferred = np.minimum(objective.position.astype(np.int64), last)
    return place_by_rule(problem, fitness_rule, preferred=preferred)
