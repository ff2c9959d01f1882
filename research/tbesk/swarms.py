"""The rivals of the TBESK paper's second table, each with a mutation by Student's t after every round.

tSSA is the sparrow search (Xue and Shen 2020), tSBO the satin bowerbird optimizer (Moosavi and Bardsiri 2017), tPSO
particle swarm optimization (Kennedy and Eberhart 1995, with Clerc's constriction). They cost other numbers of
evaluations a round: compare them by evaluations or by time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.arrays import Float64s
from trimaran.planning.objective import Objective, accept, t_mutated

_TINY: Final = 1e-50


def _mutate(objective: Objective, positions: Float64s, values: Float64s, number: int, rng: np.random.Generator) -> None:
    tried = objective.clip(t_mutated(positions, number, rng))
    accept(positions, values, tried, objective(tried))


@dataclass(frozen=True)
class SparrowSearch:
    """tSSA: producers look around, scroungers follow the best, some take fright.

    Attributes:
        sparrows: the population.
        producers: the share that looks for food.
        wary: the share that takes fright in a round.
        safety: below this alarm producers stay where they are, nearly.
        horizon: rounds, by which producers' steps fade.
    """

    sparrows: int = 30
    producers: float = 0.2
    wary: float = 0.1
    safety: float = 0.8
    horizon: int = 1000
    name: str = "tSSA"

    def minimize(self, objective: Objective, rng: np.random.Generator) -> None:
        """Use up an objective's budget."""
        positions = objective.uniform(self.sparrows, rng)
        values = objective(positions)
        leading = max(1, round(self.producers * self.sparrows))
        for number in objective.rounds():
            order = values.argsort(kind="stable")
            positions, values = positions[order], values[order]
            worst = positions[-1].copy()
            self._try(objective, positions[:leading], values[:leading], self._produced(positions[:leading], rng))
            guide = positions[values[:leading].argmin()]
            self._try(
                objective,
                positions[leading:],
                values[leading:],
                self._scrounged(positions[leading:], guide, worst, rng),
            )
            self._flee(objective, positions, values, rng)
            _mutate(objective, positions, values, number, rng)

    @staticmethod
    def _try(objective: Objective, positions: Float64s, values: Float64s, tried: Float64s) -> None:
        tried = objective.clip(tried)
        accept(positions, values, tried, objective(tried))

    def _produced(self, leading: Float64s, rng: np.random.Generator) -> Float64s:
        if rng.random() < self.safety:
            fading = rng.random((len(leading), 1)) * self.horizon + _TINY
            return np.asarray(leading * np.exp(-np.arange(1, len(leading) + 1)[:, None] / fading))
        return np.asarray(leading + rng.standard_normal((len(leading), 1)))

    def _scrounged(self, rest: Float64s, guide: Float64s, worst: Float64s, rng: np.random.Generator) -> Float64s:
        rank = np.arange(self.sparrows - len(rest) + 1, self.sparrows + 1)[:, None]
        starving = rng.standard_normal((len(rest), 1)) * np.exp(np.minimum((worst - rest) / rank**2, 100.0))
        signs = rng.choice([-1.0, 1.0], rest.shape)
        following = guide + (np.abs(rest - guide) * signs).mean(axis=1, keepdims=True)
        return np.where(rank > self.sparrows / 2, starving, following)

    def _flee(self, objective: Objective, positions: Float64s, values: Float64s, rng: np.random.Generator) -> None:
        some = rng.choice(self.sparrows, max(1, round(self.wary * self.sparrows)), replace=False)
        best, here = objective.position, positions[some]
        worst, lowest = positions[values.argmax()], values.min()
        finite = np.where(np.isfinite(values), values, lowest)
        at_edge = best + rng.standard_normal((len(some), 1)) * np.abs(here - best)
        step = rng.uniform(-1, 1, (len(some), 1)) * np.abs(here - worst)
        at_center = here + step / (np.abs(finite[some] - finite.max())[:, None] + 1e-8)
        tried = objective.clip(np.where((finite[some] > objective.best)[:, None], at_edge, at_center))
        found = objective(tried)
        better = found < values[some]
        positions[some[better]], values[some[better]] = tried[better], found[better]


@dataclass(frozen=True)
class SatinBowerbird:
    """tSBO: bowers are built like better ones and the best, some at random; the fittest of old and new stay.

    Attributes:
        birds: the population.
        step: how far towards the others.
        mutation: the probability of a random change, in each dimension.
        width: its deviation, as a share of the bounds.
    """

    birds: int = 30
    step: float = 0.94
    mutation: float = 0.05
    width: float = 0.02
    name: str = "tSBO"

    def minimize(self, objective: Objective, rng: np.random.Generator) -> None:
        """Use up an objective's budget."""
        positions = objective.uniform(self.birds, rng)
        values = objective(positions)
        for number in objective.rounds():
            fitness = np.where(values >= 0, 1 / (1 + np.abs(values)), 1 + np.abs(values))
            chance = fitness / fitness.sum()
            chosen = rng.choice(self.birds, positions.shape, p=chance)
            pattern = np.take_along_axis(positions, chosen, axis=0)
            reach = self.step / (1 + chance[chosen])
            tried = positions + reach * ((pattern + objective.position) / 2 - positions)
            noise = rng.standard_normal(positions.shape) * self.width * (objective.high - objective.low)
            tried = objective.clip(tried + np.where(rng.random(positions.shape) < self.mutation, noise, 0.0))
            both, worth = np.concatenate([positions, tried]), np.concatenate([values, objective(tried)])
            fittest = worth.argsort(kind="stable")[: self.birds]
            positions, values = both[fittest], worth[fittest]
            _mutate(objective, positions, values, number, rng)


@dataclass(frozen=True)
class ParticleSwarm:
    """tPSO.

    Attributes:
        particles: the population.
        inertia: how much of its velocity a particle keeps.
        pull: towards its own best and towards that of all.
        fastest: the highest velocity, as a share of the bounds.
    """

    particles: int = 30
    inertia: float = 0.7298
    pull: float = 1.49618
    fastest: float = 0.2
    name: str = "tPSO"

    def minimize(self, objective: Objective, rng: np.random.Generator) -> None:
        """Use up an objective's budget."""
        positions = objective.uniform(self.particles, rng)
        own, values = positions.copy(), objective(positions)
        fastest = self.fastest * (objective.high - objective.low)
        velocity = rng.uniform(-fastest, fastest, positions.shape)
        for number in objective.rounds():
            to_own, to_best = rng.random((2, *positions.shape)) * self.pull
            velocity = self.inertia * velocity + to_own * (own - positions) + to_best * (objective.position - positions)
            velocity = np.clip(velocity, -fastest, fastest)
            positions = objective.clip(positions + velocity)
            accept(own, values, positions, objective(positions))
            _mutate(objective, own, values, number, rng)
