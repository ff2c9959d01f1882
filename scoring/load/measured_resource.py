"""Resources whose load is measured: which metric belongs to which Kubernetes resource.

CPU and memory are what upstream knows. Network, disk and GPU are the same to the formulas: a measured percent of
capacity, a capacity on the node, a demand of the pod (see docs/scores.md for where the last two come from).
"""

from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import CPU, DISK, GPU, MEMORY, NETWORK
from scoring.arrays import Float64s, Int64s
from watcher.model import MetricType

MIB = 1.0 / 1024 / 1024


@dataclass(frozen=True, slots=True)
class MeasuredResource:
    """A resource and its metric.

    Attributes:
        name: the Kubernetes resource, a key of requests and allocatable.
        metric_type: the type of its metrics.
        scale: factor from whole units to what the formulas compute in; upstream computes memory in MiB.
    """

    name: str
    metric_type: str
    scale: float = 1.0

    def scaled(self, amounts: Int64s | Float64s) -> Float64s:
        """Return amounts in the formulas' unit."""
        return np.multiply(amounts, self.scale, dtype=np.float64)


CPU_LOAD = MeasuredResource(CPU, MetricType.CPU)
MEMORY_LOAD = MeasuredResource(MEMORY, MetricType.MEMORY, MIB)
NETWORK_LOAD = MeasuredResource(NETWORK, MetricType.BANDWIDTH)
DISK_LOAD = MeasuredResource(DISK, MetricType.STORAGE)
GPU_LOAD = MeasuredResource(GPU, MetricType.GPU)

CPU_AND_MEMORY = (CPU_LOAD, MEMORY_LOAD)
MEASURED_RESOURCES = {r.name: r for r in (CPU_LOAD, MEMORY_LOAD, NETWORK_LOAD, DISK_LOAD, GPU_LOAD)}
