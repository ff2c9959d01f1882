"""Caps: limits on the number of moves per hour and day, in total and per node, namespace and workload.

The moves of the past are the ledger's records, so a restart or another replica continues with the same numbers. A move
counts from the moment at which it is recorded, before the eviction is requested.
"""

from collections import Counter
from collections.abc import Iterable

from runtime.kubernetes.workloads import Workload
from trimaran.rebalancer.moves import MoveRecord
from trimaran.rebalancer.rules import CapLimits

HOUR = 3600.0
DAY = 86400.0


class Caps:
    """Numbers of moves so far, and whether the caps allow one more.

    Args:
        limits: the caps.
        records: moves of the past day.
        running: number of running pods.
        now: Unix time.
    """

    def __init__(self, limits: CapLimits, records: Iterable[MoveRecord], running: int, now: float) -> None:
        self._limits, self._running = limits, running
        self._day = self._hour = self._open = 0
        self._sources: Counter[str] = Counter()
        self._targets: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._workloads: Counter[Workload] = Counter()
        for record in records:
            if record.is_made:
                self._count(record, now - record.planned_at)

    def _count(self, record: MoveRecord, age: float) -> None:
        self._open += record.is_open
        self._day += age < DAY
        if age < HOUR:  # a clock that was set back makes the age negative, and the move still counts
            self._hour += 1
            self._sources[record.source] += 1
            self._targets[record.node] += 1
            self._namespaces[record.namespace] += 1
            self._workloads[record.of] += 1

    def add(self, record: MoveRecord) -> None:
        """Count a move that begins now."""
        self._count(record, 0.0)

    @property
    def left(self) -> int:
        """Number of moves that the caps on the total still allow now."""
        limits = self._limits
        return max(0, min(self._hourly - self._hour, limits.per_day - self._day, limits.open_moves - self._open))

    @property
    def _hourly(self) -> int:
        limits = self._limits
        return min(limits.per_hour, max(int(limits.percent_per_hour / 100 * self._running), 1))

    def allows_source(self, node: str) -> bool:
        """Return whether one more pod may leave a node."""
        return self._sources[node] < self._limits.node_per_hour

    def allows_target(self, node: str) -> bool:
        """Return whether one more pod may move to a node."""
        return self._targets[node] < self._limits.node_per_hour

    def allows_workload(self, workload: Workload) -> bool:
        """Return whether one more pod of a workload, and of its namespace, may move."""
        is_below = self._workloads[workload] < self._limits.workload_per_hour
        return is_below and self.allows_namespace(workload.namespace)

    def allows_namespace(self, namespace: str) -> bool:
        """Return whether one more pod of a namespace may move."""
        return self._namespaces[namespace] < self._limits.namespace_per_hour

    def usage(self) -> dict[str, tuple[int, int]]:
        """Return the number of moves and its limit, by cap."""
        limits = self._limits
        return {
            "hour": (self._hour, self._hourly),
            "day": (self._day, limits.per_day),
            "open": (self._open, limits.open_moves),
        }
