"""Keeps snapshots, history and samples in one local SQLite file; the only place that knows SQL."""

import sys
import threading

# sqlite-utils imports these where they are installed, for types that are not used here: memory, and time of a restart.
# None is how Python is told that there is none. Another thread, where there is one, may be after numpy just now.
_absent = {"pandas", *(["numpy"] if threading.active_count() == 1 else [])} - sys.modules.keys()
sys.modules.update(dict.fromkeys(_absent))  # type: ignore[arg-type]
try:
    import sqlite_utils  # noqa: F401
finally:
    for _name in _absent:
        del sys.modules[_name]

from watcher.store.store import Store  # noqa: E402

__all__ = ["Store"]
