"""Measured CPU and memory use of containers over a window, as columns."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from watcher.findings import Action, Finding, Kind

Float64s = npt.NDArray[np.float64]

CPU_CORES, MEMORY_BYTES = 0, 1
"""Rows of the values of a container, for :class:`ContainerUseBuilder`."""
THROTTLING, PRESSURE = "throttling of CPU", "waiting for CPU (PSI)"
"""Names of the rows of :attr:`ContainerUse.strain`, the CPU contention."""
_NO_STRAIN = tuple(f"{name}: only Prometheus knows it" for name in (THROTTLING, PRESSURE))
_NAMES = ("CPU", "memory")
HIGHEST = (100_000.0, float(2**53))
"""Cores and bytes that no container can use: a higher value has another unit."""


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
        strain: CPU contention: share of the CPU periods in which each container was throttled, and share of the time
            for which it waited for CPU, shape (2, containers); NaN where unknown. None if the source knows neither.
        unchecked: a text for each row of ``strain`` that the source does not know, with the reason.
    """

    timestamp: int
    window_seconds: float
    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    cpu_cores: Float64s
    memory_bytes: Float64s
    findings: tuple[Finding, ...] = ()
    strain: Float64s | None = None
    unchecked: tuple[str, ...] = _NO_STRAIN

    def __len__(self) -> int:
        return len(self.containers)


class ContainerUseBuilder:
    """Builder of a :class:`ContainerUse`: takes values in any order, and drops impossible values."""

    def __init__(self) -> None:
        self._row: dict[tuple[str, str, str], int] = {}
        self._values: tuple[list[float], list[float]] = ([], [])
        self._strain: dict[int, list[tuple[int, float]]] = {}
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
        if not 0 <= value <= HIGHEST[resource]:
            self._dropped[resource] += 1
            self._example[resource] = self._example[resource] or f"{namespace}/{pod}, container {container}: {value:g}"
            return
        row = self._row.setdefault((namespace, pod, container), len(self._row))
        column = self._values[resource]
        if row >= len(column):
            column.extend(repeat(math.nan, row + 1 - len(column)))
        known = column[row]
        column[row] = value if math.isnan(known) or value > known else known

    def add_strain(self, kind: int, strained: Iterable[tuple[str, str, str, float]]) -> None:
        """Add throttling or waiting of containers whose use was added before; all other containers get 0.

        Args:
            kind: 0 for throttling, 1 for waiting.
            strained: namespace, pod and name of containers, and a share of 0 to 1; the highest share counts.
        """
        known = self._strain.setdefault(kind, [])
        known += [(self._row[each[:3]], each[3]) for each in strained if each[:3] in self._row]

    def build(
        self,
        timestamp: int,
        window_seconds: float,
        findings: Sequence[Finding] = (),
        unchecked: Sequence[str] = _NO_STRAIN,
    ) -> ContainerUse:
        """Return the table.

        Args:
            timestamp: end of the window, Unix seconds.
            window_seconds: length of the window that CPU is averaged over.
            findings: findings in addition to those about dropped values.
            unchecked: a text for each row of ``strain`` that is not known, with the reason.
        """
        count = len(self._row)
        cpu, memory = (
            np.fromiter(chain(column, repeat(math.nan, count - len(column))), np.float64, count)
            for column in self._values
        )
        # Unlike zip, these loops let other threads run in between.
        namespaces, pods, containers = (tuple([key[part] for key in self._row]) for part in range(3))
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
        strain = np.full((2, count), np.nan)
        for kind, values in self._strain.items():
            strain[kind] = 0.0
            for row, share in values:
                strain[kind, row] = max(strain[kind, row], share)
        return ContainerUse(
            timestamp, window_seconds, namespaces, pods, containers, cpu, memory, (*findings, *bad),
            strain if self._strain else None, tuple(unchecked),
        )  # fmt: skip
