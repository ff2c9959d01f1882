"""Deletion of rows with timestamps in the future.

A watcher does this when it starts, so this module does not import numpy, which would delay the start.
"""

import math

from sqlite_utils import Database

from watcher.history import RESOLUTION_SECONDS
from watcher.store.schema import HOUR


def delete_future_rows(db: Database, since: float) -> None:
    """Delete snapshots, and minutes and hours of the history, that begin at ``since`` (Unix seconds) or later."""
    db.table("snapshots").delete_where("timestamp >= ?", [since])
    minute = math.ceil(since / RESOLUTION_SECONDS)
    db.execute("delete from history_minutes where minute >= ?", [minute])
    db.execute("delete from history_blocks where hour >= ?", [math.ceil(minute / HOUR)])
