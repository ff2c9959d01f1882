"""Bald eagle search (BES, Alsattar 2020) and what the TBESK paper makes of it.

A round has three stages; in each a bird moves only to where it is strictly better:

    select   best + alpha u (mean - P_i)                                     u uniform in each dimension
    search   P_i + y_i (P_i - P_{i+1}) + x_i (P_i - mean)                    x = r sin(theta), y = r cos(theta)
    swoop    u best + x_i (P_i - c1 mean) + y_i (P_i - c2 best)              x = r sinh(theta), y = r cosh(theta)

theta = a pi u, r = theta + R u in the second stage and theta in the third; x and y are divided by the largest of their
absolute values. TBESK starts from a chaotic map, mutates what the first stage tries by Student's t, and its third stage
is printed with ``mean`` in both brackets and the second stage's x and y.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from scoring.arrays import Float64s
from trimaran.planning.objective import Objective, accept, t_mutated

_TENT: Final = 0.7
_WARM_UP = 20  # steps, after which what the map began with is forgotten


@dataclass(frozen=True)
class BaldEagleSearch:
    """BES; with ``tent`` and ``mutate`` it is TBESK.

    Attributes:
        stage3: as ``original``, or as the TBESK ``paper`` prints it.
        tent: start from the skew tent map; else uniformly.
        mutate: by Student's t in the first stage.
        birds: the population.
        alpha: how far the first stage reaches, 1.5 to 2.
        turns: a, how far the spirals turn, 5 to 10.
        cycles: R, how many they are, 0.5 to 2.
        towards_mean: c1, 1 to 2.
        towards_best: c2, 1 to 2.
    """

    stage3: Literal["original", "paper"] = "original"
    tent: bool = False
    mutate: bool = False
    birds: int = 30
    alpha: float = 2.0
    turns: float = 10.0
    cycles: float = 1.5
    towards_mean: float = 2.0
    towards_best: float = 2.0

    @property
    def name(self) -> str:
        """BES, or TBESK with its third stage."""
        if not (self.tent or self.mutate):
            return "BES" if self.stage3 == "original" else "BES (paper's stage 3)"
        return f"TBESK ({self.stage3})"

    def minimize(self, objective: Objective, rng: np.random.Generator) -> None:
        """Use up an objective's budget: 3 birds - 1 evaluations a round."""
        if self.tent:
            chaos = tent_map(self.birds, objective.dimensions, rng)
            positions = objective.low + chaos * (objective.high - objective.low)
        else:
            positions = objective.uniform(self.birds, rng)
        values = objective(positions)
        for number in objective.rounds():
            mean = positions.mean(axis=0)
            step = rng.random(positions.shape) * (mean - positions)
            tried = objective.position + self.alpha * step
            if self.mutate:
                tried = t_mutated(tried, number, rng)
            self._move(objective, positions, values, tried)

            mean, (x, y) = positions.mean(axis=0), self._spiral(rng)
            here, following = positions[:-1], positions[1:]  # the last bird has none after it
            tried = here + y[:-1] * (here - following) + x[:-1] * (here - mean)
            self._move(objective, here, values[:-1], tried)

            mean = positions.mean(axis=0)
            if self.stage3 == "original":
                x, y = self._dive(rng)
            pulled = mean if self.stage3 == "paper" else objective.position
            tried = rng.random((self.birds, 1)) * objective.position + x * (positions - self.towards_mean * mean)
            tried += y * (positions - self.towards_best * pulled)
            self._move(objective, positions, values, tried)

    @staticmethod
    def _move(objective: Objective, positions: Float64s, values: Float64s, tried: Float64s) -> None:
        tried = objective.clip(tried)
        accept(positions, values, tried, objective(tried))

    def _spiral(self, rng: np.random.Generator) -> tuple[Float64s, Float64s]:
        theta = self.turns * np.pi * rng.random((self.birds, 1))
        radius = theta + self.cycles * rng.random((self.birds, 1))
        return _scaled(radius * np.sin(theta)), _scaled(radius * np.cos(theta))

    def _dive(self, rng: np.random.Generator) -> tuple[Float64s, Float64s]:
        theta = self.turns * np.pi * rng.random((self.birds, 1))
        return _scaled(theta * np.sinh(theta)), _scaled(theta * np.cosh(theta))


def tbesk(stage3: Literal["original", "paper"] = "paper") -> BaldEagleSearch:
    """Return TBESK, by default with the third stage as its paper prints it."""
    return BaldEagleSearch(stage3=stage3, tent=True, mutate=True)


def tent_map(count: int, dimensions: int, rng: np.random.Generator) -> Float64s:
    """Return chaotic numbers within 0 and 1, shape (count, dimensions): each row is a step of the skew tent map.

    The map with its peak in the middle, as it is mostly written, doubles a binary fraction at each step and so falls to
    exactly 0 after some fifty; one with its peak at 0.7 does not.
    """
    value = rng.uniform(0.01, 0.99, dimensions)
    rows = np.empty((count, dimensions))
    for step in range(-_WARM_UP, count):
        value = np.where(value < _TENT, value / _TENT, (1 - value) / (1 - _TENT))
        if step >= 0:
            rows[step] = value
    return rows


def _scaled(values: Float64s) -> Float64s:
    largest = np.abs(values).max()
    return np.asarray(values / largest) if largest > 0 else values
