"""Fast decoder of well-formed snapshots: parses the JSON directly into typed structures, which also validates it.

``reading`` decodes all other documents. It is several times slower, and reports what is wrong and where.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from watcher.model import NodeColumns, WatcherMetrics, Window
from watcher.wire.writing import GO_KEY, Dialect

_SERIES = attrgetter("name", "type", "operator", "rollup")
_VALUE = attrgetter("value")


# gc=False: the garbage collector need not track these objects, since they cannot be part of a reference cycle.
class _Metric(msgspec.Struct, gc=False):
    name: str
    type: str
    value: float
    operator: str = ""
    rollup: str = ""


class _Node(msgspec.Struct, gc=False):
    metrics: list[_Metric] | None = None
    tags: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class _Window(msgspec.Struct):
    duration: str
    start: int
    end: int


class _Head(msgspec.Struct):
    timestamp: int
    window: _Window
    source: str


class _Documented(_Head):
    data: dict[str, _Node]


class _GoData(msgspec.Struct):
    nodes: dict[str, _Node] | None = msgspec.field(name=GO_KEY)


class _Go(_Head):
    data: _GoData


_DOCUMENTED, _GO = msgspec.json.Decoder(_Documented), msgspec.json.Decoder(_Go)


def decode(body: bytes, dialect: Dialect | None) -> WatcherMetrics | None:
    """Decode a snapshot; return None if this fast decoder cannot decode it.

    Such a document may still be valid: ``reading.examine`` decodes it or reports the error.

    Args:
        body: the JSON document.
        dialect: the dialect; None to detect it.
    """
    go = GO_KEY.encode() in body if dialect is None else dialect is Dialect.GO
    try:
        document: Any = (_GO if go else _DOCUMENTED).decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    nodes: Mapping[str, _Node] = (document.data.nodes or {}) if go else document.data
    window = document.window
    if (dialect is None and GO_KEY in nodes) or not fits(document.timestamp, window.start, window.end):
        return None
    columns = NodeColumns.grouped(
        _rows(nodes),
        _extra((name, node.tags) for name, node in nodes.items()),
        _extra((name, node.metadata) for name, node in nodes.items()),
    )
    return WatcherMetrics(
        document.timestamp, Window(window.duration, window.start, window.end), document.source, columns
    )


def fits(*times: int) -> bool:
    """Return whether all numbers fit into signed 64-bit integers, which Go and arrays use."""
    return all(-(2**63) <= time < 2**63 for time in times)


def scalars(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items of a node's tags or metadata whose values are strings or numbers; other values are ignored."""
    return {key: item for key, item in items.items() if isinstance(item, str | int | float)}


def _rows(nodes: Mapping[str, _Node]) -> Iterator[tuple[str, tuple[tuple[str, str, str, str], ...], list[float]]]:
    for name, node in nodes.items():
        metrics = node.metrics or ()
        yield name, tuple(map(_SERIES, metrics)), [*map(_VALUE, metrics)]


def _extra(nodes: Iterable[tuple[str, dict[str, Any] | None]]) -> dict[str, dict[str, Any]]:
    return {name: kept for name, items in nodes if items and (kept := scalars(items))}
