"""Store of snapshots, history and samples in one local SQLite file, which also has the tables of pod use."""

from watcher.store.store import Store

__all__ = ["Store"]
