"""Past use of containers over a day, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class PastContainerUse:
    """Use of some containers of a cluster in steps of some minutes, up to a day.

    Attributes:
        ends: ends of the steps, Unix seconds.
        namespaces: namespace of each container's pod.
        pods: name of each container's pod.
        containers: name of each container.
        cpu_cores: mean use of CPU in each step, shape (containers, steps); NaN where unknown.
        memory_bytes: mean and highest working set of the whole time, shape (2, containers); NaN where unknown.
    """

    ends: range
    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    cpu_cores: npt.NDArray[np.float32]
    memory_bytes: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.containers)
