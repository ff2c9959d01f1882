"""The tables, made by migrations that only add, and whether a database has them and is sound."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database, Migrations

_log = logging.getLogger(__name__)
_migrations = Migrations("trimaran.watcher")

#: Minutes of a block of the history, which is numbered by them.
HOUR = 60

# What damaged content makes SQLite and what is built on it raise, beside what is wrong with the place.
UNREADABLE = (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError)
_BUSY_SECONDS = 5.0  # to wait for another program that holds the file
_CHECK_SECONDS = 5.0  # to read every page: a worker that has not started after 30 seconds is killed, again and again
_INTERRUPT_SECONDS = 0.05


@_migrations()
def create_snapshots(db: Database) -> None:
    """Create the table of snapshots."""
    db.table("snapshots").create(
        {"window": str, "timestamp": int, "source": str, "nodes": int, "body": bytes}, pk=("window", "timestamp")
    )


@_migrations()
def create_samples(db: Database) -> None:
    """Create the table of samples."""
    db.table("samples").create({"source": str, "taken_at": float, "body": bytes}, pk=("source", "taken_at"))


@_migrations()
def add_origins(db: Database) -> None:
    """Add which system a row came from; rows of before do not say."""
    db.table("snapshots").add_column("origin", str)
    db.table("samples").add_column("origin", str)


@_migrations()
def create_history(db: Database) -> None:
    """Create the tables of the history: nodes by number, the minutes of the present hour, and hours in blocks."""
    series = {"source": str, "origin": str, "type": str, "operator": str, "name": str}
    db.table("history_nodes").create({"number": int, "name": str, "seen": int}, pk="number")
    db.table("history_nodes").create_index(["name"], unique=True)
    db.table("history_minutes").create({"minute": int, **series, "body": bytes}, pk=("minute", *series))
    db.table("history_blocks").create(
        {"hour": int, **series, "chunk": int, "body": bytes}, pk=("hour", *series, "chunk")
    )


_OURS = {migration.__name__ for migration in (create_snapshots, create_samples, add_origins, create_history)}
_WRITTEN = {
    "snapshots": "window, timestamp, source, origin, nodes, body",
    "samples": "source, origin, taken_at, body",
    "history_nodes": "name, seen",
    "history_minutes": "minute, source, origin, type, operator, name, body",
    "history_blocks": "hour, source, origin, type, operator, name, chunk, body",
}


class NewerSchemaError(Exception):
    """A newer version made the tables, and they do not take what this one writes.

    Attributes:
        newest: the newest row of each window that can be read.
    """

    def __init__(self, newest: list[dict[str, Any]]) -> None:
        super().__init__("a newer version wrote it, whose tables this one cannot write; it is left as it is")
        self.newest = newest


def connect(path: Path | str) -> Database:
    """Open a sound database, or ``:memory:``.

    Raises:
        NewerSchemaError: it is sound and cannot be written.
        sqlite3.Error, ValueError, KeyError, TypeError, AttributeError: it is not sound, or the place is not.
    """
    db = Database(sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False))
    try:
        db.conn.text_factory = _text
        is_newer = _is_newer(db)
        check_pages(db)
        db.enable_wal()
        # WAL with synchronous=normal cannot corrupt; a power cut may lose the last snapshot, a crash none.
        db.execute("pragma synchronous = normal")
        if not is_newer:
            _migrations.apply(db)
        check_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def is_in_use(path: Path) -> bool:
    """Return whether anybody else has the database open."""
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("pragma locking_mode = exclusive")
        connection.execute("select 1 from sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    except sqlite3.Error:  # what is wrong with it shows when it is opened
        return False
    finally:
        connection.close()
    return False


def check_pages(db: Database) -> None:
    """Read every page, as far as there is time: a torn file shows here and not in the middle of the night."""
    try:
        with _limited(db, _CHECK_SECONDS):
            problem = db.execute("pragma integrity_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_INTERRUPT:
            raise
        _log.warning("the store is too large to be checked in time and is used as it is: see store.max_megabytes")
        return
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)


def check_tables(db: Database) -> None:
    """Ask for what is read and written: tables that are not as they were made cannot be used."""
    for table, columns in _WRITTEN.items():
        db.execute(f"select {columns} from {table} limit 1").fetchall()  # noqa: S608


def _is_newer(db: Database) -> bool:
    """Return whether a version made the tables that knows more migrations than this one; none is ever taken back.

    Raises:
        NewerSchemaError: it does, and what this one writes no longer fits.
    """
    if not {migration.name for migration in _migrations.applied(db)} > _OURS:
        return False
    if not _takes_rows(db):
        raise NewerSchemaError(_newest(db))
    return True


def _takes_rows(db: Database) -> bool:
    """Try to write what is written, and take it back."""
    db.execute("begin immediate")
    try:
        for table, columns in _WRITTEN.items():
            values = ", ".join(["''"] * len(columns.split(",")))
            db.execute(f"insert into {table} ({columns}) values ({values})")  # noqa: S608
    except (sqlite3.IntegrityError, sqlite3.OperationalError) as error:
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}:
            raise
        return False
    finally:
        db.execute("rollback")
    return True


def _newest(db: Database) -> list[dict[str, Any]]:
    query = "select window, max(timestamp) as timestamp, source, origin, nodes, body from snapshots group by window"
    try:
        return list(db.query(query))
    except UNREADABLE:
        return []


@contextmanager
def _limited(db: Database, seconds: float) -> Iterator[None]:
    """Interrupt what runs in the block after so many seconds.

    Not by a progress handler, which SQLite does not call while it reads through the pages of one large value.
    """
    done = threading.Event()

    def interrupt() -> None:
        if not done.wait(seconds):
            db.conn.interrupt()
            while not done.wait(_INTERRUPT_SECONDS):  # it may not have begun
                db.conn.interrupt()

    watching = threading.Thread(target=interrupt, name="store-check", daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _text(raw: bytes) -> str:
    """Read text; one damaged byte costs the row that it is in, not all that are read with it."""
    return raw.decode(errors="replace")
