"""Keeps snapshots and samples in one local SQLite file; the only place that knows SQL."""

from watcher.store.store import Store

__all__ = ["Store"]
