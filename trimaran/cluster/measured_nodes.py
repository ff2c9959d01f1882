"""Check that a watcher measures the nodes of this cluster: the watcher of another cluster reports other names."""

from collections.abc import Collection

from watcher.model import WatcherMetrics


def why_unmeasured(names: Collection[str], snapshot: WatcherMetrics) -> str:
    """Return a message if the snapshot has none of the named nodes; empty if it has one, or if ``names`` is empty."""
    measured = {name.lower() for name in snapshot.data}
    if not names or any(name.lower() in measured for name in names):
        return ""
    others = f", but {len(measured)} others, such as {min(measured)}; is it for another cluster?" if measured else ""
    return f"the watcher measures none of the {len(names)} nodes of the cluster, such as {next(iter(names))}{others}"
