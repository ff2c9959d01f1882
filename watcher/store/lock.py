"""Lock file that prevents two watchers from using the same database file."""

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
    """Lock of a database file, taken with ``flock`` on the file ``<path>.lock``.

    Where locking is not possible (a read-only folder, a system without ``flock``), :meth:`take` succeeds without a
    lock. The lock belongs to this process: a forked child does not hold it.

    Attributes:
        was_made: True if the last :meth:`take` created the lock file.
    """

    def __init__(self, path: Path) -> None:
        """Prepare the lock of the file at ``path``; :meth:`take` takes it."""
        self._path = Path(f"{path}.lock")
        self._descriptor: int | None = None
        self.was_made = False
        if hasattr(os, "register_at_fork"):
            # flock belongs to the open file, which a forked child shares: the child would hold the lock after this
            # process has ended.
            os.register_at_fork(after_in_child=partial(_release, weakref.ref(self)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self, wait_seconds: float = 0, *, create: bool = True) -> bool:
        """Take the lock. Return False if another process holds it; otherwise the database file may be used.

        Args:
            wait_seconds: seconds to wait for another process to release the lock.
            create: create the lock file if it is missing.
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
                self.release()  # the lock file was removed meanwhile: try again with the present one

    def is_lost(self) -> bool:
        """Return whether the lock file was removed or replaced since this process took its lock.

        Another watcher could then lock a new lock file. Return False if this process does not hold a lock.
        """
        if self._descriptor is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return True

    def release(self, *, remove: bool = False) -> None:
        """Release the lock.

        By default the lock file stays. So where it is missing next to a database, a watcher knows that it was deleted,
        perhaps while another watcher uses the database.

        Args:
            remove: delete the lock file as well.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if remove:
                self._path.unlink(missing_ok=True)
            os.close(descriptor)

    def _open(self, *, create: bool) -> tuple[int, bool]:
        """Open the lock file; return its descriptor and whether the file was just created.

        Programs that this process starts do not inherit the descriptor.
        """
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
