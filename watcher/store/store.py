"""What survives a crash: snapshots, samples and the history in one SQLite file.

A snapshot is one row: columns to find it by, and its compressed body. It is written in one transaction, so that a
killed process leaves whole snapshots behind and nothing else. The file must be on a local disk: WAL needs shared
memory, which network file systems do not give.
"""

import contextlib
import logging
import math
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from sqlite_utils import Database

from watcher import wire
from watcher.freshness import PRUNE_BATCH_SIZE
from watcher.history import History, Steps
from watcher.model import WatcherMetrics
from watcher.store import prune_future as future
from watcher.store.file import StoreFile, is_corrupt
from watcher.store.schema import UNREADABLE, connect
from watcher.windows.samples import SampleRound
from watcher.wire import Dialect

_log = logging.getLogger(__name__)
_COMPRESSION = 1
_MEGABYTE = 1024 * 1024
_HANDOVER_SECONDS = 1.0  # for the watcher before, which may be closing the file just now
_UNREADABLE_BODY = (zlib.error, wire.WireError, ValueError, KeyError, TypeError, AttributeError)


class Store:
    """The database file. Safe to use from several threads; a failed write is reported once and does not raise.

    When it cannot be used, memory goes on without it.

    Attributes:
        keep_seconds: how long snapshots and history are kept.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        keep_hours: float = 24,
        max_megabytes: float = 256,
        history_megabytes: float = 128,
        origins: Mapping[str, str] | None = None,
    ) -> None:
        """Open the file.

        Args:
            path: where it is, or will be; None to keep everything in memory.
            keep_hours: older snapshots and history are deleted.
            max_megabytes: the oldest snapshots are deleted beyond this size.
            history_megabytes: the oldest hours of the history are deleted beyond this size; 0 keeps none.
            origins: source to the system that it stands for now (which address, which cluster). What the same source
                wrote when it stood for another is not loaded; what an earlier version wrote, which does not say, is.
        """
        self._origins = origins or {}
        self.keep_seconds = keep_hours * 3600
        self._max_bytes = int(max_megabytes * _MEGABYTE)
        self._history_bytes = int(history_megabytes * _MEGABYTE)
        self._path = path
        self._lock = threading.Lock()
        self._closed = False
        self._not_written = ""
        self._file = None if path is None else StoreFile(path)
        self._db = connect(":memory:") if self._file is None else self._open(self._file, _HANDOVER_SECONDS)

    @property
    def failure(self) -> str:
        """Why nothing survives a restart at present, or empty."""
        return self._not_opened or self._not_written

    @property
    def times_opened(self) -> int:
        """How often the file was opened: once, or more when it could not be at first, or was changed."""
        return self._file.times_opened if self._file else 0

    @property
    def set_aside(self) -> Path | None:
        """Where a corrupt file was moved to last, or None."""
        return self._file.set_aside if self._file else None

    @property
    def times_set_aside(self) -> int:
        """How many corrupt files were set aside."""
        return self._file.times_set_aside if self._file else 0

    @property
    def _not_opened(self) -> str:
        return self._file.failure if self._file else ""

    def save_snapshots(
        self,
        snapshots: Mapping[str, WatcherMetrics],
        encode: Callable[[WatcherMetrics], bytes] = wire.encode,
        history_window: str | None = None,
    ) -> None:
        """Write the snapshots of one fetch, by window, all or none, and delete some of what is too old or too much.

        Args:
            snapshots: what to write.
            encode: what encodes one, where that is done already.
            history_window: whose snapshot, if it is among them, goes into the history too.
        """
        rows = [
            {
                "window": window,
                "timestamp": metrics.timestamp,
                "source": metrics.source,
                "origin": self._origins.get(metrics.source, ""),
                "nodes": len(metrics.data),
                "body": zlib.compress(encode(metrics), _COMPRESSION),
            }
            for window, metrics in snapshots.items()
        ]
        newest = max(metrics.timestamp for metrics in snapshots.values())
        remembered = snapshots.get(history_window) if history_window and self._history_bytes else None

        def write(db: Database) -> None:
            db.table("snapshots").insert_all(rows, replace=True)
            self._prune(db, newest)
            if remembered is not None and self._path is not None and not self._not_opened:
                from watcher.store import history  # numpy is behind it

                origin = self._origins.get(remembered.source, "")
                history.add(db, remembered, origin, keep_seconds=self.keep_seconds, max_bytes=self._history_bytes)

        self._write(write)

    def load_snapshots(
        self, sources: Sequence[str], windows: Iterable[str], until: float = math.inf
    ) -> dict[str, WatcherMetrics]:
        """Return the newest readable snapshot of each of these windows that one of these sources wrote.

        None after ``until``, unix seconds: one of the future was stamped by a clock that was wrong or is now, so its
        age is not known, and in time it would pass for fresh.
        """
        found: dict[str, WatcherMetrics] = {}
        ours, whose = self._ours(sources)
        for window in windows:
            with self._reading() as db:
                # One row after the other: a day of them need not fit into memory.
                for row in db.table("snapshots").rows_where(
                    f"{ours} and window = ? and timestamp <= ?", [*whose, window, until],
                    select="body", order_by="timestamp desc",
                ):  # fmt: skip
                    try:
                        found[window] = wire.decode(zlib.decompress(row["body"]), Dialect.DOCUMENTED)
                        break
                    except _UNREADABLE_BODY as error:
                        _log.warning("a kept snapshot is unreadable", extra={"window": window, "error": str(error)})
        return found

    def forget_snapshots(self, since: float) -> None:
        """Delete the snapshots from ``since`` on, unix seconds, stamped by a clock that turned out to be ahead."""
        self._write(lambda db: future.forget(db, since))

    def load_history(
        self, sources: Sequence[str], steps: Steps, node: str | None, type_: str | None, operator: str | None
    ) -> History:
        """Return what these sources' nodes used, step by step; nothing where nothing is kept.

        Args:
            sources: whose history.
            steps: when.
            node: this one; all when None.
            type_: this resource; all when None.
            operator: this one; all when None.
        """
        from watcher.store import history  # numpy is behind it

        rows = history.HistoryRows({}, [], [])
        with self._reading() as db:
            rows = history.read(db, *self._ours(sources), steps, node, type_, operator)
        return history.unpack(rows, steps)

    def load_recent(self, window: str, limit: int, *sources: str) -> Iterator[WatcherMetrics]:
        """Yield the newest readable snapshots of a window that one of these sources wrote, the newest first."""
        bodies: list[bytes] = []
        with self._reading() as db:
            ours, whose = self._ours(sources)
            rows = db.table("snapshots").rows_where(
                f"{ours} and window = ?", [*whose, window], select="body", order_by="timestamp desc", limit=limit
            )
            bodies += (row["body"] for row in rows)
        for body in bodies:
            with contextlib.suppress(*_UNREADABLE_BODY):  # one unreadable snapshot is a gap
                yield wire.decode(zlib.decompress(body), Dialect.DOCUMENTED)

    def save_samples(self, source: str, taken: SampleRound, keep_since: float) -> None:
        """Write one round of samples and delete some of those before ``keep_since``, unix seconds."""
        values = [[name, type_, nodes] for (name, type_), nodes in taken.values.items()]
        body = zlib.compress(orjson.dumps({"timestamps": taken.timestamps, "values": values}), _COMPRESSION)

        def write(db: Database) -> None:
            row = {"source": source, "origin": self._origins.get(source, ""), "taken_at": taken.taken_at, "body": body}
            db.table("samples").insert(row, replace=True)
            _delete_oldest(db, "samples", "taken_at", keep_since)
            # Also those of the future, which a clock that was set back leaves behind.
            db.table("samples").delete_where("taken_at > ?", [taken.taken_at])

        self._write(write)

    def load_samples(self, source: str, since: float) -> list[SampleRound]:
        """Return this source's rounds of samples from ``since`` on, unix seconds, oldest first."""
        rows: list[dict[str, Any]] = []
        with self._reading() as db:
            ours, whose = self._ours([source])
            rows += db.table("samples").rows_where(
                f"{ours} and taken_at >= ?", [*whose, since], select="taken_at, body", order_by="taken_at"
            )
        rounds = []
        for row in rows:
            with contextlib.suppress(*_UNREADABLE_BODY):
                # One unreadable sample is a gap, which coverage shows.
                body = orjson.loads(zlib.decompress(row["body"]))
                values = {(name, type_): dict(nodes) for name, type_, nodes in body["values"]}
                rounds.append(SampleRound(float(row["taken_at"]), dict(body["timestamps"]), values))
        return rounds

    def forget_samples(self, source: str, since: float) -> None:
        """Delete this source's samples from ``since`` on, unix seconds, stamped by a clock that was ahead."""
        where = "source = ? and taken_at >= ?"
        self._write(lambda db: db.table("samples").delete_where(where, [source, since]))

    def reopen(self) -> None:
        """Open the file if it is not open: it was removed, replaced, or could not be opened. Each write does so too."""
        with self._lock:
            self._reopen()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            self._db.close()
            if self._file is not None:
                self._file.release()

    def _ours(self, sources: Sequence[str]) -> tuple[str, list[str]]:
        """Return the condition on rows that these sources wrote when they stood for what they stand for now."""
        ours = " or ".join(["source = ? and (origin is null or origin = ?)"] * len(sources))
        return f"({ours})", [each for source in sources for each in (source, self._origins.get(source, ""))]

    def _prune(self, db: Database, now: float) -> None:
        table = db.table("snapshots")
        _delete_oldest(db, "snapshots", "timestamp", now - self.keep_seconds)
        # A clock that was set back leaves snapshots of the future behind, which would be loaded for ever.
        table.delete_where("timestamp > ?", [now])
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
            table.delete_where("timestamp <= ?", [excess])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Database]:
        with self._lock:
            try:
                yield self._db
            except UNREADABLE as error:
                _log.error("the store cannot be read", extra={"path": str(self._path), "error": str(error)})

    def _write(self, action: Callable[[Database], object]) -> None:
        with self._lock:
            self._reopen()
            error = self._try(action)
            if error is not None and is_corrupt(error) and self._file is not None and not self._not_opened:
                self._change_file(error)
                error = self._try(action)
            failure = "" if error is None else str(error) or repr(error)
            if failure and failure != self._not_written:
                _log.error("the store cannot be written", extra={"path": str(self._path), "error": failure})
            self._not_written = failure

    def _try(self, action: Callable[[Database], object]) -> Exception | None:
        try:
            with self._db.atomic():
                action(self._db)
        except UNREADABLE as error:
            return error
        if self._file is not None:
            self._file.note_sizes()
        return None

    def _reopen(self) -> None:
        if self._file is None or self._closed:
            return
        if self._file.is_replaced():
            _log.warning("the store was removed or replaced", extra={"path": str(self._path)})
            self._change_file()
        elif not self._file.keep_lock():
            self._change_file()
        elif (damage := self._file.damage()) is not None:
            self._change_file(damage)
        elif self._not_opened and (db := self._file.open()) is not None:
            memory, self._db = self._db, db
            self._try(lambda db: _copy(memory, db))
            memory.close()
            _log.info("the store works again", extra={"path": str(self._path)})

    def _change_file(self, corrupt: Exception | None = None) -> None:
        """Close the file, set it aside where it was corrupt, and open what is there then, which may be nothing."""
        assert self._file is not None  # noqa: S101
        with contextlib.suppress(*UNREADABLE):
            self._db.close()
        with contextlib.suppress(OSError):  # else it is tried again when it is opened
            if corrupt is not None:
                self._file.move_aside(corrupt)
            elif self._file.is_replaced():
                self._file.remove_log()
        self._file.release()
        self._db = self._open(self._file)

    @staticmethod
    def _open(file: StoreFile, wait_seconds: float = 0) -> Database:
        return file.open(wait_seconds) or file.memory()


def _copy(memory: Database, db: Database) -> None:
    """Keep what was taken while there was no file."""
    for table in ("snapshots", "samples"):
        db.table(table).insert_all(memory.table(table).rows, ignore=True)


def _delete_oldest(db: Database, table: str, column: str, before: float) -> None:
    """Delete what is older, but little of it at a time: to a clock that jumped ahead all of it is."""
    oldest = f"select distinct {column} from {table} where {column} < ? order by {column} limit ?"  # noqa: S608
    db.table(table).delete_where(f"{column} in ({oldest})", [before, PRUNE_BATCH_SIZE])
