"""Objective functions that optimizers minimize, with a budget of evaluations or of processor time."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from scoring.arrays import Float64s

Function = Callable[[Float64s], Float64s]
"""Function from positions, shape (k, dimensions), to their values, shape (k,)."""


@dataclass
class Objective:
    """Function to minimize, with bounds, and a budget of evaluations or of seconds.

    Once the budget of evaluations is used up, every further position has the value infinity. So all optimizers get
    exactly the same number of evaluations. Seconds are processor time, so other work on the machine does not count.

    Attributes:
        function: function to minimize.
        low: lower bound of a position in every dimension.
        high: upper bound of a position in every dimension.
        dimensions: number of dimensions.
        evaluations: budget of evaluations.
        seconds: budget of processor seconds, after which no further round starts.
        evaluated: number of evaluations so far.
        best: lowest value so far.
        position: position of the lowest value, shape (dimensions,).
        trace: lowest value after each round.
    """

    function: Function
    low: float
    high: float
    dimensions: int
    evaluations: float = math.inf
    seconds: float = math.inf
    evaluated: int = 0
    best: float = math.inf
    position: Float64s = field(default_factory=lambda: np.zeros(0))
    trace: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if math.isinf(self.evaluations) and math.isinf(self.seconds):
            raise ValueError("an objective needs a budget: evaluations or seconds")
        self._began = time.process_time()

    def __call__(self, positions: Float64s) -> Float64s:
        """Return the values of positions within the bounds, shape (k,); infinity for those beyond the budget."""
        count = int(min(len(positions), self.evaluations - self.evaluated))
        values = np.full(len(positions), np.inf)
        if count > 0:
            values[:count] = self.function(positions[:count])
            self.evaluated += count
            lowest = int(values.argmin())
            if values[lowest] < self.best:
                self.best, self.position = float(values[lowest]), positions[lowest].copy()
        return values

    def rounds(self) -> Iterator[int]:
        """Yield 1, 2, 3 and so on while there is budget, and append the lowest value to ``trace`` after each round."""
        number = 0
        while self.evaluated < self.evaluations and time.process_time() - self._began < self.seconds:
            number += 1
            yield number
            self.trace.append(self.best)

    def uniform(self, count: int, rng: np.random.Generator) -> Float64s:
        """Return random positions, uniform within the bounds, shape (count, dimensions)."""
        return rng.uniform(self.low, self.high, (count, self.dimensions))

    def clip(self, positions: Float64s) -> Float64s:
        """Return positions, moved onto the bounds where they are outside."""
        return np.clip(positions, self.low, self.high)

    def improve(self, positions: Float64s, values: Float64s, candidates: Float64s) -> None:
        """Replace each position, in place, by its candidate if that is strictly better.

        Args:
            positions: current positions, shape (k, dimensions).
            values: values of the positions, shape (k,).
            candidates: new positions, which are clipped to the bounds, shape (k, dimensions).
        """
        candidates = self.clip(candidates)
        candidate_values = self(candidates)
        better = candidate_values < values
        positions[better], values[better] = candidates[better], candidate_values[better]


Optimizer = Callable[[Objective, np.random.Generator], None]
"""Metaheuristic: function that minimizes an objective with random numbers, until the objective's budget is used up.

The objective keeps the best position.
"""


def t_mutated(positions: Float64s, freedom: int, rng: np.random.Generator) -> Float64s:
    """Return mutated positions x + x t, where t follows Student's t-distribution.

    Args:
        positions: positions x, shape (k, dimensions).
        freedom: degrees of freedom. TBESK takes the number of the round: t has wide tails in early rounds and is nearly
            normal in late rounds.
        rng: random numbers.
    """
    return positions * (1 + rng.standard_t(freedom, positions.shape))
