"""Fetches for tests of the history: nodes with a CPU load, saved in a store."""

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.store import Store


def snapshot(timestamp: int, loads: dict[str, float], source: str = "x", operator: str = "AVG") -> WatcherMetrics:
    """Return a snapshot with one CPU value per node, and 100 minus that value as memory."""
    window = Window("15m", timestamp - 900, timestamp)
    data = {
        name: NodeMetrics(
            (Metric("cpu", "CPU", operator, "15m", load), Metric("memory", "Memory", "AVG", "15m", 100 - load))
        )
        for name, load in loads.items()
    }
    return WatcherMetrics(timestamp, window, source, data)


def save_fetch(store: Store, timestamp: int, loads: dict[str, float], source: str = "x", operator: str = "AVG") -> None:
    """Save a fetch in the store."""
    store.save_snapshots({"15m": snapshot(timestamp, loads, source, operator)}, history_window="15m")
