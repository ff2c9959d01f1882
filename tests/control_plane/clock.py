"""An adjustable time of day for one process; the machine's own clock does not change."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.servers import need_server

SOURCE = Path(__file__).parent / "clock.c"


class Clock:
    """The time of day of processes with this :attr:`environment`; it may jump while they run.

    Args:
        folder: folder for the built library and for the file with the clock's offset.
        name: name of that file.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.offset"
        self._library = folder / "clock.so"
        if not self._library.exists():
            compiler = need_server("gcc")
            subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", self._library, SOURCE], check=True)
        self.set(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables of a process that uses this clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET_FILE": str(self._file)}

    def set(self, seconds: int) -> None:
        """Set the clock ahead of the machine's clock by some seconds; negative is behind."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self._file)
