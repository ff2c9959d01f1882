"""Tables of pod use in the watcher's store."""

from watcher.usage.store.tables import UsageTables

__all__ = ["UsageTables"]
