"""The history in the store: what every node used, minute by minute.

The minutes of the present hour are a row each for every series, as they come; with the first minute of the next hour
they become blocks of an hour and 128 nodes, compressed. So one node is read without the others, and one series without
the others. All of it happens in the transaction of the fetch, so that a crash leaves whole minutes and whole hours.

Nodes are numbered. A number is given to another node once nothing of its node is kept.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from watcher.history import RESOLUTION_SECONDS, History, HistorySeries, Steps
from watcher.model import NodeColumns, Operator, WatcherMetrics
from watcher.store import history_blocks as hours
from watcher.store.history_blocks import CHUNK, Matrix
from watcher.store.schema import HOUR

_log = logging.getLogger(__name__)
_MOST_NODES = 100_000  # numbered at once; each costs two bytes a minute and series until its hour is over
_ROW_BYTES = 200  # of a row beside its body: its columns, its part of the index, what its page wastes
_PRUNED_AT_ONCE = 2  # hours, when one is added: to a clock that jumped ahead all of them are old
_KEY = "source, origin, type, operator, name"
_Series = tuple[str, str, str]  # type, operator, name


class HistoryRows(NamedTuple):
    """What was read of the file, still packed.

    Attributes:
        names: node number to name.
        blocks: rows ``type, operator, name, chunk, hour, body``, sorted.
        minutes: rows ``type, operator, name, minute, body``.
        offset: the number of the node that bodies of minutes begin with.
    """

    names: Mapping[int, str]
    blocks: list[Any]
    minutes: list[Any]
    offset: int = 0


def add(db: Database, metrics: WatcherMetrics, origin: str, *, keep_seconds: float, max_bytes: int) -> None:
    """Write a snapshot into the history, unless its minute has one, and delete some of what is too old or too much.

    Args:
        db: in a transaction.
        metrics: the snapshot.
        origin: the system that its source stands for.
        keep_seconds: older hours are deleted.
        max_bytes: the oldest hours are deleted beyond this size.
    """
    minute = metrics.timestamp // RESOLUTION_SECONDS
    hour = minute // HOUR
    # What is of the future a clock left behind that was set back.
    db.execute("delete from history_minutes where minute > ?", [minute])
    db.execute("delete from history_blocks where hour > ?", [hour])
    where = (minute, metrics.source, origin)
    if db.execute("select 1 from history_minutes where (minute, source, origin) = (?, ?, ?) limit 1", where).fetchone():
        return
    if _fold(db, hour):
        _prune(db, hour, int((metrics.timestamp - keep_seconds) // 3600), max_bytes)
    nodes = NodeColumns.of(metrics.data)
    rows = [(*where, *series, body) for series, body in hours.columns_of(nodes, _numbered(db, nodes, hour)).items()]
    db.conn.executemany(
        f"insert or ignore into history_minutes (minute, {_KEY}, body) values (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        rows,
    )


def read(
    db: Database, ours: str, whose: list[str], steps: Steps, node: str | None, type_: str | None, operator: str | None
) -> HistoryRows:
    """Read what these steps need.

    Args:
        db: the database.
        ours: the condition on rows of the sources whose history it is.
        whose: its values.
        steps: when.
        node: this one; all when None.
        type_: this resource; all when None.
        operator: this one; all when None.
    """
    named = ("", []) if node is None else (" where name = ?", [node])
    names = dict(db.execute(f"select number, name from history_nodes{named[0]}", named[1]).fetchall())  # noqa: S608
    if not names:
        return HistoryRows({}, [], [])
    wanted = {"type": type_, "operator": operator}
    where = " and ".join([ours, *(f"{column} = ?" for column, value in wanted.items() if value is not None)])
    values = [*whose, *(value for value in wanted.values() if value is not None)]
    first, last = _minutes(steps)
    chunk, body, offset = "", "body", 0
    if node is not None:
        (offset,) = names
        chunk, body = f"and chunk = {offset // CHUNK}", f"substr(body, {2 * offset + 1}, 2)"
    blocks = db.execute(
        f"select type, operator, name, chunk, hour, body from history_blocks "  # noqa: S608
        f"where {where} and hour between ? and ? {chunk} order by 1, 2, 3, 4, 5",
        [*values, first // HOUR, last // HOUR],
    ).fetchall()
    minutes = db.execute(
        f"select type, operator, name, minute, {body} from history_minutes where {where} and minute between ? and ?",  # noqa: S608
        [*values, first, last],
    ).fetchall()
    return HistoryRows(names, blocks, minutes, offset)


def unpack(rows: HistoryRows, steps: Steps) -> History:
    """Return what was read as arrays, in pieces that never take long: requests are answered meanwhile."""
    blocks = {key: list(each) for key, each in groupby(rows.blocks, lambda row: (row[:3], row[3]))}
    minutes: dict[_Series, list[tuple[int, Matrix]]] = {}
    for *series, minute, body in rows.minutes:
        with contextlib.suppress(*hours.UNREADABLE):  # what is unreadable is a gap
            minutes.setdefault((series[0], series[1], series[2]), []).append((minute, hours.column(body)))
    first, last = _minutes(steps)
    found: dict[_Series, list[tuple[list[str], NDArray[np.float32]]]] = {}
    for key in sorted({series for series, _ in blocks} | minutes.keys()):
        for chunk, numbers in groupby(sorted(rows.names), lambda number: number // CHUNK):
            at = np.array(list(numbers))
            matrix = hours.empty(len(at), last - first + 1)
            for *_, hour, body in blocks.get((key, chunk), ()):
                with contextlib.suppress(*hours.UNREADABLE):
                    hours.lay_hour(matrix, first, hours.unpack(body, at - chunk * CHUNK), hour * HOUR)
            for minute, values in minutes.get(key, ()):
                hours.lay_minute(matrix, minute - first, values, at - rows.offset)
            present = hours.has_any(matrix)
            if present.any():
                means = hours.by_steps(matrix[present], steps, largest=key[1] == Operator.MAX)
                found.setdefault(key, []).append(([rows.names[number] for number in at[present]], means))
    return _joined(found, steps)


def _joined(found: Mapping[_Series, list[tuple[list[str], NDArray[np.float32]]]], steps: Steps) -> History:
    nodes = sorted({name for parts in found.values() for names, _ in parts for name in names})
    rows = {name: row for row, name in enumerate(nodes)}
    series = []
    for (type_, operator, name), parts in found.items():
        values = np.full((len(nodes), steps.count), np.nan, np.float32)
        for names, means in parts:
            values[[rows[each] for each in names]] = means
        series.append(HistorySeries(name, type_, operator, values))
    return History(tuple(nodes), steps, tuple(series))


def _minutes(steps: Steps) -> tuple[int, int]:
    """Return the first and the last minute of the steps."""
    first = steps.start // RESOLUTION_SECONDS
    return first, first + steps.count * steps.seconds // RESOLUTION_SECONDS - 1


def _numbered(db: Database, nodes: Iterable[str], hour: int) -> dict[str, int]:
    """Return the numbers of nodes; those that have none get the smallest that are free."""
    known = {name: (number, seen) for number, name, seen in db.execute("select number, name, seen from history_nodes")}
    new = sorted(name for name in nodes if name not in known)
    if len(known) + len(new) > _MOST_NODES:
        _log.warning("nodes come and go too fast for the history", extra={"nodes": len(known) + len(new)})
        new = new[: max(0, _MOST_NODES - len(known))]
    taken = {number for number, _ in known.values()}
    free = (number for number in range(len(taken) + len(new)) if number not in taken)
    numbers = dict(zip(new, free, strict=False))
    given = [(number, name, hour) for name, number in numbers.items()]
    db.conn.executemany("insert into history_nodes (number, name, seen) values (?, ?, ?)", given)
    numbers |= {name: known[name][0] for name in nodes if name in known}
    again = [(hour, number) for name, number in numbers.items() if name in known and known[name][1] != hour]
    db.conn.executemany("update history_nodes set seen = ? where number = ?", again)
    return numbers


def _fold(db: Database, hour: int) -> bool:
    """Turn the minutes of the hours before this one into blocks; return whether there were any."""
    rows = db.execute(
        f"select minute / {HOUR}, {_KEY}, minute, body from history_minutes where minute < ? order by 1, {_KEY}",  # noqa: S608
        [hour * HOUR],
    ).fetchall()
    for key, minutes in groupby(rows, lambda row: row[:6]):
        columns = []
        for *_, minute, body in minutes:
            with contextlib.suppress(*hours.UNREADABLE):
                columns.append((minute % HOUR, hours.column(body)))
        for chunk in range(-(-max((len(values) for _, values in columns), default=0) // CHUNK)):
            _write_block(db, (*key, chunk), columns)
    db.execute("delete from history_minutes where minute < ?", [hour * HOUR])
    return bool(rows)


def _write_block(db: Database, key: tuple[Any, ...], columns: Iterable[tuple[int, Matrix]]) -> None:
    """Write the minutes of 128 nodes; an hour that was begun before, by a clock that was set, is gone on with."""
    matrix, chunk = hours.empty(CHUNK, HOUR), key[-1]
    where = f"(hour, {_KEY}, chunk) = (?, ?, ?, ?, ?, ?, ?)"
    before = db.execute(f"select body from history_blocks where {where}", key).fetchone()  # noqa: S608
    if before:
        with contextlib.suppress(*hours.UNREADABLE):
            matrix = hours.unpack(before[0], np.arange(CHUNK))
    for minute, values in columns:
        hours.lay_minute(matrix, minute, values, np.arange(chunk * CHUNK, (chunk + 1) * CHUNK))
    if hours.has_any(matrix).any():
        db.execute(
            f"insert or replace into history_blocks (hour, {_KEY}, chunk, body) values (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*key, hours.pack(matrix)),
        )


def _prune(db: Database, hour: int, oldest: int, max_bytes: int) -> None:
    """Delete hours that are too old or too much, and the nodes of which nothing is left."""
    old = "select distinct hour from history_blocks where hour < ? order by 1 limit ?"
    db.execute(f"delete from history_blocks where hour in ({old})", [oldest, _PRUNED_AT_ONCE])  # noqa: S608
    allowed = max_bytes
    for each, size in _sizes(db):
        allowed -= size
        if allowed < 0:
            db.execute("delete from history_blocks where hour <= ?", [each])
            break
    first = db.execute("select min(hour) from history_blocks").fetchone()[0]
    db.execute("delete from history_nodes where seen < ?", [hour if first is None else first])


def _sizes(db: Database) -> Iterator[tuple[int, int]]:
    """Return the hours, the newest first, and how many bytes each takes."""
    yield from db.execute(
        f"select hour, sum(length(body) + {_ROW_BYTES}) from history_blocks group by 1 order by 1 desc"  # noqa: S608
    )
