"""State of a cluster as arrays, for a search for moves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Bools, Float64s, Int64s

Use = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class MoveProblem:
    """Nodes and running pods, with the past use of each pod as if it had been on its present node all the time.

    Use may have any unit and floating type; capacity has the same units. float16 suffices for cores and GiB, and keeps
    a hundred thousand pods small.

    Attributes:
        capacity: CPU and memory of each node, shape (2, nodes).
        free: allocatable CPU and memory that no request takes, shape (2, nodes).
        rows: row of each pod's node, shape (pods,).
        requests: CPU and memory requests of each pod, in the unit of ``free``, shape (2, pods).
        cpu: CPU use of each pod in past steps, shape (pods, steps).
        memory: highest memory use of each pod in past periods, shape (pods, periods).
        movable: pods that may be moved, shape (pods,).
        accepts: returns for the index of a pod whether each node accepts it, its requests aside, shape (nodes,); None
            if every node accepts every pod.
    """

    capacity: Float64s
    free: Float64s
    rows: Int64s
    requests: Float64s | Int64s
    cpu: Use
    memory: Use
    movable: Bools
    accepts: Callable[[int], Bools] | None = None

    def __post_init__(self) -> None:
        """Check the shapes.

        Raises:
            ValueError: shapes do not match, or a pod's row is not a node.
        """
        pods, nodes = self.rows.size, self.capacity.shape[-1]
        shapes = {
            "capacity": (self.capacity.shape, (2, nodes)),
            "free": (self.free.shape, (2, nodes)),
            "rows": (self.rows.shape, (pods,)),
            "requests": (self.requests.shape, (2, pods)),
            "cpu": (self.cpu.shape[:1], (pods,)),
            "memory": (self.memory.shape[:1], (pods,)),
            "movable": (self.movable.shape, (pods,)),
        }
        for name, (shape, expected) in shapes.items():
            if shape != expected:
                raise ValueError(f"{name} has the shape {shape}, expected {expected}")
        if pods and not (self.rows.min() >= 0 and self.rows.max() < nodes):
            raise ValueError(f"rows: the node of each pod must be from 0 to {nodes - 1}")

    def node_use(self) -> tuple[Float64s, Float64s]:
        """Return each node's CPU and memory use, shapes (nodes, steps) and (nodes, periods): sums over its pods."""
        order = np.argsort(self.rows, kind="stable")
        with_pods, starts = np.unique(self.rows[order], return_index=True)
        ends = np.append(starts[1:], self.rows.size)
        cpu, memory = (np.zeros((self.capacity.shape[1], use.shape[1])) for use in (self.cpu, self.memory))
        for row, start, end in zip(with_pods.tolist(), starts.tolist(), ends.tolist(), strict=True):
            pods = order[start:end]
            for sums, use in ((cpu, self.cpu), (memory, self.memory)):
                np.add.reduce(use[pods], axis=0, dtype=np.float64, out=sums[row])
        return cpu, memory
