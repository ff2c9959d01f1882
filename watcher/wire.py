"""The JSON that watchers and their clients exchange, in both dialects, in and out.

The documented dialect is the one of the Trimaran KEP (``schemas/``); the Go dialect, which load-watcher's Go code
really writes and reads, has one more level: ``{"data": {"NodeMetricsMap": {...}}}``. Reading tells them apart.

Every node is encoded once, as a fragment; bodies of either dialect are put together from fragments.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import orjson

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

_GO_KEY = "NodeMetricsMap"
_DECIMALS = 10  # Go's reader rejects long exponents; ten decimals of a percent never need one


class Dialect(StrEnum):
    """Which of the two shapes of ``data`` to write."""

    DOCUMENTED = "documented"
    GO = "go"


class ErrorCode(StrEnum):
    """The ``code`` of an error body."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NO_METRICS = "no_metrics"
    STALE = "stale"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_WINDOW = "unknown_window"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INTERNAL = "internal"


class WireError(ValueError):
    """A payload is not what the contract says. The message names the place in it."""


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
    if any(isinstance(value, float) and not math.isfinite(value) for value in node.metadata.values()):
        raise WireError(f"data.{name!r}: the metadata holds a number that JSON cannot")
    try:
        return orjson.dumps(name) + b":" + orjson.dumps(body)
    except TypeError as error:
        raise WireError(f"data.{name!r}: {error}") from error


def _number(value: float) -> float:
    """Round to what is written; whole values as integers, as the documented schema has them."""
    rounded = round(float(value), _DECIMALS)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def assemble(metrics: WatcherMetrics, fragments: Iterable[bytes], dialect: Dialect) -> bytes:
    """Put a document together from a snapshot's head and encoded nodes (any subset of them)."""
    window = metrics.window
    head = orjson.dumps(
        {
            "timestamp": metrics.timestamp,
            "window": {"duration": window.duration, "start": window.start, "end": window.end},
            "source": metrics.source,
        }
    )
    nodes = b"{" + b",".join(fragments) + b"}"
    if dialect is Dialect.GO:
        nodes = b'{"' + _GO_KEY.encode() + b'":' + nodes + b"}"
    return head[:-1] + b',"data":' + nodes + b"}"


def encode_error(code: str, message: str) -> bytes:
    """Encode the error body that goes with every status but 200 and 304."""
    # A message may quote what a client sent, which need not be valid Unicode.
    text = message.encode("utf-8", "replace").decode()
    return orjson.dumps({"error": {"code": code, "message": text}})


def decode(body: bytes | str) -> WatcherMetrics:
    """Read a snapshot in either dialect.

    Types and operators we do not know are kept as they are, and so is any finite value.

    Raises:
        WireError: not JSON, or not of either shape; the message names the place.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError(f"not JSON: {error}") from error
    document = _object(document, "the document")
    window = _object(document.get("window"), "window")
    data = _object(document.get("data"), "data")
    if _GO_KEY in data:
        data = _object(data[_GO_KEY], f"data.{_GO_KEY}", nullable=True)
    return WatcherMetrics(
        timestamp=_integer(document, "timestamp", "timestamp"),
        window=Window(
            duration=_string(window, "duration", "window"),
            start=_integer(window, "start", "window.start"),
            end=_integer(window, "end", "window.end"),
        ),
        source=_string(document, "source", "the document"),
        data={name: _decode_node(node, f"data.{name}") for name, node in data.items()},
    )


def _decode_node(node: Any, place: str) -> NodeMetrics:
    node = _object(node, place)
    metrics = node.get("metrics")
    if metrics is not None and not isinstance(metrics, list):
        raise WireError(f"{place}.metrics must be an array")
    return NodeMetrics(
        metrics=tuple(_decode_metric(metric, place) for metric in metrics or ()),
        tags=_texts(node.get("tags"), f"{place}.tags"),
        metadata=_texts(node.get("metadata"), f"{place}.metadata"),
    )


def _decode_metric(metric: Any, place: str) -> Metric:
    if type(metric) is not dict:
        raise WireError(f"{place}.metrics[] must be an object")
    name, type_, value = metric.get("name"), metric.get("type"), metric.get("value")
    operator, rollup = metric.get("operator", ""), metric.get("rollup", "")
    if type(value) is int:
        value = float(value)
    # In line, as a large cluster has hundreds of thousands; and orjson reads no number that is not finite.
    if (
        isinstance(name, str)
        and isinstance(type_, str)
        and isinstance(operator, str)
        and isinstance(rollup, str)
        and isinstance(value, float)
    ):
        return Metric(name, type_, operator, rollup, value)
    for key, text in {"name": name, "type": type_, "operator": operator, "rollup": rollup}.items():
        _string({key: text}, key, f"{place}.metrics[]")
    raise WireError(f"{place}.metrics[].value must be a finite number")


def _object(value: Any, place: str, *, nullable: bool = False) -> dict[str, Any]:
    if value is None and nullable:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"{place} must be an object")
    return value


def _integer(parent: Mapping[str, Any], key: str, place: str) -> int:
    value = parent.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"{place} must be an integer")
    return value


def _string(parent: Mapping[str, Any], key: str, place: str) -> str:
    value = parent.get(key)
    if not isinstance(value, str):
        raise WireError(f"{place}.{key} must be a string")
    return value


def _texts(value: Any, place: str) -> dict[str, Any]:
    return {
        key: item for key, item in _object(value, place, nullable=True).items() if isinstance(item, str | int | float)
    }
