"""Alibaba's cluster-trace-v2018: services' containers on 4,000 machines over 8 days.

machine_meta.csv      machine, time (seconds), failure domain 1 and 2, cores, memory (100 is the largest), status
container_meta.csv    container, machine, time, deploy unit, status, CPU request and limit (100 is a core), memory
container_usage.csv   container, machine, time, CPU and memory use in percent, ...

Also as they are packed (``container_usage.tar.gz``). No file has a header. CPU use is read as percent of the
container's request, memory use as percent of its size; -1 and 101 are the publisher's marks of values that are none. A
container is there while its use is told. Batch jobs (batch_instance.csv) have averages over their life only, and are
left out. The largest machine is taken to have 256 GiB.
Source: github.com/alibaba/clusterdata, cluster-trace-v2018/schema.txt and trace_2018.md.
"""

from collections.abc import Collection, Iterator, Mapping

from trimaran.traces.loaders.dataset import LARGEST_BYTES, SERVICE, Format, Machine, Task, Use
from trimaran.traces.loaders.rows import Source, amount, number

_MEMORY_UNIT = LARGEST_BYTES / 100
_MILLI_UNIT = 10.0
_INTERVAL_SECONDS = 300  # no two values of a container are farther apart as a rule


class Alibaba2018(Format):
    """The format."""

    title = "Alibaba cluster-trace-v2018"
    has_machines, names_machines = True, True
    cpu_level, memory_level = None, 1.0

    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield each machine, as often as it is told of."""

        def parse(row: list[str]) -> Machine:
            return Machine(row[0], 1000 * amount(row[4]), amount(row[5]) * _MEMORY_UNIT)

        for path in source.reading("machine_meta"):
            yield from source.rows(path, parse)

    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield the containers of these machines, each once, by the first that is told of it."""
        seen: set[str] = set()

        def parse(row: list[str]) -> Task | None:
            if row[1] not in machines or row[0] in seen:
                return None
            made = Task(row[0], SERVICE, row[3], amount(row[5]) * _MILLI_UNIT, amount(row[7]) * _MEMORY_UNIT, None)
            seen.add(row[0])
            return made

        for path in source.reading("container_meta"):
            yield from source.rows(path, parse)

    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield the use of these containers; a value is taken to last until the next is due."""

        def parse(row: list[str]) -> Use | None:
            asked = requests.get(row[0])
            if asked is None:
                return None
            start = number(row[2])
            cpu, memory = (_part(row[place]) * most for place, most in zip((3, 4), asked, strict=True))
            return Use(row[0], start, start + _INTERVAL_SECONDS, cpu, memory)

        for path in source.reading("container_usage"):
            yield from source.rows(path, parse)


def _part(text: str) -> float:
    percent = float(text or "nan")
    return percent / 100 if 0 <= percent <= 100 else float("nan")
