"""What survives a crash: snapshots and samples in one SQLite file. The only module that knows SQL.

A snapshot is one row: columns to find it by, and its compressed body. It is written in one transaction, so that a
killed process leaves whole snapshots behind and nothing else. The file must be on a local disk: WAL needs shared
memory, which network file systems do not give.
"""

import contextlib
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_TRIED_SNAPSHOTS = 10  # of a window, before giving up on unreadable ones


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
                values.setdefault((reading.name, reading.type), {})[node] = reading.value
        return cls(taken_at, {node: sample.timestamp for node, sample in samples.items()}, values)


class Store:
    """The database file. Safe to use from several threads; a failed write is reported once and does not raise.

    Attributes:
        failure: why nothing is kept, or why the last write failed, or empty; memory goes on without the file.
        set_aside: where a corrupt file was moved to, or None.
    """

    def __init__(self, path: Path | None, *, keep_hours: float = 24, max_megabytes: float = 256) -> None:
        """Open the file, or keep everything in memory when there is no path."""
        self._keep_seconds = keep_hours * 3600
        self._max_bytes = int(max_megabytes * _MEGABYTE)
        self._path = path
        self._lock = threading.Lock()
        self.set_aside: Path | None = None
        self._unusable = ""
        self._db = self._open()
        self.failure = self._unusable

    def save_snapshots(self, snapshots: Mapping[str, WatcherMetrics]) -> None:
        """Write the snapshots of one fetch, by window, all or none, and delete what is too old or too much."""
        rows = [
            {
                "window": window,
                "timestamp": metrics.timestamp,
                "source": metrics.source,
                "nodes": len(metrics.data),
                "body": zlib.compress(wire.encode(metrics), _COMPRESSION),
            }
            for window, metrics in snapshots.items()
        ]
        newest = max(metrics.timestamp for metrics in snapshots.values())
        with self._writing() as db:
            db["snapshots"].insert_all(rows, replace=True)  # type: ignore[union-attr]
            self._prune(db, newest)

    def load_snapshots(self, sources: Sequence[str]) -> dict[str, WatcherMetrics]:
        """Return the newest readable snapshot of each window that one of these sources wrote."""
        marks = ", ".join("?" * len(sources))
        with self._lock:
            windows = [row["window"] for row in self._db.query("select distinct window from snapshots")]
            newest = {
                window: self._db["snapshots"].rows_where(
                    f"window = ? and source in ({marks})",
                    [window, *sources],
                    order_by="timestamp desc",
                    limit=_TRIED_SNAPSHOTS,
                )
                for window in windows
            }
            found = ((window, _readable(rows)) for window, rows in newest.items())
            return {window: metrics for window, metrics in found if metrics is not None}

    def save_samples(self, source: str, taken: SampleRound, keep_since: float) -> None:
        """Write one round of samples and delete those before ``keep_since``, unix seconds."""
        values = [[name, type_, nodes] for (name, type_), nodes in taken.values.items()]
        body = zlib.compress(orjson.dumps({"timestamps": taken.timestamps, "values": values}), _COMPRESSION)
        with self._writing() as db:
            db["samples"].insert(  # type: ignore[union-attr]
                {"source": source, "taken_at": taken.taken_at, "body": body}, replace=True
            )
            db["samples"].delete_where("taken_at < ?", [keep_since])  # type: ignore[union-attr]

    def load_samples(self, source: str, since: float) -> list[SampleRound]:
        """Return this source's rounds of samples from ``since`` on, unix seconds, oldest first."""
        with self._lock:
            rows = list(
                self._db["samples"].rows_where("source = ? and taken_at >= ?", [source, since], order_by="taken_at")
            )
        rounds = []
        for row in rows:
            try:
                body = orjson.loads(zlib.decompress(row["body"]))
            except (zlib.error, orjson.JSONDecodeError):
                continue  # one lost sample is a gap, which coverage shows
            values = {(name, type_): nodes for name, type_, nodes in body["values"]}
            rounds.append(SampleRound(row["taken_at"], body["timestamps"], values))
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
        size = db.execute("select sum(length(body)) from snapshots").fetchone()[0]
        while size > self._max_bytes and table.count > 1:
            oldest = db.execute("select min(timestamp) from snapshots").fetchone()[0]
            freed = db.execute("select sum(length(body)) from snapshots where timestamp = ?", [oldest]).fetchone()[0]
            table.delete_where("timestamp = ?", [oldest])  # type: ignore[union-attr]
            size -= freed

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Database]:
        with self._lock:
            try:
                with self._db.atomic():
                    yield self._db
            except sqlite3.Error as error:
                if str(error) != self.failure:
                    _log.error("the store cannot be written", extra={"path": str(self._path), "error": str(error)})
                self.failure = str(error)
            else:
                self.failure = self._unusable  # a write to memory mends nothing

    def _open(self) -> Database:
        if self._path is None:
            return self._connect(":memory:")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect(self._path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # cannot be opened or written: nothing says that its content is bad
                self._set_aside(error)
                return self._connect(self._path)
        except (OSError, sqlite3.Error) as error:
            self._unusable = f"{self._path} cannot be opened: {error}; nothing will survive a restart (store.path)"
            _log.error("the store cannot be used", extra={"path": str(self._path), "error": str(error)})
            return self._connect(":memory:")

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
        self.set_aside = self._path.with_name(f"{self._path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").replace(f"{self.set_aside}{suffix}")
        _log.error("the store was corrupt and is set aside", extra={"path": str(self.set_aside), "error": str(error)})


def _readable(rows: Iterable[dict[str, Any]]) -> WatcherMetrics | None:
    """Return the first snapshot that can be read."""
    for row in rows:
        try:
            return wire.decode(zlib.decompress(row["body"]))
        except (zlib.error, wire.WireError, TypeError) as error:
            _log.warning("a kept snapshot is unreadable", extra={"window": row["window"], "error": str(error)})
    return None


def _check(db: Database) -> None:
    """Read every page: a torn or overwritten file shows here and not in the middle of the night."""
    problem = db.execute("pragma quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
