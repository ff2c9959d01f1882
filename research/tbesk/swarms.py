"""Rivals of TBESK in table 2 of the TBESK paper, each with a mutation by Student's t-distribution after every round.

tSSA is the sparrow search (Xue and Shen 2020), tSBO the satin bowerbird optimizer (Moosavi and Bardsiri 2017), tPSO
particle swarm optimization (Kennedy and Eberhart 1995, with Clerc's constriction). The number of evaluations per round
differs, so compare the optimizers by evaluations or by time, not by rounds.
"""

from typing import Final

import numpy as np

from research.tbesk.objective import Objective, t_mutated
from scoring.arrays import Float64s

_POPULATION: Final = 30
_TINY: Final = 1e-50
# tSSA
_PRODUCERS: Final = 6  # sparrows that look for food
_WARY: Final = 3  # sparrows that flee in a round
_SAFETY: Final = 0.8  # alarm below which producers hardly move
_HORIZON: Final = 1000  # rounds by which the producers' steps fade
# tSBO
_STEP: Final = 0.94  # length of the step towards the others
_MUTATION: Final = 0.05  # probability of a random change, in each dimension
_WIDTH: Final = 0.02  # standard deviation of that change, as a share of the bounds
# tPSO
_INERTIA: Final = 0.7298  # share of its velocity that a particle keeps
_PULL: Final = 1.49618  # strength of the pull to its own best position and to the best of all
_FASTEST: Final = 0.2  # highest velocity, as a share of the bounds


def sparrow_search(objective: Objective, rng: np.random.Generator) -> None:
    """Minimize an objective by tSSA (sparrow search): producers explore, scroungers follow the best, some flee."""
    positions = objective.uniform(_POPULATION, rng)
    values = objective(positions)
    for number in objective.rounds():
        order = values.argsort(kind="stable")
        positions, values = positions[order], values[order]
        worst = positions[-1].copy()
        producers, rest = slice(_PRODUCERS), slice(_PRODUCERS, None)
        objective.improve(positions[producers], values[producers], _produced(positions[producers], rng))
        guide = positions[values[producers].argmin()]
        objective.improve(positions[rest], values[rest], _scrounged(positions[rest], guide, worst, rng))
        _flee(objective, positions, values, rng)
        objective.improve(positions, values, t_mutated(positions, number, rng))


def _produced(leading: Float64s, rng: np.random.Generator) -> Float64s:
    if rng.random() < _SAFETY:
        fading = rng.random((len(leading), 1)) * _HORIZON + _TINY
        return np.asarray(leading * np.exp(-np.arange(1, len(leading) + 1)[:, None] / fading))
    return np.asarray(leading + rng.standard_normal((len(leading), 1)))


def _scrounged(rest: Float64s, guide: Float64s, worst: Float64s, rng: np.random.Generator) -> Float64s:
    rank = np.arange(_POPULATION - len(rest) + 1, _POPULATION + 1)[:, None]
    starving = rng.standard_normal((len(rest), 1)) * np.exp(np.minimum((worst - rest) / rank**2, 100.0))
    signs = rng.choice([-1.0, 1.0], rest.shape)
    following = guide + (np.abs(rest - guide) * signs).mean(axis=1, keepdims=True)
    return np.where(rank > _POPULATION / 2, starving, following)


def _flee(objective: Objective, positions: Float64s, values: Float64s, rng: np.random.Generator) -> None:
    some = rng.choice(_POPULATION, _WARY, replace=False)
    best, here, here_values = objective.position, positions[some], values[some]
    worst, lowest = positions[values.argmax()], values.min()
    finite = np.where(np.isfinite(values), values, lowest)
    at_edge = best + rng.standard_normal((len(some), 1)) * np.abs(here - best)
    step = rng.uniform(-1, 1, (len(some), 1)) * np.abs(here - worst)
    at_center = here + step / (np.abs(finite[some] - finite.max())[:, None] + 1e-8)
    objective.improve(here, here_values, np.where((finite[some] > objective.best)[:, None], at_edge, at_center))
    positions[some], values[some] = here, here_values


def satin_bowerbird(objective: Objective, rng: np.random.Generator) -> None:
    """Minimize an objective by tSBO (satin bowerbird optimizer).

    Bowers, the candidate solutions, imitate random others, better ones more often, and the best one; some change at
    random. The fittest of the old and the new bowers remain.
    """
    positions = objective.uniform(_POPULATION, rng)
    values = objective(positions)
    for number in objective.rounds():
        fitness = np.where(values >= 0, 1 / (1 + np.abs(values)), 1 + np.abs(values))
        chance = fitness / fitness.sum()
        chosen = rng.choice(_POPULATION, positions.shape, p=chance)
        pattern = np.take_along_axis(positions, chosen, axis=0)
        reach = _STEP / (1 + chance[chosen])
        candidates = positions + reach * ((pattern + objective.position) / 2 - positions)
        noise = rng.standard_normal(positions.shape) * _WIDTH * (objective.high - objective.low)
        candidates = objective.clip(candidates + np.where(rng.random(positions.shape) < _MUTATION, noise, 0.0))
        both, worth = np.concatenate([positions, candidates]), np.concatenate([values, objective(candidates)])
        fittest = worth.argsort(kind="stable")[:_POPULATION]
        positions, values = both[fittest], worth[fittest]
        objective.improve(positions, values, t_mutated(positions, number, rng))


def particle_swarm(objective: Objective, rng: np.random.Generator) -> None:
    """Minimize an objective by tPSO: particles are pulled to their own best position and to the best of all."""
    positions = objective.uniform(_POPULATION, rng)
    best, values = positions.copy(), objective(positions)
    fastest = _FASTEST * (objective.high - objective.low)
    velocity = rng.uniform(-fastest, fastest, positions.shape)
    for number in objective.rounds():
        to_own, to_all = rng.random((2, *positions.shape)) * _PULL
        velocity = _INERTIA * velocity + to_own * (best - positions) + to_all * (objective.position - positions)
        velocity = np.clip(velocity, -fastest, fastest)
        positions = objective.clip(positions + velocity)
        objective.improve(best, values, positions)
        objective.improve(best, values, t_mutated(best, number, rng))
