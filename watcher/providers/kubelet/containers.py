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

_WAITING = 1  # row of waiting in the CPU contention
_MIN_WAITING = 0.01  # smaller shares are left out, as by the provider Prometheus
_Key = tuple[str, str, str]
_Rates = tuple[float | None, float | None]  # cores in use, and share of time waited for CPU


class ContainerRates:
    """Rates of CPU and of waiting: the growth of a container's counters since the previous call.

    The kubelet's own rates only fill in where a counter has no rate yet: they are of another time, or 0 if the kubelet
    was asked twice within one of its measurements (https://github.com/kubernetes/kubernetes/issues/122092).
    """

    def __init__(self) -> None:
        self._previous: dict[_Key, tuple[ContainerReading, _Rates]] = {}

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
        counted: dict[_Key, tuple[ContainerReading, _Rates]] = {}
        strained = list[tuple[str, str, str, float]]()
        knows_waiting = False
        for reading in (each for of_node in readings.values() for each in of_node if each.at > window.start):
            key = reading[:3]
            cores, waiting = rates = self._rates(key, reading)
            counted[key] = reading, rates
            if cores is None:  # measured once: its memory alone would look like an idle container
                continue
            rows.add(CPU_CORES, *key, cores)
            if reading.memory_bytes is not None:
                rows.add(MEMORY_BYTES, *key, reading.memory_bytes)
            if waiting is not None and not math.isnan(waiting):
                knows_waiting = True
                if waiting > _MIN_WAITING:
                    strained.append((*key, min(waiting, 1.0)))
        self._previous = counted
        unchecked = [f"{THROTTLING}: only Prometheus knows it"]
        if knows_waiting:
            rows.add_strain(_WAITING, strained)
        else:
            unchecked.append(f"{PRESSURE}: the kubelets report none")
        return rows.build(window.end, float(window.end - window.start), findings, unchecked)

    def _rates(self, key: _Key, now: ContainerReading) -> _Rates:
        """Return a container's rates since its previous reading, else the kubelet's own; None where both are unknown.

        If the reading has the time of the previous one, the previous rates are returned.
        """
        before, rates = self._previous.get(key, (now, (None, None)))
        seconds = now.at - before.at
        if seconds == 0 and key in self._previous:
            return rates
        cores = _rate(before.cpu_seconds, now.cpu_seconds, seconds)
        waiting = _rate(before.waiting_seconds, now.waiting_seconds, seconds)
        return now.cpu_cores if cores is None else cores, now.waiting if waiting is None else waiting


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """Return a counter's growth per second; None if a value is unknown, no time passed, or the counter began again."""
    grown = math.nan if before is None or now is None else now - before
    return grown / seconds if seconds > 0 and grown >= 0 else None
