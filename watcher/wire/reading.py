"""Reader of snapshots: detects the form, rejects malformed payloads, and creates no object per metric."""

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

    Unknown types and operators are kept unchanged, as is any finite value.

    Args:
        body: the JSON document.
        dialect: the dialect, if known. Otherwise ``NodeMetricsMap`` is the key of the Go dialect, unless its value has
            ``metrics`` like a node: then it is a node of that name.

    Raises:
        WireError: the body is not JSON, or has none of these forms; the message names the place.
    """
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")  # surrogates are not valid JSON either
    return typed.decode(body, dialect) or examine(body, dialect)


def examine(body: bytes, dialect: Dialect | None) -> WatcherMetrics:
    """Decode a document of any form; if it is malformed, raise an error that names the problem and the place."""
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
    """Return the series and values of a node; Go omits empty fields."""
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
    """Return names, series and values of one group, and add its tags and metadata to ``tags`` and ``metadata``."""
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
        raise WireError(f"{place}.metadata names {min(strangers)}, which is not among its nodes")
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
