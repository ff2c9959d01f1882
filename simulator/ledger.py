"""What the pods on each node use, minute by minute: the truth of a replay, of which metrics show the past."""

import numpy as np

from scoring.arrays import Float64s, Int64s

CPU_ROW, MEMORY_ROW = 0, 1


class UseLedger:
    """Use by node and minute.

    A pod's whole use is written when it is placed, and what is left of it is taken off when it leaves early. So the
    columns before now are what was measured, and those from now on what will be if nothing else happens: only policies
    that are called clairvoyant may look at these.

    Args:
        capacity: of the nodes that are there at first, millicores and bytes, shape (2, nodes).
        minutes: how long the replay is.

    Attributes:
        capacity: of every node that was ever there.
        use: millicores and bytes, shape (2, nodes, minutes); a node that left keeps its row.
        since: the minute that each joined in last, shape (nodes,).
    """

    def __init__(self, capacity: Float64s, minutes: int) -> None:
        self.capacity = capacity
        self.use: Float64s = np.zeros((2, capacity.shape[1], minutes))
        self.since: Int64s = np.zeros(capacity.shape[1], np.int64)

    @property
    def cpu_milli(self) -> Float64s:
        """CPU use, shape (nodes, minutes)."""
        cpu: Float64s = self.use[CPU_ROW]
        return cpu

    @property
    def memory_bytes(self) -> Float64s:
        """Memory use, shape (nodes, minutes)."""
        memory: Float64s = self.use[MEMORY_ROW]
        return memory

    def add(self, node: int, minute: int, series: Float64s) -> None:
        """Add a pod's use to a node from a minute on; negative use takes it off.

        Args:
            node: the node's number.
            minute: when it begins.
            series: millicores and bytes, shape (2, its minutes); what lies beyond the replay is left out.
        """
        self.use[:, node, minute : minute + series.shape[1]] += series[:, : self.use.shape[2] - minute]

    def join(self, cpu_milli: float, memory_bytes: float) -> int:
        """Add a node that uses nothing yet, and return its number."""
        self.capacity = np.concatenate([self.capacity, [[cpu_milli], [memory_bytes]]], axis=1)
        self.use = np.concatenate([self.use, np.zeros((2, 1, self.use.shape[2]))], axis=1)
        return len(self.capacity[0]) - 1
