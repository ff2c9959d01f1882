"""Use of containers from the readings of kubelets."""

import math
from collections.abc import Mapping, Sequence

from watcher.findings import Finding
from watcher.model import Window
from watcher.providers.kubelet.readings import ContainerReading
from watcher.windows.container_use import (
    CPU_CORES,
    MEMORY_BYTES,
    PRESSURE,
    THROTTLING,
    ContainerUse,
    ContainerUseBuilder,
)

_WAITING = 1  # row of the strain
_MIN_WAITING = 0.01  # as for Prometheus
_Key = tuple[str, str, str]


class ContainerRates:
    """Rates of CPU, for kubelets that report counters only: each is the growth since the previous call."""

    def __init__(self) -> None:
        self._previous: dict[_Key, ContainerReading] = {}

    def use(
        self, readings: Mapping[str, Sequence[ContainerReading]], window: Window, findings: Sequence[Finding]
    ) -> ContainerUse:
        """Return the use of all containers that were measured within the window.

        Args:
            readings: node name to the readings of its containers.
            window: the window.
            findings: findings to pass on.
        """
        rows = ContainerUseBuilder()
        counted: dict[_Key, ContainerReading] = {}
        waiting = list[tuple[str, str, str, float]]()
        knows_waiting = False
        for reading in (each for of_node in readings.values() for each in of_node if each.at > window.start):
            key = reading[:3]
            cores = reading.cpu_cores
            if cores is None and reading.cpu_seconds is not None:
                cores = self._rate(key, reading)
                counted[key] = reading
            if cores is None:  # measured once: its memory alone would look like an idle container
                continue
            rows.add(CPU_CORES, *key, cores)
            if reading.memory_bytes is not None:
                rows.add(MEMORY_BYTES, *key, reading.memory_bytes)
            if reading.waiting is not None and not math.isnan(reading.waiting):
                knows_waiting = True
                if reading.waiting > _MIN_WAITING:
                    waiting.append((*key, min(reading.waiting, 1.0)))
        self._previous = counted
        unchecked = [f"{THROTTLING}: only Prometheus knows it"]
        if knows_waiting:
            rows.add_strain(_WAITING, waiting)
        else:
            unchecked.append(f"{PRESSURE}: the kubelets report none")
        return rows.build(window.end, float(window.end - window.start), findings, unchecked)

    def _rate(self, key: _Key, now: ContainerReading) -> float | None:
        """Return the cores in use since the previous reading; None without one, or after a restart."""
        before = self._previous.get(key)
        if before is None or before.cpu_seconds is None or now.cpu_seconds is None or now.at <= before.at:
            return None
        grown = now.cpu_seconds - before.cpu_seconds
        return grown / (now.at - before.at) if grown >= 0 else None
