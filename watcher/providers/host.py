"""The local machine, measured with psutil: the default provider of the embedded watcher where there is no cluster.

CPU is the busy share of all processors between two samples; Memory is the share that is not available; Storage is the
share of time that the busiest disk spent on input and output; Bandwidth is the busier direction of the busiest link of
known speed. The pressures are the shares of time in which tasks waited, where the kernel counts them.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from runtime.http.gather import Deadline
from watcher.model import PRESSURES, MetricType
from watcher.providers.base import Check, Reading, Sample
from watcher.providers.kernel_pressure import read_pressure
from watcher.settings import Settings

_FIRST_SPAN_SECONDS = 0.2
_BITS_PER_MEGABIT = 1_000_000
_PRESSURE_NAMES = {type_: f"host:{resource}_{kind}_pressure:percent" for (resource, kind), type_ in PRESSURES.items()}


@dataclass(frozen=True, slots=True)
class _Counters:
    """Readings of counters that grow from the boot of the machine on; the difference of two readings gives a rate."""

    at: float
    cpu_busy_milliseconds: int
    cpu_milliseconds: int
    disk_busy_seconds: Mapping[str, float]
    link_bytes: Mapping[str, tuple[int, int]]
    pressure_seconds: Mapping[MetricType, float]


class HostProvider:
    """Provider that samples the local machine."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._node_name = settings.host.node_name
        self._clock = clock
        self._previous: _Counters | None = None
        self._lock = threading.Lock()

    @property
    def pressure_absence(self) -> str:
        """The reason why the kernel does not count pressure; empty if it does."""
        return read_pressure().absence

    def sample(self, deadline: Deadline) -> Mapping[str, Sample]:
        """Return the load since the last sample; the first sample covers a fifth of a second."""
        del deadline  # not needed: local calls do not wait
        with self._lock:
            if self._previous is None:
                self._previous = _count()
                time.sleep(_FIRST_SPAN_SECONDS)
            before, now = self._previous, _count()
            self._previous = now
        return {self._node_name: Sample(self._clock(), tuple(_readings(before, now)))}

    def check(self) -> Iterator[Check]:
        """Yield one step: reading the machine's load."""
        readings = self.sample(Deadline.after(1))[self._node_name].readings
        seen = ", ".join(f"{reading.type} {reading.value:.1f} %" for reading in readings)
        yield Check("read this machine", ok=True, message=f"{self._node_name}: {seen}", setting="host.node_name")


def _readings(before: _Counters, now: _Counters) -> Iterator[Reading]:
    # After a reset of counters the difference is meaningless: windows drop and count values that are out of range.
    elapsed = now.at - before.at
    cpu_milliseconds = now.cpu_milliseconds - before.cpu_milliseconds
    if cpu_milliseconds > 0:
        busy = now.cpu_busy_milliseconds - before.cpu_busy_milliseconds
        yield Reading("host:cpu:percent", MetricType.CPU, 100 * busy / cpu_milliseconds)
    memory = psutil.virtual_memory()
    yield Reading("host:memory:percent", MetricType.MEMORY, 100 - 100 * memory.available / memory.total)
    if elapsed <= 0:
        return
    disks = [
        (seconds - before.disk_busy_seconds[disk]) / elapsed
        for disk, seconds in now.disk_busy_seconds.items()
        if disk in before.disk_busy_seconds
    ]
    if disks:
        yield Reading("host:disk_busy:percent", MetricType.STORAGE, 100 * max(disks))
    speeds = {link: status.speed for link, status in psutil.net_if_stats().items() if status.speed > 0}
    links = [
        max(new - old for new, old in zip(now.link_bytes[link], before.link_bytes[link], strict=True))
        * 8 / (elapsed * speed * _BITS_PER_MEGABIT)
        for link, speed in speeds.items()
        if link in now.link_bytes and link in before.link_bytes
    ]  # fmt: skip
    if links:
        yield Reading("host:network:percent", MetricType.BANDWIDTH, 100 * max(links))
    for type_, seconds in now.pressure_seconds.items():
        if type_ in before.pressure_seconds:
            share = (seconds - before.pressure_seconds[type_]) / elapsed
            yield Reading(_PRESSURE_NAMES[type_], type_, 100 * share)


def _count() -> _Counters:
    times = psutil.cpu_times()
    # Guest time is already part of user time, and waiting for a disk counts as idle, as in node_exporter's rules.
    # Sums of seconds would round: a machine busy all the time would be a little over 100 % busy, an idle one below 0.
    spent = {state: round(1000 * seconds) for state, seconds in times._asdict().items()}
    total = sum(spent.values()) - spent.get("guest", 0) - spent.get("guest_nice", 0)
    idle = spent["idle"] + spent.get("iowait", 0) + spent.get("steal", 0)
    disks: Mapping[str, Any] = {}
    links: Mapping[str, Any] = {}
    with contextlib.suppress(NotImplementedError, OSError):  # some sandboxes have no /proc/diskstats
        disks = psutil.disk_io_counters(perdisk=True) or {}
    with contextlib.suppress(NotImplementedError, OSError):
        links = psutil.net_io_counters(pernic=True) or {}
    return _Counters(
        at=time.monotonic(),
        cpu_busy_milliseconds=total - idle,
        cpu_milliseconds=total,
        disk_busy_seconds={
            disk: counters.busy_time / 1000 for disk, counters in disks.items() if hasattr(counters, "busy_time")
        },
        link_bytes={link: (counters.bytes_sent, counters.bytes_recv) for link, counters in links.items()},
        pressure_seconds=read_pressure().seconds,
    )
