"""What the pods on each node use, minute by minute: the truth of a replay, of which metrics show the past."""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s

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
        since: the minute that each joined in, shape (nodes,).
        until: the minute that each left in, shape (nodes,).
    """

    def __init__(self, capacity: Float64s, minutes: int) -> None:
        self.capacity = capacity
        self._use: Float64s = np.zeros((2, capacity.shape[1], minutes))
        self.since: Int64s = np.zeros(capacity.shape[1], np.int64)
        self.until: Int64s = np.full(capacity.shape[1], minutes)

    @property
    def use(self) -> Float64s:
        """Millicores and bytes, shape (2, nodes, minutes).

        A node that left keeps its row; one that comes back has a new one.
        """
        use: Float64s = self._use[:, : self.capacity.shape[1]]
        return use

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
        self._use[:, node, minute : minute + series.shape[1]] += series[:, : self._use.shape[2] - minute]

    def present(self) -> Bools:
        """Return in which minutes each node was there, shape (nodes, minutes)."""
        minutes = np.arange(self._use.shape[2])
        there: Bools = (self.since[:, None] <= minutes) & (minutes < self.until[:, None])
        return there

    def join(self, minute: int, cpu_milli: float, memory_bytes: float) -> int:
        """Add a node that uses nothing yet, and return its number."""
        number = len(self.since)
        self.capacity = np.concatenate([self.capacity, [[cpu_milli], [memory_bytes]]], axis=1)
        self.since = np.append(self.since, minute)
        self.until = np.append(self.until, self._use.shape[2])
        if number == self._use.shape[1]:  # twice as many, so that many that join are not copied as often
            self._use = np.concatenate([self._use, np.zeros_like(self._use)], axis=1)
        return number

    def leave(self, node: int, minute: int) -> None:
        """Say that a node is gone from a minute on."""
        self.until[node] = minute
