"""Faults in the metrics that the simulated watcher fetches.

Faults are read from a table ``start_minute, end_minute, node, fault, value``. A fault lasts from ``start_minute`` until
before ``end_minute``. ``node`` is a node's name, or ``*`` for every node.

    missing   a fetch has no metrics of the node
    frozen    the node's metrics stay at their values of ``start_minute``
    scaled    the node's metrics are multiplied by ``value``
    outage    the whole fetch fails (``node`` must be ``*``): the source or the watcher does not answer
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path

import numpy as np

from runtime.errors import quoted
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.tables import read_table

EVERY_NODE = "*"
COLUMNS = ("start_minute", "end_minute", "node", "fault", "value")


class FaultKind(StrEnum):
    """Kind of a fault; see the module's docstring."""

    MISSING = "missing"
    FROZEN = "frozen"
    SCALED = "scaled"
    OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a node's metrics, or of all metrics, over a span of minutes.

    Attributes:
        kind: kind of the fault.
        start_minute: first minute.
        end_minute: minute after the last one.
        node: the node's name; ``*`` means every node.
        factor: multiplier of the values, for ``scaled``.

    Raises:
        ValueError: a field is invalid; the message names it.
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
        if not self.node:
            raise ValueError(f"node must be a name or {EVERY_NODE}, got {quoted(self.node)}")
        if self.kind is FaultKind.OUTAGE and self.node != EVERY_NODE:
            raise ValueError(f"node must be {EVERY_NODE} for {self.kind}, got {quoted(self.node)}")

    def applies_to(self, minute: int, node: str = EVERY_NODE) -> bool:
        """Return whether the fault affects a node in a minute."""
        return self.start_minute <= minute < self.end_minute and self.node in (node, EVERY_NODE)


def read_faults(path: Path, problems: TraceProblems) -> tuple[Fault, ...]:
    """Read a table of faults, without invalid rows.

    Args:
        path: path of the file.
        problems: where errors are reported.
    """
    table = read_table(path, COLUMNS, problems=problems)
    if table is None:
        return ()
    starts, ends = (table.whole_numbers(column).tolist() for column in COLUMNS[:2])
    faults, invalid = [], {}
    for index in np.flatnonzero(table.sound).tolist():
        kind, value = table["fault"][index], table["value"][index]
        try:
            faults.append(
                Fault(FaultKind(kind), starts[index], ends[index], table["node"][index], _factor(kind, value))
            )
        except ValueError as error:
            invalid[index] = f"{error}; faults are {', '.join(FaultKind)}"
    table.drop(invalid)
    return tuple(faults)


def check_faults(faults: Iterable[Fault], world: str, nodes: Collection[str]) -> None:
    """Check that each fault names a node of the trace.

    Args:
        faults: the faults.
        world: the trace's folder, for the error message.
        nodes: names of the initial nodes and of nodes that join.

    Raises:
        TraceError: a fault names a node that the trace does not have.
    """
    for fault in faults:
        if fault.node not in (EVERY_NODE, *nodes):
            raise TraceError(
                f"{world}: a fault names node {fault.node!r}, which does not exist; {EVERY_NODE} means every node"
            )


def _factor(kind: str, value: str) -> float:
    if kind == FaultKind.SCALED:
        return float(value)
    if value:
        raise ValueError(f"value must be empty except for {FaultKind.SCALED}, got {quoted(value)}")
    return 1.0
