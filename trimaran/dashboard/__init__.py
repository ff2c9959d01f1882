"""Read-only web dashboard: node load, data quality, pod scoring and the extender's decisions. A client of a watcher."""
