"""Alibaba's cluster-trace-v2018: containers of services on 4,000 machines over 8 days.

machine_meta.csv      machine, time (seconds), failure domain 1 and 2, cores, memory (100 is the largest), status
container_meta.csv    container, machine, time, deploy unit, status, CPU request and limit (100 is a core), memory
container_usage.csv   container, machine, time, CPU and memory use in percent, ...

Packed files (``container_usage.tar.gz``) are accepted too. The files have no header. CPU use is a percentage of the
container's request, memory use of its size; the publisher marks invalid values with -1 and 101. A container runs from
its first to its last use. Batch jobs (batch_instance.csv) are left out, as they have only averages over their lifetime.
The largest machine is assumed to have 256 GiB.
Source: github.com/alibaba/clusterdata, cluster-trace-v2018/schema.txt and trace_2018.md.
"""

from collections.abc import Collection, Iterator, Mapping

from trimaran.traces.loaders.dataset import LARGEST_BYTES, SERVICE, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import DatasetFiles, amount, number

_MEMORY_UNIT = LARGEST_BYTES / 100
_MILLI_UNIT = 10.0
_INTERVAL_SECONDS = 300  # largest usual distance between two values of a container


class Alibaba2018(DatasetFormat):
    """Format of Alibaba's cluster-trace-v2018."""

    title = "Alibaba cluster-trace-v2018"
    has_machines, names_machines = True, True
    cpu_level, memory_level = None, 1.0

    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield each machine, once for each of its rows."""

        def parse(row: list[str]) -> Machine:
            return Machine(row[0], 1000 * amount(row[4]), amount(row[5]) * _MEMORY_UNIT)

        for path in source.reading("machine_meta"):
            yield from source.rows(path, parse)

    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the containers of these machines, each once, from its first row."""
        seen: set[str] = set()

        def parse(row: list[str]) -> DatasetTask | None:
            if row[1] not in machines or row[0] in seen:
                return None
            task = DatasetTask(
                row[0], SERVICE, row[3], amount(row[5]) * _MILLI_UNIT, amount(row[7]) * _MEMORY_UNIT, None
            )
            seen.add(row[0])
            return task

        for path in source.reading("container_meta"):
            yield from source.rows(path, parse)

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the CPU and memory use of the wanted containers; each value holds for the data set's usual interval."""

        def parse(row: list[str]) -> TaskUse | None:
            amounts = requests.get(row[0])
            if amounts is None:
                return None
            start = number(row[2])
            cpu, memory = (_share(row[column]) * request for column, request in zip((3, 4), amounts, strict=True))
            return TaskUse(row[0], start, start + _INTERVAL_SECONDS, cpu, memory)

        for path in source.reading("container_usage"):
            yield from source.rows(path, parse)


def _share(text: str) -> float:
    percent = float(text or "nan")
    return percent / 100 if 0 <= percent <= 100 else float("nan")
