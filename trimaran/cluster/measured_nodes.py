"""Check that a watcher measures the nodes of the cluster: one for another cluster has other names."""

from collections.abc import Collection

from watcher.model import WatcherMetrics


def why_unmeasured(names: Collection[str], snapshot: WatcherMetrics) -> str:
    """Return the reason why none of these nodes has a load in the snapshot; empty if one has, or without nodes."""
    measured = {name.lower() for name in snapshot.data}
    if not names or any(name.lower() in measured for name in names):
        return ""
    others = f", but {len(measured)} others, such as {min(measured)}; is it for another cluster?" if measured else ""
    return f"the watcher measures none of the {len(names)} nodes of the cluster, such as {next(iter(names))}{others}"
