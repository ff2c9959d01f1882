"""Tests of the pressure that the kernel counts: files as the kernel writes them, and this machine under load."""

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.http.gather import Deadline
from watcher.model import MetricType
from watcher.providers.host import HostProvider
from watcher.providers.kernel_pressure import read_pressure
from watcher.settings import HostSettings, Settings

SOME = "some avg10=1.50 avg60=0.70 avg300=0.10 total=2500000\n"
FULL = "full avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n"
#: Noisy neighbour of a disk: it writes 1 MiB at a time, and waits until the disk has it.
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DSYNC)
block = os.urandom(1 << 20)
while True:
    for number in range(32):
        os.pwrite(file, block, number << 20)
"""
WRITERS = 4
SPAN_SECONDS = 0.6
ATTEMPTS = 8  # other programs on this machine may write or compute at the same time
MOST_RISE = 30  # percentage points: the writers themselves take some processor time


def test_totals_are_seconds_by_type(tmp_path: Path) -> None:
    """The totals are microseconds; ``full`` of the CPU is not a pressure of a node."""
    for resource in ("cpu", "memory", "io"):
        (tmp_path / resource).write_text(SOME + FULL)
    pressure = read_pressure(tmp_path)
    assert pressure.absence == ""
    assert pressure.seconds == {
        MetricType.CPU_PRESSURE: 2.5,
        MetricType.MEMORY_PRESSURE: 2.5,
        MetricType.IO_PRESSURE: 2.5,
        MetricType.MEMORY_FULL_PRESSURE: 0.5,
        MetricType.IO_FULL_PRESSURE: 0.5,
    }


def test_missing_files_are_unknown_with_a_reason(tmp_path: Path) -> None:
    """A missing file costs its resource only; the reason names the kernel's options."""
    (tmp_path / "cpu").write_text(SOME)
    pressure = read_pressure(tmp_path)
    assert pressure.seconds == {MetricType.CPU_PRESSURE: 2.5}
    assert "memory" in pressure.absence
    assert "psi=1" in pressure.absence


def test_disabled_pressure_is_unknown_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of some distributions have the files, but refuse to read them before they are booted with psi=1."""

    def refuse(*_: object, **__: object) -> str:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(Path, "read_text", refuse)
    pressure = read_pressure(tmp_path)
    assert pressure.seconds == {}
    assert pressure.absence == f"{tmp_path / 'cpu'} is disabled: boot with the parameter psi=1"


def loads(provider: HostProvider) -> dict[str, float]:
    """Return this machine's load over the next moments, by type."""
    provider.sample(Deadline.after(5))
    time.sleep(SPAN_SECONDS)
    return {each.type: each.value for each in provider.sample(Deadline.after(5))["here"].readings}


def stands_out(calm: dict[str, float], noisy: dict[str, float]) -> bool:
    """Return whether I/O pressure has doubled and risen by 5 points, while CPU and memory hardly rose."""
    return noisy["IOPressure"] > max(2 * calm["IOPressure"], calm["IOPressure"] + 5) and all(
        noisy[type_] < calm[type_] + MOST_RISE for type_ in ("CPU", "Memory")
    )


@contextmanager
def noisy_neighbors() -> Iterator[None]:
    """Run processes that keep a disk busy."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # on a disk, which /tmp may not be
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(Path(folder, str(number)))])
            for number in range(WRITERS)
        ]
        try:
            time.sleep(0.3)
            yield
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()


def test_a_noisy_neighbour_shows_in_pressure_and_not_in_utilization() -> None:
    """Tasks that wait for a busy disk show as I/O pressure, while CPU and memory hardly change.

    Where the kernel does not count pressure, the doctor says why instead.
    """
    provider = HostProvider(Settings(host=HostSettings(node_name="here")))
    if provider.pressure_absence:
        assert not read_pressure().seconds, provider.pressure_absence
    else:
        measured = list[tuple[dict[str, float], dict[str, float]]]()
        while not (measured and stands_out(*measured[-1])) and len(measured) < ATTEMPTS:
            calm = loads(provider)
            with noisy_neighbors():
                measured.append((calm, loads(provider)))
        assert stands_out(*measured[-1]), [
            {type_: (round(calm[type_]), round(noisy[type_])) for type_ in ("CPU", "Memory", "IOPressure")}
            for calm, noisy in measured
        ]
