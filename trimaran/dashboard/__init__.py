"""The page: what nodes use, how far to trust it, where a pod would go. Read-only; it asks a watcher like any client."""
