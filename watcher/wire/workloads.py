"""JSON of workloads: a page of them with all their containers, and the compact form, one array for each column.

Amounts are cores and bytes of one pod or container; times are Unix seconds. A missing value is null.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import orjson

from runtime.kubernetes.workloads import ContainerRole, Workload
from watcher.wire.errors import WireError
from watcher.workload_table import (
    ClusterTotals,
    ContainerKey,
    ContainerTable,
    DailyUse,
    Float64s,
    Recommendations,
    Texts,
    WorkloadTable,
)

_NAMES = Workload._fields
_RESOURCES = ("cpu_cores", "memory_bytes")
_PAIRS = ("use", "deviations")  # columns of shape (2, workloads)
_LEVELS = ("level", "level_deviation")
_LINES = ("capacity", "requested", "used")  # of the cluster's totals
_TIMES = ("first_seen", "last_seen", "pods", "pod_minutes")
_ROLES = [None if role is ContainerRole.UNKNOWN else role.name.lower() for role in ContainerRole]
_NUMPY = orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, eq=False)
class WorkloadIndex:
    """Known workloads of one round, with their containers, so that each is found without a search.

    Attributes:
        table: learned use of the workloads.
        containers: learned use and state of their containers.
        recommended: recommended requests of these containers.
        workloads: the workloads, sorted.
        places: index of each workload in the table.
        rows: rows of each workload's containers.
    """

    table: WorkloadTable
    containers: ContainerTable
    recommended: Recommendations
    workloads: Sequence[Workload]
    places: Mapping[Workload, int]
    rows: Mapping[Workload, Sequence[int]]

    @classmethod
    def of(cls, table: WorkloadTable, containers: ContainerTable, recommended: Recommendations) -> Self:
        """Return the index of the tables of one round."""
        places = {workload: place for place, workload in enumerate(table.workloads)}
        rows: dict[Workload, list[int]] = {}
        for row, key in enumerate(containers.keys):
            rows.setdefault(key.workload, []).append(row)
        return cls(table, containers, recommended, sorted(places), places, rows)


def encode_workloads(table: WorkloadTable) -> bytes:
    """Encode the use of all workloads that services need, as one JSON object with columns."""
    columns = {name: np.ascontiguousarray(getattr(table, name)) for name in (*_PAIRS, *_LEVELS, *_TIMES)}
    names = {name: [getattr(workload, name) for workload in table.workloads] for name in _NAMES}
    return orjson.dumps({"timestamp": table.timestamp, **names, **columns}, option=_NUMPY)


def decode_workloads(body: bytes) -> WorkloadTable:
    """Decode the JSON object that :func:`encode_workloads` makes.

    Raises:
        WireError: the body is not a table of workloads.
    """
    try:
        document: dict[str, Any] = orjson.loads(body)
        names = zip(*(map(str, document[name]) for name in _NAMES), strict=True)
        workloads = tuple(Workload(*name) for name in names)
        shapes = {**dict.fromkeys(_PAIRS, (2, len(workloads))), **dict.fromkeys(_LEVELS, (2,))}
        columns = {
            name: _column(document[name], shapes.get(name, (len(workloads),))) for name in (*_PAIRS, *_LEVELS, *_TIMES)
        }
        return WorkloadTable(float(document["timestamp"]), workloads, **columns)
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"the document is not a table of workloads: {type(error).__name__}: {error}") from error


def encode_totals(totals: ClusterTotals) -> bytes:
    """Encode the cluster's totals as one JSON object with columns."""
    lines = {name: dict(zip(_RESOURCES, np.ascontiguousarray(getattr(totals, name)), strict=True)) for name in _LINES}
    return orjson.dumps({"times": np.ascontiguousarray(totals.times), **lines}, option=_NUMPY)


def decode_totals(body: bytes) -> ClusterTotals:
    """Decode the JSON object that :func:`encode_totals` makes.

    Raises:
        WireError: the body does not have the cluster's totals.
    """
    try:
        document: dict[str, Any] = orjson.loads(body)
        times = np.array(document["times"], np.float64)
        shape = (len(_RESOURCES), len(times))
        lines = {name: _column([document[name][each] for each in _RESOURCES], shape) for name in _LINES}
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"the document is not the totals of a cluster: {type(error).__name__}: {error}") from error
    return ClusterTotals(times, **lines)


def workload_items(
    index: WorkloadIndex, chosen: Sequence[Workload], daily: DailyUse | None = None
) -> list[dict[str, Any]]:
    """Return some workloads with their containers, as values for JSON.

    Args:
        index: index of the workloads.
        chosen: workloads of the index, in the order of the result.
        daily: use by day; with it, also return each container's use by the hour of the day and by day, UTC.
    """
    table = index.table
    return [
        {
            **workload._asdict(),
            **{name: _number(getattr(table, name)[place]) for name in _TIMES},
            "use": _amounts(table.use[:, place]),
            "deviation": _amounts(table.deviations[:, place]),
            "containers": [
                _container(index.containers, index.recommended, row, daily) for row in index.rows.get(workload, ())
            ],
        }
        for workload in chosen
        for place in [index.places[workload]]
    ]


def _container(table: ContainerTable, recommended: Recommendations, row: int, daily: DailyUse | None) -> dict[str, Any]:
    percentiles = {
        _percent(quantile): _number(table.cpu_percentiles[place, row]) for place, quantile in enumerate(table.quantiles)
    }
    item: dict[str, Any] = {
        "name": table.keys[row].container,
        "requests": _amounts(table.requests[:, row]),
        "limits": _amounts(table.limits[:, row]),
        "role": _ROLES[int(table.roles[row])],
        "use": _amounts(table.use[:, row]),
        "deviation": _amounts(table.deviations[:, row]),
        "cpu_cores_percentiles": percentiles,
        "highest_memory_bytes": _number(table.highest_memory[row]),
        "recommended": _amounts(recommended.requests[:, row]),
        "recommended_limits": _amounts(recommended.limits[:, row]),
        "verdict": _texts(recommended.verdicts[:, row]),
        "reason": _texts(recommended.reasons[:, row]),
        "wasted": _amounts(recommended.wasted[:, row]),
        **{name: _number(getattr(table, name)[row]) for name in (*_TIMES, "revision_since")},
    }
    if daily is not None:
        hours = table.by_hour[:, row]
        item["by_hour"] = {
            name: [_number(value) for value in values] for name, values in zip(_RESOURCES, hours, strict=True)
        }
        item["by_day"] = _by_day(daily, table.keys[row])
    return item


def _by_day(daily: DailyUse, key: ContainerKey) -> dict[str, Any]:
    at = [row for row, other in enumerate(daily.keys) if other == key]  # empty if it was forgotten meanwhile
    return {
        "cpu_cores_percentiles": {
            _percent(quantile): [_number(value) for row in at for value in values[row]]
            for quantile, values in zip(daily.quantiles, daily.cpu, strict=True)
        },
        "highest_memory_bytes": [_number(value) for row in at for value in daily.highest_memory[row]],
    }


def _percent(quantile: float) -> str:
    return f"{100 * quantile:g}"


def _amounts(values: Float64s) -> Mapping[str, float | None]:
    return {name: _number(value) for name, value in zip(_RESOURCES, values, strict=True)}


def _texts(values: Texts) -> Mapping[str, str | None]:
    return {name: text or None for name, text in zip(_RESOURCES, values.tolist(), strict=True)}


def _number(value: float) -> float | None:
    """Return a number for JSON with six digits; None for an unknown number. Bytes and seconds stay whole."""
    number = float(value)  # numpy's functions take many times as long for one number
    if not math.isfinite(number):
        return None
    return float(round(number)) if abs(number) >= 1e5 else float(f"{number:.6g}")


def _column(values: Any, shape: tuple[int, ...]) -> Float64s:
    column = np.array(values, np.float64)
    if column.shape != shape:
        raise ValueError(f"a column has the shape {column.shape}, expected {shape}")
    return column
