"""Benchmark functions of optimizers, plain and with the minimum moved away from the origin.

All functions have a minimum of 0. The TBESK paper does not print its table of functions (table 1); these four are
common in such papers. The minimum of the plain functions is at the origin, so an optimizer that moves towards the
origin finds it without a search. On the shifted functions it does not.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from research.tbesk.objective import Function
from scoring.arrays import Float64s


class Benchmark(NamedTuple):
    """Function to minimize, with the lower and the upper bound of a position, the same in every dimension."""

    function: Function
    low: float
    high: float


def sphere(x: Float64s) -> Float64s:
    """Return the sum of squares."""
    return np.asarray((x**2).sum(axis=1))


def schwefel_2_22(x: Float64s) -> Float64s:
    """Return the sum of the absolute values plus their product."""
    return np.asarray(np.abs(x).sum(axis=1) + np.abs(x).prod(axis=1))


def rastrigin(x: Float64s) -> Float64s:
    """Return the sum of x^2 - 10 cos(2 pi x) + 10, which has many local minima on a regular grid."""
    return np.asarray((x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum(axis=1))


def ackley(x: Float64s) -> Float64s:
    """Return Ackley's function, which is steep near the minimum, and flat with local minima far from it."""
    far = -20 * np.exp(-0.2 * np.sqrt((x**2).mean(axis=1)))
    return np.asarray(far - np.exp(np.cos(2 * np.pi * x).mean(axis=1)) + 20 + np.e)


FUNCTIONS: Final[Mapping[str, Benchmark]] = {
    "sphere": Benchmark(sphere, -100.0, 100.0),
    "Schwefel 2.22": Benchmark(schwefel_2_22, -10.0, 10.0),
    "Rastrigin": Benchmark(rastrigin, -5.12, 5.12),
    "Ackley": Benchmark(ackley, -32.0, 32.0),
}


def shifted(benchmark: Benchmark, dimensions: int, seed: int) -> Benchmark:
    """Return a function with its minimum moved from the origin to a random position in the inner 80 % of the bounds."""
    rng = np.random.default_rng(seed)
    half = 0.8 * (benchmark.high - benchmark.low) / 2
    offset = (benchmark.high + benchmark.low) / 2 + rng.uniform(-half, half, dimensions)
    return benchmark._replace(function=lambda x: benchmark.function(x - offset))
