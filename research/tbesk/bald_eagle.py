"""Bald eagle search (BES, Alsattar 2020), and TBESK, the TBESK paper's variant of BES.

A bird is a candidate solution, a position P_i. A round has three stages, which propose a new position for each bird. A
bird moves only if the new position is strictly better:

    select   best + alpha u (mean - P_i)                                     u uniform in each dimension
    search   P_i + y_i (P_i - P_{i+1}) + x_i (P_i - mean)                    x = r sin(theta), y = r cos(theta)
    swoop    u best + x_i (P_i - c1 mean) + y_i (P_i - c2 best)              x = r sinh(theta), y = r cosh(theta)

``best`` is the best position so far, ``mean`` the mean of all birds, and u a new random number between 0 and 1 at each
place. theta = a pi u; r = theta + R u in the search stage, and r = theta in the swoop stage. x and y are divided by
their largest absolute value.

TBESK takes its first positions from a chaotic map, and mutates the positions that the select stage proposes by
Student's t-distribution. The TBESK paper prints the swoop stage with ``mean`` in both brackets and with x and y of the
search stage.
"""

from functools import partial
from typing import Final, Literal

import numpy as np

from research.tbesk.objective import Objective, t_mutated
from scoring.arrays import Float64s

_BIRDS: Final = 30
_ALPHA: Final = 2.0  # reach of the first stage, 1.5 to 2
_A: Final = 10.0  # turns of the spirals, 5 to 10
_R: Final = 1.5  # cycles of the spirals, 0.5 to 2
_C1 = _C2 = 2.0  # pull towards the mean and the best, 1 to 2
_TENT: Final = 0.7
_WARM_UP: Final = 20  # steps of the tent map that are dropped, so that its start does not matter


def bald_eagle_search(
    objective: Objective,
    rng: np.random.Generator,
    *,
    stage3: Literal["original", "paper"] = "original",
    chaotic: bool = False,
) -> None:
    """Minimize an objective by bald eagle search (BES), or by the TBESK variant.

    A round takes 3 N - 1 evaluations, where N = 30 is the number of birds. The objective keeps the best position.

    Args:
        objective: function to minimize; the search ends when its budget is used up.
        rng: random numbers.
        stage3: third stage of a round, as in the ``original`` BES or as printed in the TBESK ``paper``.
        chaotic: take the first positions from the skew tent map, and mutate the positions that the first stage
            proposes, as TBESK does.
    """
    if chaotic:
        chaos = tent_map(_BIRDS, objective.dimensions, rng)
        positions = objective.low + chaos * (objective.high - objective.low)
    else:
        positions = objective.uniform(_BIRDS, rng)
    values = objective(positions)
    for number in objective.rounds():
        # Select.
        mean = positions.mean(axis=0)
        step = rng.random(positions.shape) * (mean - positions)
        candidates = objective.position + _ALPHA * step
        if chaotic:
            candidates = t_mutated(candidates, number, rng)
        objective.improve(positions, values, candidates)

        # Search: the last bird has no next one, so it stays.
        mean, (x, y) = positions.mean(axis=0), _spiral(rng)
        birds, following = positions[:-1], positions[1:]
        candidates = birds + y[:-1] * (birds - following) + x[:-1] * (birds - mean)
        objective.improve(birds, values[:-1], candidates)

        # Swoop.
        mean = positions.mean(axis=0)
        if stage3 == "original":
            x, y = _dive(rng)
        center = mean if stage3 == "paper" else objective.position
        candidates = rng.random((_BIRDS, 1)) * objective.position + x * (positions - _C1 * mean)
        candidates += y * (positions - _C2 * center)
        objective.improve(positions, values, candidates)


#: TBESK with the third stage as the TBESK paper prints it, and with the third stage of the original BES.
tbesk: Final = partial(bald_eagle_search, stage3="paper", chaotic=True)
tbesk_original: Final = partial(bald_eagle_search, chaotic=True)


def _spiral(rng: np.random.Generator) -> tuple[Float64s, Float64s]:
    theta = _A * np.pi * rng.random((_BIRDS, 1))
    radius = theta + _R * rng.random((_BIRDS, 1))
    return _scaled(radius * np.sin(theta)), _scaled(radius * np.cos(theta))


def _dive(rng: np.random.Generator) -> tuple[Float64s, Float64s]:
    theta = _A * np.pi * rng.random((_BIRDS, 1))
    return _scaled(theta * np.sinh(theta)), _scaled(theta * np.cosh(theta))


def _scaled(values: Float64s) -> Float64s:
    largest = np.abs(values).max()
    return np.asarray(values / largest) if largest > 0 else values


def tent_map(count: int, dimensions: int, rng: np.random.Generator) -> Float64s:
    """Return chaotic numbers between 0 and 1, shape (count, dimensions): each row is a step of the skew tent map.

    The skew tent map has its peak at 0.7. The usual tent map has its peak at 0.5: it doubles a number at each step, so
    in binary floating point it reaches exactly 0 after some fifty steps.
    """
    value = rng.uniform(0.01, 0.99, dimensions)
    rows = np.empty((count, dimensions))
    for step in range(-_WARM_UP, count):
        value = np.where(value < _TENT, value / _TENT, (1 - value) / (1 - _TENT))
        if step >= 0:
            rows[step] = value
    return rows
