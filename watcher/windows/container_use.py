"""Measured CPU and memory use of containers over a window, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watcher.findings import Finding

Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ContainerUse:
    """Use of every container of a cluster over a window; each container has one row.

    NaN stands for an unknown amount, as of a pod that was measured only once; other values are finite and at least 0.

    Attributes:
        timestamp: end of the window, Unix seconds.
        window_seconds: length of the window that CPU is averaged over.
        namespaces: namespace of each container's pod.
        pods: name of each container's pod.
        containers: name of each container.
        cpu_cores: mean use of CPU in the window, shape (containers,).
        memory_bytes: highest known working set in the window, shape (containers,).
        findings: problems that leave the other rows usable.
    """

    timestamp: int
    window_seconds: float
    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    cpu_cores: Float64s
    memory_bytes: Float64s
    findings: tuple[Finding, ...] = ()

    def __len__(self) -> int:
        return len(self.containers)
