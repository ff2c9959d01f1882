"""Azure's public data set V2 (2019): virtual machines, and their CPU use in steps of five minutes.

vmtable.csv(.gz)                  vm id, subscription id, deployment id, created, deleted (seconds), max CPU, average
                                  CPU, 95th percentile of max CPU, category, bucket of cores, bucket of memory (GB)
vm_cpu_readings-file-*.csv(.gz)   timestamp (seconds), vm id, min CPU, max CPU, average CPU (percent)

No file has a header. Physical machines are not told, nor the use of memory, which is a virtual machine's own: what
it requests is what it uses. Buckets such as ">24" are taken by their number. A deployment is an owner;
delay-insensitive ones are jobs.
Source: github.com/Azure/AzurePublicDataset, AzurePublicDatasetV2.md and its notebook, which names the columns.
"""

from collections.abc import Collection, Iterator, Mapping

from trimaran.traces.loaders.dataset import JOB, SERVICE, Format, Machine, Task, Use
from trimaran.traces.loaders.rows import Source, amount, number

_GIB = 1024**3
_STEP_SECONDS = 300


class Azure2019(Format):
    """The format."""

    title = "Azure public data set V2 (2019)"
    has_machines, names_machines = False, False
    cpu_level, memory_level = None, 1.0

    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield nothing."""
        del source
        return iter(())

    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield the virtual machines."""
        del machines
        for path in source.reading("vmtable"):
            yield from source.rows(path, _task)

    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield the readings; a timestamp begins its five minutes."""

        def parse(row: list[str]) -> Use | None:
            if row[1] not in requests:
                return None
            start, percent = number(row[0]), number(row[4])
            if not 0 <= percent <= 100:
                raise ValueError(f"{percent} is no percentage")
            return Use(row[1], start, start + _STEP_SECONDS, percent / 100 * requests[row[1]][0], float("nan"))

        for path in source.reading("vm_cpu_readings"):
            yield from source.rows(path, parse)


def _task(row: list[str]) -> Task:
    cores, gigabytes = (amount(row[place].lstrip(">")) for place in (9, 10))
    kind = JOB if row[8] == "Delay-insensitive" else SERVICE
    return Task(row[0], kind, row[2], 1000 * cores, gigabytes * _GIB, number(row[3]), number(row[4]))
