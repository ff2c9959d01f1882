"""JSON of a history: start and length of the steps, node names, and per series an array of shape (nodes, steps)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from watcher.history import History, HistorySeries, Steps
from watcher.wire.errors import WireError

_ROWS_AT_ONCE = 8  # encoding blocks all other threads


def encode_history(history: History) -> Iterator[bytes]:
    """Encode a history as one JSON object, and yield it in pieces. A missing value is null."""
    steps = history.steps
    head = {"start": steps.start, "step": steps.seconds, "steps": steps.count, "nodes": history.nodes}
    yield orjson.dumps(head)[:-1] + b',"series":['
    for number, series in enumerate(history.series):
        labels = {"name": series.name, "type": series.type, "operator": series.operator}
        yield (b"," if number else b"") + orjson.dumps(labels)[:-1] + b',"values":['
        for first in range(0, len(series.values), _ROWS_AT_ONCE):
            rows = np.ascontiguousarray(series.values[first : first + _ROWS_AT_ONCE])
            yield (b"," if first else b"") + orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        yield b"]}"
    yield b"]}"


def decode_history(body: bytes) -> History:
    """Decode the JSON object that :func:`encode_history` yields.

    Raises:
        WireError: the body is not a history.
    """
    try:
        document: dict[str, Any] = orjson.loads(body)
        nodes = tuple(map(str, document["nodes"]))
        steps = Steps(int(document["start"]), int(document["step"]), int(document["steps"]))
        series = tuple(
            HistorySeries(str(each["name"]), str(each["type"]), str(each["operator"]), _values(each, nodes, steps))
            for each in document["series"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"the document is not a history: {type(error).__name__}: {error}") from error
    return History(nodes, steps, series)


def _values(series: Any, nodes: tuple[str, ...], steps: Steps) -> "np.ndarray[Any, np.dtype[np.float32]]":
    values = np.array(series["values"], np.float32).reshape(-1, steps.count)
    if len(values) != len(nodes):
        raise ValueError(f"series has {len(values)} rows for {len(nodes)} nodes")
    return values
