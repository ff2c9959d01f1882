"""Read-only web dashboard of a watcher: node load, data quality, scores for a pod, and the extender's decisions."""
