"""A store whose place cannot be written: a read-only root, a volume of another user."""

from watcher.model import Metric, MetricType, NodeMetrics, Operator, WatcherMetrics, Window
from watcher.store import Store

_METRIC = Metric("instance:node_cpu:ratio", MetricType.CPU, Operator.AVG, "5m", 20.0)
_SNAPSHOT = WatcherMetrics(1000, Window("5m", 700, 1000), "test", {"node-1": NodeMetrics((_METRIC,))})


def test_a_store_that_could_not_be_opened_says_so_for_ever(tmp_path):
    """Memory takes the writes, and their success does not hide that nothing will survive a restart."""
    (tmp_path / "a file").touch()
    store = Store(tmp_path / "a file" / "watcher.sqlite")
    try:
        assert "nothing will survive a restart" in store.failure
        store.save_snapshots({"5m": _SNAPSHOT})
        assert "nothing will survive a restart" in store.failure
        assert store.load_snapshots(["test"], ["5m"])["5m"].timestamp == 1000
    finally:
        store.close()
