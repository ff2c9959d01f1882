"""Placement by a metaheuristic, as in the TBESK paper.

A position of the metaheuristic has a number for each pod; the number rounded down is the row of the pod's node. The
objective is the fitness of a whole plan (see ``fitness``). A pod of the best plan that does not fit on its node goes to
the node with the best fitness at that time, or stays unplaced if it fits nowhere.
"""

import numpy as np

from research.tbesk.fitness import Fitness, fitness_rule
from research.tbesk.objective import Objective, Optimizer
from scoring.arrays import Float64s, Int64s
from trimaran.planning.problem import Problem
from trimaran.planning.rules import place_by_rule


def place_by_metaheuristic(
    problem: Problem, rng: np.random.Generator, *, optimizer: Optimizer, evaluations: int = 3000
) -> Int64s:
    """Return the plan that a metaheuristic finds.

    Args:
        problem: pods and nodes. Gangs and priorities are ignored.
        rng: random numbers.
        optimizer: metaheuristic, such as bald eagle search.
        evaluations: number of plans whose fitness the metaheuristic may compute.
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
