"""Measured CPU and memory use of containers over a window, as columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from watcher.findings import Action, Finding, Kind

Float64s = npt.NDArray[np.float64]

CPU_CORES, MEMORY_BYTES = 0, 1
"""Rows of the values of a container, for :class:`ContainerUseBuilder`."""
_NAMES = ("CPU", "memory")
_HIGHEST = (100_000.0, float(2**53))  # more than any container can use: such a value has another unit


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


class ContainerUseBuilder:
    """Builder of a :class:`ContainerUse`: takes values in any order, and drops those that cannot be right."""

    def __init__(self) -> None:
        self._row: dict[tuple[str, str, str], int] = {}
        self._values: tuple[list[float], list[float]] = ([], [])
        self._dropped = [0, 0]
        self._example = ["", ""]

    def add(self, resource: int, namespace: str, pod: str, container: str, value: float) -> None:
        """Add a container's use; of several values for one container the highest counts.

        Args:
            resource: :data:`CPU_CORES` or :data:`MEMORY_BYTES`.
            namespace: namespace of the pod.
            pod: name of the pod.
            container: name of the container.
            value: cores or bytes; negative, infinite and huge values and NaN are dropped.
        """
        if not 0 <= value <= _HIGHEST[resource]:
            self._dropped[resource] += 1
            self._example[resource] = self._example[resource] or f"{namespace}/{pod}, container {container}: {value:g}"
            return
        row = self._row.setdefault((namespace, pod, container), len(self._row))
        column = self._values[resource]
        if row >= len(column):
            column.extend(repeat(math.nan, row + 1 - len(column)))
        known = column[row]
        column[row] = value if math.isnan(known) or value > known else known

    def build(self, timestamp: int, window_seconds: float, findings: Sequence[Finding] = ()) -> ContainerUse:
        """Return the table.

        Args:
            timestamp: end of the window, Unix seconds.
            window_seconds: length of the window that CPU is averaged over.
            findings: findings in addition to those about dropped values.
        """
        count = len(self._row)
        cpu, memory = (
            np.fromiter(chain(column, repeat(math.nan, count - len(column))), np.float64, count)
            for column in self._values
        )
        namespaces, pods, containers = zip(*self._row, strict=True) if count else ((), (), ())
        bad = [
            Finding(
                Kind.BAD_VALUE,
                f"{dropped} values of the {name} of containers are negative, too large or not numbers, such as "
                f"{example}",
                action=Action.DROPPED,
            )
            for name, dropped, example in zip(_NAMES, self._dropped, self._example, strict=True)
            if dropped
        ]
        return ContainerUse(timestamp, window_seconds, namespaces, pods, containers, cpu, memory, (*findings, *bad))
