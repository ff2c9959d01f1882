"""The lock that keeps a second watcher from a file."""

import os
import sys
import time
from pathlib import Path
from typing import Self

if sys.platform != "win32":
    import fcntl

_POLL_SECONDS = 0.05


class FileLock:
    """The lock beside a file; where none can be made (a read-only folder, no ``flock``) it keeps nobody out."""

    def __init__(self, path: Path) -> None:
        """Lock nothing yet."""
        self._path = Path(f"{path}.lock")
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self, wait_seconds: float = 0, *, create: bool = True) -> bool:
        """Return whether the file may be used: nobody else has the lock, after so many seconds at the latest.

        Args:
            wait_seconds: how long whoever has it may take to end.
            create: make the lock file where there is none.
        """
        if self._descriptor is not None or sys.platform == "win32":
            return True
        try:
            flags = os.O_RDWR | (os.O_CREAT if create else 0)
            descriptor = os.open(self._path, flags | os.O_CLOEXEC, 0o600)  # no child inherits it
        except OSError:
            return True
        until = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(descriptor)
                    return False
                time.sleep(_POLL_SECONDS)
            except OSError:  # a file system without locks
                os.close(descriptor)
                return True
            else:
                self._descriptor = descriptor
                return True

    def release(self) -> None:
        """Let others use the file. The lock file stays: removing it would let two hold locks of the same name."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
