"""Google's clusterdata-2019: a Borg cell over a month, as BigQuery exports its tables.

machine_events*    time (microseconds), machine_id, type (1 add, 2 remove, 3 update), capacity.cpus, capacity.memory
instance_events*   time, type (3 schedule; 4 evict, 5 fail, 6 finish, 7 kill, 8 lost), collection_id, scheduling_class,
                   collection_type (0 job, 1 alloc set), instance_index, machine_id, resource_request.cpus and .memory
instance_usage*    start_time, end_time, collection_id, instance_index, average_usage.cpus and .memory

As newline-delimited JSON (``.json``, ``.json.gz``), which keeps the nested fields and writes whole numbers as text, or
as CSV with a header, for which nested fields were selected one by one: ``resource_request.cpus`` is also found under
``resource_request_cpus``. Rows may be in any order. CPU and memory are parts of the largest machine's, which is taken
to have 64 cores and 256 GiB. Alloc sets are left out, the tasks in them are not.
Source: github.com/google/cluster-data, clusterdata_trace_format_v3.proto and ClusterData2019.md.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trimaran.traces.loaders import events
from trimaran.traces.loaders.dataset import LARGEST_BYTES, LARGEST_MILLI, Format, Machine, Task, Use
from trimaran.traces.loaders.events import Event
from trimaran.traces.loaders.rows import Source, amount

_MICRO = 1e-6
_REMOVE, _SCHEDULE, _ENDS, _ALLOC_SET = 2, 3, frozenset(range(4, 9)), 1


class Google2019(Format):
    """The format."""

    title = "Google clusterdata-2019, exported from BigQuery"
    has_machines, names_machines = True, True
    cpu_level, memory_level = None, 1.0

    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield each machine, as often as it is told of."""

        def parse(row: Mapping[str, Any]) -> Machine | None:
            name = str(row["machine_id"])
            cpu, memory = _nested(row, "capacity", "cpus"), _nested(row, "capacity", "memory")
            if int(row["type"]) == _REMOVE or not cpu > 0:
                return None
            return Machine(name, cpu * LARGEST_MILLI, memory * LARGEST_BYTES)

        for path in source.reading("machine_events"):
            yield from source.records(path, parse)

    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield the runs of tasks on these machines."""

        def parse(row: Mapping[str, Any]) -> tuple[tuple[str, str], Event] | None:
            happened = int(row["type"])
            is_alloc_set = int(row.get("collection_type") or 0) == _ALLOC_SET
            if str(row["machine_id"]) not in machines or is_alloc_set or not _SCHEDULE <= happened <= max(_ENDS):
                return None
            asked = (_nested(row, "resource_request", each) for each in ("cpus", "memory"))
            cpu, memory = (0.0 if each != each else each for each in asked)  # noqa: PLR0124  not-a-number: none asked
            event = Event(
                int(row["time"]) * _MICRO, happened == _SCHEDULE, cpu, memory, int(row.get("scheduling_class") or 0)
            )
            return (str(row["collection_id"]), str(row["instance_index"])), event

        happened: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for path in source.reading("instance_events"):
            for key, event in source.records(path, parse):
                happened[key].append(event)
        yield from events.tasks(happened)

    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield the average use of these tasks."""

        def parse(row: Mapping[str, Any]) -> Use | None:
            key = f"{row['collection_id']}-{row['instance_index']}"
            if key not in requests:
                return None
            cpu, memory = (_nested(row, "average_usage", each) for each in ("cpus", "memory"))
            start, end = int(row["start_time"]) * _MICRO, int(row["end_time"]) * _MICRO
            return Use(key, start, end, cpu * LARGEST_MILLI, memory * LARGEST_BYTES)

        for path in source.reading("instance_usage"):
            yield from source.records(path, parse)


def _nested(row: Mapping[str, Any], outer: str, inner: str) -> float:
    """Return a field of a field, however it was exported; not-a-number where it is empty."""
    held = row.get(outer)
    if isinstance(held, Mapping):
        value = held.get(inner)
    elif f"{outer}.{inner}" in row:
        value = row[f"{outer}.{inner}"]
    elif f"{outer}_{inner}" in row:
        value = row[f"{outer}_{inner}"]
    elif outer in row:
        value = None  # an empty record
    else:
        raise KeyError(f"{outer}.{inner}")
    return float("nan") if value in {None, ""} else amount(value)
