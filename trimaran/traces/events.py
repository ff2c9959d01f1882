"""Nodes that fail or join during a replay.

The events are a table ``minute, event, node, cpu_capacity_milli, memory_capacity_bytes``:

    fail   the node is removed in that minute; its pods are placed again
    join   the node is added in that minute; without capacities it has the ones that it had before
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trimaran.traces.tables import TraceError, read_table, write_table

EVENTS = "events.csv"
COLUMNS = ("minute", "event", "node", "cpu_capacity_milli", "memory_capacity_bytes")
Amounts = tuple[int, int]


class EventKind(StrEnum):
    """Kind of node event; the module's docstring defines each kind."""

    FAIL = "fail"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Event of a node.

    Attributes:
        minute: minute of the trace; events of one minute happen in their order in the file.
        kind: kind of event.
        node: name of the node.
        capacity: millicores and bytes of a node that joins; None for the capacity that it had before.
    """

    minute: int
    kind: EventKind
    node: str
    capacity: Amounts | None = None


def read_events(path: Path) -> tuple[NodeEvent, ...]:
    """Read a table of events; they are returned in the order of their minutes.

    Raises:
        TraceError: the file cannot be read, or a row is invalid; the message names the row.
    """
    table = read_table(path, COLUMNS, may_be_empty=True)
    minutes = table.whole_numbers("minute").tolist()
    cpu, memory = (table.whole_numbers(column, minimum=1, empty=0).tolist() for column in COLUMNS[3:])
    events = []
    for index, (minute, kind, node, amounts) in enumerate(
        zip(minutes, table["event"], table["node"], zip(cpu, memory, strict=True), strict=True)
    ):
        if kind not in set(EventKind):
            raise TraceError(f"{table.location(index)}: event must be {' or '.join(EventKind)}, got {kind!r}")
        if any(amounts) and (kind == EventKind.FAIL or not all(amounts)):
            raise TraceError(
                f'{table.location(index)}: an event "join" needs both capacities or neither; an event "fail" '
                "must have none"
            )
        events.append(NodeEvent(minute, EventKind(kind), node, amounts if any(amounts) else None))
    return tuple(sorted(events, key=lambda event: event.minute))


def write_events(events: Iterable[NodeEvent], path: Path) -> None:
    """Write a table of events."""
    events = tuple(events)
    amounts = [event.capacity or ("", "") for event in events]
    columns = ([e.minute for e in events], [e.kind for e in events], [e.node for e in events])
    write_table(path, COLUMNS, (*columns, [cpu for cpu, _ in amounts], [memory for _, memory in amounts]))


def check_events(events: Iterable[NodeEvent], nodes: Mapping[str, Amounts], world: Path | str) -> None:
    """Check that events are possible with a trace's nodes.

    Args:
        events: events, in order.
        nodes: capacities of the nodes at the start of the trace.
        world: folder or name of the trace, for error messages.

    Raises:
        TraceError: a failing node does not exist, or a joining node already exists or has no known capacity.
    """
    known, present = set(nodes), set(nodes)
    for event in events:
        location = f"{world}: events, minute {event.minute}: node {event.node!r}"
        if event.kind is EventKind.FAIL:
            if event.node not in present:
                raise TraceError(f"{location} fails but does not exist")
            present.remove(event.node)
            continue
        if not event.node:
            raise TraceError(f"{location}: a joining node has no name")
        if event.node in present:
            raise TraceError(f"{location} joins but already exists")
        if event.capacity is None and event.node not in known:
            raise TraceError(
                f"{location} joins without cpu_capacity_milli and memory_capacity_bytes, and is a new node"
            )
        known.add(event.node)
        present.add(event.node)
