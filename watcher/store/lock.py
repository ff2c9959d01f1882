"""The lock that keeps a second watcher from a file."""

import os
import sys
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Self

if sys.platform != "win32":
    import fcntl

_POLL_SECONDS = 0.05


class FileLock:
    """The lock beside a file; where none can be made (a read-only folder, no ``flock``) it keeps nobody out.

    It is the process's own: a fork does not hold it, however long it lives.

    Attributes:
        was_made: whether the lock file was not there when the lock was taken.
    """

    def __init__(self, path: Path) -> None:
        """Lock nothing yet."""
        self._path = Path(f"{path}.lock")
        self._descriptor: int | None = None
        self.was_made = False
        if hasattr(os, "register_at_fork"):
            # The lock belongs to the open file, which a fork shares: it would hold it when this process has long ended.
            os.register_at_fork(after_in_child=partial(_release, weakref.ref(self)))

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
        until = time.monotonic() + wait_seconds
        while True:
            try:
                descriptor, was_made = self._open(create=create)
            except OSError:
                return True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= until:
                    return False
                time.sleep(_POLL_SECONDS)
            except OSError:  # a file system without locks
                os.close(descriptor)
                return True
            else:
                self._descriptor, self.was_made = descriptor, was_made
                if not self.is_lost():
                    return True
                self.release()  # it was removed meanwhile: what is there now counts

    def is_lost(self) -> bool:
        """Return whether the lock file that is held was removed, so that another watcher would take a new one."""
        if self._descriptor is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return True

    def release(self, *, remove: bool = False) -> None:
        """Let others use the file. The lock file stays, as a sign that the next one finds.

        Args:
            remove: take it away as well.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if remove:
                self._path.unlink(missing_ok=True)
            os.close(descriptor)

    def _open(self, *, create: bool) -> tuple[int, bool]:
        """Return the open lock file and whether it was made now; no program that is started inherits it."""
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(self._path, flags), False
        except FileNotFoundError:
            if not create:
                raise
        return os.open(self._path, flags | os.O_CREAT, 0o600), True


def _release(lock: weakref.ref[FileLock]) -> None:
    held = lock()
    if held is not None:
        held.release()
