"""What is made of files, made anew when they change: tokens and certificates are rotated without a restart."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Made = TypeVar("Made")

_log = logging.getLogger(__name__)


class ReloadingValue(Generic[Made]):
    """A value made of files. When they can no longer be used, the last one that could stays. Safe from any thread."""

    def __init__(self, files: Sequence[Path], make: Callable[[], Made]) -> None:
        """Make it for the first time.

        Args:
            files: looked at every time the value is asked for.
            make: reads them; an OSError or a ValueError says that they cannot be used.

        Raises:
            OSError, ValueError: by ``make``.
        """
        self._files = tuple(files)
        self._make = make
        self._lock = threading.Lock()
        self._seen = self._look()
        self._made = make()

    def get(self) -> Made:
        """Return the value, made anew if a file has changed."""
        seen = self._look()
        if seen != self._seen:
            with self._lock:
                if seen != self._seen:
                    self._seen = seen  # first: what is written while it is read is read again
                    self._remake()
        return self._made

    def _remake(self) -> None:
        names = ", ".join(map(str, self._files))
        try:
            self._made = self._make()
        except (OSError, ValueError) as error:
            _log.error(
                "changed files cannot be used, what they held before stays in force",
                extra={"files": names, "error": str(error)},
            )
        else:
            _log.info("read changed files", extra={"files": names})

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_identity, self._files))


def _identity(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
