"""Deletion of rows with timestamps in the future. A watcher does this at its start, so the module avoids numpy."""

import math

from sqlite_utils import Database

from watcher.history import RESOLUTION_SECONDS
from watcher.store.schema import HOUR


def delete_future_rows(db: Database, since: float) -> None:
    """Delete snapshots from ``since`` on, Unix seconds, and the history's minutes and hours that begin after it."""
    db.table("snapshots").delete_where("timestamp >= ?", [since])
    minute = math.ceil(since / RESOLUTION_SECONDS)
    db.execute("delete from history_minutes where minute >= ?", [minute])
    db.execute("delete from history_blocks where hour >= ?", [math.ceil(minute / HOUR)])
