"""Store of snapshots, history and samples in one local SQLite file; the only package with SQL."""

from watcher.store.store import Store

__all__ = ["Store"]
