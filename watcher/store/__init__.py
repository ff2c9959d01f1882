"""Store of snapshots, history and samples in one local SQLite file; the only package with SQL."""

import sys
import threading

# sqlite-utils imports pandas and numpy if they are installed, for column types that are not used here, which costs
# memory and delays a restart. None in sys.modules makes the import fail. If there are other threads, numpy is left
# alone, since one of them may be importing it.
_absent = {"pandas", *(["numpy"] if threading.active_count() == 1 else [])} - sys.modules.keys()
sys.modules.update(dict.fromkeys(_absent))  # type: ignore[arg-type]
try:
    import sqlite_utils  # noqa: F401
finally:
    for _name in _absent:
        del sys.modules[_name]

from watcher.store.store import Store  # noqa: E402

__all__ = ["Store"]
