"""Google's clusterdata-2011-2: 29 days of a Borg cell.

machine_events/part-*.csv(.gz)   time (microseconds), machine, event (0 add, 1 remove, 2 update), platform, CPU, memory
task_events/part-*.csv(.gz)      time, missing info, job, task index, machine, event (1 schedule, 2 evict, 3 fail,
                                 4 finish, 5 kill, 6 lost), user, scheduling class, priority, CPU, memory and disk
                                 requests, different machines
task_usage/part-*.csv(.gz)       start, end, job, task index, machine, CPU rate, canonical memory use, ... (20 columns)

The files have no header. CPU and memory are relative to the largest machine, which is assumed to have 64 cores and
256 GiB. A machine has its first capacity in the data set; machines are not added or removed over time.
Source: Google cluster-usage traces: format + schema, version 2.1 (Reiss, Wilkes, Hellerstein).
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from trimaran.traces.loaders.dataset import LARGEST_BYTES, LARGEST_MILLI, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import DatasetFiles, amount, amount_or_nan, number
from trimaran.traces.loaders.task_events import TaskEvent, task_runs

_MICRO = 1e-6
_SCHEDULE, _ENDS = "1", frozenset("23456")


class Google2011(DatasetFormat):
    """Format of Google's clusterdata-2011-2."""

    title = "Google clusterdata-2011-2"
    has_machines, names_machines = True, True
    cpu_level, memory_level = None, 1.0

    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield each machine, once for each of its events."""

        def parse(row: list[str]) -> Machine | None:
            if row[2] == "1" or not row[4]:
                return None
            return Machine(row[1], amount(row[4]) * LARGEST_MILLI, amount(row[5]) * LARGEST_BYTES)

        for path in source.reading("machine_events"):
            yield from source.rows(path, parse)

    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the runs of tasks on these machines."""

        def parse(row: list[str]) -> tuple[tuple[str, str], TaskEvent] | None:
            if row[4] not in machines or not (row[5] == _SCHEDULE or row[5] in _ENDS):
                return None
            requests = amount(row[9] or 0), amount(row[10] or 0)
            return (row[2], row[3]), TaskEvent(number(row[0]) * _MICRO, row[5] == _SCHEDULE, *requests, int(row[7]))

        files = source.reading("task_events")
        yield from task_runs(chain.from_iterable(source.rows(path, parse) for path in files))

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the CPU and memory use of the wanted tasks."""

        def parse(row: list[str]) -> TaskUse | None:
            key = f"{row[2]}-{row[3]}"
            if key not in requests:
                return None
            cpu, memory = (amount_or_nan(row[column]) for column in (5, 6))
            start, end = (number(row[column]) * _MICRO for column in (0, 1))
            return TaskUse(key, start, end, cpu * LARGEST_MILLI, memory * LARGEST_BYTES)

        for path in source.reading("task_usage"):
            yield from source.rows(path, parse)
