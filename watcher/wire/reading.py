"""Decoder of snapshots: detects the dialect or the columnar form, and rejects malformed payloads.

It creates no object per metric, which would be slow for a large cluster.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

import orjson

from watcher.model import NodeColumns, WatcherMetrics, Window
from watcher.wire import typed
from watcher.wire.errors import WireError
from watcher.wire.writing import GO_KEY, Dialect

_NUMBERS = {int, float}  # orjson only returns finite numbers

_Labels = tuple[str, str, str, str]
_Extra = dict[str, dict[str, Any]]


def decode(body: bytes | str, dialect: Dialect | None = None) -> WatcherMetrics:
    """Decode a snapshot in either dialect or in the columnar form; its nodes are :class:`~watcher.model.NodeColumns`.

    Unknown resource types and operators are kept unchanged, as is any finite value.

    Args:
        body: the JSON document.
        dialect: the dialect; None to detect it. A key ``NodeMetricsMap`` then means the Go dialect, unless its value
            has ``metrics`` like a node: in this case it is a node with this name.

    Raises:
        WireError: the body is not JSON, or not a valid snapshot; the message names the place in the document.
    """
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")  # surrogates are not valid JSON either
    return typed.decode(body, dialect) or examine(body, dialect)


def examine(body: bytes, dialect: Dialect | None) -> WatcherMetrics:
    """Decode a snapshot, like :func:`decode` but several times slower, with an exact error if it is malformed.

    Raises:
        WireError: the document is malformed; the message names the problem and its place.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError(f"not JSON: {error}") from error
    document = _object(document, "the document")
    window = _object(document.get("window"), "window")
    if "groups" in document and "data" not in document:
        data = _decode_groups(document["groups"])
    else:
        data = _decode_nodes(_nodes(document, dialect))
    return WatcherMetrics(
        timestamp=_integer(document, "timestamp", "timestamp"),
        window=Window(
            duration=_string(window, "duration", "window"),
            start=_integer(window, "start", "window.start"),
            end=_integer(window, "end", "window.end"),
        ),
        source=_string(document, "source", "the document"),
        data=data,
    )


def _nodes(document: Mapping[str, Any], dialect: Dialect | None) -> dict[str, Any]:
    data = _object(document.get("data"), "data")
    if dialect is None and GO_KEY in data:
        content = data[GO_KEY]
        # In the map of the Go dialect, "metrics" can only be the name of a node, whose value is an object.
        is_node = isinstance(content, dict) and isinstance(content.get("metrics", ...), list | None)
        dialect = Dialect.DOCUMENTED if is_node else Dialect.GO
    return _object(data.get(GO_KEY), f"data.{GO_KEY}", nullable=True) if dialect is Dialect.GO else data


def _decode_nodes(data: dict[str, Any]) -> NodeColumns:
    tags: _Extra = {}
    metadata: _Extra = {}
    rows = []
    for name, node in data.items():
        place = f"data.{name}"
        series, values = _decode_metrics(_object(node, place).get("metrics"), place)
        rows.append((name, series, values))
        for key, kept in (("tags", tags), ("metadata", metadata)):
            if found := typed.scalars(_object(node.get(key), f"{place}.{key}", nullable=True)):
                kept[name] = found
    return NodeColumns.grouped(rows, tags, metadata)


def _decode_metrics(metrics: Any, place: str) -> tuple[tuple[_Labels, ...], list[float]]:
    """Return the series and the values of a node's metrics. Missing operators and rollups are empty: Go omits them."""
    if metrics is not None and not isinstance(metrics, list):
        raise WireError(f"{place}.metrics must be an array")
    series, values = [], []
    for metric in metrics or ():
        labels = _labels(metric, f"{place}.metrics[]")
        value = metric.get("value")
        if type(value) not in _NUMBERS:
            raise WireError(f"{place}.metrics[].value must be a finite number")
        series.append(labels)
        values.append(value)
    return tuple(series), values


def _labels(metric: Any, place: str) -> _Labels:
    labels = {"operator": "", "rollup": "", **_object(metric, place)}
    name, type_, operator, rollup = (_string(labels, key, place) for key in ("name", "type", "operator", "rollup"))
    return name, type_, operator, rollup


def _decode_groups(groups: Any) -> NodeColumns:
    tags: _Extra = {}
    metadata: _Extra = {}
    read = [
        _decode_group(_object(group, f"groups[{number}]"), f"groups[{number}]", tags, metadata)
        for number, group in enumerate(_array(groups, "groups"))
    ]
    count = Counter(chain.from_iterable(names for names, _, _ in read))
    if len(count) < count.total():
        raise WireError(f"groups: node {count.most_common(1)[0][0]} occurs twice")
    return NodeColumns(read, tags, metadata)


def _decode_group(
    group: dict[str, Any], place: str, tags: _Extra, metadata: _Extra
) -> tuple[list[str], list[_Labels], list[list[float]]]:
    """Decode one group of the columnar form, and add its tags and metadata, by node name, to the two dictionaries.

    Returns:
        The node names, the series, and for each series its values in the order of the names.
    """
    names = _array(group.get("nodes"), f"{place}.nodes")
    if not {*map(type, names)} <= {str}:
        raise WireError(f"{place}.nodes must be strings")
    series, columns = [], []
    for number, each in enumerate(_array(group.get("series"), f"{place}.series")):
        here = f"{place}.series[{number}]"
        series.append(_labels(each, here))
        values = _array(each.get("values"), f"{here}.values")
        if len(values) != len(names):
            raise WireError(f"{here}.values has {len(values)} values for {len(names)} nodes")
        if not {*map(type, values)} <= _NUMBERS:
            raise WireError(f"{here}.values must be finite numbers")
        columns.append(values)
    if common := typed.scalars(_object(group.get("tags"), f"{place}.tags", nullable=True)):
        tags.update(dict.fromkeys(names, common))
    of_nodes = _object(group.get("metadata"), f"{place}.metadata", nullable=True)
    if strangers := of_nodes.keys() - {*names}:
        raise WireError(f"{place}.metadata has node {min(strangers)}, which is not in {place}.nodes")
    for name, found in of_nodes.items():
        if kept := typed.scalars(_object(found, f"{place}.metadata.{name}", nullable=True)):
            metadata[name] = kept
    return names, series, columns


def _object(value: Any, place: str, *, nullable: bool = False) -> dict[str, Any]:
    if value is None and nullable:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"{place} must be an object")
    return value


def _array(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise WireError(f"{place} must be an array")
    return value


def _integer(parent: Mapping[str, Any], key: str, place: str) -> int:
    value = parent.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not typed.fits(value):
        raise WireError(f"{place} must be an integer of 64 bits")
    return value


def _string(parent: Mapping[str, Any], key: str, place: str) -> str:
    value = parent.get(key)
    if not isinstance(value, str):
        raise WireError(f"{place}.{key} must be a string")
    return value
