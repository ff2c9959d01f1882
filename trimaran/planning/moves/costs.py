"""Cost of a node's past CPU and memory use.

The cost of CPU is that of :class:`scoring.CongestionCost` for a known mean without deviation, averaged over the steps
of the past. The cost of memory is

    (use / (target * capacity)) ^ power

of the highest use in each period, averaged over the periods, because a short peak is enough to run out of memory. The
power is steep: use below the target costs next to nothing. A hot node costs 1 in each step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scoring.arrays import Float64s
from scoring.plugins.congestion import CONGESTED_CPU_AND_MEMORY, CongestedResource, cost_of_mean

# Costs are read from tables with this many steps up to the target, and up to this multiple of the target.
_STEPS = 4096
_HIGHEST = 4


@dataclass(frozen=True)
class MoveCosts:
    """Parameters of the cost.

    Attributes:
        cpu: cost function of CPU use.
        memory_target: target of memory use, as a share of capacity.
        memory_power: exponent of the cost of memory.
    """

    cpu: CongestedResource = CONGESTED_CPU_AND_MEMORY[0]
    memory_target: float = 0.87
    memory_power: int = 64

    @cached_property
    def _tables(self) -> tuple[Float64s, Float64s]:
        levels = np.arange(_HIGHEST * _STEPS + 1) / _STEPS
        return cost_of_mean(levels, self.cpu), levels**self.memory_power

    def scale(self, capacity: Float64s) -> Float64s:
        """Return the factors from use to table steps, shape (2, nodes, 1), for capacities of shape (2, nodes).

        The factor of a node without capacity, which has not reported it yet, is 0.
        """
        levels = np.array([self.cpu.target / 100, self.memory_target])[:, None] * capacity
        return np.divide(_STEPS, levels, out=np.zeros(levels.shape), where=levels > 0)[:, :, None]

    def mean(self, use: tuple[Float64s, Float64s], scale: Float64s) -> Float64s:
        """Return the cost averaged over the past (the last axis) and summed over resources.

        Args:
            use: CPU and memory use; all axes but the last are broadcast with those of ``scale``.
            scale: rows of :meth:`scale`.
        """
        cpu, memory = self._looked_up(use, scale)
        return np.asarray(cpu.mean(axis=-1) + memory.mean(axis=-1))

    def blocks(self, use: tuple[Float64s, Float64s], scale: Float64s, count: int) -> Float64s:
        """Return the cost averaged over each block of the past and summed over resources, shape (..., count).

        Args:
            use: as for :meth:`mean`.
            scale: rows of :meth:`scale`.
            count: number of blocks of equal length.
        """
        cpu, memory = (
            costs.reshape(*costs.shape[:-1], count, -1).mean(axis=-1) for costs in self._looked_up(use, scale)
        )
        return np.asarray(cpu + memory)

    def cpu_cost(self, use: Float64s, scale: Float64s) -> Float64s:
        """Return the cost of CPU use in each step, in the shape of ``use``; ``scale`` is a row of :meth:`scale`."""
        return np.asarray(np.take(self._tables[0], (use * scale).astype(np.int32), mode="clip"))

    def _looked_up(self, use: tuple[Float64s, Float64s], scale: Float64s) -> Iterator[Float64s]:
        for table, of_resource, steps in zip(self._tables, use, scale, strict=True):
            yield np.take(table, (of_resource * steps).astype(np.int32), mode="clip")
