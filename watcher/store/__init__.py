"""Keeps snapshots, history and samples in one local SQLite file; the only place that knows SQL."""

import sys

# sqlite-utils imports pandas where that is installed, for types that are not used here: memory, and time of a restart.
# None is how Python is told that there is none.
_absent = "pandas" not in sys.modules
if _absent:
    sys.modules["pandas"] = None  # type: ignore[assignment]
try:
    import sqlite_utils  # noqa: F401
finally:
    if _absent:
        del sys.modules["pandas"]

from watcher.store.store import Store  # noqa: E402

__all__ = ["Store"]
