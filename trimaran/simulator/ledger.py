"""Ledger of the pods' real use on each node by minute. Simulated metrics are computed from its past."""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s

CPU_ROW, MEMORY_ROW = 0, 1


class UseLedger:
    """CPU and memory use of each node in each minute of a replay.

    Placing a pod adds its whole use; a pod that leaves early has the rest subtracted. Columns before the current minute
    are the past. Later columns are the future if nothing else changes, and only clairvoyant policies may read them.

    Args:
        capacity: capacity of the initial nodes, millicores and bytes, shape (2, nodes).
        minutes: length of the replay.

    Attributes:
        capacity: capacity of every node that ever joined, millicores and bytes, shape (2, nodes).
        since: minute in which each node joined, shape (nodes,).
        until: minute in which each node left, shape (nodes,).
    """

    def __init__(self, capacity: Float64s, minutes: int) -> None:
        self.capacity = capacity
        self._use: Float64s = np.zeros((2, capacity.shape[1], minutes))
        self._short: Float64s = np.zeros((capacity.shape[1], minutes))
        self.since: Int64s = np.zeros(capacity.shape[1], np.int64)
        self.until: Int64s = np.full(capacity.shape[1], minutes)

    @property
    def use(self) -> Float64s:
        """CPU and memory use, millicores and bytes, shape (2, nodes, minutes).

        A node that left keeps its row. A node that comes back gets a new row.
        """
        return np.asarray(self._use[:, : self.capacity.shape[1]])

    @property
    def cpu_milli(self) -> Float64s:
        """CPU use, millicores, shape (nodes, minutes)."""
        return np.asarray(self.use[CPU_ROW])

    @property
    def memory_bytes(self) -> Float64s:
        """Memory use, bytes, shape (nodes, minutes)."""
        return np.asarray(self.use[MEMORY_ROW])

    @property
    def short_milli(self) -> Float64s:
        """CPU demand above capacity in the past, millicores, shape (nodes, minutes)."""
        return np.asarray(self._short[: self.capacity.shape[1]])

    def add(self, node: int, minute: int, series: Float64s) -> None:
        """Add a pod's use to a node from a minute on; negative use subtracts.

        Args:
            node: the node's number.
            minute: first minute of the series.
            series: millicores and bytes, shape (2, minutes); minutes after the end of the replay are ignored.
        """
        self._use[:, node, minute : minute + series.shape[1]] += series[:, : self._use.shape[2] - minute]

    def present(self) -> Bools:
        """Return a mask of the minutes in which each node is part of the cluster, shape (nodes, minutes)."""
        minutes = np.arange(self._use.shape[2])
        return np.asarray((self.since[:, None] <= minutes) & (minutes < self.until[:, None]))

    def join(self, minute: int, cpu_milli: float, memory_bytes: float) -> int:
        """Add a node without use and return its number."""
        number = len(self.since)
        self.capacity = np.concatenate([self.capacity, [[cpu_milli], [memory_bytes]]], axis=1)
        self.since = np.append(self.since, minute)
        self.until = np.append(self.until, self._use.shape[2])
        if number == self._use.shape[1]:  # grow by doubling, so that the copies amortize
            self._use = np.concatenate([self._use, np.zeros_like(self._use)], axis=1)
            self._short = np.concatenate([self._short, np.zeros_like(self._short)])
        return number

    def leave(self, node: int, minute: int) -> None:
        """Record that a node left the cluster in a minute."""
        self.until[node] = minute
