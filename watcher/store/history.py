"""History in the store: the load of every node, minute by minute.

Each minute of the present hour is one row per series, with the values of all nodes. When the first minute of the next
hour is added, these rows are replaced by compressed blocks. A block has one series of 128 nodes over one hour, so that
one node, or one series, can be read without the others. All writes happen in the transaction that stores the snapshots
of a fetch, so a crash leaves only whole minutes and whole hours.

Each node has a number, the index of its values in the stored arrays. When all values of a node have been deleted, a new
node can get its number.

A wrong clock deletes nothing. Hours that begin more than five minutes in the future are set apart: they are not served
until the clock has reached them, and values measured then replace the stored values of these hours. Other stored values
are never replaced. The age of an hour is the number of later hours that are stored, not a difference of times.
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
from watcher.store import history_blocks
from watcher.store.history_blocks import CHUNK, Matrix
from watcher.store.schema import HOUR

_log = logging.getLogger(__name__)
_MAX_NODES = 100_000  # numbered at the same time; each takes two bytes per minute and series until its hour is over
_ROW_BYTES = 200  # size of a row without its body: columns, index entry, unused space of the page
_SPARE_HOURS = 1  # hours kept beyond the limit: after a jump of the clock, the present hour is a block already
_AHEAD_SECONDS = 300  # later times are in the future; smaller differences between clocks are usual
_KEY = "source, origin, type, operator, name"
_Series = tuple[str, str, str]  # type, operator, name


class HistoryRows(NamedTuple):
    """Rows of the history as read from the file; :func:`unpack` decodes their bodies.

    Attributes:
        names: node number to node name.
        blocks: rows ``type, operator, name, chunk, hour, body``, sorted; a chunk is a group of 128 node numbers.
        minutes: rows ``type, operator, name, minute, body``.
        last: last minute to decode, in minutes of Unix time; an hour of the blocks may have later minutes.
        offset: number of the first node in the bodies of ``minutes``.
    """

    names: Mapping[int, str]
    blocks: list[Any]
    minutes: list[Any]
    last: int
    offset: int = 0


def add(db: Database, metrics: WatcherMetrics, origin: str, *, keep_hours: int, max_bytes: int) -> None:
    """Add a snapshot to the history, unless the history already has its minute.

    The first snapshot of an hour also deletes hours beyond the limits of age and size.

    Args:
        db: the database, in a transaction.
        metrics: the snapshot.
        origin: text that identifies the system that the snapshot's source reads.
        keep_hours: number of hours above which the oldest hours are deleted.
        max_bytes: size of the history above which the oldest hours are deleted.
    """
    minute = metrics.timestamp // RESOLUTION_SECONDS
    hour = minute // HOUR
    where = (minute, metrics.source, origin)
    _set_apart(db, hour, last_minute(metrics.timestamp) // HOUR)
    if _has_minute(db, *where):
        return
    if _fold(db, "minute < ?", hour * HOUR):
        _prune(db, hour, keep_hours, max_bytes)
    nodes = NodeColumns.of(metrics.data)
    rows = [
        (*where, *series, body)
        for series, body in history_blocks.pack_minutes(nodes, number_nodes(db, nodes, hour)).items()
    ]
    db.conn.executemany(
        f"insert or ignore into history_minutes (minute, {_KEY}, body) values (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        rows,
    )


def read(
    db: Database,
    condition: str,
    parameters: list[str],
    steps: Steps,
    node: str | None,
    type_: str | None,
    operator: str | None,
    until: float,
) -> HistoryRows:
    """Read the rows of a span of time, without decoding them.

    Args:
        db: the database.
        condition: SQL condition that selects the rows of the wanted sources.
        parameters: SQL parameters of the condition.
        steps: steps of time, which define the span.
        node: only this node; all nodes when None.
        type_: only this resource; all resources when None.
        operator: only this operator; all operators when None.
        until: present time, Unix seconds; values from after it are left out.
    """
    if node is None:
        names = dict(db.execute("select number, name from history_nodes").fetchall())
    else:  # the name itself, or one that differs in case alone
        like = (
            "select number, name from history_nodes where name = ? collate nocase order by name != ?, seen desc limit 1"
        )
        names = dict(db.execute(like, [node, node]).fetchall())
    if not names:
        return HistoryRows({}, [], [], 0)
    wanted = {"type": type_, "operator": operator}
    where = " and ".join([condition, *(f"{column} = ?" for column, value in wanted.items() if value is not None)])
    values = [*parameters, *(value for value in wanted.values() if value is not None)]
    first, last = _minutes(steps)
    last = min(last, last_minute(until))
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
    return HistoryRows(names, blocks, minutes, last, offset)


def metrics(db: Database, condition: str, parameters: list[str]) -> set[tuple[str, str]]:
    """Return the type and the operator of each metric of the wanted sources.

    Args:
        db: the database.
        condition: SQL condition that selects the rows of the wanted sources.
        parameters: SQL parameters of the condition.
    """
    tables = ("history_minutes", "history_blocks")
    query = " union ".join(f"select type, operator from {table} where {condition}" for table in tables)  # noqa: S608
    return set(db.execute(query, [*parameters, *parameters]).fetchall())


def unpack(rows: HistoryRows, steps: Steps) -> History:
    """Return the history that the rows contain, with the values of each step aggregated.

    The rows are decoded 128 nodes at a time, so that other threads can answer HTTP requests in between.
    """
    blocks = {key: list(each) for key, each in groupby(rows.blocks, lambda row: (row[:3], row[3]))}
    minutes: dict[_Series, list[tuple[int, Matrix]]] = {}
    for *series, minute, body in rows.minutes:
        with contextlib.suppress(*history_blocks.UNREADABLE):  # an unreadable row leaves a gap
            minutes.setdefault((series[0], series[1], series[2]), []).append(
                (minute, history_blocks.unpack_minute(body))
            )
    first, last = _minutes(steps)
    parts_by_series: dict[_Series, list[tuple[list[str], NDArray[np.float32]]]] = {}
    for key in sorted({series for series, _ in blocks} | minutes.keys()):
        for chunk, numbers in groupby(sorted(rows.names), lambda number: number // CHUNK):
            at = np.array(list(numbers))
            matrix = history_blocks.empty_matrix(len(at), last - first + 1)
            for *_, hour, body in blocks.get((key, chunk), ()):
                with contextlib.suppress(*history_blocks.UNREADABLE):
                    history_blocks.overlay_hour(
                        matrix, first, history_blocks.unpack_block(body, at - chunk * CHUNK), hour * HOUR
                    )
            for minute, values in minutes.get(key, ()):
                history_blocks.overlay_minute(matrix, minute - first, values, at - rows.offset)
            matrix[:, max(0, rows.last + 1 - first) :] = history_blocks.MISSING
            present = history_blocks.has_values(matrix)
            if present.any():
                means = history_blocks.aggregate(matrix[present], steps, largest=key[1] == Operator.MAX)
                parts_by_series.setdefault(key, []).append(([rows.names[number] for number in at[present]], means))
    return _join(parts_by_series, steps)


def _join(parts_by_series: Mapping[_Series, list[tuple[list[str], NDArray[np.float32]]]], steps: Steps) -> History:
    nodes = sorted({name for parts in parts_by_series.values() for names, _ in parts for name in names})
    rows = {name: row for row, name in enumerate(nodes)}
    series = []
    for (type_, operator, name), parts in parts_by_series.items():
        values = np.full((len(nodes), steps.count), np.nan, np.float32)
        for names, means in parts:
            values[[rows[each] for each in names]] = means
        series.append(HistorySeries(name, type_, operator, values))
    return History(tuple(nodes), steps, tuple(series))


def last_minute(now: float) -> int:
    """Return the last minute that is not in the future at ``now``, Unix seconds, in minutes of Unix time."""
    return int(now + _AHEAD_SECONDS) // RESOLUTION_SECONDS


def _minutes(steps: Steps) -> tuple[int, int]:
    """Return the first and the last minute of the steps, in minutes of Unix time."""
    first = steps.start // RESOLUTION_SECONDS
    return first, first + steps.count * steps.seconds // RESOLUTION_SECONDS - 1


def number_nodes(db: Database, nodes: Iterable[str], hour: int) -> dict[str, int]:
    """Return node name to node number; give new nodes the smallest free numbers, and record the hour for all nodes.

    At most 100,000 nodes have a number at the same time; further nodes are left out. A node whose name changes in case
    alone keeps its number, and so its history.

    Args:
        db: the database, in a transaction.
        nodes: names of the nodes.
        hour: hour in which the nodes have values, in hours of Unix time.
    """
    known = {name: (number, seen) for number, name, seen in db.execute("select number, name, seen from history_nodes")}
    new = sorted(name for name in nodes if name not in known)
    if new:
        _respell(db, known, new, frozenset(nodes))
    if len(known) + len(new) > _MAX_NODES:
        _log.warning(
            "the history has too many nodes, so new nodes are left out", extra={"nodes": len(known) + len(new)}
        )
        new = new[: max(0, _MAX_NODES - len(known))]
    used = {number for number, _ in known.values()}
    free = (number for number in range(len(used) + len(new)) if number not in used)
    numbers = dict(zip(new, free, strict=False))
    new_rows = [(number, name, hour) for name, number in numbers.items()]
    db.conn.executemany("insert into history_nodes (number, name, seen) values (?, ?, ?)", new_rows)
    numbers |= {name: known[name][0] for name in nodes if name in known}
    seen_again = [(hour, number) for name, number in numbers.items() if name in known and known[name][1] < hour]
    db.conn.executemany("update history_nodes set seen = ? where number = ?", seen_again)
    return numbers


def _respell(db: Database, known: dict[str, tuple[int, int]], new: list[str], nodes: frozenset[str]) -> None:
    """Rename known nodes to new names that differ in case alone; the arguments ``known`` and ``new`` are updated."""
    gone = {name.casefold(): name for name in known.keys() - nodes}
    for name in [name for name in new if name.casefold() in gone]:
        earlier = gone.pop(name.casefold(), None)
        if earlier is not None:
            known[name] = known.pop(earlier)
            new.remove(name)
            db.conn.execute("update history_nodes set name = ? where number = ?", [name, known[name][0]])


def _set_apart(db: Database, hour: int, last_hour: int) -> None:
    """Record the stored hours that are in the future now, whose values may be replaced later.

    Args:
        db: the database, in a transaction.
        hour: the present hour, in hours of Unix time.
        last_hour: the last hour that is not in the future.
    """
    _fold(db, "minute >= ?", (last_hour + 1) * HOUR)
    db.execute("delete from history_apart where hour < ?", [hour])
    future = "select distinct hour from history_blocks where hour > ?"
    db.execute(f"insert or ignore into history_apart (hour) {future}", [last_hour])


def _has_minute(db: Database, minute: int, source: str, origin: str) -> bool:
    """Return whether a source has values in a minute, other than those of an hour that was set apart."""
    row = "select 1 from history_minutes where (minute, source, origin) = (?, ?, ?) limit 1"
    if db.execute(row, [minute, source, origin]).fetchone():
        return True
    blocks = (
        "select body from history_blocks where (hour, source, origin) = (?, ?, ?) "
        "and hour not in (select hour from history_apart)"
    )
    every = np.arange(CHUNK)
    for (body,) in db.execute(blocks, [minute // HOUR, source, origin]).fetchall():
        with contextlib.suppress(*history_blocks.UNREADABLE):
            if (history_blocks.unpack_block(body, every)[:, minute % HOUR] != history_blocks.MISSING).any():
                return True
    return False


def _fold(db: Database, condition: str, limit: int) -> bool:
    """Replace the selected rows of single minutes by blocks; return whether there were such rows.

    Args:
        db: the database, in a transaction.
        condition: SQL condition that selects the rows.
        limit: the condition's parameter, in minutes of Unix time.
    """
    rows = db.execute(
        f"select minute / {HOUR}, {_KEY}, minute, body from history_minutes where {condition} order by 1, {_KEY}",  # noqa: S608
        [limit],
    ).fetchall()
    for key, minutes in groupby(rows, lambda row: row[:6]):
        columns = []
        for *_, minute, body in minutes:
            with contextlib.suppress(*history_blocks.UNREADABLE):
                columns.append((minute % HOUR, history_blocks.unpack_minute(body)))
        for chunk in range(-(-max((len(values) for _, values in columns), default=0) // CHUNK)):
            _write_block(db, (*key, chunk), columns)
    db.execute(f"delete from history_minutes where {condition}", [limit])  # noqa: S608
    return bool(rows)


def _write_block(db: Database, key: tuple[Any, ...], columns: Iterable[tuple[int, Matrix]]) -> None:
    """Write the block of one series, one hour and 128 nodes.

    If the clock was wrong, the block may exist already; the minutes are then merged into it.

    Args:
        db: the database, in a transaction.
        key: hour, source, origin, type, operator and name of the series, chunk.
        columns: minute of the hour (0 to 59) and the values of all nodes in that minute, by node number.
    """
    matrix, chunk = read_block(db, key), key[-1]
    for minute, values in columns:
        history_blocks.overlay_minute(matrix, minute, values, np.arange(chunk * CHUNK, (chunk + 1) * CHUNK))
    write_block(db, key, matrix)


def read_block(db: Database, key: tuple[Any, ...]) -> Matrix:
    """Return a stored block, shape (128, 60); all of its values are missing if it is not stored or unreadable.

    Args:
        db: the database.
        key: hour, source, origin, type, operator and name of the series, chunk.
    """
    where = f"(hour, {_KEY}, chunk) = (?, ?, ?, ?, ?, ?, ?)"
    row = db.execute(f"select body from history_blocks where {where}", key).fetchone()  # noqa: S608
    if row:
        with contextlib.suppress(*history_blocks.UNREADABLE):
            return history_blocks.unpack_block(row[0], np.arange(CHUNK))
    return history_blocks.empty_matrix(CHUNK, HOUR)


def write_block(db: Database, key: tuple[Any, ...], matrix: Matrix) -> None:
    """Write a block, unless all of its values are missing; arguments as in :func:`read_block`."""
    if history_blocks.has_values(matrix).any():
        db.execute(
            f"insert or replace into history_blocks (hour, {_KEY}, chunk, body) values (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*key, history_blocks.pack_block(matrix)),
        )


def _prune(db: Database, hour: int, keep_hours: int, max_bytes: int) -> None:
    """Delete blocks beyond the limits of age and size, and the numbers of nodes without stored values.

    Args:
        db: the database, in a transaction.
        hour: the present hour, in hours of Unix time.
        keep_hours: number of hours, up to the present one, above which the oldest are deleted. None is deleted if the
            previous hour has no values, since the clock may have jumped.
        max_bytes: size of all blocks above which the oldest hours are deleted.
    """
    stored = "select distinct hour from history_blocks where hour <= ? order by hour desc"
    hours = [each for (each,) in db.execute(stored, [hour])]
    if hour - 1 in hours and len(hours) > keep_hours + _SPARE_HOURS:
        db.execute("delete from history_blocks where hour <= ?", [hours[keep_hours + _SPARE_HOURS]])
    allowed = max_bytes
    for each, size in _sizes(db):
        allowed -= size
        if allowed < 0:
            db.execute("delete from history_blocks where hour <= ?", [each])
            break
    first = db.execute("select min(hour) from history_blocks").fetchone()[0]
    db.execute("delete from history_nodes where seen < ?", [hour if first is None else first])


def _sizes(db: Database) -> Iterator[tuple[int, int]]:
    """Yield each hour that has blocks, newest first, and the size of its blocks in bytes."""
    yield from db.execute(
        f"select hour, sum(length(body) + {_ROW_BYTES}) from history_blocks group by 1 order by 1 desc"  # noqa: S608
    )
