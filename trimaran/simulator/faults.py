"""Faults of what is measured, from a list: what goes wrong between the nodes and the watcher.

The list is a table ``start_minute, end_minute, node, fault, value``; a fault is there before its last minute. A node is
a name, or ``*``: every node.

    missing   nothing is fetched of the node
    frozen    what is fetched of the node stays what it was in the first minute
    scaled    what is fetched of the node is so many times (``value``) what it should be
    outage    nothing is fetched of any node (``*``): the source, or the watcher, does not answer
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path

from trimaran.traces.tables import TraceError, read_table

EVERY_NODE = "*"
COLUMNS = ("start_minute", "end_minute", "node", "fault", "value")


class FaultKind(StrEnum):
    """What goes wrong; see above."""

    MISSING = "missing"
    FROZEN = "frozen"
    SCALED = "scaled"
    OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: what goes wrong.
        start_minute: from when on.
        end_minute: until before when.
        node: of which node; ``*`` is every node.
        factor: of ``scaled``: by what values are multiplied.

    Raises:
        ValueError: it has no meaning; the message names the field.
    """

    kind: FaultKind
    start_minute: int
    end_minute: int
    node: str = EVERY_NODE
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.end_minute <= self.start_minute:
            raise ValueError(f"end_minute {self.end_minute} is not after start_minute {self.start_minute}")
        if not (isfinite(self.factor) and self.factor >= 0):
            raise ValueError(f"value must be a number of at least 0, got {self.factor}")
        if not self.node or (self.kind is FaultKind.OUTAGE and self.node != EVERY_NODE):
            raise ValueError(f"node must be {EVERY_NODE}, every node, for {self.kind}, got {self.node!r}")

    def applies_to(self, minute: int, node: str = EVERY_NODE) -> bool:
        """Say whether it is there in a minute, at a node."""
        return self.start_minute <= minute < self.end_minute and self.node in (node, EVERY_NODE)


def read_faults(path: Path) -> tuple[Fault, ...]:
    """Read a list of faults.

    Raises:
        TraceError: it cannot be read, or a row has no meaning; the message names it.
    """
    table = read_table(path, COLUMNS)
    starts, ends = (table.whole_numbers(column).tolist() for column in COLUMNS[:2])
    faults = []
    rows = zip(starts, ends, table["node"], table["fault"], table["value"], strict=True)
    for place, (start, end, node, kind, value) in enumerate(rows):
        try:
            faults.append(Fault(FaultKind(kind), start, end, node, _factor(kind, value)))
        except ValueError as error:
            raise TraceError(f"{table.where(place)}: {error}; faults are {', '.join(FaultKind)}") from None
    return tuple(faults)


def check_faults(faults: Iterable[Fault], world: str, nodes: Collection[str]) -> None:
    """See that each fault is of a node of a world.

    Args:
        faults: the list.
        world: the trace's folder, for what is refused.
        nodes: the names of those that are there at first or join.

    Raises:
        TraceError: a fault is of a node that is never there.
    """
    for fault in faults:
        if fault.node not in (EVERY_NODE, *nodes):
            raise TraceError(
                f"{world}: has no node {fault.node!r}, of which a fault is listed; {EVERY_NODE} is every node"
            )


def _factor(kind: str, value: str) -> float:
    if kind == FaultKind.SCALED:
        return float(value)
    if value:
        raise ValueError(f"value must be empty but for {FaultKind.SCALED}, got {value!r}")
    return 1.0
