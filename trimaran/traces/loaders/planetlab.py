"""PlanetLab's CPU use (CoMon), as CloudSim has it: a file a virtual machine, a day of percents, one in five minutes.

The source is the folder of one day, such as 20110303, whose files have 288 lines each: a virtual machine's has
the same name on other days, so that several are refused. Nothing else is told: each virtual machine is taken to request
one core and no memory, and to be there all day.
Source: github.com/beloglazov/planetlab-workload-traces, github.com/cloudsimplus/planetlab-workload-traces.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from pathlib import Path

from trimaran.traces.loaders.dataset import SERVICE, Format, Machine, Task, Use
from trimaran.traces.loaders.rows import ARCHIVES, LoadError, Source, number

_STEP_SECONDS = 300


class PlanetLab(Format):
    """The format."""

    title = "PlanetLab (CoMon)"
    has_machines, names_machines = False, False
    cpu_level, memory_level = None, 0.0

    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield nothing."""
        del source
        return iter(())

    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield a virtual machine for each file; those of one site, a host name less its first part, are one owner."""
        del machines
        for path in _day(source):
            yield Task(path.name, SERVICE, path.name.partition(".")[2] or path.name, 1000.0, 0.0, None)

    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield the percents, file by file."""
        for path in source.reading(""):
            if path.name in requests:
                cpu = requests[path.name][0]
                for place, part in source.rows(path, _parts()):
                    start = place * _STEP_SECONDS
                    yield Use(path.name, start, start + _STEP_SECONDS, part * cpu, float("nan"))


def _day(source: Source) -> list[Path]:
    """Return the files of the day, refusing several days, in which virtual machines have the same names."""
    files = source.files("")
    folders = sorted({path.parent for path in files})
    if len(folders) > 1:
        raise LoadError(f"{source.folder}: has files in {len(folders)} folders; give one day's folder: {folders[-1]}")
    archive = next((path for path in files if path.name.endswith(ARCHIVES)), None)
    if archive is not None:
        raise LoadError(f"{archive}: is an archive; unpack it, and give one day's folder")
    return files


def _parts() -> Callable[[list[str]], tuple[int, float] | None]:
    """Return what makes of each row of a file its place in the day, and a part of a core."""
    places = count()

    def parse(row: list[str]) -> tuple[int, float] | None:
        if row and row[0].startswith("#"):
            return None  # CloudSim Plus writes the number of lines there
        place = next(places)  # also of a row that cannot be read: those after it keep their time
        if len(row) != 1:
            raise ValueError("it is not one number")
        percent = number(row[0])
        if not 0 <= percent <= 100:
            raise ValueError(f"{percent} is no percentage")
        return place, percent / 100

    return parse
