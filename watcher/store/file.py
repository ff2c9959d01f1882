"""Database file: used by one watcher only, checked when it is opened, and renamed when it is corrupt.

Two watchers on one file would delete each other's snapshots, so each watcher locks ``<path>.lock`` for as long as it
has the file open. The kernel releases the lock when the process ends, even if the process is killed.

After errors of the environment (disk full, permission denied, locked by another program) the content may be sound: the
file stays in place and is opened again later. Any other error means that the content is corrupt. If a newer version of
the watcher wrote the file and this version cannot write its tables, the file is only read.
"""

import contextlib
import logging
import sqlite3
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from watcher.store.lock import FileLock
from watcher.store.schema import UNREADABLE, NewerSchemaError, check_pages, check_tables, connect, is_in_use

_log = logging.getLogger(__name__)
_ENVIRONMENT_ERRORS = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}
_BUSY_ERRORS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPTION_ERRORS = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# Offset and valid values of the two format version bytes; SQLite treats a file with another version as read-only.
_FORMAT_AT, _FORMATS = 18, {1, 2}


class StoreFile:
    """Database file that can be opened again after an error.

    Attributes:
        failure: reason why the file could not be opened, or empty.
        times_opened: number of times the file was opened.
        set_aside: new path of the corrupt file that was renamed last, or None.
        times_set_aside: number of corrupt files that were renamed.
    """

    def __init__(self, path: Path) -> None:
        """Remember the path; :meth:`open` opens the file, and creates it if it is missing."""
        self._path = path
        self._paths = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
        self._lock = FileLock(path)
        self._opened: dict[Path, tuple[int, int] | None] = {}  # device and inode of each open file
        self._sizes: dict[Path, int] = {}  # largest sizes of the file and its WAL since the last check
        self._newest: list[dict[str, Any]] = []  # newest snapshots of a file that can only be read
        self.failure = ""
        self.times_opened = 0
        self.set_aside: Path | None = None
        self.times_set_aside = 0

    def open(self, wait_seconds: float = 0) -> Database | None:
        """Lock the file and open it. If it is corrupt, rename it and create a new file.

        Args:
            wait_seconds: seconds to wait for another watcher to release the file.

        Returns:
            The database, or None if the file cannot be used; :attr:`failure` then has the reason.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock(wait_seconds)
            try:
                db = self._connect()
            except UNREADABLE as error:
                if _is_environment_error(error):
                    raise
                self.move_aside(error)
                db = self._connect()
            self._opened = {path: _identity(path) for path in self._paths}
            self._newest = []
            self.note_sizes()
        except (OSError, NewerSchemaError, *UNREADABLE) as error:
            why = f"{self._path} cannot be opened: {error}; nothing will survive a restart (store.path)"
            if why != self.failure:
                _log.error("the store cannot be used", extra={"path": str(self._path), "error": str(error)})
            self.failure = why
            self._newest = error.newest if isinstance(error, NewerSchemaError) else []
            self.release()
            return None
        self.failure = ""
        self.times_opened += 1
        return db

    def memory(self) -> Database:
        """Return a new database in memory, to use while the file cannot be opened.

        It contains the newest snapshots of a file that a newer version wrote and that can only be read.
        """
        db = connect(":memory:")
        with contextlib.suppress(*UNREADABLE):
            db.table("snapshots").insert_all(self._newest)
        return db

    def keep_lock(self) -> bool:
        """Return whether this watcher may continue to use the file: it holds the lock, or the file is not open.

        If the lock file was removed, create a new one, and return whether its lock could be taken.
        """
        if not self._opened or not self._lock.is_lost():
            return True
        _log.warning(
            "the store's lock file was removed; locking again, and storing in memory if another watcher has the lock",
            extra={"path": str(self._path)},
        )
        self._lock.release()
        return self._lock.take()

    def note_sizes(self) -> None:
        """Record the sizes of the file and its WAL after a write, for :meth:`damage`."""
        for path in self._paths[:2]:
            with contextlib.suppress(OSError):
                self._sizes[path] = max(self._sizes.get(path, 0), path.stat().st_size)

    def damage(self) -> Exception | None:
        """Return the error if the open file or its WAL has shrunk and is damaged; otherwise None.

        The watcher itself never makes these files smaller. SQLite's own tools may (such as VACUUM) and do no harm, so
        the content is checked before a smaller file counts as damaged.
        """
        before, self._sizes = self._sizes, {}
        self.note_sizes()
        if all(self._sizes.get(path, 0) >= size for path, size in before.items()):
            return None
        try:
            with contextlib.closing(Database(sqlite3.connect(self._path))) as db:
                check_pages(db)
                check_tables(db)
        except UNREADABLE as error:
            if _code(error) not in _BUSY_ERRORS:
                return error
            self._sizes = before  # another program uses the file now: check again later
        return None

    def is_replaced(self) -> bool:
        """Return whether the file at the path was removed or replaced by another file since it was opened."""
        return bool(self._opened) and self._opened[self._path] != _identity(self._path)

    def remove_log(self) -> None:
        """Remove the WAL files that belong to the replaced file, since SQLite would apply them to the new file."""
        for path, opened in self._opened.items():
            if path != self._path and opened is not None and opened == _identity(path):
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the lock after the file was closed, so that another watcher can use the file."""
        self._opened = {}
        self._sizes = {}
        self._lock.release()

    def move_aside(self, error: Exception) -> None:
        """Rename the closed file and its WAL files to ``<path>.corrupt-<time>``, and log ``error``, the reason."""
        name = f"{self._path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}"
        target = self._path.with_name(name)
        while target.exists():  # never overwrite a file that was set aside
            target = target.with_name(f"{target.name}x")
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                path.replace(f"{target}{path.name.removeprefix(self._path.name)}")
        self.set_aside = target
        self.times_set_aside += 1
        _log.error("the store was corrupt and is set aside", extra={"path": str(target), "error": str(error)})

    def _take_lock(self, wait_seconds: float) -> None:
        check_kind(self._paths)
        if not self._lock.take(wait_seconds):
            raise BlockingIOError("another watcher uses it: give this watcher another --store")
        # A missing lock file next to an existing database was removed, perhaps while another watcher uses the database.
        if self._lock.was_made and self._path.exists() and is_in_use(self._path):
            self._lock.release(remove=True)  # so that the next attempt makes this check again
            raise BlockingIOError(
                "another watcher uses it, but its lock file was removed: give this watcher another --store"
            )

    def _connect(self) -> Database:
        _check_format(self._path)
        if not self._path.exists():
            self._path.touch(mode=0o600)  # SQLite would make it world-readable; its WAL gets the mode of the file
        return connect(self._path)


def check_kind(paths: Iterable[Path]) -> None:
    """Check that each existing path is a regular file; opening a pipe, for example, would block forever.

    Raises:
        OSError: a path exists and is not a regular file.
    """
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(path.stat().st_mode):
                raise OSError(f"{path.name} is not a regular file")


def is_corrupt(error: Exception) -> bool:
    """Return whether an error that a read or a write raised means that the content of the file is corrupt."""
    return isinstance(error, UnicodeDecodeError) or _code(error) in _CORRUPTION_ERRORS


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_environment_error(error: Exception) -> bool:
    return _code(error) in _ENVIRONMENT_ERRORS


def _code(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)  # errors of the sqlite3 module itself have no code
    return None if code is None else code & 0xFF  # the primary code of an extended code


def _check_format(path: Path) -> None:
    """Check the header of the file. For a damaged header, SQLite would only report that the database is read-only.

    Raises:
        sqlite3.DatabaseError: the header is damaged.
    """
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        head = file.read(_FORMAT_AT + 2)
        if len(head) == _FORMAT_AT + 2 and not _FORMATS.issuperset(head[_FORMAT_AT:]):
            raise sqlite3.DatabaseError("file is not a database of this format")
