"""Values built from files and rebuilt when the files change, so that secrets are rotated without a restart."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")

_log = logging.getLogger(__name__)


class ReloadingValue(Generic[Value]):
    """A value built from files. If changed files cannot be used, the last good value stays. Thread-safe."""

    def __init__(self, files: Sequence[Path], build: Callable[[], Value]) -> None:
        """Build the value for the first time.

        Args:
            files: files to check at each ``get``.
            build: reads the files and returns the value. An OSError or a ValueError means that they cannot be used.

        Raises:
            OSError, ValueError: raised by ``build``.
        """
        self._files = tuple(files)
        self._build = build
        self._lock = threading.Lock()
        self._versions = self._file_versions()
        self._value = build()

    def get(self) -> Value:
        """Return the value; rebuild it first if a file has changed."""
        versions = self._file_versions()
        if versions != self._versions:
            with self._lock:
                if versions != self._versions:
                    self._versions = versions  # before the files are read: a change meanwhile causes another read
                    self._rebuild()
        return self._value

    def _rebuild(self) -> None:
        names = ", ".join(map(str, self._files))
        try:
            self._value = self._build()
        except (OSError, ValueError) as error:
            _log.error(
                "changed files cannot be used, so their previous content stays in effect",
                extra={"files": names, "error": str(error)},
            )
        else:
            _log.info("changed files were read", extra={"files": names})

    def _file_versions(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_version, self._files))


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
