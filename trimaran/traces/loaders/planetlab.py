"""PlanetLab's CPU use (CoMon) in the form of CloudSim: one file per virtual machine, with a percentage every 5 minutes.

The source is the folder of one day, such as 20110303, whose files have 288 lines each. Several days are refused, as a
virtual machine's file has the same name every day. The data set has nothing else: each virtual machine is assumed to
request one core and no memory, and to run all day.
Source: github.com/beloglazov/planetlab-workload-traces, github.com/cloudsimplus/planetlab-workload-traces.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from pathlib import Path

from trimaran.traces.loaders.dataset import SERVICE, DatasetFormat, DatasetTask, Machine, TaskUse
from trimaran.traces.loaders.rows import ARCHIVES, DatasetFiles, LoadError, number

_STEP_SECONDS = 300


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
        """Yield a virtual machine for each file; its owner is the site: the host name without its first label."""
        del machines
        for path in _files_of_day(source):
            yield DatasetTask(path.name, SERVICE, path.name.partition(".")[2] or path.name, 1000.0, 0.0, None)

    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the CPU use, file by file."""
        for path in source.reading(""):
            if path.name in requests:
                cpu = requests[path.name][0]
                for step, share in source.rows(path, _row_parser()):
                    start = step * _STEP_SECONDS
                    yield TaskUse(path.name, start, start + _STEP_SECONDS, share * cpu, float("nan"))


def _files_of_day(source: DatasetFiles) -> list[Path]:
    """Return the files of a day.

    Raises:
        LoadError: the folder has several days, or an archive.
    """
    files = source.files("")
    folders = sorted({path.parent for path in files})
    if len(folders) > 1:
        raise LoadError(f"{source.folder}: has files in {len(folders)} folders; give one day's folder: {folders[-1]}")
    archive = next((path for path in files if path.name.endswith(ARCHIVES)), None)
    if archive is not None:
        raise LoadError(f"{archive}: is an archive; unpack it, and give one day's folder")
    return files


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
