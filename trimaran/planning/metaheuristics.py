"""Metaheuristics on pods, as the TBESK paper has them: a position is a number for each pod, its floor the node.

The fitness is the paper's, and of a whole batch: every pod sees the others where the position has them. What does not
fit at the end goes to the node that is fittest then; what fits nowhere stays unplaced.
"""

from dataclasses import dataclass

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.fitness import Fitness, Weights, fitness_rule
from trimaran.planning.objective import Objective, Optimizer
from trimaran.planning.problem import Problem
from trimaran.planning.rules import settle


@dataclass(frozen=True)
class Searched:
    """A metaheuristic as a way to place pods.

    Attributes:
        optimizer: which.
        evaluations: of whole plans, for each batch.
        weights: what the paper leaves open.
    """

    optimizer: Optimizer
    evaluations: int = 3000
    weights: Weights | None = None

    def __call__(self, problem: Problem, rng: np.random.Generator) -> Int64s:
        """Return a plan. Gangs and priorities are not looked at."""
        if not problem.pods:
            return np.zeros(0, np.int64)
        fitness, last = Fitness(problem, self.weights), problem.nodes - 1

        def value(positions: Float64s) -> Float64s:
            return -fitness.of(np.minimum(positions.astype(np.int64), last))

        objective = Objective(value, 0.0, float(problem.nodes), problem.pods, evaluations=self.evaluations)
        self.optimizer.minimize(objective, rng)
        wanted = np.minimum(objective.position.astype(np.int64), last)
        return settle(problem, wanted, fitness_rule(self.weights))
