"""Nodes that fail and join in the course of a replay, from a list.

The list is a table ``minute, event, node, cpu_capacity_milli, memory_capacity_bytes``:

    fail   the node is gone from that minute on, and its pods with it; they are placed again
    join   the node is there from that minute on; without amounts it has those that it had before
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
    """What happens to a node; see above."""

    FAIL = "fail"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something that happens to a node.

    Attributes:
        minute: when; events of one minute happen in their order.
        kind: what.
        node: its name.
        capacity: of a node that joins, millicores and bytes; None is what it had before.
    """

    minute: int
    kind: EventKind
    node: str
    capacity: Amounts | None = None


def read_events(path: Path) -> tuple[NodeEvent, ...]:
    """Read a list of events, in the order of their minutes.

    Raises:
        TraceError: it cannot be read, or a row has no meaning; the message names it.
    """
    table = read_table(path, COLUMNS, may_be_empty=True)
    minutes = table.whole_numbers("minute").tolist()
    cpu, memory = (table.whole_numbers(column, least=1, empty=0).tolist() for column in COLUMNS[3:])
    events = []
    for place, (minute, kind, node, amounts) in enumerate(
        zip(minutes, table["event"], table["node"], zip(cpu, memory, strict=True), strict=True)
    ):
        if kind not in set(EventKind):
            raise TraceError(f"{table.where(place)}: event must be {' or '.join(EventKind)}, got {kind!r}")
        if any(amounts) and (kind == EventKind.FAIL or not all(amounts)):
            raise TraceError(
                f"{table.where(place)}: a node that joins has both amounts or none, one that fails has none"
            )
        events.append(NodeEvent(minute, EventKind(kind), node, amounts if any(amounts) else None))
    return tuple(sorted(events, key=lambda event: event.minute))


def write_events(events: Iterable[NodeEvent], path: Path) -> None:
    """Write a list of events."""
    events = tuple(events)
    amounts = [event.capacity or ("", "") for event in events]
    columns = ([e.minute for e in events], [e.kind for e in events], [e.node for e in events])
    write_table(path, COLUMNS, (*columns, [cpu for cpu, _ in amounts], [memory for _, memory in amounts]))


def check_events(events: Iterable[NodeEvent], nodes: Mapping[str, Amounts], world: Path | str) -> None:
    """See that events can happen to a trace's nodes.

    Args:
        events: in their order.
        nodes: the amounts of those that are there at first.
        world: the trace's folder or name, for what is refused.

    Raises:
        TraceError: a node fails that is not there, joins that is, or joins with amounts that nobody knows.
    """
    known, there = set(nodes), set(nodes)
    for event in events:
        what = f"{world}: events, minute {event.minute}: node {event.node!r}"
        if event.kind is EventKind.FAIL:
            if event.node not in there:
                raise TraceError(f"{what} fails and is not there")
            there.remove(event.node)
            continue
        if not event.node or event.node in there:
            raise TraceError(f"{what} joins and is there already, or has no name")
        if event.capacity is None and event.node not in known:
            raise TraceError(f"{what} joins with no cpu_capacity_milli and memory_capacity_bytes, and had none before")
        known.add(event.node)
        there.add(event.node)
