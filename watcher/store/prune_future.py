"""What a clock that was ahead leaves behind. A watcher deletes it as it begins, so this does without numpy."""

import math

from sqlite_utils import Database

from watcher.history import RESOLUTION_SECONDS
from watcher.store.schema import HOUR


def forget(db: Database, since: float) -> None:
    """Delete the snapshots of ``since``, unix seconds, and later, and the minutes and hours that begin then."""
    db.table("snapshots").delete_where("timestamp >= ?", [since])
    minute = math.ceil(since / RESOLUTION_SECONDS)
    db.execute("delete from history_minutes where minute >= ?", [minute])
    db.execute("delete from history_blocks where hour >= ?", [math.ceil(minute / HOUR)])
