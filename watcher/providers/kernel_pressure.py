"""Pressure stall information (PSI) of this machine, from ``/proc/pressure``.

Each file has lines such as ``some avg10=0.00 avg60=0.00 avg300=0.00 total=4182462``, where ``total`` is the time in
microseconds in which some task, or all tasks that were not idle, waited for the resource
(https://docs.kernel.org/accounting/psi.html).
"""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from watcher.model import PRESSURES, MetricType

FOLDER = Path("/proc/pressure")
_TOTAL = re.compile(r"^(some|full) .*\btotal=([0-9]+)", re.MULTILINE | re.ASCII)
_MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Pressure:
    """Reading of the counters of pressure.

    Attributes:
        seconds: seconds since boot in which tasks waited, by type; a pressure that the kernel does not count is absent.
        absence: the reason why pressures are absent; empty if all are there.
    """

    seconds: Mapping[MetricType, float]
    absence: str = ""


def read_pressure(folder: Path = FOLDER) -> Pressure:
    """Read all counters of pressure; if a file cannot be read, only its resource is absent."""
    seconds: dict[MetricType, float] = {}
    absence = ""
    for resource in dict.fromkeys(resource for resource, _ in PRESSURES):
        file = folder / resource
        try:
            text = file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            absence = absence or _reason(file, error)
            continue
        totals = {kind: int(total) * _MICRO for kind, total in _TOTAL.findall(text)}
        seconds |= {type_: totals[kind] for (of, kind), type_ in PRESSURES.items() if of == resource and kind in totals}
    return Pressure(seconds, absence)


def _reason(file: Path, error: OSError | UnicodeDecodeError) -> str:
    """Return why a file of pressure cannot be read, and the remedy."""
    if isinstance(error, FileNotFoundError):
        return (
            f"{file} does not exist: the kernel is older than Linux 4.20, was built without CONFIG_PSI, or needs the "
            "boot parameter psi=1"
        )
    if isinstance(error, OSError) and error.errno == errno.EOPNOTSUPP:
        return f"{file} is disabled: boot with the parameter psi=1"
    return f"{file} cannot be read: {error}"
