"""A store at a path that cannot be written, such as a read-only root or another user's volume."""

from watcher.model import Metric, MetricType, NodeMetrics, Operator, WatcherMetrics, Window
from watcher.store import Store

_METRIC = Metric("instance:node_cpu:ratio", MetricType.CPU, Operator.AVG, "5m", 20.0)
_SNAPSHOT = WatcherMetrics(1000, Window("5m", 700, 1000), "test", {"node-1": NodeMetrics((_METRIC,))})


def test_an_unopened_store_keeps_its_failure(tmp_path):
    """Successful writes to memory do not clear the failure that nothing will survive a restart."""
    (tmp_path / "a file").touch()
    store = Store(tmp_path / "a file" / "watcher.sqlite")
    try:
        assert "nothing will survive a restart" in store.failure
        store.save_snapshots({"5m": _SNAPSHOT})
        assert "nothing will survive a restart" in store.failure
        assert store.load_snapshots(["test"], ["5m"])["5m"].timestamp == 1000
    finally:
        store.close()
