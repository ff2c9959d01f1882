"""Schema of the store's database: migrations that only add tables and columns, and checks of a database on opening."""

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

#: Minutes in a block of the history; block n begins with minute n * HOUR of Unix time.
HOUR = 60

# Exceptions that SQLite and sqlite-utils raise for damaged content. sqlite3.Error is also raised for errors of the
# environment, such as a full disk.
UNREADABLE = (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError)
_BUSY_SECONDS = 5.0  # wait for another program that holds the file
_CHECK_SECONDS = 5.0  # for reading every page: gunicorn kills a worker that has not started after 30 seconds
_INTERRUPT_SECONDS = 0.05


@_migrations()
def create_snapshots(db: Database) -> None:
    """Create the table of snapshots, with one row per window and fetch."""
    db.table("snapshots").create(
        {"window": str, "timestamp": int, "source": str, "nodes": int, "body": bytes}, pk=("window", "timestamp")
    )


@_migrations()
def create_samples(db: Database) -> None:
    """Create the table of samples, with one row per source and round of samples."""
    db.table("samples").create({"source": str, "taken_at": float, "body": bytes}, pk=("source", "taken_at"))


@_migrations()
def add_origins(db: Database) -> None:
    """Add the column ``origin``, which identifies the system that a row's metrics were read from.

    The column is null in rows that were written before this migration.
    """
    db.table("snapshots").add_column("origin", str)
    db.table("samples").add_column("origin", str)


@_migrations()
def create_history(db: Database) -> None:
    """Create the tables of the history: numbered nodes, the minutes of the present hour, and blocks of an hour."""
    series = {"source": str, "origin": str, "type": str, "operator": str, "name": str}
    db.table("history_nodes").create({"number": int, "name": str, "seen": int}, pk="number")
    db.table("history_nodes").create_index(["name"], unique=True)
    db.table("history_minutes").create({"minute": int, **series, "body": bytes}, pk=("minute", *series))
    db.table("history_blocks").create(
        {"hour": int, **series, "chunk": int, "body": bytes}, pk=("hour", *series, "chunk")
    )


@_migrations()
def create_history_apart(db: Database) -> None:
    """Create the table of hours of the history that were stored while the clock was ahead."""
    db.table("history_apart").create({"hour": int})
    db.table("history_apart").create_index(["hour"], unique=True)


@_migrations()
def create_workload_state(db: Database) -> None:
    """Create the table of the learner's state, with one row for each part."""
    key = ("source", "origin", "part")
    db.table("workload_state").create({**dict.fromkeys(key, str), "body": bytes}, pk=key)


@_migrations()
def create_pod_use(db: Database) -> None:
    """Create the tables of the past use of pods: numbered pods, and blocks of an hour with the use of all pods."""
    key = {"source": str, "origin": str}
    names = ("uid", "name", "node", "revision", "workload_namespace", "workload_kind", "workload_name")
    db.table("pod_use_pods").create({**key, "number": int, **dict.fromkeys(names, str)}, pk=(*key, "number"))
    db.table("pod_use_blocks").create({**key, "hour": int, "body": bytes}, pk=(*key, "hour"))


_MIGRATION_NAMES = {
    migration.__name__
    for migration in (
        create_snapshots, create_samples, add_origins, create_history, create_history_apart, create_workload_state,
        create_pod_use,
    )
}  # fmt: skip
_COLUMNS = {
    "snapshots": "window, timestamp, source, origin, nodes, body",
    "samples": "source, origin, taken_at, body",
    "history_nodes": "name, seen",
    "history_minutes": "minute, source, origin, type, operator, name, body",
    "history_blocks": "hour, source, origin, type, operator, name, chunk, body",
    "history_apart": "hour",
    "workload_state": "source, origin, part, body",
    "pod_use_pods": "source, origin, number, uid, name, node, revision, "
    "workload_namespace, workload_kind, workload_name",
    "pod_use_blocks": "source, origin, hour, body",
}


class NewerSchemaError(Exception):
    """A newer version of the watcher created the tables, and this version cannot write them.

    Attributes:
        newest: the newest readable snapshot row of each window.
    """

    def __init__(self, newest: list[dict[str, Any]]) -> None:
        super().__init__("a newer version wrote it, and this version cannot write its tables; it is left unchanged")
        self.newest = newest


def connect(path: Path | str) -> Database:
    """Open a database file, or ``:memory:``; check it, and create missing tables and columns.

    Raises:
        NewerSchemaError: a newer version wrote the database, and this version cannot write its tables.
        sqlite3.Error, ValueError, KeyError, TypeError, AttributeError: the database is damaged or cannot be accessed.
    """
    db = Database(sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False))
    try:
        db.conn.text_factory = _text
        is_newer = _is_newer(db)
        check_pages(db)
        db.enable_wal()
        # WAL with synchronous=normal cannot corrupt the file; a power cut may lose the last snapshot, a crash none.
        db.execute("pragma synchronous = normal")
        if not is_newer:
            _migrations.apply(db)
        check_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def is_in_use(path: Path) -> bool:
    """Return whether another process has the database open."""
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("pragma locking_mode = exclusive")
        connection.execute("select 1 from sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    except sqlite3.Error:  # opening the database reports the error
        return False
    finally:
        connection.close()
    return False


def check_pages(db: Database) -> None:
    """Check every page, so that a damaged file is detected at the start and not at a later read.

    The check ends after 5 seconds, with a warning if it is not complete.

    Raises:
        sqlite3.DatabaseError: a page is damaged.
    """
    try:
        with _limited(db, _CHECK_SECONDS):
            problem = db.execute("pragma integrity_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_INTERRUPT:
            raise
        _log.warning("the store is too large to be checked in time and is used unchecked: see store.max_megabytes")
        return
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)


def check_tables(db: Database) -> None:
    """Read one row of every table, with all columns that the watcher uses.

    Raises:
        sqlite3.OperationalError: a table or a column is missing.
    """
    for table, columns in _COLUMNS.items():
        db.execute(f"select {columns} from {table} limit 1").fetchall()  # noqa: S608


def _is_newer(db: Database) -> bool:
    """Return whether a newer version wrote the database: it has all migrations of this version, and further ones.

    Raises:
        NewerSchemaError: a newer version wrote the database, and this version cannot write its tables.
    """
    if not {migration.name for migration in _migrations.applied(db)} > _MIGRATION_NAMES:
        return False
    if not _accepts_rows(db):
        raise NewerSchemaError(_newest(db))
    return True


def _accepts_rows(db: Database) -> bool:
    """Return whether the tables accept this version's rows: insert one into each and roll back."""
    db.execute("begin immediate")
    try:
        for table, columns in _COLUMNS.items():
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
    """Interrupt the SQL statements of the ``with`` block when it has run for this many seconds.

    SQLite's progress handler cannot do this: SQLite does not call it while it reads the pages of one large value.
    """
    done = threading.Event()

    def interrupt() -> None:
        if not done.wait(seconds):
            db.conn.interrupt()
            while not done.wait(_INTERRUPT_SECONDS):  # the statement may not have started yet
                db.conn.interrupt()

    watching = threading.Thread(target=interrupt, name="store-check", daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _text(raw: bytes) -> str:
    """Decode text from the database, with damaged bytes replaced.

    A damaged byte then affects only its own row; an error would affect all rows of the query.
    """
    return raw.decode(errors="replace")
