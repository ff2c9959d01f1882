"""Store that survives a crash: snapshots, samples and the history in one SQLite file.

A snapshot is one row: columns to find the snapshot by, and its compressed body. Each row is written in a transaction,
so that a killed process leaves only whole snapshots. The file must be on a local disk: SQLite's write-ahead log (WAL)
needs shared memory, which network file systems do not support.
"""

import contextlib
import logging
import math
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from sqlite_utils import Database

from watcher import wire
from watcher.freshness import PRUNE_BATCH_SIZE
from watcher.history import History, Steps
from watcher.model import WatcherMetrics
from watcher.store.file import StoreFile, is_corrupt
from watcher.store.schema import HOUR, UNREADABLE, connect
from watcher.windows.samples import SampleRound
from watcher.wire import Dialect

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from watcher.windows.past_metrics import PastMetrics

_log = logging.getLogger(__name__)
_COMPRESSION = 1
_MEGABYTE = 1024 * 1024
_HANDOVER_SECONDS = 1.0  # the previous watcher may still be closing the file
_UNREADABLE_BODY = (zlib.error, wire.WireError, ValueError, KeyError, TypeError, AttributeError)


class Store:
    """Database of a watcher, with snapshots, samples and history. Safe to use from several threads.

    A failed write does not raise an error; it is logged, but not again while the same failure persists. While the file
    cannot be used, the store works in memory.

    Attributes:
        keep_seconds: age in seconds above which snapshots and history are deleted.
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
            path: path of the file, which is created if missing; None to keep everything in memory.
            keep_hours: age in hours above which snapshots and history are deleted.
            max_megabytes: size in MiB above which the oldest snapshots are deleted.
            history_megabytes: size in MiB above which the oldest hours of the history are deleted; 0 stores no history.
            origins: name of a source to its present origin (the address or cluster that it reads). Rows that the source
                wrote with another origin are not loaded. Rows without an origin, from earlier versions, are loaded.
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
        if self._file is None:  # it has nothing to lose, so it may be dropped without close()
            weakref.finalize(self, self._db.close).atexit = False

    @property
    def failure(self) -> str:
        """Reason why nothing survives a restart at present; empty if the store works."""
        return self._not_opened or self._not_written

    @property
    def times_opened(self) -> int:
        """Number of times the file was opened: above 1 if it was opened again after an error or a replacement."""
        return self._file.times_opened if self._file else 0

    @property
    def set_aside(self) -> Path | None:
        """New path of the corrupt file that was renamed last, or None."""
        return self._file.set_aside if self._file else None

    @property
    def times_set_aside(self) -> int:
        """Number of corrupt files that were renamed."""
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
        """Write the snapshots of one fetch in one transaction, and delete some rows beyond the limits of age and size.

        Args:
            snapshots: window to its snapshot.
            encode: function that encodes a snapshot; a caller that has already encoded the nodes passes its own.
            history_window: window whose snapshot is also added to the history, if ``snapshots`` has this window.
        """
        rows = [
            {
                "window": window,
                "timestamp": metrics.timestamp,
                "source": metrics.source,
                "origin": self.origin(metrics.source),
                "nodes": len(metrics.data),
                "body": zlib.compress(encode(metrics), _COMPRESSION),
            }
            for window, metrics in snapshots.items()
        ]
        newest = max(metrics.timestamp for metrics in snapshots.values())
        remembered = snapshots.get(history_window) if history_window else None

        def write(db: Database) -> None:
            db.table("snapshots").insert_all(rows, replace=True)
            self._prune(db, newest)
            if remembered is not None and self.keeps_history:
                from watcher.store import history  # imports numpy, which is slow

                origin = self.origin(remembered.source)
                keep_hours = math.ceil(self.keep_seconds / 3600)
                history.add(db, remembered, origin, keep_hours=keep_hours, max_bytes=self._history_bytes)

        self.write(write)

    def load_snapshots(
        self, sources: Sequence[str], windows: Iterable[str], until: float = math.inf
    ) -> dict[str, WatcherMetrics]:
        """Return the newest readable snapshot of each window.

        Args:
            sources: names of the sources whose snapshots are loaded.
            windows: windows to load; those without a readable snapshot are left out of the result.
            until: Unix seconds. Later snapshots are ignored: a timestamp in the future means that the clock was wrong
                when the snapshot was written, or is wrong now, so the snapshot's age is unknown.
        """
        found: dict[str, WatcherMetrics] = {}
        condition, values = self._origin_condition(sources)
        for window in windows:
            with self.reading() as db:
                # One row at a time: the snapshots of a day may not fit into memory.
                for row in db.table("snapshots").rows_where(
                    f"{condition} and window = ? and timestamp <= ?", [*values, window, until],
                    select="body", order_by="timestamp desc",
                ):  # fmt: skip
                    try:
                        found[window] = wire.decode(zlib.decompress(row["body"]), Dialect.DOCUMENTED)
                        break
                    except _UNREADABLE_BODY as error:
                        _log.warning("a stored snapshot is unreadable", extra={"window": window, "error": str(error)})
        return found

    def forget_snapshots(self, since: float) -> None:
        """Delete the snapshots from ``since`` on, Unix seconds.

        Their age is unknown, so they must not be served: they were written while the system clock was ahead.
        """
        self.write(lambda db: db.table("snapshots").delete_where("timestamp >= ?", [since]))

    def load_history(
        self,
        sources: Sequence[str],
        steps: Steps,
        node: str | None,
        type_: str | None,
        operator: str | None,
        until: float,
    ) -> History:
        """Return the history of the nodes' load; empty if nothing is stored.

        Args:
            sources: names of the sources.
            steps: steps of time.
            node: only this node; all nodes when None.
            type_: only this resource; all resources when None.
            operator: only this operator; all operators when None.
            until: present time, Unix seconds. Later values are left out: the clock was ahead, or is behind now.
        """
        from watcher.store import history  # imports numpy, which is slow

        rows = history.HistoryRows({}, [], [], 0)
        with self.reading() as db:
            rows = history.read(db, *self._origin_condition(sources), steps, node, type_, operator, until)
        return history.unpack(rows, steps)

    def history_metrics(self, sources: Sequence[str]) -> set[tuple[str, str]]:
        """Return the type and the operator of each metric in the history; empty if nothing is stored.

        Args:
            sources: names of the sources.
        """
        from watcher.store import history  # imports numpy, which is slow

        found: set[tuple[str, str]] = set()
        with self.reading() as db:
            found |= history.metrics(db, *self._origin_condition(sources))
        return found

    @property
    def keeps_history(self) -> bool:
        """True if there is a history: it is enabled, and the file can be used."""
        return self._history_bytes > 0 and self.has_file

    def recorded_minutes(self, sources: Sequence[str], hour: int) -> "NDArray[np.bool_]":
        """Return which minutes of an hour the history has, shape (60,).

        Args:
            sources: names of the sources.
            hour: the hour, in hours of Unix time.
        """
        import numpy as np

        from watcher.store import history_gaps  # imports numpy, which is slow

        recorded = np.ones(HOUR, np.bool_)  # if the file cannot be read, nothing is filled
        with self.reading() as db:
            recorded &= history_gaps.recorded_minutes(db, *self._origin_condition(sources), hour)
        return recorded

    def fill_history(self, past: "PastMetrics", source: str) -> None:
        """Add metrics of the past to the history, in one transaction; stored values are not changed.

        Args:
            past: the metrics, with all ends in one hour.
            source: name of the source.
        """
        from watcher.store import history_gaps  # imports numpy, which is slow

        if self.keeps_history and past.series:
            self.write(lambda db: history_gaps.fill(db, past, source, self.origin(source)))

    def load_recent(self, window: str, limit: int, *sources: str) -> Iterator[WatcherMetrics]:
        """Yield the newest snapshots of a window, newest first; unreadable snapshots are left out.

        Args:
            window: the window.
            limit: number of snapshots to read, including unreadable ones.
            sources: names of the sources whose snapshots are loaded.
        """
        bodies: list[bytes] = []
        with self.reading() as db:
            condition, values = self._origin_condition(sources)
            rows = db.table("snapshots").rows_where(
                f"{condition} and window = ?", [*values, window], select="body", order_by="timestamp desc", limit=limit
            )
            bodies += (row["body"] for row in rows)
        for body in bodies:
            with contextlib.suppress(*_UNREADABLE_BODY):  # an unreadable snapshot leaves a gap
                yield wire.decode(zlib.decompress(body), Dialect.DOCUMENTED)

    def save_samples(self, source: str, samples: SampleRound, keep_since: float) -> None:
        """Write one round of samples, and delete a few of the rounds before ``keep_since``, Unix seconds."""
        values = [[name, type_, nodes] for (name, type_), nodes in samples.values.items()]
        body = zlib.compress(orjson.dumps({"timestamps": samples.timestamps, "values": values}), _COMPRESSION)

        def write(db: Database) -> None:
            row = {
                "source": source,
                "origin": self.origin(source),
                "taken_at": samples.taken_at,
                "body": body,
            }
            db.table("samples").insert(row, replace=True)
            _delete_oldest(db, "samples", "taken_at", keep_since)
            # Also delete samples of the future: they remain after the clock was set back.
            db.table("samples").delete_where("taken_at > ?", [samples.taken_at])

        self.write(write)

    def load_samples(self, source: str, since: float) -> list[SampleRound]:
        """Return the rounds of samples of a source from ``since`` on, Unix seconds, oldest first."""
        rows: list[dict[str, Any]] = []
        with self.reading() as db:
            condition, values = self._origin_condition([source])
            rows += db.table("samples").rows_where(
                f"{condition} and taken_at >= ?", [*values, since], select="taken_at, body", order_by="taken_at"
            )
        rounds = []
        for row in rows:
            with contextlib.suppress(*_UNREADABLE_BODY):
                # An unreadable round leaves a gap, which the coverage reports.
                body = orjson.loads(zlib.decompress(row["body"]))
                nodes_by_series = {(name, type_): dict(nodes) for name, type_, nodes in body["values"]}
                rounds.append(SampleRound(float(row["taken_at"]), dict(body["timestamps"]), nodes_by_series))
        return rounds

    def forget_samples(self, source: str, since: float) -> None:
        """Delete the samples of a source from ``since`` on, Unix seconds.

        Their timestamps are wrong: they were written while the system clock was ahead.
        """
        where = "source = ? and taken_at >= ?"
        self.write(lambda db: db.table("samples").delete_where(where, [source, since]))

    @property
    def has_file(self) -> bool:
        """True if there is a usable file, so that written data survive a restart."""
        return self._path is not None and not self._not_opened

    def origin(self, source: str) -> str:
        """Return the present origin of a source: text that identifies the system that it reads."""
        return self._origins.get(source, "")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Database]:
        """Lock the database for the queries of the ``with`` block.

        An error of the database is logged and ends the block, so set a result for that case before the block.
        """
        with self._lock:
            try:
                yield self._db
            except UNREADABLE as error:
                _log.error("the store cannot be read", extra={"path": str(self._path), "error": str(error)})

    def write(self, action: Callable[[Database], object]) -> None:
        """Run an action on the database in one transaction; a failure is logged."""
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

    def reopen(self) -> None:
        """Open the file again if it was removed or replaced, or could not be opened. Every write does this first."""
        with self._lock:
            self._reopen()

    def close(self) -> None:
        """Close the database, and release the lock of its file."""
        with self._lock:
            self._closed = True
            self._db.close()
            if self._file is not None:
                self._file.release()

    def _origin_condition(self, sources: Sequence[str]) -> tuple[str, list[str]]:
        """Return an SQL condition, and its parameters, for the rows that these sources wrote with their present origin.

        Rows without an origin, from earlier versions, are included.
        """
        condition = " or ".join(["source = ? and (origin is null or origin = ?)"] * len(sources))
        return f"({condition})", [each for source in sources for each in (source, self.origin(source))]

    def _prune(self, db: Database, now: float) -> None:
        table = db.table("snapshots")
        _delete_oldest(db, "snapshots", "timestamp", now - self.keep_seconds)
        # After the clock was set back, snapshots of the future remain; they would be loaded at every restart.
        table.delete_where("timestamp > ?", [now])
        # Older snapshots are only needed after a restart; without a file, keep only the newest.
        allowed = self._max_bytes if self.has_file else 0
        size, excess = 0, None
        sizes = "select timestamp, sum(length(body)) from snapshots group by timestamp order by timestamp desc"
        for timestamp, length in db.execute(sizes):
            size += length or 0
            if size > allowed and timestamp < now:  # the newest fetch stays, however large
                excess = timestamp
                break
        if excess is not None:
            table.delete_where("timestamp <= ?", [excess])

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
        """Close the file, and open the file that is at the path now, or a new one.

        Args:
            corrupt: error that proves that the closed file is corrupt, which is then renamed; None for a sound file.
        """
        assert self._file is not None  # noqa: S101
        with contextlib.suppress(*UNREADABLE):
            self._db.close()
        with contextlib.suppress(OSError):  # opening the file tries again
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
    """Copy the snapshots and samples from ``memory``, which was used while the file could not be opened, to ``db``."""
    for table in ("snapshots", "samples"):
        db.table(table).insert_all(memory.table(table).rows, ignore=True)


def _delete_oldest(db: Database, table: str, column: str, before: float) -> None:
    """Delete a few of the oldest rows whose ``column`` (a time in Unix seconds) is below ``before``.

    Not all of them are deleted at once: if the clock jumped ahead, all rows look old.
    """
    oldest = f"select distinct {column} from {table} where {column} < ? order by {column} limit ?"  # noqa: S608
    db.table(table).delete_where(f"{column} in ({oldest})", [before, PRUNE_BATCH_SIZE])
