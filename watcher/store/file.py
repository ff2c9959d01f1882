"""The database file and its tables: one watcher's alone, checked when opened, and set aside when corrupt.

Two watchers on one file would delete each other's snapshots, so each locks ``<path>.lock`` for as long as it has the
file open. The kernel takes the lock back when its holder ends, however that happens.

What is wrong with the place (no room, no rights, another program's lock) says nothing about the content: the file stays
where it is and is tried again. Anything else means that its content is bad.
"""

import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from sqlite_utils import Database, Migrations

from watcher.store.lock import FileLock

_log = logging.getLogger(__name__)
_migrations = Migrations("trimaran.watcher")

# What damaged content makes SQLite and what is built on it raise, beside what is wrong with the place.
UNREADABLE = (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError)
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
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY_SECONDS = 5.0  # to wait for another program that holds the file
_FORMAT_AT, _FORMATS = 18, {1, 2}  # the versions that reading and writing ask for; another makes the file read-only


@_migrations()
def create_snapshots(db: Database) -> None:
    """Create the table of snapshots."""
    db["snapshots"].create(  # type: ignore[union-attr]
        {"window": str, "timestamp": int, "source": str, "nodes": int, "body": bytes}, pk=("window", "timestamp")
    )


@_migrations()
def create_samples(db: Database) -> None:
    """Create the table of samples."""
    db["samples"].create(  # type: ignore[union-attr]
        {"source": str, "taken_at": float, "body": bytes}, pk=("source", "taken_at")
    )


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
            if not self._lock.take(wait_seconds):
                raise BlockingIOError("another watcher uses it: give this one another --store")
            try:
                db = self._connect()
            except UNREADABLE as error:
                if _is_of_the_place(error):
                    raise
                self.move_aside(error)
                db = self._connect()
            self._opened = {path: _identity(path) for path in self._paths}
        except (OSError, *UNREADABLE) as error:
            why = f"{self._path} cannot be opened: {error}; nothing will survive a restart (store.path)"
            if why != self.failure:
                _log.error("the store cannot be used", extra={"path": str(self._path), "error": str(error)})
            self.failure = why
            self.release()
            return None
        self.failure = ""
        self.times_opened += 1
        return db

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

    def _connect(self) -> Database:
        _check_format(self._path)
        if not self._path.exists():
            self._path.touch(mode=0o600)  # SQLite would let everyone read it; its log gets the rights of the file
        return connect(self._path)


def connect(path: Path | str) -> Database:
    """Open a sound database, or ``:memory:``."""
    db = Database(sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False))
    try:
        db.conn.text_factory = _text
        _check_pages(db)
        db.enable_wal()
        # WAL with synchronous=normal cannot corrupt; a power cut may lose the last snapshot, a crash none.
        db.execute("pragma synchronous = normal")
        _migrations.apply(db)
        _check_tables(db)
    except BaseException:
        db.close()
        raise
    return db


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


def _text(raw: bytes) -> str:
    """Read text; one damaged byte costs the row that it is in, not all that are read with it."""
    return raw.decode(errors="replace")


def _check_format(path: Path) -> None:
    """Tell a damaged header from a file that may not be written, as SQLite calls both read-only."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        head = file.read(_FORMAT_AT + 2)
        if len(head) == _FORMAT_AT + 2 and not _FORMATS.issuperset(head[_FORMAT_AT:]):
            raise sqlite3.DatabaseError("file is not a database of this format")


def _check_pages(db: Database) -> None:
    """Read every page: a torn or overwritten file shows here and not in the middle of the night."""
    problem = db.execute("pragma integrity_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)


def _check_tables(db: Database) -> None:
    """Ask for what is read and written: tables that are not as they were made cannot be used."""
    db.execute("select window, timestamp, source, nodes, body from snapshots limit 1").fetchall()
    db.execute("select source, taken_at, body from samples limit 1").fetchall()
