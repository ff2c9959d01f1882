"""Assessment of a cluster from its recorded past: what load-aware placement would do, before it is installed."""
