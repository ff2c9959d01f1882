"""Azure's public data set V2 (2019): virtual machines and their CPU use every five minutes.

vmtable.csv(.gz)                  vm id, subscription id, deployment id, created, deleted (seconds), max CPU, average
                                  CPU, 95th percentile of max CPU, category, bucket of cores, bucket of memory (GB)
vm_cpu_readings-file-*.csv(.gz)   timestamp (seconds), vm id, min CPU, max CPU, average CPU (percent)

The files have no header. The data set has neither physical machines nor memory use: memory belongs to a virtual
machine, so its use is the request. A bucket such as ">24" counts as its number. Owners are deployments;
delay-insensitive virtual machines are jobs.
Source: github.com/Azure/AzurePublicDataset, AzurePublicDatasetV2.md and its notebook, which names the columns.
"""

from collections.abc import Collection, Iterator, Mapping

from trimaran.traces.loaders.dataset import JOB, SERVICE, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import DatasetFiles, amount, number

_GIB = 1024**3
_STEP_SECONDS = 300


class Azure2019(DatasetFormat):
    """Format of Azure's public data set V2."""

    title = "Azure public data set V2 (2019)"
    has_machines, names_machines = False, False
    cpu_level, memory_level = None, 1.0

    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield nothing: the data set has no physical machines."""
        del source
        return iter(())

    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the virtual machines."""
        del machines
        for path in source.reading("vmtable"):
            yield from source.rows(path, _task)

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the CPU readings; a timestamp is the start of its five minutes."""

        def parse(row: list[str]) -> TaskUse | None:
            if row[1] not in requests:
                return None
            start, percent = number(row[0]), number(row[4])
            if not 0 <= percent <= 100:
                raise ValueError(f"{percent} is not a percentage")
            return TaskUse(row[1], start, start + _STEP_SECONDS, percent / 100 * requests[row[1]][0], float("nan"))

        for path in source.reading("vm_cpu_readings"):
            yield from source.rows(path, parse)


def _task(row: list[str]) -> DatasetTask:
    cores, gigabytes = (amount(row[column].lstrip(">")) for column in (9, 10))
    kind = JOB if row[8] == "Delay-insensitive" else SERVICE
    return DatasetTask(row[0], kind, row[2], 1000 * cores, gigabytes * _GIB, number(row[3]), number(row[4]))
