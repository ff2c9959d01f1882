"""Fetches for tests of the history: nodes with a CPU load, kept in a store."""

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.store import Store


def snapshot(timestamp: int, loads: dict[str, float], source: str = "x", operator: str = "AVG") -> WatcherMetrics:
    """Return a snapshot of nodes with one CPU value, and the memory that this leaves."""
    window = Window("15m", timestamp - 900, timestamp)
    data = {
        name: NodeMetrics(
            (Metric("cpu", "CPU", operator, "15m", load), Metric("memory", "Memory", "AVG", "15m", 100 - load))
        )
        for name, load in loads.items()
    }
    return WatcherMetrics(timestamp, window, source, data)


def keep(store: Store, timestamp: int, loads: dict[str, float], source: str = "x", operator: str = "AVG") -> None:
    """Write a fetch."""
    store.save_snapshots({"15m": snapshot(timestamp, loads, source, operator)}, history_window="15m")
