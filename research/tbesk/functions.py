"""Functions that optimizers are compared on, as they are and with their lowest point moved away from the origin.

All are 0 at their lowest point. The paper does not print its first table: these are four that such papers use. On the
plain ones an optimizer that is drawn to the origin wins without having searched; on the shifted ones it does not.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from scoring.arrays import Float64s
from trimaran.planning.objective import Function


class Benchmark(NamedTuple):
    """A function and its bounds, the same in every dimension."""

    function: Function
    low: float
    high: float


def sphere(x: Float64s) -> Float64s:
    """Return the sum of squares."""
    return np.asarray((x**2).sum(axis=1))


def schwefel_2_22(x: Float64s) -> Float64s:
    """Return the sum of the absolute values, and their product."""
    return np.asarray(np.abs(x).sum(axis=1) + np.abs(x).prod(axis=1))


def rastrigin(x: Float64s) -> Float64s:
    """Return the sum of x^2 - 10 cos(2 pi x) + 10: many hollows on a regular grid."""
    return np.asarray((x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum(axis=1))


def ackley(x: Float64s) -> Float64s:
    """Return Ackley's function: flat with hollows far out, steep near the lowest point."""
    far = -20 * np.exp(-0.2 * np.sqrt((x**2).mean(axis=1)))
    return np.asarray(far - np.exp(np.cos(2 * np.pi * x).mean(axis=1)) + 20 + np.e)


FUNCTIONS: Final[Mapping[str, Benchmark]] = {
    "sphere": Benchmark(sphere, -100.0, 100.0),
    "Schwefel 2.22": Benchmark(schwefel_2_22, -10.0, 10.0),
    "Rastrigin": Benchmark(rastrigin, -5.12, 5.12),
    "Ackley": Benchmark(ackley, -32.0, 32.0),
}


def shifted(benchmark: Benchmark, dimensions: int, seed: int) -> Benchmark:
    """Return the function with its lowest point somewhere in the inner 80 % of the bounds, in every dimension.

    Args:
        benchmark: what is moved.
        dimensions: of the positions that it will be asked for.
        seed: says where to.
    """
    rng = np.random.default_rng(seed)
    half = 0.8 * (benchmark.high - benchmark.low) / 2
    offset = (benchmark.high + benchmark.low) / 2 + rng.uniform(-half, half, dimensions)
    return benchmark._replace(function=lambda x: benchmark.function(x - offset))
