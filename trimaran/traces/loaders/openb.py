"""Alibaba's openb (cluster-trace-gpu-v2023): nodes and pods of a cluster with GPUs, by what they request.

openb_node_list*.csv   sn, cpu_milli, memory_mib, gpu, model
openb_pod_list*.csv    name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time,
                       deletion_time, scheduled_time (seconds)

What pods use is not told: it is taken to be what they request. GPUs are left out. Pods are not grouped; each is a job,
but for those of quality LS (latency sensitive) and Guaranteed.
Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/README.md.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trimaran.traces.loaders.dataset import JOB, SERVICE, Format, Machine, Task, Use
from trimaran.traces.loaders.rows import Source, amount, number

_MIB = 1024**2


class Openb(Format):
    """The format."""

    title = "openb (Alibaba cluster-trace-gpu-v2023)"
    has_machines, names_machines = True, False
    cpu_level, memory_level = 1.0, 1.0

    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield the nodes of the first list: that of all nodes, where it is there."""

        def parse(row: Mapping[str, Any]) -> Machine:
            return Machine(row["sn"], amount(row["cpu_milli"]), amount(row["memory_mib"]) * _MIB)

        for path in source.reading("openb_node_list", source.files("openb_node_list")[:1]):
            yield from source.records(path, parse)

    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield the pods of the default list, or of the first there is."""
        del machines
        files = source.files("openb_pod_list")
        chosen = next((path for path in files if path.name.startswith("openb_pod_list_default")), files[0])

        def parse(row: Mapping[str, Any]) -> Task:
            name, kind = row["name"], SERVICE if row["qos"] in {"LS", "Guaranteed"} else JOB
            end = number(row["deletion_time"]) if row["deletion_time"] else float("inf")
            asked = amount(row["cpu_milli"]), amount(row["memory_mib"]) * _MIB
            return Task(name, kind, name, *asked, number(row["creation_time"]), end)

        for path in source.reading("openb_pod_list", [chosen]):
            yield from source.records(path, parse)

    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield nothing."""
        del source, requests
        return iter(())
