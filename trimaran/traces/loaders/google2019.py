"""Google's clusterdata-2019: a month of a Borg cell, in tables exported from BigQuery.

machine_events*    time (microseconds), machine_id, type (1 add, 2 remove, 3 update), capacity.cpus, capacity.memory
instance_events*   time, type (3 schedule; 4 evict, 5 fail, 6 finish, 7 kill, 8 lost), collection_id, scheduling_class,
                   collection_type (0 job, 1 alloc set), instance_index, machine_id, resource_request.cpus and .memory
instance_usage*    start_time, end_time, collection_id, instance_index, average_usage.cpus and .memory

The files are newline-delimited JSON (``.json``, ``.json.gz``), which keeps nested fields and writes whole numbers as
text, or CSV with a header and nested fields as columns, either ``resource_request.cpus`` or ``resource_request_cpus``.
Rows may be in any order. CPU and memory are relative to the largest machine, which is assumed to have 64 cores and
256 GiB. Alloc sets are left out; the tasks in them are included.
Source: github.com/google/cluster-data, clusterdata_trace_format_v3.proto and ClusterData2019.md.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from math import isnan
from typing import Any

from trimaran.traces.loaders.dataset import LARGEST_BYTES, LARGEST_MILLI, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import DatasetFiles, amount
from trimaran.traces.loaders.task_events import TaskEvent, task_runs

_MICRO = 1e-6
_REMOVE, _SCHEDULE, _ENDS, _ALLOC_SET = 2, 3, frozenset(range(4, 9)), 1


class Google2019(DatasetFormat):
    """Format of Google's clusterdata-2019."""

    title = "Google clusterdata-2019, exported from BigQuery"
    has_machines, names_machines = True, True
    cpu_level, memory_level = None, 1.0

    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield each machine, once for each of its events."""

        def parse(row: Mapping[str, Any]) -> Machine | None:
            name = str(row["machine_id"])
            cpu, memory = _nested(row, "capacity", "cpus"), _nested(row, "capacity", "memory")
            if int(row["type"]) == _REMOVE or not cpu > 0:
                return None
            return Machine(name, cpu * LARGEST_MILLI, memory * LARGEST_BYTES)

        for path in source.reading("machine_events"):
            yield from source.records(path, parse)

    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the runs of tasks on these machines."""

        def parse(row: Mapping[str, Any]) -> tuple[tuple[str, str], TaskEvent] | None:
            kind = int(row["type"])
            is_alloc_set = int(row.get("collection_type") or 0) == _ALLOC_SET
            if str(row["machine_id"]) not in machines or is_alloc_set or not _SCHEDULE <= kind <= max(_ENDS):
                return None
            requests = (_nested(row, "resource_request", field) for field in ("cpus", "memory"))
            cpu, memory = (0.0 if isnan(request) else request for request in requests)
            event = TaskEvent(
                int(row["time"]) * _MICRO, kind == _SCHEDULE, cpu, memory, int(row.get("scheduling_class") or 0)
            )
            return (str(row["collection_id"]), str(row["instance_index"])), event

        files = source.reading("instance_events")
        yield from task_runs(chain.from_iterable(source.records(path, parse) for path in files))

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the average CPU and memory use of the wanted tasks."""

        def parse(row: Mapping[str, Any]) -> TaskUse | None:
            key = f"{row['collection_id']}-{row['instance_index']}"
            if key not in requests:
                return None
            cpu, memory = (_nested(row, "average_usage", field) for field in ("cpus", "memory"))
            start, end = int(row["start_time"]) * _MICRO, int(row["end_time"]) * _MICRO
            return TaskUse(key, start, end, cpu * LARGEST_MILLI, memory * LARGEST_BYTES)

        for path in source.reading("instance_usage"):
            yield from source.records(path, parse)


def _nested(row: Mapping[str, Any], outer: str, inner: str) -> float:
    """Return a nested field, from JSON or from a CSV column; NaN if it is empty."""
    record = row.get(outer)
    if isinstance(record, Mapping):
        value = record.get(inner)
    elif f"{outer}.{inner}" in row:
        value = row[f"{outer}.{inner}"]
    elif f"{outer}_{inner}" in row:
        value = row[f"{outer}_{inner}"]
    elif outer in row:
        value = None  # an empty record
    else:
        raise KeyError(f"{outer}.{inner}")
    return float("nan") if value in {None, ""} else amount(value)
