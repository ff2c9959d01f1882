"""What optimizers minimize, and how much of it they may ask for."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from scoring.arrays import Float64s

Function = Callable[[Float64s], Float64s]
"""From positions (k, dimensions) to their values (k,)."""
CONVERGED: Final = 1e-8  # an improvement below this is none


@dataclass
class Objective:
    """A function with bounds, and a budget of evaluations or seconds.

    What is asked beyond the budget of evaluations is not evaluated: it is infinity, so that every optimizer has exactly
    as many. Seconds are those of the processor, so that other work on the machine does not count.

    Attributes:
        function: what is minimized.
        low: the smallest position, in every dimension.
        high: the largest.
        dimensions: of a position.
        evaluations: how many may be asked for.
        seconds: of the processor, after which no further round starts.
        asked: evaluations so far.
        best: the lowest value so far.
        position: where it is, shape (dimensions,).
        trace: the lowest value after each round.
    """

    function: Function
    low: float
    high: float
    dimensions: int
    evaluations: float = math.inf
    seconds: float = math.inf
    asked: int = 0
    best: float = math.inf
    position: Float64s = field(default_factory=lambda: np.zeros(0))
    trace: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if math.isinf(self.evaluations) and math.isinf(self.seconds):
            raise ValueError("an objective needs a budget: evaluations or seconds")
        self._began = time.process_time()

    def __call__(self, positions: Float64s) -> Float64s:
        """Return the values of positions, which lie within the bounds, shape (k,)."""
        count = int(min(len(positions), self.evaluations - self.asked))
        values = np.full(len(positions), np.inf)
        if count > 0:
            values[:count] = self.function(positions[:count])
            self.asked += count
            lowest = int(values.argmin())
            if values[lowest] < self.best:
                self.best, self.position = float(values[lowest]), positions[lowest].copy()
        return values

    def rounds(self) -> Iterator[int]:
        """Yield 1, 2, ... while there is budget; what is the best after each is kept in ``trace``."""
        number = 0
        while self.asked < self.evaluations and time.process_time() - self._began < self.seconds:
            number += 1
            yield number
            self.trace.append(self.best)

    def clip(self, positions: Float64s) -> Float64s:
        """Return positions moved onto the bounds where they are beyond them."""
        return np.clip(positions, self.low, self.high)

    def uniform(self, count: int, rng: np.random.Generator) -> Float64s:
        """Return random positions, shape (count, dimensions)."""
        return rng.uniform(self.low, self.high, (count, self.dimensions))

    @property
    def iterations_to_converge(self) -> int:
        """After how many rounds the best was what it is at the end, up to :data:`CONVERGED`."""
        reached = np.asarray(self.trace) <= self.trace[-1] + CONVERGED if self.trace else np.zeros(0, np.bool_)
        return int(reached.argmax()) + 1 if len(reached) else 0


class Optimizer(Protocol):
    """A metaheuristic."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def minimize(self, objective: Objective, rng: np.random.Generator) -> None:
        """Use up an objective's budget; the objective keeps the best."""
        ...


def accept(positions: Float64s, values: Float64s, tried: Float64s, found: Float64s) -> None:
    """Move to what was tried wherever that is strictly better; positions (k, D) and values (k,) change."""
    better = found < values
    positions[better], values[better] = tried[better], found[better]


def t_mutated(positions: Float64s, freedom: int, rng: np.random.Generator) -> Float64s:
    """Return x + x t, with t from Student's distribution: wide at first, nearly normal after many rounds.

    Args:
        positions: shape (k, D).
        freedom: the degrees of freedom: the number of the round.
        rng: random numbers.
    """
    return positions * (1 + rng.standard_t(freedom, positions.shape))
