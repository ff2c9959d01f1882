"""JSON of the use of pods over the last day: one array for each column, and the numbers in half precision.

The use of a pod has 384 numbers. They are sent as base64 of little-endian float16 values, row by row, which takes a
kilobyte for each pod, and needs no parsing.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from runtime.kubernetes.workloads import Workload
from watcher.pod_use_table import HOURS, PERIODS, STEPS, Float16s, PodUseTable
from watcher.wire.errors import WireError

_TEXTS = {"uid": "uids", "name": "names", "node": "nodes", "revision": "revisions"}
_TIMES = ("since", "last_seen")
_ROWS = {"cpu_cores": STEPS, "memory_gib": PERIODS}
_COURSES = ("cpu_course", "memory_course")


def encode_pod_use(table: PodUseTable) -> bytes:
    """Encode the use of pods as one JSON object with columns."""
    places: dict[Workload, int] = {}
    workload = [places.setdefault(each, len(places)) for each in table.workloads]
    first = {place: row for row, place in reversed(list(enumerate(workload)))}
    courses = table.courses[:, [first[place] for place in range(len(places))]]
    return orjson.dumps(
        {
            "timestamp": table.timestamp,
            **{key: list(getattr(table, name)) for key, name in _TEXTS.items()},
            "workload": workload,
            "workloads": [list(workload) for workload in places],
            **{name: getattr(table, name).tolist() for name in _TIMES},
            **{name: _text(getattr(table, name)) for name in _ROWS},
            **{name: _text(course) for name, course in zip(_COURSES, courses, strict=True)},
            **({} if table.waiting is None else {"waiting": _text(table.waiting.astype(np.float16))}),
        }
    )


def decode_pod_use(body: bytes) -> PodUseTable:
    """Decode the JSON object that :func:`encode_pod_use` makes.

    Raises:
        WireError: the body is not a table of the use of pods.
    """
    try:
        return _decoded(orjson.loads(body))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise WireError(f"the document is not the use of pods: {type(error).__name__}: {error}") from error


def _decoded(document: Mapping[str, Any]) -> PodUseTable:
    uids, names, nodes, revisions = (tuple(map(str, document[key])) for key in _TEXTS)
    count = len(uids)
    workloads = [Workload(*map(str, each)) for each in document["workloads"]]
    place = np.array(document["workload"], np.int64).reshape(count)
    if {len(names), len(nodes), len(revisions)} != {count}:
        raise ValueError("the columns have different lengths")
    if count and not (place.min() >= 0 and place.max() < len(workloads)):
        raise ValueError("a workload of a pod is not an index of workloads")
    since, last_seen = (np.array(document[name], np.float64).reshape(count) for name in _TIMES)
    cpu, memory = (_rows(document[name], (count, columns)) for name, columns in _ROWS.items())
    courses = np.stack([_rows(document[name], (len(workloads), HOURS)) for name in _COURSES])[:, place]
    of_pods = tuple(workloads[each] for each in place.tolist())
    timestamp = float(document["timestamp"])
    known = document.get("waiting")  # an older watcher has none
    waiting = None if known is None else _rows(known, (count,)).astype(np.float64)
    return PodUseTable(
        timestamp, uids, names, nodes, of_pods, revisions, since, last_seen, cpu, memory, courses, waiting
    )


def _text(rows: Float16s) -> str:
    return base64.b64encode(np.ascontiguousarray(rows, "<f2").tobytes()).decode()


def _rows(text: Any, shape: tuple[int, ...]) -> Float16s:
    rows = np.frombuffer(base64.b64decode(text, validate=True), "<f2").reshape(shape)
    return rows.astype(np.float16, copy=False)
