"""The database file: one watcher's alone, checked when opened, and set aside when corrupt.

Two watchers on one file would delete each other's snapshots, so each locks ``<path>.lock`` for as long as it has the
file open. The kernel takes the lock back when its holder ends, however that happens.

What is wrong with the place (no room, no rights, another program's lock) says nothing about the content: the file stays
where it is and is tried again. Anything else means that its content is bad. A file that a newer version
made, and that this one cannot write, is read and left alone.
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
_OF_THE_PLACE = {
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
_HELD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FORMAT_AT, _FORMATS = 18, {1, 2}  # the versions that reading and writing ask for; another makes the file read-only


class StoreFile:
    """Opens one file, again and again until it works.

    Attributes:
        failure: why the file is not open, or empty.
        times_opened: how often it was opened.
        set_aside: where a corrupt file was moved to last, or None.
        times_set_aside: how often one was.
    """

    def __init__(self, path: Path) -> None:
        """Open nothing yet; ``path`` is where the file is, or will be."""
        self._path = path
        self._paths = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
        self._lock = FileLock(path)
        self._opened: dict[Path, tuple[int, int] | None] = {}  # which files those were
        self._sizes: dict[Path, int] = {}  # of the file and its log, the largest since it was last looked at
        self._newest: list[dict[str, Any]] = []  # of a file that can only be read
        self.failure = ""
        self.times_opened = 0
        self.set_aside: Path | None = None
        self.times_set_aside = 0

    def open(self, wait_seconds: float = 0) -> Database | None:
        """Open the file; return None when it cannot be used, which :attr:`failure` then tells.

        Args:
            wait_seconds: how long another watcher that has it may take to end.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock(wait_seconds)
            try:
                db = self._connect()
            except UNREADABLE as error:
                if _is_of_the_place(error):
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
        """Return what to go on with while the file is not open: what could be read of it, and nothing else."""
        db = connect(":memory:")
        with contextlib.suppress(*UNREADABLE):
            db.table("snapshots").insert_all(self._newest)
        return db

    def keep_lock(self) -> bool:
        """Take the lock again where its file was removed; return whether the file is still this watcher's."""
        if not self._opened or not self._lock.is_lost():
            return True
        _log.warning("the store's lock file was removed", extra={"path": str(self._path)})
        self._lock.release()
        return self._lock.take()

    def note_sizes(self) -> None:
        """Remember how large the file and its log are, after a write."""
        for path in self._paths[:2]:
            with contextlib.suppress(OSError):
                self._sizes[path] = max(self._sizes.get(path, 0), path.stat().st_size)

    def damage(self) -> Exception | None:
        """Return what is wrong where somebody cut off some of the open file or its log.

        Both only grow, but for what people do with SQLite's own tools, which harms nothing.
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
            if _code(error) not in _HELD:
                return error
            self._sizes = before  # somebody works on it just now: it is looked at again
        return None

    def is_replaced(self) -> bool:
        """Return whether the path no longer leads to the file that is open: it was removed, or another put there."""
        return bool(self._opened) and self._opened[self._path] != _identity(self._path)

    def remove_log(self) -> None:
        """Remove what a file that was replaced left behind: it would be taken for the log of the one there now."""
        for path, opened in self._opened.items():
            if path != self._path and opened is not None and opened == _identity(path):
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let another watcher use the file, which is closed."""
        self._opened = {}
        self._sizes = {}
        self._lock.release()

    def move_aside(self, error: Exception) -> None:
        """Rename the file, which is closed, and what belongs to it."""
        name = f"{self._path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}"
        target = self._path.with_name(name)
        while target.exists():  # none is ever overwritten
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
            raise BlockingIOError("another watcher uses it: give this one another --store")
        # A lock file that has to be made though there is a database was removed: perhaps under one that uses it.
        if self._lock.was_made and self._path.exists() and is_in_use(self._path):
            self._lock.release(remove=True)  # for the next who asks to be in doubt as well
            raise BlockingIOError("another watcher uses it, whose lock file was removed: give this one another --store")

    def _connect(self) -> Database:
        _check_format(self._path)
        if not self._path.exists():
            self._path.touch(mode=0o600)  # SQLite would let everyone read it; its log gets the rights of the file
        return connect(self._path)


def check_kind(paths: Iterable[Path]) -> None:
    """Refuse what is no file, such as a pipe, which would be waited for without an end.

    Raises:
        OSError: it is there and is none.
    """
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(path.stat().st_mode):
                raise OSError(f"{path.name} is no file")


def is_corrupt(error: Exception) -> bool:
    """Return whether an error of a read or a write says that the content of the file is bad."""
    return isinstance(error, UnicodeDecodeError) or _code(error) in _CORRUPT


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_of_the_place(error: Exception) -> bool:
    return _code(error) in _OF_THE_PLACE


def _code(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)  # errors of the module itself have none
    return None if code is None else code & 0xFF  # without what an extended code adds


def _check_format(path: Path) -> None:
    """Tell a damaged header from a file that may not be written, as SQLite calls both read-only."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        head = file.read(_FORMAT_AT + 2)
        if len(head) == _FORMAT_AT + 2 and not _FORMATS.issuperset(head[_FORMAT_AT:]):
            raise sqlite3.DatabaseError("file is not a database of this format")
