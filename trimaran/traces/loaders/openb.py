"""Alibaba's openb (cluster-trace-gpu-v2023): nodes of a cluster with GPUs, and pods with their requests.

openb_node_list*.csv   sn, cpu_milli, memory_mib, gpu, model
openb_pod_list*.csv    name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time,
                       deletion_time, scheduled_time (seconds)

The data set has no measured use: each pod is assumed to use exactly its requests. GPUs are left out. Each pod is its
own owner. A pod counts as a job unless its QoS is LS (latency sensitive) or Guaranteed.
Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/README.md.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trimaran.traces.loaders.dataset import JOB, SERVICE, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import DatasetFiles, amount, number

_MIB = 1024**2


class Openb(DatasetFormat):
    """Format of Alibaba's openb."""

    title = "openb (Alibaba cluster-trace-gpu-v2023)"
    has_machines, names_machines = True, False
    cpu_level, memory_level = 1.0, 1.0

    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield the nodes of the first list, which is the list of all nodes if the data set has it."""

        def parse(row: Mapping[str, Any]) -> Machine:
            return Machine(row["sn"], amount(row["cpu_milli"]), amount(row["memory_mib"]) * _MIB)

        for path in source.reading("openb_node_list", source.files("openb_node_list")[:1]):
            yield from source.records(path, parse)

    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the pods of the default list, or of the first list."""
        del machines
        files = source.files("openb_pod_list")
        selected = next((path for path in files if path.name.startswith("openb_pod_list_default")), files[0])

        def parse(row: Mapping[str, Any]) -> DatasetTask:
            name, kind = row["name"], SERVICE if row["qos"] in {"LS", "Guaranteed"} else JOB
            end = number(row["deletion_time"]) if row["deletion_time"] else float("inf")
            requests = amount(row["cpu_milli"]), amount(row["memory_mib"]) * _MIB
            return DatasetTask(name, kind, name, *requests, number(row["creation_time"]), end)

        for path in source.reading("openb_pod_list", [selected]):
            yield from source.records(path, parse)

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield nothing: the data set has no measured CPU or memory use."""
        del source, requests
        return iter(())
