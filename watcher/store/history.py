"""History in the store: the load of every node, minute by minute.

Each minute of the present hour is one row per series, with the values of all nodes. When the first minute of the next
hour is added, these rows are replaced by compressed blocks. A block has one series of 128 nodes over one hour, so that
one node, or one series, can be read without the others. All writes happen in the transaction that stores the snapshots
of a fetch, so a crash leaves only whole minutes and whole hours.

Each node has a number, the index of its values in the stored arrays. When all values of a node have been deleted, a new
node can get its number.
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
_PRUNED_AT_ONCE = 2  # hours deleted when one is added; not all, since after a jump of the clock all of them look old
_KEY = "source, origin, type, operator, name"
_Series = tuple[str, str, str]  # type, operator, name


class HistoryRows(NamedTuple):
    """Rows of the history as read from the file; :func:`unpack` decodes their bodies.

    Attributes:
        names: node number to node name.
        blocks: rows ``type, operator, name, chunk, hour, body``, sorted; a chunk is a group of 128 node numbers.
        minutes: rows ``type, operator, name, minute, body``.
        offset: number of the first node in the bodies of ``minutes``.
    """

    names: Mapping[int, str]
    blocks: list[Any]
    minutes: list[Any]
    offset: int = 0


def add(db: Database, metrics: WatcherMetrics, origin: str, *, keep_seconds: float, max_bytes: int) -> None:
    """Add a snapshot to the history, unless the history already has its minute.

    The first snapshot of an hour also deletes hours that are too old, at most two at a time, and hours beyond the size.

    Args:
        db: the database, in a transaction.
        metrics: the snapshot.
        origin: text that identifies the system that the snapshot's source reads.
        keep_seconds: age in seconds above which hours are deleted.
        max_bytes: size of the history above which the oldest hours are deleted.
    """
    minute = metrics.timestamp // RESOLUTION_SECONDS
    hour = minute // HOUR
    # Rows of the future remain after the clock was set back.
    db.execute("delete from history_minutes where minute > ?", [minute])
    db.execute("delete from history_blocks where hour > ?", [hour])
    where = (minute, metrics.source, origin)
    if db.execute("select 1 from history_minutes where (minute, source, origin) = (?, ?, ?) limit 1", where).fetchone():
        return
    if _fold(db, hour):
        _prune(db, hour, int((metrics.timestamp - keep_seconds) // 3600), max_bytes)
    nodes = NodeColumns.of(metrics.data)
    rows = [
        (*where, *series, body)
        for series, body in history_blocks.pack_minutes(nodes, _number_nodes(db, nodes, hour)).items()
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
    """
    named = ("", []) if node is None else (" where name = ?", [node])
    names = dict(db.execute(f"select number, name from history_nodes{named[0]}", named[1]).fetchall())  # noqa: S608
    if not names:
        return HistoryRows({}, [], [])
    wanted = {"type": type_, "operator": operator}
    where = " and ".join([condition, *(f"{column} = ?" for column, value in wanted.items() if value is not None)])
    values = [*parameters, *(value for value in wanted.values() if value is not None)]
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


def _minutes(steps: Steps) -> tuple[int, int]:
    """Return the first and the last minute of the steps, in minutes of Unix time."""
    first = steps.start // RESOLUTION_SECONDS
    return first, first + steps.count * steps.seconds // RESOLUTION_SECONDS - 1


def _number_nodes(db: Database, nodes: Iterable[str], hour: int) -> dict[str, int]:
    """Return node name to node number; give new nodes the smallest free numbers, and record the hour for all nodes.

    At most 100,000 nodes have a number at the same time; further nodes are left out.

    Args:
        db: the database, in a transaction.
        nodes: names of the nodes.
        hour: hour in which the nodes have values, in hours of Unix time.
    """
    known = {name: (number, seen) for number, name, seen in db.execute("select number, name, seen from history_nodes")}
    new = sorted(name for name in nodes if name not in known)
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
    seen_again = [(hour, number) for name, number in numbers.items() if name in known and known[name][1] != hour]
    db.conn.executemany("update history_nodes set seen = ? where number = ?", seen_again)
    return numbers


def _fold(db: Database, hour: int) -> bool:
    """Replace the rows of single minutes before this hour by blocks; return whether there were such rows.

    Args:
        db: the database, in a transaction.
        hour: the present hour, in hours of Unix time.
    """
    rows = db.execute(
        f"select minute / {HOUR}, {_KEY}, minute, body from history_minutes where minute < ? order by 1, {_KEY}",  # noqa: S608
        [hour * HOUR],
    ).fetchall()
    for key, minutes in groupby(rows, lambda row: row[:6]):
        columns = []
        for *_, minute, body in minutes:
            with contextlib.suppress(*history_blocks.UNREADABLE):
                columns.append((minute % HOUR, history_blocks.unpack_minute(body)))
        for chunk in range(-(-max((len(values) for _, values in columns), default=0) // CHUNK)):
            _write_block(db, (*key, chunk), columns)
    db.execute("delete from history_minutes where minute < ?", [hour * HOUR])
    return bool(rows)


def _write_block(db: Database, key: tuple[Any, ...], columns: Iterable[tuple[int, Matrix]]) -> None:
    """Write the block of one series, one hour and 128 nodes.

    If the clock was set back, the block may exist already; the minutes are then merged into it.

    Args:
        db: the database, in a transaction.
        key: hour, source, origin, type, operator and name of the series, chunk.
        columns: minute of the hour (0 to 59) and the values of all nodes in that minute, by node number.
    """
    matrix, chunk = history_blocks.empty_matrix(CHUNK, HOUR), key[-1]
    where = f"(hour, {_KEY}, chunk) = (?, ?, ?, ?, ?, ?, ?)"
    before = db.execute(f"select body from history_blocks where {where}", key).fetchone()  # noqa: S608
    if before:
        with contextlib.suppress(*history_blocks.UNREADABLE):
            matrix = history_blocks.unpack_block(before[0], np.arange(CHUNK))
    for minute, values in columns:
        history_blocks.overlay_minute(matrix, minute, values, np.arange(chunk * CHUNK, (chunk + 1) * CHUNK))
    if history_blocks.has_values(matrix).any():
        db.execute(
            f"insert or replace into history_blocks (hour, {_KEY}, chunk, body) values (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*key, history_blocks.pack_block(matrix)),
        )


def _prune(db: Database, hour: int, oldest: int, max_bytes: int) -> None:
    """Delete blocks beyond the limits of age and size, and the numbers of nodes without stored values.

    Args:
        db: the database, in a transaction.
        hour: the present hour, in hours of Unix time.
        oldest: earlier hours than this one are too old; at most two of them are deleted.
        max_bytes: size of all blocks above which the oldest hours are deleted.
    """
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
    """Yield each hour that has blocks, newest first, and the size of its blocks in bytes."""
    yield from db.execute(
        f"select hour, sum(length(body) + {_ROW_BYTES}) from history_blocks group by 1 order by 1 desc"  # noqa: S608
    )
