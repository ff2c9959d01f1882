"""Encoder of snapshots, in either dialect and in the columnar form.

Every node is encoded once, as a fragment of JSON. The documents of both dialects are assembled from these fragments.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import orjson

from runtime.errors import quoted
from watcher.model import NodeColumns, NodeMetrics, WatcherMetrics
from watcher.wire.errors import WireError

#: The media type of the columnar form, for ``Accept``.
COLUMNS_TYPE = "application/vnd.trimaran.columns.v1+json"
#: Key of the nodes in the Go dialect.
GO_KEY = "NodeMetricsMap"
_DECIMALS = 10  # Go's reader rejects long exponents; ten decimals of a percent never need one


class Dialect(StrEnum):
    """JSON dialect of a snapshot: as load-watcher documents it, or as its Go code actually writes and reads it."""

    DOCUMENTED = "documented"
    GO = "go"


def encode(metrics: WatcherMetrics, dialect: Dialect = Dialect.DOCUMENTED) -> bytes:
    """Encode a snapshot as one JSON document.

    Raises:
        WireError: a value is not finite, or a text is not valid Unicode.
    """
    return assemble(metrics, [encode_node(name, node) for name, node in metrics.data.items()], dialect)


def encode_node(name: str, node: NodeMetrics) -> bytes:
    """Encode one node as the fragment ``"name":{...}``; values are rounded to 10 decimals.

    Raises:
        WireError: a value is not finite, or a text is not valid Unicode.
    """
    metrics = []
    for metric in node.metrics:
        if not math.isfinite(metric.value):
            raise WireError(f"data.{name}: {metric.name} {metric.operator} is {metric.value}, which JSON cannot hold")
        metrics.append(
            {
                "name": metric.name,
                "type": metric.type,
                "operator": metric.operator,
                "rollup": metric.rollup,
                "value": _number(metric.value),
            }
        )
    body = {"metrics": metrics, "tags": node.tags, "metadata": node.metadata}
    _check_metadata({name: node.metadata})
    try:
        return orjson.dumps(name) + b":" + orjson.dumps(body)
    except TypeError as error:
        raise WireError(f"data.{quoted(name)}: {error}") from error


def _check_metadata(metadata: Mapping[str, Mapping[str, Any]]) -> None:
    for name, items in metadata.items():
        if any(isinstance(value, float) and not math.isfinite(value) for value in items.values()):
            raise WireError(f"data.{quoted(name)}: the metadata contains a number that JSON cannot hold")


def _number(value: float) -> float:
    """Round a value to 10 decimals; whole values become integers, as in the documented schema."""
    rounded = round(float(value), _DECIMALS)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def assemble(metrics: WatcherMetrics, fragments: Iterable[bytes], dialect: Dialect) -> bytes:
    """Assemble the JSON document of a snapshot.

    Args:
        metrics: the snapshot, for its time, window and source.
        fragments: encoded nodes to include, from :func:`encode_node`.
        dialect: JSON dialect of the document.
    """
    before, after = frame(metrics, dialect)
    return b"".join((before, b",".join(fragments), after))


def frame(metrics: WatcherMetrics, dialect: Dialect) -> tuple[bytes, bytes]:
    """Return the two parts of a snapshot's JSON document that stand before and after its encoded nodes."""
    head = orjson.dumps(_head(metrics))
    if dialect is Dialect.GO:
        return head[:-1] + b',"data":{"' + GO_KEY.encode() + b'":{', b"}}}"
    return head[:-1] + b',"data":{', b"}}"


def _head(metrics: WatcherMetrics) -> dict[str, Any]:
    window = metrics.window
    return {
        "timestamp": metrics.timestamp,
        "window": {"duration": window.duration, "start": window.start, "end": window.end},
        "source": metrics.source,
    }


def encode_columns(metrics: WatcherMetrics) -> bytes:
    """Encode a snapshot in the columnar form. Values are rounded to 10 decimals, as in the dialects.

    Raises:
        WireError: a value is not finite, or a text is not valid Unicode.
    """
    columns = NodeColumns.of(metrics.data)
    _check_metadata(columns.metadata)
    try:
        return orjson.dumps({**_head(metrics), "groups": [*_column_groups(columns)]})
    except TypeError as error:
        raise WireError(f"groups: {error}") from error


def _column_groups(columns: NodeColumns) -> Iterator[dict[str, Any]]:
    for group in columns.groups:
        if not all(map(math.isfinite, columns.numbers[group.start : group.end])):
            for name in group.names:
                encode_node(name, columns[name])  # raises the error that names the value
        by_tags: dict[tuple[tuple[str, Any], ...], list[int]] = {}
        for place, name in enumerate(group.names):
            by_tags.setdefault(tuple(sorted(columns.tags.get(name, {}).items())), []).append(place)
        for tags, places in by_tags.items():
            names = [group.names[place] for place in places]
            series = []
            for number, each in enumerate(group.series):
                start = group.start + number * len(group.names)
                values = [_number(columns.numbers[start + place]) for place in places]
                series.append({**each._asdict(), "values": values})
            metadata = {name: columns.metadata[name] for name in names if name in columns.metadata}
            yield {"nodes": names, "series": series, "tags": dict(tags), "metadata": metadata}
