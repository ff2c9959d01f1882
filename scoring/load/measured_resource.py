"""Resources whose load is measured, each with the metric type of its load.

Upstream has CPU and memory only. The formulas treat network, disk and GPU in the same way: they need the node's load in
percent of capacity, the node's capacity and the pod's request (docs/scores.md lists the sources of capacity and
request).
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

import numpy as np

from runtime.kubernetes.objects import CPU, DISK, GPU, MEMORY, NETWORK
from scoring.arguments import Between, CheckedArguments, Distinct, Problems, not_empty
from scoring.arrays import Float64s, Int64s
from watcher.model import MetricType

MIB = 1.0 / 1024 / 1024


@dataclass(frozen=True, slots=True)
class MeasuredResource(CheckedArguments):
    """Resource and the metric of its load.

    Attributes:
        name: name of the Kubernetes resource, a key of requests and allocatable.
        metric_type: type of the metrics of its load, such as ``CPU``.
        scale: factor from the units of requests to the units of the formulas: bytes to MiB for memory, as upstream
            computes; 1 for all others.
    """

    name: Annotated[str, not_empty]
    metric_type: Annotated[str, not_empty]
    scale: Annotated[float, Between(0, above=True)] = 1.0

    def scaled(self, amounts: Int64s | Float64s) -> Float64s:
        """Convert amounts from the units of requests to the units of the formulas, as float64."""
        return np.multiply(amounts, self.scale, dtype=np.float64)


CPU_LOAD = MeasuredResource(CPU, MetricType.CPU)
MEMORY_LOAD = MeasuredResource(MEMORY, MetricType.MEMORY, MIB)
NETWORK_LOAD = MeasuredResource(NETWORK, MetricType.BANDWIDTH)
DISK_LOAD = MeasuredResource(DISK, MetricType.STORAGE)
GPU_LOAD = MeasuredResource(GPU, MetricType.GPU)

CPU_AND_MEMORY = (CPU_LOAD, MEMORY_LOAD)
MEASURED_RESOURCES = {r.name: r for r in (CPU_LOAD, MEMORY_LOAD, NETWORK_LOAD, DISK_LOAD, GPU_LOAD)}
MeasuredResources = Annotated[tuple[MeasuredResource, ...], not_empty, Distinct(attrgetter("name"))]
"""Resources that a plugin considers: at least one, none twice."""


def measured(name: object) -> Problems:
    """Constraint: the name of a resource whose load is measured."""
    if name not in MEASURED_RESOURCES:
        yield "", f"{name!r} has no measured load; known: {', '.join(MEASURED_RESOURCES)}"
