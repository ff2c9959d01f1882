"""Nodes that fail or join during a replay.

The events are a table ``minute, event, node, cpu_capacity_milli, memory_capacity_bytes``:

    fail   the node is removed in that minute; its pods are placed again
    join   the node is added in that minute; without capacities it gets those that it had before
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from runtime.errors import quoted
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.tables import read_table, write_table

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


def read_events(path: Path, problems: TraceProblems) -> tuple[NodeEvent, ...]:
    """Return the events of a table in the order of their minutes; invalid rows are left out.

    Args:
        path: path of the file.
        problems: where errors are reported.
    """
    table = read_table(path, COLUMNS, problems=problems, may_be_empty=True)
    if table is None:
        return ()
    minutes = table.whole_numbers("minute").tolist()
    cpu, memory = (table.whole_numbers(column, minimum=1, empty=0).tolist() for column in COLUMNS[3:])
    amounts = list(zip(cpu, memory, strict=True))
    invalid = {}
    for index in np.flatnonzero(table.sound).tolist():
        kind, both = table["event"][index], amounts[index]
        if kind not in set(EventKind):
            invalid[index] = f"event must be {' or '.join(EventKind)}, got {quoted(kind)}"
        elif any(both) and (kind == EventKind.FAIL or not all(both)):
            invalid[index] = 'an event "join" needs both capacities or neither; an event "fail" must have none'
    table.drop(invalid)
    events = [
        NodeEvent(
            minutes[index],
            EventKind(table["event"][index]),
            table["node"][index],
            amounts[index] if any(amounts[index]) else None,
        )
        for index in np.flatnonzero(table.sound).tolist()
    ]
    return tuple(sorted(events, key=lambda event: event.minute))


def write_events(events: Iterable[NodeEvent], path: Path) -> None:
    """Write a table of events."""
    events = tuple(events)
    amounts = [event.capacity or ("", "") for event in events]
    columns = ([e.minute for e in events], [e.kind for e in events], [e.node for e in events])
    write_table(path, COLUMNS, (*columns, [cpu for cpu, _ in amounts], [memory for _, memory in amounts]))


def check_events(events: Iterable[NodeEvent], nodes: Mapping[str, Amounts], world: Path | str) -> None:
    """Check that events are possible with a trace's nodes; the arguments are those of :func:`event_errors`.

    Raises:
        TraceError: an event is not possible.
    """
    for error in event_errors(events, nodes, world):
        raise TraceError(error)


def event_errors(events: Iterable[NodeEvent], nodes: Mapping[str, Amounts], world: Path | str) -> Iterator[str]:
    """Yield an error for each event whose node does not exist, already exists or has no known capacity.

    Args:
        events: events, in order.
        nodes: capacities of the nodes at the start of the trace.
        world: folder or name of the trace, for the errors.
    """
    known, present = set(nodes), set(nodes)
    for event in events:
        location = f"{world}: events, minute {event.minute}: node {event.node!r}"
        if event.kind is EventKind.FAIL:
            if event.node not in present:
                yield f"{location} fails but does not exist"
            present.discard(event.node)
        elif not event.node:
            yield f"{location}: a joining node has no name"
        elif event.node in present:
            yield f"{location} joins but already exists"
        elif event.capacity is None and event.node not in known:
            yield f"{location} joins without cpu_capacity_milli and memory_capacity_bytes, and is a new node"
        else:
            known.add(event.node)
            present.add(event.node)
