"""PlanetLab's CPU use (CoMon) in the form of CloudSim: one file per virtual machine, with a percentage every 5 minutes.

The source is the folder of one day, such as 20110303, whose files have 288 lines each, or a folder with folders of
several days, which are read as days in a row although the published days have gaps. The data set has nothing else: each
virtual machine is assumed to request one core and no memory, and to run all day.
Source: github.com/beloglazov/planetlab-workload-traces, github.com/cloudsimplus/planetlab-workload-traces.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from math import inf
from pathlib import Path

from trimaran.traces.loaders.dataset import SERVICE, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import ARCHIVES, DatasetFiles, LoadError, by_numbers, number

_STEP_SECONDS, _STEPS = 300, 288
_DAY = _STEP_SECONDS * _STEPS


class PlanetLab(DatasetFormat):
    """Format of the PlanetLab data set."""

    title = "PlanetLab (CoMon)"
    has_machines, names_machines = False, False
    cpu_level, memory_level = None, 0.0

    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield nothing: the data set has no machines."""
        del source
        return iter(())

    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the virtual machines; an owner is the site: the host name without its first label."""
        del machines
        files = _files(source)
        days: dict[str, list[int]] = defaultdict(list)
        for path, day in files.items():
            days[path.name].append(day)
        last = max(files.values())
        for name, present in days.items():
            # A virtual machine with files of days in a row runs through midnight; without one on a day it runs twice.
            for first in (day for day in present if day - 1 not in present):
                end = next(day for day in count(first) if day not in present)
                yield DatasetTask(
                    name, SERVICE, name.partition(".")[2] or name, 1000.0, 0.0, first * _DAY or None,
                    inf if end > last else end * _DAY,
                )  # fmt: skip

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the CPU use, file by file."""
        days = _files(source)
        for path in source.reading("", list(days)):
            if path.name in requests:
                cpu = requests[path.name][0]
                for step, share in source.rows(path, _row_parser()):
                    start = days[path] * _DAY + step * _STEP_SECONDS
                    yield TaskUse(path.name, start, start + _STEP_SECONDS, share * cpu, float("nan"))


def _files(source: DatasetFiles) -> dict[Path, int]:
    """Return the files with the numbers of their days, day by day.

    Raises:
        LoadError: the folder has an archive.
    """
    files = source.files("")
    archive = next((path for path in files if path.name.endswith(ARCHIVES)), None)
    if archive is not None:
        raise LoadError(f"{archive}: is an archive; unpack it, and give the folder")
    folders = sorted({path.parent for path in files}, key=by_numbers)
    if len(folders) > 1:
        source.notes.add(f"{folders[0].name} to {folders[-1].name} are read as {len(folders)} days in a row")
    return {path: day for day, folder in enumerate(folders) for path in files if path.parent == folder}


def _row_parser() -> Callable[[list[str]], tuple[int, float] | None]:
    """Return a parser of the rows of one file: step of the day, and use as a share of a core."""
    steps = count()

    def parse(row: list[str]) -> tuple[int, float] | None:
        if row and row[0].startswith("#"):
            return None  # files of CloudSim Plus begin with their number of lines
        step = next(steps)  # also for an invalid row, so that later rows keep their time
        if len(row) != 1:
            raise ValueError("expected exactly one number per row")
        percent = number(row[0])
        if not 0 <= percent <= 100:
            raise ValueError(f"{percent} is not a percentage")
        return step, percent / 100

    return parse
