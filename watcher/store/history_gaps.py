"""Gaps of the history: minutes that no fetch has stored, and their values from a source that knows the past.

Filled values are stored in blocks of an hour, even for the present hour, whose recorded minutes are separate rows.
If a minute has a filled and a recorded value, readers use the recorded one.
"""

import contextlib

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from watcher.history import RESOLUTION_SECONDS
from watcher.store import history_blocks
from watcher.store.history import number_nodes, read_block, write_block
from watcher.store.history_blocks import CHUNK
from watcher.store.schema import HOUR
from watcher.windows.past_metrics import PastMetrics


def recorded_minutes(db: Database, condition: str, parameters: list[str], hour: int) -> NDArray[np.bool_]:
    """Return which minutes of an hour have values, shape (60,).

    Args:
        db: the database.
        condition: SQL condition that selects the rows of the wanted sources.
        parameters: SQL parameters of the condition.
        hour: the hour, in hours of Unix time.
    """
    recorded = np.zeros(HOUR, np.bool_)
    minutes = f"select distinct minute from history_minutes where {condition} and minute between ? and ?"  # noqa: S608
    for (minute,) in db.execute(minutes, [*parameters, hour * HOUR, hour * HOUR + HOUR - 1]):
        recorded[minute % HOUR] = True
    blocks = f"select body from history_blocks where {condition} and hour = ?"  # noqa: S608
    for (body,) in db.execute(blocks, [*parameters, hour]):
        if recorded.all():
            break
        with contextlib.suppress(*history_blocks.UNREADABLE):
            block = history_blocks.unpack_block(body, np.arange(CHUNK))
            recorded |= (block != history_blocks.MISSING).any(axis=0)
    return recorded


def fill(db: Database, past: PastMetrics, source: str, origin: str) -> None:
    """Add metrics of the past to the history; stored values are not changed.

    Args:
        db: the database, in a transaction.
        past: the metrics, with all ends in one hour.
        source: name of the source.
        origin: text that identifies the system that the source reads.
    """
    minutes = past.ends // RESOLUTION_SECONDS
    hour, columns = int(minutes[0]) // HOUR, minutes % HOUR
    numbers = number_nodes(db, past.nodes, hour)
    at = np.array([numbers.get(node, -1) for node in past.nodes], np.int64)
    for series, percents in past.series.items():
        values = history_blocks.pack_percents(percents)
        for chunk in np.unique(at[at >= 0] // CHUNK):
            rows = np.flatnonzero((at >= 0) & (at // CHUNK == chunk))
            key = (hour, source, origin, *series, int(chunk))
            stored = read_block(db, key)
            matrix = history_blocks.empty_matrix(CHUNK, HOUR)
            matrix[np.ix_(at[rows] - chunk * CHUNK, columns)] = values[rows]
            np.copyto(matrix, stored, where=stored != history_blocks.MISSING)
            write_block(db, key, matrix)
