"""What survives a crash: snapshots and samples in one SQLite file. The only module that knows SQL.

A snapshot is one row: columns to find it by, and its compressed body. It is written in one transaction, so that a
killed process leaves whole snapshots behind and nothing else. The file must be on a local disk: WAL needs shared
memory, which network file systems do not give.
"""

import contextlib
import logging
import math
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from sqlite_utils import Database, Migrations

from watcher import wire
from watcher.model import WatcherMetrics
from watcher.providers.base import Sample

_log = logging.getLogger(__name__)
_migrations = Migrations("trimaran.watcher")
_COMPRESSION = 1
_MEGABYTE = 1024 * 1024


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


@dataclass(frozen=True, slots=True)
class SampleRound:
    """One sample of every node.

    Attributes:
        taken_at: when we asked, unix seconds by our clock.
        timestamps: node name to the source's own time.
        values: (metric name, metric type) to node name to percent of capacity.
    """

    taken_at: float
    timestamps: Mapping[str, float]
    values: Mapping[tuple[str, str], Mapping[str, float]]

    @classmethod
    def of(cls, taken_at: float, samples: Mapping[str, Sample]) -> Self:
        """Turn what a provider returned by node into values by metric."""
        values: dict[tuple[str, str], dict[str, float]] = {}
        for node, sample in samples.items():
            for reading in sample.readings:
                value = float(reading.value)
                if math.isfinite(value):  # else it is a gap, which JSON could not hold either
                    values.setdefault((reading.name, reading.type), {})[node] = value
        return cls(taken_at, {node: float(sample.timestamp) for node, sample in samples.items()}, values)


class Store:
    """The database file. Safe to use from several threads; a failed write is reported once and does not raise.

    Attributes:
        failure: why the file could not be opened or the last write failed, or empty; memory goes on without the file.
        set_aside: where a corrupt file was moved to, or None.
    """

    def __init__(self, path: Path | None, *, keep_hours: float = 24, max_megabytes: float = 256) -> None:
        """Open the file, or keep everything in memory when there is no path."""
        self._keep_seconds = keep_hours * 3600
        self._max_bytes = int(max_megabytes * _MEGABYTE)
        self._path = path
        self._lock = threading.Lock()
        self._not_opened = ""
        self._not_written = ""
        self.set_aside: Path | None = None
        self._db = self._open() or self._connect(":memory:")

    @property
    def failure(self) -> str:
        """Why nothing survives a restart at present, or empty."""
        return self._not_opened or self._not_written

    def save_snapshots(
        self, snapshots: Mapping[str, WatcherMetrics], encode: Callable[[WatcherMetrics], bytes] = wire.encode
    ) -> None:
        """Write the snapshots of one fetch, by window, all or none, and delete what is too old or too much.

        Args:
            snapshots: what to write.
            encode: what encodes one, where that is done already.
        """
        rows = [
            {
                "window": window,
                "timestamp": metrics.timestamp,
                "source": metrics.source,
                "nodes": len(metrics.data),
                "body": zlib.compress(encode(metrics), _COMPRESSION),
            }
            for window, metrics in snapshots.items()
        ]
        newest = max(metrics.timestamp for metrics in snapshots.values())

        def write(db: Database) -> None:
            db["snapshots"].insert_all(rows, replace=True)  # type: ignore[union-attr]
            self._prune(db, newest)

        self._write(write)

    def load_snapshots(self, sources: Sequence[str], windows: Iterable[str]) -> dict[str, WatcherMetrics]:
        """Return the newest readable snapshot of each of these windows that one of these sources wrote.

        Also one of the future: then the clock was wrong or is now, and no age is known until the next fetch.
        """
        found: dict[str, WatcherMetrics] = {}
        ours = f"source in ({', '.join('?' * len(sources))})"
        with self._reading() as db:
            for window in windows:
                # One row after the other: a day of them need not fit into memory.
                for row in db["snapshots"].rows_where(
                    f"{ours} and window = ?", [*sources, window], select="body", order_by="timestamp desc"
                ):
                    try:
                        found[window] = wire.decode(zlib.decompress(row["body"]))
                        break
                    except (zlib.error, TypeError, wire.WireError) as error:
                        _log.warning("a kept snapshot is unreadable", extra={"window": window, "error": str(error)})
        return found

    def forget_snapshots(self, since: float) -> None:
        """Delete the snapshots from ``since`` on, unix seconds, stamped by a clock that turned out to be ahead."""
        self._write(lambda db: db["snapshots"].delete_where("timestamp >= ?", [since]))  # type: ignore[union-attr]

    def load_recent(self, window: str, limit: int, *sources: str) -> Iterator[WatcherMetrics]:
        """Yield the newest readable snapshots of a window that one of these sources wrote, the newest first."""
        bodies: list[bytes] = []
        with self._reading() as db:
            where = f"source in ({', '.join('?' * len(sources))}) and window = ?"
            rows = db["snapshots"].rows_where(
                where, [*sources, window], select="body", order_by="timestamp desc", limit=limit
            )
            bodies += (row["body"] for row in rows)
        for body in bodies:
            with contextlib.suppress(zlib.error, TypeError, wire.WireError):  # one unreadable snapshot is a gap
                yield wire.decode(zlib.decompress(body))

    def save_samples(self, source: str, taken: SampleRound, keep_since: float) -> None:
        """Write one round of samples and delete those before ``keep_since``, unix seconds."""
        values = [[name, type_, nodes] for (name, type_), nodes in taken.values.items()]
        body = zlib.compress(orjson.dumps({"timestamps": taken.timestamps, "values": values}), _COMPRESSION)

        def write(db: Database) -> None:
            row = {"source": source, "taken_at": taken.taken_at, "body": body}
            db["samples"].insert(row, replace=True)  # type: ignore[union-attr]
            # Also those of the future, which a clock that was set back leaves behind.
            where = "taken_at < ? or taken_at > ?"
            db["samples"].delete_where(where, [keep_since, taken.taken_at])  # type: ignore[union-attr]

        self._write(write)

    def load_samples(self, source: str, since: float) -> list[SampleRound]:
        """Return this source's rounds of samples from ``since`` on, unix seconds, oldest first."""
        rows: list[dict[str, Any]] = []
        with self._reading() as db:
            rows += db["samples"].rows_where("source = ? and taken_at >= ?", [source, since], order_by="taken_at")
        rounds = []
        for row in rows:
            with contextlib.suppress(zlib.error, TypeError, ValueError, KeyError, AttributeError):
                # One unreadable sample is a gap, which coverage shows.
                body = orjson.loads(zlib.decompress(row["body"]))
                values = {(name, type_): dict(nodes) for name, type_, nodes in body["values"]}
                rounds.append(SampleRound(float(row["taken_at"]), dict(body["timestamps"]), values))
        return rounds

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _prune(self, db: Database, now: float) -> None:
        table = db["snapshots"]
        table.delete_where("timestamp < ?", [now - self._keep_seconds])  # type: ignore[union-attr]
        # A clock that was set back leaves snapshots of the future behind, which would be loaded for ever.
        table.delete_where("timestamp > ?", [now])  # type: ignore[union-attr]
        # History is for restarts; without a file only the newest is kept.
        allowed = 0 if self._path is None or self._not_opened else self._max_bytes
        size, excess = 0, None
        sizes = "select timestamp, sum(length(body)) from snapshots group by timestamp order by timestamp desc"
        for timestamp, length in db.execute(sizes):
            size += length or 0
            if size > allowed and timestamp < now:  # what was just written stays, however large
                excess = timestamp
                break
        if excess is not None:
            table.delete_where("timestamp <= ?", [excess])  # type: ignore[union-attr]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Database]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                _log.error("the store cannot be read", extra={"path": str(self._path), "error": str(error)})

    def _write(self, action: Callable[[Database], object]) -> None:
        with self._lock:
            if self._not_opened:
                self._open_again()
            try:
                with self._db.atomic():
                    action(self._db)
            except sqlite3.Error as error:
                if str(error) != self._not_written:
                    _log.error("the store cannot be written", extra={"path": str(self._path), "error": str(error)})
                self._not_written = str(error)
            else:
                self._not_written = ""

    def _open_again(self) -> None:
        """Change from memory to the file when whatever kept it from being opened is over: room, rights, a mount."""
        db = self._open()
        if db is not None:
            self._db.close()
            self._db = db
            _log.info("the store works again", extra={"path": str(self._path)})

    def _open(self) -> Database | None:
        """Open the file; return None when there is none, or when it cannot be used."""
        if self._path is None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                db = self._connect(self._path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # cannot be opened or written: nothing says that its content is bad
                self._set_aside(error)
                db = self._connect(self._path)
        except (OSError, sqlite3.Error) as error:
            why = f"{self._path} cannot be opened: {error}; nothing will survive a restart (store.path)"
            if why != self._not_opened:
                _log.error("the store cannot be used", extra={"path": str(self._path), "error": str(error)})
            self._not_opened = why
            return None
        self._not_opened = ""
        return db

    def _connect(self, path: Path | str) -> Database:
        db = Database(sqlite3.connect(path, timeout=5, check_same_thread=False))
        try:
            _check(db)
            db.enable_wal()
            # WAL with synchronous=normal cannot corrupt; a power cut may lose the last snapshot, a crash none.
            db.execute("pragma synchronous = normal")
            _migrations.apply(db)
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        assert self._path is not None  # noqa: S101
        name = f"{self._path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}"
        self.set_aside = self._path.with_name(name)
        while self.set_aside.exists():  # none is ever overwritten
            self.set_aside = self.set_aside.with_name(f"{self.set_aside.name}x")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").replace(f"{self.set_aside}{suffix}")
        _log.error("the store was corrupt and is set aside", extra={"path": str(self.set_aside), "error": str(error)})


def _check(db: Database) -> None:
    """Read every page: a torn or overwritten file shows here and not in the middle of the night."""
    problem = db.execute("pragma quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
