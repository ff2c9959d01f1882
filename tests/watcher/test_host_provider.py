"""Tests of the provider Host on this machine."""

import math
from collections import namedtuple

import psutil
import pytest

from runtime.http.gather import Deadline
from watcher.doctor.examination import examine
from watcher.model import MetricType
from watcher.providers.base import Check, SampleProvider, open_provider
from watcher.providers.host import HostProvider
from watcher.providers.kernel_pressure import Pressure, read_pressure
from watcher.settings import HostSettings, ProviderSettings, Settings


def provider(name: str = "this-machine") -> HostProvider:
    """Return a provider for this machine with a configured name."""
    return HostProvider(Settings(host=HostSettings(node_name=name)), clock=lambda: 1234.5)


def test_host_is_a_sample_provider() -> None:
    """The name Host opens a provider of samples."""
    built = open_provider(Settings(provider=ProviderSettings(name="Host")))
    assert isinstance(built, HostProvider)
    assert isinstance(built, SampleProvider)


def test_sample_has_cpu_and_memory() -> None:
    """The first sample has CPU and memory in percent, with the configured name and the clock's time."""
    sample = provider().sample(Deadline.after(5))["this-machine"]
    readings = {reading.name: reading for reading in sample.readings}
    assert sample.timestamp == 1234.5
    assert readings["host:cpu:percent"].type == "CPU"
    assert readings["host:memory:percent"].type == "Memory"
    assert max(readings[f"host:{kind}:percent"].value for kind in ("cpu", "memory")) <= 100
    for reading in sample.readings:  # shares of time may exceed 100: the clock is read some time before the counter
        assert 0 <= reading.value < math.inf


def test_memory_is_close_to_psutils() -> None:
    """Memory is the share that is not available, close to psutil's value at that time."""
    readings = {
        reading.name: reading.value for reading in provider().sample(Deadline.after(5))["this-machine"].readings
    }
    assert abs(readings["host:memory:percent"] - psutil.virtual_memory().percent) < 20


Times = namedtuple("Times", "user system idle iowait steal guest guest_nice")  # noqa: PYI024  as psutil's
Disk = namedtuple("Disk", "busy_time")  # noqa: PYI024
Link = namedtuple("Link", "bytes_sent bytes_recv")  # noqa: PYI024
Status = namedtuple("Status", "speed")  # noqa: PYI024


class Machine:
    """Counters of a made-up machine, in place of psutil's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 100.0
        self.times = Times(10, 0, 90, 0, 0, 0, 0)
        self.disks: dict[str, Disk] | None = {"sda": Disk(0)}
        self.links = {"eth0": Link(0, 0), "lo": Link(0, 0)}
        for name, value in {
            "cpu_times": lambda: self.times,
            "disk_io_counters": lambda perdisk: self.disks,
            "net_io_counters": lambda pernic: self.links,
            "net_if_stats": lambda: {"eth0": Status(1000), "lo": Status(0)},
        }.items():
            monkeypatch.setattr(psutil, name, value)
        monkeypatch.setattr("watcher.providers.host.time.monotonic", lambda: self.seconds)
        monkeypatch.setattr("watcher.providers.host._FIRST_SPAN_SECONDS", 0)
        self.pressure = Pressure({}, "no /proc/pressure")
        monkeypatch.setattr("watcher.providers.host.read_pressure", lambda: self.pressure)


def read(machine: HostProvider) -> dict[str, float]:
    """Return the present readings without memory, which is the real machine's."""
    sample = machine.sample(Deadline.after(5))["this-machine"]
    return {reading.type: reading.value for reading in sample.readings if reading.type != "Memory"}


def test_readings_from_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU excludes idle, waiting and stolen time; the busiest disk and the busiest link's direction count."""
    machine, subject = Machine(monkeypatch), provider()
    assert read(subject) == {}
    machine.seconds += 10
    machine.times = Times(user=13, system=2, idle=94, iowait=0.5, steal=0.5, guest=3, guest_nice=0)
    machine.disks = {"sda": Disk(2500), "sdb": Disk(9000)}  # sdb is new: it has no rate yet
    machine.links = {"eth0": Link(bytes_sent=125_000_000, bytes_recv=250_000_000), "lo": Link(10**12, 10**12)}
    # The guest's 3 s are part of user's 13 s: 10 s passed, 5 of them busy.
    assert read(subject) == pytest.approx({"CPU": 50, "Storage": 25, "Bandwidth": 20})


@pytest.mark.parametrize("share", [0, 100])
def test_share_of_busy_time_is_not_rounded_out_of_range(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    """Whatever the counters have reached, a busy machine is exactly 100 % busy and an idle one exactly 0 %."""
    machine, subject = Machine(monkeypatch), provider()
    for ticks in range(1, 30):
        machine.times = Times(*(ticks * count / 100 for count in (1_234_567, 76_543, 912_345, 3456, 7, 123, 5)))
        read(subject)
        user, system, idle, *others = machine.times
        busy, resting = (ticks / 100, 0) if share else (0, ticks / 100)
        machine.times = Times(user + busy, system + busy, idle + resting, *others)
        assert read(subject)["CPU"] == share


def test_reset_counters_are_not_clamped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that were reset, or ran ahead of the clock, give values out of range, which windows leave out."""
    machine, subject = Machine(monkeypatch), provider()
    machine.disks = {"sda": Disk(5000)}
    read(subject)
    machine.seconds += 1
    machine.times = Times(20, 0, 89, 0, 0, 0, 0)
    machine.disks = {"sda": Disk(0)}
    machine.links = {"eth0": Link(10**15, 0)}
    assert read(subject) == pytest.approx({"CPU": 1000 / 9, "Storage": -500, "Bandwidth": 8e8})


def test_missing_counters_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without disk or link counters, as in some sandboxes, CPU and memory are still read."""
    machine, subject = Machine(monkeypatch), provider()

    def missing(**_options: bool) -> None:
        raise NotImplementedError("no /proc/diskstats")

    monkeypatch.setattr(psutil, "disk_io_counters", missing)
    monkeypatch.setattr(psutil, "net_io_counters", missing)
    read(subject)
    machine.seconds += 1
    machine.times = Times(10, 0, 100, 0, 0, 0, 0)
    assert read(subject) == {"CPU": 0}


def test_pressure_is_the_share_of_time_in_which_tasks_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressure is the growth of its counter; without a counter before or now it is unknown, never 0."""
    machine, subject = Machine(monkeypatch), provider()
    machine.pressure = Pressure({MetricType.CPU_PRESSURE: 100.0, MetricType.IO_PRESSURE: 5.0})
    read(subject)
    machine.seconds += 10
    machine.pressure = Pressure({MetricType.CPU_PRESSURE: 104.5, MetricType.MEMORY_PRESSURE: 3.0}, "some are missing")
    values = read(subject)
    assert {type_: value for type_, value in values.items() if "Pressure" in type_} == pytest.approx(
        {"CPUPressure": 45.0}
    )


def test_check_reads_the_machine() -> None:
    """check() yields one successful step with the name and the values."""
    (step,) = provider().check()
    assert step.ok
    assert "this-machine: CPU" in step.message


def test_doctor_explains_unknown_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor says how many nodes have pressure, and why others have none; the step does not fail."""

    def pressure_step() -> Check:
        settings = Settings(provider=ProviderSettings(name="Host"))
        (step,) = (step for step in examine(settings) if step.step == "Host: pressure")
        return step

    absence = read_pressure().absence
    assert pressure_step().message.startswith(f"{0 if absence else 1} of 1 nodes have pressure")
    monkeypatch.setattr("watcher.providers.host.read_pressure", lambda: Pressure({}, "boot with psi=1"))
    step = pressure_step()
    assert step.ok
    assert step.message.startswith("0 of 1 nodes")
    assert step.message.endswith(": boot with psi=1")
