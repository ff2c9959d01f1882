"""Google's clusterdata-2011-2: a Borg cell over 29 days.

machine_events/part-*.csv(.gz)   time (microseconds), machine, event (0 add, 1 remove, 2 update), platform, CPU, memory
task_events/part-*.csv(.gz)      time, missing info, job, task index, machine, event (1 schedule, 2 evict, 3 fail,
                                 4 finish, 5 kill, 6 lost), user, scheduling class, priority, CPU, memory and disk
                                 requests, different machines
task_usage/part-*.csv(.gz)       start, end, job, task index, machine, CPU rate, canonical memory use, ... (20 columns)

No file has a header. CPU and memory are parts of the largest machine's, which is taken to have 64 cores and 256 GiB.
Machines are those of the first capacity that is told; machines that come and go stay.
Source: Google cluster-usage traces: format + schema, version 2.1 (Reiss, Wilkes, Hellerstein).
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from trimaran.traces.loaders import events
from trimaran.traces.loaders.dataset import LARGEST_BYTES, LARGEST_MILLI, Format, Machine, Task, Use
from trimaran.traces.loaders.events import Event
from trimaran.traces.loaders.rows import Source, amount, amount_or_nan, number

_MICRO = 1e-6
_SCHEDULE, _ENDS = "1", frozenset("23456")


class Google2011(Format):
    """The format."""

    title = "Google clusterdata-2011-2"
    has_machines, names_machines = True, True
    cpu_level, memory_level = None, 1.0

    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield each machine, as often as it is told of."""

        def parse(row: list[str]) -> Machine | None:
            if row[2] == "1" or not row[4]:
                return None
            return Machine(row[1], amount(row[4]) * LARGEST_MILLI, amount(row[5]) * LARGEST_BYTES)

        for path in source.reading("machine_events"):
            yield from source.rows(path, parse)

    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield the runs of tasks on these machines."""

        def parse(row: list[str]) -> tuple[tuple[str, str], Event] | None:
            if row[4] not in machines or not (row[5] == _SCHEDULE or row[5] in _ENDS):
                return None
            asked = amount(row[9] or 0), amount(row[10] or 0)
            return (row[2], row[3]), Event(number(row[0]) * _MICRO, row[5] == _SCHEDULE, *asked, int(row[7]))

        happened: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for path in source.reading("task_events"):
            for key, event in source.rows(path, parse):
                happened[key].append(event)
        yield from events.tasks(happened)

    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield the use of these tasks."""

        def parse(row: list[str]) -> Use | None:
            key = f"{row[2]}-{row[3]}"
            if key not in requests:
                return None
            cpu, memory = (amount_or_nan(row[place]) for place in (5, 6))
            start, end = (number(row[place]) * _MICRO for place in (0, 1))
            return Use(key, start, end, cpu * LARGEST_MILLI, memory * LARGEST_BYTES)

        for path in source.reading("task_usage"):
            yield from source.rows(path, parse)
