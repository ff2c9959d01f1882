"""A time of day that jumps, for one process of ours: the machine's own clock stays as it is."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.servers import need_server

SOURCE = Path(__file__).parent / "clock.c"


class Clock:
    """The time of day of the processes that get its :attr:`environment`; it may jump while they run.

    Args:
        folder: for what is built, and for the file that says by how much it is off.
        name: of that file.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.offset"
        self._library = folder / "clock.so"
        if not self._library.exists():
            compiler = need_server("gcc", "gcc libc6-dev")
            subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", self._library, SOURCE], check=True)
        self.set(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a process that goes by this clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET_FILE": str(self._file)}

    def set(self, seconds: int) -> None:
        """Let it be so many seconds ahead of the machine's, or behind."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self._file)
