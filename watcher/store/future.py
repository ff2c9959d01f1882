"""What a clock that was ahead leaves behind. A watcher deletes it as it begins, so this does without numpy."""

import math

from sqlite_utils import Database

_MINUTE, _HOUR = 60, 3600  # seconds, as the history counts


def forget(db: Database, since: float) -> None:
    """Delete the snapshots of ``since``, unix seconds, and later, and the minutes and hours that begin then."""
    db.table("snapshots").delete_where("timestamp >= ?", [since])
    db.execute("delete from history_minutes where minute >= ?", [math.ceil(since / _MINUTE)])
    db.execute("delete from history_blocks where hour >= ?", [math.ceil(since / _HOUR)])
