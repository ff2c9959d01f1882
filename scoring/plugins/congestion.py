"""Congestion of a resource on nodes: what its use costs, by :mod:`scoring.plugins.congestion_cost`.

Use is known exactly, or it is modeled as a normal distribution with a mean and a variance. Levels are use in parts of
the target. Arrays of one resource have the shape (nodes,) or (pods, nodes), those of all resources one dimension more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from runtime.kubernetes.objects import MEMORY
from scoring.arguments import Between, CheckedArguments
from scoring.arrays import Float64s
from scoring.load.measured_resource import CPU_LOAD, MEMORY_LOAD, MeasuredResource

HIGHEST_USE = 1000.0
"""Upper bound of levels and of use in parts of capacity, so that powers stay finite."""
# Cost of a node whose allocatable amount is requested completely.
_REQUESTED_SHARE = 0.01
# Weights of the expected excess and of the power, relative to the probability of exceeding the target.
_EXCESS_SHARE = 5.0
_POWER_SHARE = 1e-4
# Smallest deviation, in parts of the target: means of the last minutes and of the past do not predict the next hours
# more precisely. Memory is steadier.
_MIN_DEVIATION = 0.05
_MIN_DEVIATION_OF_MEMORY = 0.03
# Density of the standard normal distribution at 0.
_DENSITY = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True, slots=True)
class CongestedResource(CheckedArguments):
    """Measured resource, with the parameters of the cost (use / target) ^ power of its congestion.

    Attributes:
        resource: measured resource.
        target: use, in percent of capacity, at which the cost is 1.
        power: exponent of the cost; with 1 the cost is proportional to use.
    """

    resource: MeasuredResource
    target: Annotated[float, Between(0, 100, above=True)]
    power: Annotated[float, Between(1, 64)]


CONGESTED_CPU_AND_MEMORY = (CongestedResource(CPU_LOAD, 75.0, 8.0), CongestedResource(MEMORY_LOAD, 95.0, 16.0))


def level_of(use: Float64s, divisor: Float64s) -> Float64s:
    """Return use in parts of the target, 0 to ``HIGHEST_USE``; ``divisor`` is the use at the target."""
    # The number of numpy calls decides the speed, not the number of nodes: np.clip takes as long as five of these.
    level: Float64s = np.minimum(np.maximum(use / divisor, 0.0), HIGHEST_USE)
    return level


def cost_of_use(resource: CongestedResource, level: Float64s, variance: Float64s | None, divisor: Float64s) -> Float64s:
    """Return the cost of the use of a resource; with a variance, the cost of normally distributed use.

    Args:
        resource: the resource.
        level: mean use, in parts of the target.
        variance: variance of the use, in the square of the unit of requests; None if it is not known.
        divisor: use at the target, in the unit of requests.
    """
    power = _raised(level, resource.power)
    if variance is None:
        return power
    deviation = np.hypot(np.sqrt(variance) / divisor, _min_deviation(resource))
    return _uncertain_cost(level, deviation, resource.target, power)


def costs_of_use(
    resources: Sequence[CongestedResource], level: Float64s, variances: Sequence[Float64s | None], divisor: Float64s
) -> Float64s:
    """Return the cost of the use of each resource, shape (resources, nodes); arguments as for :func:`cost_of_use`."""
    known = [variance for variance in variances if variance is not None]
    if len(known) < len(resources):
        return np.array([cost_of_use(*each) for each in zip(resources, level, variances, divisor, strict=True)])
    parameters = np.array([(each.target, _min_deviation(each)) for each in resources])
    target, min_deviation = parameters.T[:, :, None]
    deviation = np.hypot(np.sqrt(known) / divisor, min_deviation)
    powers = [_raised(row, each.power) for row, each in zip(level, resources, strict=True)]
    return _uncertain_cost(level, deviation, target, np.array(powers))


def cost_of_mean(level: Float64s, resource: CongestedResource) -> Float64s:
    """Return the cost of use whose mean is known but whose deviation is not: the smallest deviation is assumed.

    Args:
        level: mean use, in parts of the target.
        resource: resource in use.
    """
    return _uncertain_cost(level, _min_deviation(resource), resource.target, _raised(level, resource.power))


def cost_of_requests(requested: Float64s, allocatable: Float64s) -> Float64s:
    """Return the cost of the requests on nodes: 0.01 times the eighth power of requested / allocatable."""
    level = np.minimum(requested / allocatable, HIGHEST_USE)
    square = level * level
    cost: Float64s = _REQUESTED_SHARE * (square * square) ** 2
    return cost


def _uncertain_cost(
    level: Float64s, deviation: Float64s | float, target_percent: Float64s | float, power: Float64s
) -> Float64s:
    """Return the cost of normally distributed use, with mean ``level`` and deviation in parts of the target.

    ``power`` is the power of the mean, the cost of use that is known exactly.
    """
    from scipy.special import ndtr  # importing scipy takes 0.1 s that most importers never need

    # The expected excess of a normal distribution over the capacity has a closed form.
    target = target_percent / 100
    beyond = (level - 1 / target) / deviation
    density = _DENSITY * np.exp(-0.5 * (beyond * beyond))
    excess = deviation * (beyond * ndtr(beyond) + density)
    total: Float64s = ndtr((level - 1) / deviation) + (_EXCESS_SHARE * target) * excess + _POWER_SHARE * power
    return total


def _raised(level: Float64s, power: float) -> Float64s:
    """Return a power of levels; for a power of two by squaring, as ``np.power`` takes a hundred times as long."""
    exponent = math.frexp(power)[1] - 1
    if power != 2.0**exponent:
        return np.asarray(np.power(level, power))
    for _ in range(exponent):
        level = level * level
    return level


def _min_deviation(resource: CongestedResource) -> float:
    return _MIN_DEVIATION_OF_MEMORY if resource.resource.name == MEMORY else _MIN_DEVIATION
